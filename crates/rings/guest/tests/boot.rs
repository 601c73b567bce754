//! Both kernels, booted in QEMU's `microvm` machine with an emulated processor.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests fail by panicking and tell what they left out"
)]

use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringwall_guest::{Flavour, GuestFile, Kernel, Kernels, host_tsc_khz, initramfs_in};

const QEMU: &str = "qemu-system-x86_64";
/// Emulated, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a guest said, by name, and how long it took to say READY.
struct Boot {
    facts: Vec<(String, String)>,
    ready: Duration,
}

impl Boot {
    fn fact(&self, name: &str) -> &str {
        let found = self.facts.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("the guest said nothing of {name}"), |(_, value)| value)
    }

    fn has(&self, name: &str, words: &[&str]) {
        let said = self.fact(name);
        for word in words {
            let found = said.split([' ', ',']).any(|said| said == *word);
            assert!(found, "{name} lacks {word}: {said}");
        }
    }
}

#[test]
fn debian_s_kernel_boots_and_takes_all_its_modules() {
    let Some((kernel, boot)) = boot(Flavour::Debian, 1) else {
        return;
    };
    assert_eq!(boot.fact("release"), kernel.release);
    assert_eq!((boot.fact("failed"), boot.fact("failed more")), ("", ""));
    has_what_walls_are_made_of(&boot);
}

#[test]
fn the_minimal_kernel_boots_and_has_everything_built_in() {
    let Some((kernel, boot)) = boot(Flavour::Minimal, 1) else {
        return;
    };
    assert_eq!(boot.fact("release"), kernel.release);
    has_what_walls_are_made_of(&boot);
}

#[test]
fn every_processor_of_a_guest_has_a_timer() {
    for flavour in [Flavour::Debian, Flavour::Minimal] {
        let Some((_, boot)) = boot(flavour, 2) else {
            continue;
        };
        assert_eq!(boot.fact("slept on"), "0 1");
        // Early, before the kernel has settled on it; others would be slower and less exact.
        let clock = boot.fact("clock");
        assert!(["tsc", "tsc-early"].contains(&clock), "{clock}");
    }
}

fn has_what_walls_are_made_of(boot: &Boot) {
    boot.has("filesystems", &["erofs", "squashfs", "overlay", "tmpfs", "ext4", "fuse", "mqueue"]);
    boot.has("namespaces", &["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"]);
    boot.has("controllers", &["cpuset", "cpu", "io", "memory", "pids"]);
    boot.has("lsm", &["landlock", "yama"]);
    boot.has("seccomp", &["kill_process", "user_notif", "errno"]);
    boot.has("devices", &["kmsg", "ptmx", "vsock", "loop-control"]);
    boot.has("targets", &["MASQUERADE", "REDIRECT", "REJECT"]);
}

/// None, with a word about it, where something is missing.
fn boot(flavour: Flavour, processors: u8) -> Option<(Kernel, Boot)> {
    if Command::new(QEMU).arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("not tested here: {QEMU} is not installed");
        return None;
    }
    let kernels = Kernels::from_environment().unwrap();
    let found = kernels.list().unwrap().into_iter().find(|kernel| kernel.flavour == flavour);
    let Some(kernel) = found else {
        eprintln!("not tested here: no {flavour:?} kernel in {}", kernels.directory().display());
        return None;
    };
    let Some(busybox) = static_busybox() else {
        eprintln!("not tested here: no static busybox");
        return None;
    };
    let cache = tempfile::tempdir().unwrap();
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boot-init.sh");
    let files: [GuestFile<'_>; 2] = [("/init", &init, 0o755), ("/bin/busybox", &busybox, 0o755)];
    let initramfs = initramfs_in(cache.path(), &kernel, &files).unwrap();
    let boot = run(&kernel, &initramfs, processors);
    eprintln!("{} with {processors} processors was ready after {:?}", kernel.release, boot.ready);
    Some((kernel, boot))
}

/// One program that has all commands and needs no library.
fn static_busybox() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join("busybox"));
    let found = found.into_iter().find(|file| file.is_file())?;
    let linked = Command::new("ldd").arg(&found).output().is_ok_and(|told| told.status.success());
    (!linked).then_some(found)
}

/// Ends the machine whatever happens to the test.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(kernel: &Kernel, initramfs: &Path, processors: u8) -> Boot {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = OwnedFd::from(theirs);
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
    let acpi = if kernel.needs_acpi() { "on" } else { "off" };
    let begun = Instant::now();
    let machine = Command::new(QEMU)
        .args(["-M", &format!("microvm,acpi={acpi},isa-serial=off")])
        .args(["-accel", "tcg", "-cpu", "max", "-smp", &processors.to_string(), "-m", "256"])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
        .args(["-serial", "none", "-device", "virtio-serial-device,id=vs"])
        .args(["-chardev", &format!("socket,id=ctl,fd={}", theirs.as_raw_fd())])
        .args(["-device", "virtserialport,chardev=ctl,name=ctl,bus=vs.0"])
        .args(["-append", &kernel.command_line(host_tsc_khz()), "-kernel"])
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(initramfs)
        .stdin(Stdio::null())
        .spawn();
    let _machine = Machine(machine.unwrap());
    drop(theirs);
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(ours).lines().map(|line| line.expect("the guest answers"));
    assert_eq!(lines.next().as_deref(), Some("READY"));
    let ready = begun.elapsed();
    let said: Vec<String> = lines.take_while(|line| line != "END").collect();
    let fact = |line: &String| {
        let (name, value) = line.split_once(": ").or(line.split_once(':'))?;
        Some((name.to_owned(), value.to_owned()))
    };
    Boot { facts: said.iter().filter_map(fact).collect(), ready }
}
