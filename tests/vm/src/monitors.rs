//! Which monitor runs a guest, and the way to a guest of those that have vsock.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_guest::{Kernel, Kernels, host_tsc_khz, initramfs_in};
use ringwall_ring_vm::{
    Acceleration, Api, Control, DRIVERS, Driver, HostKernel, Machine, Memory, Standing, WANTED,
    Wish, survey,
};
use ringwall_testkit::ground::IMAGE;
use ringwall_wire::{Adoption, Client, Taking, guest_paths};

use crate::site::Site;
use crate::support::eventually;

const QEMU: &str = "qemu-system-x86_64";
/// Shows a guest's vsock as Firecracker and Cloud Hypervisor do, for QEMU.
const VSOCK_DEVICE: &str = "vhost-device-vsock";
const PATIENCE: Duration = Duration::from_secs(120);

/// Ends with the test, whatever happens.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(quiet.spawn().expect("it can be started"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_driver_that_is_asked_for_is_used_or_refused_with_the_reason() {
    let site = Site::new();
    let run = |driver: &str| {
        let mut command = site.command(["run", "--wall", "vm", "--image", IMAGE]);
        command.args(["--", "true"]).env(WANTED, driver).output().expect("it runs")
    };
    assert!(run("qemu").status.success());
    let refused = |driver: &str| {
        let output = run(driver);
        assert_eq!(output.status.code(), Some(125), "{driver}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = refused("xen");
    assert!(unknown.contains("expected one of qemu, firecracker, cloud-hypervisor"), "{unknown}");
    // The process that keeps a long-lived sandbox is started with other variables.
    let mut create = site.command(["create", "--wall", "vm", "--image", IMAGE]);
    let created = create.env(WANTED, "xen").output().expect("it runs");
    assert_eq!(created.status.code(), Some(125));
    let words = String::from_utf8_lossy(&created.stderr).into_owned();
    assert!(words.contains("invalid RINGWALL_VM_DRIVER \"xen\""), "{words}");
    for found in survey(&ringwall_ring_vm::kvm_is_usable()) {
        // Nobody ran doctor in this home, so nothing is known of KVM.
        let expected = match (found.name, found.standing) {
            ("qemu", _) => continue,
            (_, Standing::Missing) => "is not on PATH",
            (_, Standing::Vulnerable { .. }) => "has a known vulnerability",
            (_, Standing::Unknown) => "does not say its version",
            (_, Standing::Usable | Standing::NoKvm { .. }) => "`ringwall doctor`",
        };
        let said = refused(found.name);
        assert!(said.contains(expected), "{said}");
    }
    site.is_clean();
}

#[test]
fn a_verdict_on_kvm_that_no_longer_holds_is_not_followed() {
    let site = Site::new();
    let home = site.ground.world.home();
    let record = r#"{"boot_id":"another","program":"/usr/bin/qemu-system-x86_64","version":"1.0.0","verdict":{"kvm":"usable"}}"#;
    fs::write(home.join("kvm.json"), record).expect("the home can be written");
    let output = site.run(&[], "tr -d '\\n' < /proc/cmdline");
    // What only an emulated guest is told.
    assert!(output.exits(0).out().contains("noreplace-smp"));
}

#[test]
fn doctor_keeps_its_verdict_and_says_what_would_be_used() {
    let site = Site::new();
    let report = site.ringwall(&["doctor", "-o", "json"]).exits(0).json();
    assert_eq!(report["vm"]["driver"]["monitor"], "qemu");
    assert_eq!(report["vm"]["driver_problem"], serde_json::Value::Null);
    let kept = fs::read(site.ground.world.home().join("kvm.json")).expect("it was kept");
    let kept: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(kept["verdict"], report["vm"]["kvm"]);
    let names: Vec<_> = DRIVERS.iter().map(|driver| driver.program()).collect();
    let listed = report["vm"]["monitors"].as_array().expect("a list");
    let listed: Vec<_> = listed.iter().filter_map(|one| one["program"].as_str()).collect();
    assert_eq!(listed, names);
}

/// With the real programs, which need a KVM that runs guests.
#[test]
fn every_monitor_that_can_be_used_here_runs_a_guest() {
    let site = Site::new();
    site.ringwall(&["doctor"]).exits(0);
    let kvm = ringwall_ring_vm::kvm_is_usable();
    for found in survey(&kvm) {
        if found.standing != Standing::Usable {
            eprintln!("not tested here: {}: {:?}", found.name, found.standing);
            continue;
        }
        let mut command = site.command(["run", "--wall", "vm", "--image", IMAGE]);
        command.args(["--", "cat", "/proc/sys/kernel/random/boot_id"]).env(WANTED, found.name);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {problem}", found.name);
        let host = HostKernel::read().expect("a boot id");
        assert!(said.len() == host.boot_id.len() && said != host.boot_id, "{}", found.name);
        eprintln!("{} ran a guest, by {:?}", found.name, kvm.acceleration());
        if found.name == "qemu" && kvm.acceleration() == Acceleration::Emulation {
            eprintln!("not tested here: qemu with KVM, which is not usable");
        }
    }
}

/// With the real programs, outside of a jail. A KVM that cannot run a guest's programs is enough: all
/// that a monitor does itself can be asked of it.
#[test]
fn every_monitor_that_takes_requests_takes_ours() {
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        eprintln!("not tested here: /dev/kvm cannot be opened");
        return;
    }
    for driver in DRIVERS.iter().filter(|driver| driver.control() == Control::Requests) {
        if !is_on_path(driver.program()) {
            eprintln!("not tested here: {} is not on PATH", driver.program());
            continue;
        }
        let site = Site::new();
        site.run(&[], "true").exits(0);
        let workshop = Workshop::new(&site);
        let directory = "/vm/run/kept";
        let mut first = workshop.start(*driver);
        first.ask(Wish::Start(&workshop.machine));
        first.ask(Wish::Pause);
        first.ask(Wish::Save { directory });
        first.ask(Wish::Resume);
        drop(first);
        workshop.start(*driver).ask(Wish::Load { directory });
        eprintln!("{} took every request", driver.name());
    }
}

/// What a jail would show at `/vm`, in a directory of the host.
struct Workshop {
    place: tempfile::TempDir,
    machine: Machine,
}

/// A monitor in such a place.
struct Unjailed {
    driver: &'static dyn Driver,
    api: Api,
    place: PathBuf,
    _running: Running,
}

impl Workshop {
    fn new(site: &Site) -> Workshop {
        let place = tempfile::tempdir().expect("a directory");
        let kernel = Kernels::open(site.kernels()).best().expect("a kernel");
        let warden = site.ground.programs().join("ringwall-warden");
        let files = [("/init", warden.as_path(), 0o755)];
        let initramfs = initramfs_in(&place.path().join("made"), &kernel, &files);
        let initramfs = initramfs.expect("an initramfs");
        let root_image = root_image(&site.ground.world.home());
        fs::create_dir_all(place.path().join("run/kept")).expect("a directory");
        for (name, file) in
            [("kernel", &kernel.image), ("initramfs", &initramfs), ("root", &root_image)]
        {
            std::os::unix::fs::symlink(file, place.path().join(name)).expect("a link");
        }
        let machine = Machine {
            command_line: format!("{} {}", kernel.command_line_kvm(), guest_paths::BY_VSOCK),
            kernel: kernel.image,
            initramfs,
            root_image,
            memory_bytes: 256 << 20,
            cpus: 1,
            acceleration: Acceleration::Kvm,
            acpi: true,
            memory: Memory::Fresh,
        };
        Workshop { place, machine }
    }

    fn start(&self, driver: &'static dyn Driver) -> Unjailed {
        let place = self.place.path().to_owned();
        for socket in ["run/api", "run/vsock"] {
            let _ = fs::remove_file(place.join(socket));
        }
        let arguments = driver.arguments(&self.machine);
        let arguments = arguments.iter().map(|argument| moved(argument, &place));
        let running = Running::start(Command::new(driver.program()).args(arguments));
        let run = fs::File::open(place.join("run")).expect("a directory");
        // Held by us in the monitor's place: nobody here waits for its end.
        let (lifeline, _theirs) = UnixStream::pair().expect("two sockets");
        let api = Api::open(run.as_fd(), running.0.id(), &lifeline, PATIENCE);
        let api = api.unwrap_or_else(|error| panic!("{}: {error}", driver.name()));
        Unjailed { driver, api, place, _running: running }
    }
}

impl Unjailed {
    fn ask(&mut self, wish: Wish<'_>) {
        let mut requests = self.driver.requests(wish);
        for body in requests.iter_mut().filter_map(|request| request.body.as_mut()) {
            *body = serde_json::from_str(&moved(&body.to_string(), &self.place)).expect("JSON");
        }
        let answer = self.api.ask(&requests, PATIENCE);
        answer.unwrap_or_else(|error| panic!("{} {wish:?}: {error}", self.driver.name()));
    }
}

/// With the paths of a jail as they are in a directory of the host.
fn moved(text: &str, place: &Path) -> String {
    text.replace("/vm/", &format!("{}/", place.display()))
}

/// The guest's side of vsock, with real guests: their device is QEMU's, and behind it is a program
/// that hands connections on as Firecracker and Cloud Hypervisor do.
#[test]
fn a_guest_that_is_reached_by_vsock_is_adopted_and_serves() {
    if !is_on_path(VSOCK_DEVICE) {
        eprintln!("not tested here: {VSOCK_DEVICE} is not on PATH (cargo install {VSOCK_DEVICE})");
        return;
    }
    let site = Site::new();
    // Makes the image's file system.
    site.run(&[], "true").exits(0);
    let root = root_image(&site.ground.world.home());
    for kernel in Kernels::open(site.kernels()).list().expect("kernels") {
        let release = kernel.release.clone();
        let facts = boot_by_vsock(&site, &kernel, &root);
        assert_eq!((facts.pid, facts.kernel_release), (1, release.clone()));
        let host = HostKernel::read().expect("a boot id");
        assert!(!facts.boot_id.is_empty() && facts.boot_id != host.boot_id);
        eprintln!("{release} was reached by vsock");
    }
}

fn boot_by_vsock(site: &Site, kernel: &Kernel, root: &Path) -> ringwall_spec::RingFacts {
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name);
    let programs = site.ground.programs();
    let (init, launcher) = (programs.join("ringwall-warden"), programs.join("ringwall-launcher"));
    let files = [("/init", init.as_path(), 0o755), ("/launcher", launcher.as_path(), 0o755)];
    let initramfs = initramfs_in(&at("initramfs"), kernel, &files).expect("an initramfs");
    let (vsock, device) = (at("vsock"), at("device"));
    let door = at(&format!("vsock_{}", guest_paths::VSOCK_PORT));
    let door = UnixListener::bind(door).expect("a socket");
    let machine = format!("guest-cid=3,uds-path={},socket={}", vsock.display(), device.display());
    let _device = Running::start(Command::new(VSOCK_DEVICE).args(["--vm", &machine]));
    eventually("the socket of the device", || device.exists().then_some(()));
    let acpi = if kernel.needs_acpi() { "on" } else { "off" };
    let line = format!("{} {}", kernel.command_line(host_tsc_khz()), guest_paths::BY_VSOCK);
    let disk = format!("id=r,file={},format=raw,if=none,readonly=on", root.display());
    let _monitor = Running::start(
        Command::new(QEMU)
            .args(["-M", &format!("microvm,acpi={acpi},isa-serial=off,memory-backend=ram")])
            .args(["-object", "memory-backend-memfd,id=ram,size=256M,share=on"])
            .args(["-accel", "tcg", "-cpu", "max", "-m", "256", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-no-reboot", "-serial", "none"])
            .args(["-chardev", &format!("socket,id=vs,path={}", device.display())])
            .args(["-device", "vhost-user-vsock-device,chardev=vs"])
            .args(["-drive", &disk, "-device", "virtio-blk-device,drive=r"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args(["-append", &line]),
    );
    door.set_nonblocking(true).expect("a socket");
    let mut stream = Patient(eventually("a guest at the door", || door.accept().ok()).0);
    ringwall_wire::wait_ready(&mut stream).expect("it is ready");
    ringwall_wire::adopt(&mut stream, &adoption()).expect("it takes the adoption");
    stream.0.set_read_timeout(None).expect("a socket");
    let client = Client::connect(stream.0).expect("a connection");
    let facts = client.facts(PATIENCE).expect("it answers");
    assert!(!client.list(b"/bin").expect("the image is its root").is_empty());
    facts
}

fn adoption() -> Adoption {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Adoption {
        taking: Taking::First,
        nonce: [7; 32],
        seed: ([1; 32], [2; 32]),
        unix_nanos: u64::try_from(now.as_nanos()).expect("before 2554"),
        hostname: "by-vsock".to_owned(),
        machine_id: [3; 16],
        disk_bytes: 64 << 20,
        disk_inodes: 1000,
        pids: 64,
    }
}

/// Waits for a slow guest, but not for ever.
struct Patient(UnixStream);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.set_nonblocking(false)?;
        self.0.set_read_timeout(Some(PATIENCE))?;
        self.0.read(buffer)
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn root_image(home: &Path) -> PathBuf {
    let mut directories = vec![home.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "erofs") {
                return path;
            }
            if path.is_dir() {
                directories.push(path);
            }
        }
    }
    panic!("the image has no file system for guests");
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
