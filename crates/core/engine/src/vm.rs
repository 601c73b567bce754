//! The vm ring: what it is placed with, how its guest is taken over, and the rings inside it.

mod door;
mod snapshot;
mod template;

pub(crate) use door::Door;
pub(crate) use snapshot::{Restored, number_of, sweep as sweep_snapshots};
pub use snapshot::{Snapshot, SnapshotError};
pub(crate) use template::{GuestInput, Start, sweep as sweep_templates};

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringwall_guest::{Flavour, GuestFile, InitramfsError, Kernel, KernelError, Kernels};
use ringwall_image::{Image, NoProgress, RootImageError};
use ringwall_linux::launch::encode_steps;
use ringwall_ring::{HostNamespaces, Identity, Ring, RingInput, RingPlan, WorkspaceInput, check};
use ringwall_ring_container::ContainerRing;
use ringwall_ring_process::ProcessRing;
use ringwall_ring_vm::{
    Acceleration, Choice, Control, Driver, DriverError, HostKernel, KvmRecord, Machine, Memory,
    MonitorError, VmRing, check_guest, check_monitor,
};
use ringwall_ring_wasm::WasmRing;
use ringwall_spec::{
    CheckedFact, Limits, RingKind, SandboxId, SandboxSpec, ValidSpec, WorkspaceMode,
};
use ringwall_wire::{
    AdoptError, Adoption, Client, ClientError, FileKind, NONCE_BYTES, RaisePlanned, Taking, Tunnel,
    guest_paths,
};

use crate::config::Engine;
use crate::network::Network;
use crate::raise::RaiseError;
use crate::remember::Remembered;
use crate::sandbox::Sandbox;
use crate::tools::How;
use crate::{host, workspace_copy};

/// A guest that is not up by then never will be. Emulated on a busy host it takes a while.
const BOOT_PATIENCE: Duration = Duration::from_secs(120);
/// The least memory with which a guest starts.
const LEAST_MEMORY: u64 = 96 << 20;
/// Tells the guest that its image is the root of a ring inside.
const FOR_A_RING: &str = "ringwall.root=ring";

#[derive(Debug, thiserror::Error)]
pub enum VmError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Initramfs(#[from] InitramfsError),
    #[error(transparent)]
    RootImage(#[from] RootImageError),
    #[error("a vm ring needs an image")]
    NoImage,
    #[error("a microVM needs at least {least} MiB of memory; allow more with --memory", least = LEAST_MEMORY >> 20)]
    TooLittleMemory,
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    #[error("the workspace could not be copied into the guest")]
    Workspace(#[source] ClientError),
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("a template of the guest could not be kept")]
    Template(#[source] io::Error),
    #[error(
        "the snapshot is of another machine than this host would start now (another QEMU, image or limits); make it anew"
    )]
    OtherMachine,
    #[error("the machine has no control socket")]
    NoControl,
    #[error("the boot id of this host could not be read")]
    Host(#[source] io::Error),
}

/// What a vm ring was placed with, beyond its plan.
#[derive(Debug, Clone)]
pub(crate) struct VmPlacement {
    pub(crate) kernel_release: String,
    image_user: (u32, u32),
    /// What of the workspace is not copied.
    hidden: Vec<PathBuf>,
    /// The template that the guest goes on from.
    start: Option<Arc<Start>>,
    /// Memory that we see too, while a template or a snapshot is made.
    shared: Option<Arc<OwnedFd>>,
    /// The machine that its monitor is to be told of, where that takes requests.
    asked_for: Option<(&'static dyn Driver, Machine)>,
    /// The guest goes on from a snapshot, not from a template.
    pub(crate) restored: bool,
    /// What takes the guest's memory for a snapshot.
    loader: Option<Arc<snapshot::Loader>>,
}

impl VmPlacement {
    /// The guest's memory, if that is passed to the monitor.
    pub(crate) fn memory(&self) -> Option<&OwnedFd> {
        let copied = self.start.as_deref().map(Start::memory);
        copied.or(self.shared.as_deref())
    }

    /// Whether the guest comes to a door of ours.
    pub(crate) fn has_door(&self) -> bool {
        self.asked_for.is_some()
    }
}

impl Engine {
    /// The machine for a spec.
    pub(crate) fn place_vm(
        &self,
        spec: &SandboxSpec,
        image: &Image,
        image_user: (u32, u32),
        (hidden, wasm_warden): (Vec<PathBuf>, Option<&Path>),
    ) -> Result<(VmRing, VmPlacement), VmError> {
        if spec.limits.memory_bytes < LEAST_MEMORY {
            return Err(VmError::TooLittleMemory);
        }
        let choice = self.choose_monitor()?;
        let (monitor, acceleration) = (choice.monitor, choice.acceleration);
        let control = monitor.driver.control();
        let kernel = Kernels::from_environment()?.best()?;
        let initramfs = self.initramfs(&kernel, wasm_warden)?;
        let store = self.images().map_err(RootImageError::from)?;
        let root_image = store.root_image(image, &NoProgress)?.path;
        let for_ring = spec.wall.rings().get(1) == Some(&RingKind::Container);
        let machine = Machine {
            command_line: command_line(&kernel, acceleration, (control, for_ring)),
            acpi: kernel.flavour == Flavour::Debian,
            kernel: kernel.image,
            initramfs,
            root_image,
            memory_bytes: spec.limits.memory_bytes,
            cpus: spec.limits.cpu_milli.div_ceil(1000),
            acceleration,
            memory: Memory::Fresh,
        };
        let placement = VmPlacement {
            kernel_release: kernel.release,
            image_user,
            hidden,
            start: None,
            shared: None,
            asked_for: (control == Control::Requests).then(|| (monitor.driver, machine.clone())),
            restored: false,
            loader: None,
        };
        Ok((VmRing::new(monitor, machine), placement))
    }

    fn choose_monitor(&self) -> Result<Choice, VmError> {
        let host = HostKernel::read().map_err(VmError::Host)?;
        let kept = KvmRecord::read(&self.home);
        let remembered = Remembered::in_home(&self.home);
        let choice = ringwall_ring_vm::choose_asking(
            &|program, ask| remembered.answer("version", &[program], || ask().ok_or(())).ok(),
            |qemu| kept.as_ref()?.still_holds(&host, qemu),
        )?;
        Ok(choice)
    }

    fn initramfs(
        &self,
        kernel: &Kernel,
        wasm_warden: Option<&Path>,
    ) -> Result<PathBuf, InitramfsError> {
        let mut files: Vec<GuestFile<'_>> = vec![
            ("/init", &self.programs.warden, 0o755),
            ("/launcher", &self.programs.launcher, 0o755),
        ];
        // Only where it is needed: it is larger than the others together.
        files.extend(wasm_warden.map(|program| ("/wasm-warden", program, 0o755)));
        let modules = kernel.modules.iter().chain(&kernel.more_modules);
        let read: Vec<&Path> =
            files.iter().map(|(_, path, _)| *path).chain(modules.map(PathBuf::as_path)).collect();
        let remembered = Remembered::in_home(&self.home);
        let question = format!("initramfs {files:?}");
        let archive = remembered.answer(&question, &read, || {
            let made = ringwall_guest::initramfs(kernel, &files)?;
            Ok::<_, InitramfsError>(made.to_string_lossy().into_owned())
        })?;
        match ringwall_guest::known_initramfs(Path::new(&archive)) {
            Some(archive) => Ok(archive),
            None => {
                remembered.forget();
                ringwall_guest::initramfs(kernel, &files)
            }
        }
    }

    /// Takes the guest over, checks it and its monitor, copies the workspace in and raises the rings
    /// inside.
    pub(crate) fn check_vm(
        &self,
        sandbox: &mut Sandbox,
        vm: &VmPlacement,
        group: Option<CheckedFact>,
    ) -> Result<(), RaiseError> {
        let warden = |ring| move |source| RaiseError::Warden { ring, source };
        // What the launcher has to say, if the monitor never ran.
        sandbox.take_scratch()?;
        let taking = if vm.restored { Taking::Copy } else { Taking::First };
        let adoption = adoption(&sandbox.id, &sandbox.spec.limits, taking);
        if let Some(start) = &vm.start {
            let control = sandbox.control.take().ok_or(VmError::NoControl)?;
            sandbox.monitor = Some(start.resume(control)?);
        }
        if let Some((driver, machine)) = &vm.asked_for {
            sandbox.boot_by_requests(*driver, machine)?;
        }
        let ready = vm.start.is_some();
        take_over(&sandbox.ring.stream, &adoption, ready).map_err(VmError::Adopt)?;
        sandbox.answered = Some(Instant::now());
        let client = sandbox.connect().map_err(warden(RingKind::Vm))?;
        let facts = client.facts(crate::raise::FACTS_TIMEOUT).map_err(warden(RingKind::Vm))?;
        let of_guest = HostNamespaces(facts.namespaces.clone());
        let host = HostKernel::read().map_err(VmError::Host)?;
        let mut evidence = check_guest(&vm.kernel_release, &host, facts)?;
        evidence.checks.extend(check_monitor(sandbox.ring.launched.pid)?);
        evidence.checks.extend(group);
        evidence.checks.extend(sandbox.network_fact());
        if !vm.restored {
            sandbox.copy_workspace_in(&client, vm)?;
        }
        let mut all = vec![evidence];
        let mut innermost = client.clone();
        let admitted = Box::new(sandbox.placement.permit.valid_spec().clone());
        let mut how = How::Planned { admitted, hostname: host::name_of(&sandbox.id) };
        if let Some(kind) = sandbox.wall().command_rings().get(1).copied() {
            let plan = self.plan_in_guest(kind, sandbox, &client, vm)?;
            innermost = raise_in_guest(&client, &plan, kind)?;
            let facts = innermost.facts(crate::raise::FACTS_TIMEOUT).map_err(warden(kind))?;
            all.push(check(kind, &plan.expected, &of_guest, facts)?);
            sandbox.placement.plan.working_directory.clone_from(&plan.working_directory);
            sandbox.user_in_guest = plan.reports_workspace().then_some(plan.expected.user);
            let expected = plan.expected;
            let (inner, expected) =
                self.raise_inner_rings(sandbox, (innermost, 2), (expected, &of_guest), &mut all)?;
            innermost = inner;
            how = How::Confined { expected };
        }
        self.raise_tools(sandbox, (&innermost, how), &of_guest, &mut all)?;
        sandbox.serve_network_of_guest(&innermost, &self.ledger)?;
        sandbox.guest = Some(client);
        sandbox.set_raised(innermost, all);
        Ok(())
    }

    /// The ring of this kind inside a guest that is up.
    pub(crate) fn plan_inside_guest(
        &self,
        kind: RingKind,
        sandbox: &Sandbox,
    ) -> Result<RingPlan, RaiseError> {
        if kind == RingKind::Wasm {
            let admitted = sandbox.placement.permit.valid_spec();
            let input = guest_input(admitted, host::name_of(&sandbox.id));
            let ring = WasmRing { grants: Vec::new(), cache: None };
            return Ok(ring.plan(&input).map_err(crate::place::PlaceError::from)?);
        }
        let vm = sandbox.placement.vm.as_ref().ok_or(VmError::NoControl)?;
        self.plan_in_guest(kind, sandbox, &sandbox.guest()?, vm)
    }

    /// A ring inside a guest is planned as it is on a host; only what it is made from differs.
    fn plan_in_guest(
        &self,
        kind: RingKind,
        sandbox: &Sandbox,
        client: &Client,
        vm: &VmPlacement,
    ) -> Result<RingPlan, RaiseError> {
        let admitted = sandbox.placement.permit.valid_spec();
        let mut input = guest_input(admitted, host::name_of(&sandbox.id));
        input.image_user = vm.image_user;
        input.network = sandbox.placement.network.as_ref().map(Network::input);
        let has_tools = sandbox.wall().has_tools_inside();
        input.wasm_warden = has_tools.then(|| guest_paths::WASM_WARDEN.into());
        let inside = &sandbox.plan().working_directory;
        input.workspace = sandbox.spec.workspace.as_ref().map(|_| WorkspaceInput {
            path: inside.clone(),
            id: None,
            inside: inside.clone(),
            mode: WorkspaceMode::ReadWrite,
            owner_uid: 0,
            owner_gid: 0,
            copied: false,
            hidden: Vec::new(),
            hidden_parents: Vec::new(),
        });
        let planned = match kind {
            RingKind::Container => {
                input.layers = vec![guest_paths::RING_ROOT.into()];
                ContainerRing.plan(&input)
            }
            _ => {
                let root = client
                    .list(b"/")
                    .map_err(|source| RaiseError::Warden { ring: kind, source })?;
                for entry in root {
                    let name = String::from_utf8_lossy(&entry.name).into_owned();
                    match entry.stat.kind {
                        FileKind::Directory => input.host_dirs.push(name),
                        // Images link these to /usr, if they link them.
                        FileKind::Symlink => {
                            let target = PathBuf::from("usr").join(&name);
                            input.host_links.push((name, target));
                        }
                        _ => {}
                    }
                }
                ProcessRing.plan(&input)
            }
        };
        Ok(planned.map_err(crate::place::PlaceError::from)?)
    }
}

/// What every ring inside a guest is planned from: the guest's paths and ids.
pub(crate) fn guest_input(admitted: &ValidSpec, hostname: String) -> RingInput<'_> {
    RingInput {
        admitted,
        identity: Identity::root(guest_paths::RING_FIRST_ID),
        warden: guest_paths::WARDEN.into(),
        wasm_warden: None,
        shown: Vec::new(),
        masked: Vec::new(),
        workspace: None,
        host_links: Vec::new(),
        host_dirs: Vec::new(),
        in_parts: BTreeMap::new(),
        layers: Vec::new(),
        image_user: (0, 0),
        cgroup_files: 1,
        without_cgroup: Vec::new(),
        inherited_filters: 0,
        apparmor: None,
        hostname,
        network: None,
        prepared: true,
    }
}

/// All but the rate of the host's clock, which takes a while to measure and only a boot needs.
fn command_line(
    kernel: &Kernel,
    acceleration: Acceleration,
    (control, for_ring): (Control, bool),
) -> String {
    let mut line = match acceleration {
        Acceleration::Emulation => kernel.command_line(None),
        Acceleration::Kvm => kernel.command_line_kvm(),
    };
    let by_vsock = (control == Control::Requests).then_some(guest_paths::BY_VSOCK);
    for word in by_vsock.into_iter().chain(for_ring.then_some(FOR_A_RING)) {
        line.push(' ');
        line.push_str(word);
    }
    line
}

/// For a machine that boots.
fn tell_clock(machine: &mut Machine) {
    if machine.acceleration == Acceleration::Emulation
        && let Some(khz) = ringwall_guest::host_tsc_khz()
    {
        machine.command_line.push_str(&format!(" tsc_early_khz={khz}"));
    }
}

fn raise_in_guest(client: &Client, plan: &RingPlan, ring: RingKind) -> Result<Client, RaiseError> {
    let tunnel = begin_in_guest(client, plan, ring)?;
    tunnel.connect().map_err(|error| RaiseError::Encode(io::Error::other(error)))
}

/// Has the first process of a guest raise a ring.
pub(crate) fn begin_in_guest(
    client: &Client,
    plan: &RingPlan,
    ring: RingKind,
) -> Result<Tunnel, RaiseError> {
    let encode =
        |steps| encode_steps(steps).map_err(|error| RaiseError::Encode(io::Error::other(error)));
    let encoded = RaisePlanned {
        template: encode(&plan.template)?,
        ahead: encode(&plan.ahead)?,
        last: encode(&plan.last)?,
        reports_workspace: plan.reports_workspace(),
    };
    let soon = client.until(Instant::now() + crate::raise::RAISE_TIMEOUT);
    soon.raise_planned(encoded).map_err(|source| RaiseError::Warden { ring, source })
}

/// Everything that makes a guest this one: new for each, whatever it was started from.
fn adoption(id: &SandboxId, limits: &Limits, taking: Taking) -> Adoption {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Adoption {
        taking,
        nonce: host::random_bytes::<NONCE_BYTES>(),
        seed: (host::random_bytes(), host::random_bytes()),
        unix_nanos: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
        hostname: host::name_of(id),
        machine_id: host::random_bytes(),
        disk_bytes: limits.disk_bytes,
        disk_inodes: limits.disk_inodes,
        pids: limits.pids,
    }
}

/// A guest that was resumed from a template has said already that it is ready, to the maker of that.
fn take_over(stream: &UnixStream, adoption: &Adoption, ready: bool) -> Result<(), AdoptError> {
    let mut channel = Patient { stream, until: Instant::now() + BOOT_PATIENCE };
    if !ready {
        ringwall_wire::wait_ready(&mut channel)?;
    }
    ringwall_wire::adopt(&mut channel, adoption)?;
    stream.set_read_timeout(None).map_err(AdoptError::Gone)
}

/// Waits for a guest no longer than agreed, in however many pieces it talks.
struct Patient<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(io::ErrorKind::TimedOut.into())
            }
            other => other,
        }
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sandbox {
    fn copy_workspace_in(&self, client: &Client, vm: &VmPlacement) -> Result<(), VmError> {
        let Some(workspace) = &self.placement.workspace else {
            return Ok(());
        };
        let inside = match self.wall().rings().get(1) {
            None => (0, 0),
            Some(RingKind::Container) => shifted(vm.image_user),
            Some(_) => shifted(Identity::root(guest_paths::RING_FIRST_ID).user_inside()),
        };
        let at = self.plan().working_directory.as_os_str().as_bytes();
        let mut source = workspace_copy::source(workspace.as_fd(), vm.hidden.clone())
            .map_err(|error| VmError::Workspace(ClientError::Local(error)))?;
        client.put_workspace(inside, at, &mut source).map_err(VmError::Workspace)?;
        Ok(())
    }
}

/// A user of a ring as the guest numbers it.
fn shifted((uid, gid): (u32, u32)) -> (u32, u32) {
    let first = guest_paths::RING_FIRST_ID;
    (first.saturating_add(uid), first.saturating_add(gid))
}
