//! The jail of a monitor, as a plan: its program and libraries, the machine's files, nothing else.

use std::path::{Path, PathBuf};

use ringwall_linux::step::{MountFlags, PathAccess, Place, RawPath, Slot, Step};
use ringwall_ring::{
    Base, Expected, Identity, PlanError, Ring, RingInput, RingPlan, run_slots as slot,
};
use ringwall_spec::RingKind;
use ringwall_wire::guest_paths;

use crate::choose::Found;
use crate::driver::{Control, descriptor, inside};
use crate::machine::{Acceleration, Machine, Memory};

/// The host's directories with what programs are made of, shown if they are there.
const LIBRARIES: [&str; 4] = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"];
/// How libraries are found quickly.
const LIBRARY_CACHE: &str = "/etc/ld.so.cache";

/// Threads of a monitor: one for each processor, and those for its disks.
pub const MONITOR_THREADS: u32 = 96;
/// What a monitor needs besides the guest's memory.
pub const MONITOR_BYTES: u64 = 224 << 20;
/// Descriptors that a monitor has open.
pub const MONITOR_FILES: u32 = 256;

/// All threads of a monitor take memory from what it freed when it started, in place of a heap each.
const ONE_HEAP: &str = "MALLOC_ARENA_MAX=1";

const FIRST_SHOWN: u16 = slot::FIRST_VISIBLE;
/// Behind all that is shown.
const KVM: Slot = Slot(slot::FIRST_LAYER);
const KVM_DEVICE: &str = "/dev/kvm";
const ONE_DEVICE: MountFlags =
    MountFlags { read_only: false, no_exec: true, devices: true, recursive: false };
const READ_ONLY_TREE: MountFlags =
    MountFlags { read_only: true, no_exec: false, devices: false, recursive: true };

#[derive(Debug, Clone)]
pub struct VmRing {
    pub monitor: Found,
    pub machine: Machine,
    /// Directories with libraries as they are on this host: real ones, and links with their targets.
    pub libraries: Vec<(PathBuf, Option<PathBuf>)>,
}

/// A tree of the host and where the jail shows it.
struct Shown {
    from: PathBuf,
    at: PathBuf,
    is_dir: bool,
}

impl VmRing {
    /// Looks at the host.
    pub fn new(monitor: Found, machine: Machine) -> VmRing {
        let libraries = LIBRARIES
            .into_iter()
            .map(PathBuf::from)
            .filter(|path| path.exists())
            .map(|path| {
                let target = std::fs::read_link(&path).ok();
                (path, target)
            })
            .collect();
        VmRing { monitor, machine, libraries }
    }

    fn shown(&self) -> Vec<Shown> {
        let same = |path: &Path| Shown {
            from: path.to_owned(),
            at: path.to_owned(),
            is_dir: path.is_dir(),
        };
        let file = |from: &Path, at: &str| Shown {
            from: from.to_owned(),
            at: PathBuf::from(at),
            is_dir: false,
        };
        let real = self.libraries.iter().filter(|(_, target)| target.is_none());
        let mut shown: Vec<Shown> = real.map(|(path, _)| same(path)).collect();
        let data = self.monitor.driver.data().iter().map(Path::new).filter(|path| path.exists());
        shown.extend(data.map(same));
        let cache = Path::new(LIBRARY_CACHE);
        shown.extend(cache.exists().then(|| same(cache)));
        shown.push(same(&self.monitor.program));
        shown.push(file(&self.machine.root_image, inside::ROOT_IMAGE));
        if !self.machine.memory.is_told() {
            shown.push(file(&self.machine.kernel, inside::KERNEL));
            shown.push(file(&self.machine.initramfs, inside::INITRAMFS));
        }
        shown
    }

    fn template(&self, input: &RingInput<'_>, user: (u32, u32)) -> Vec<Step> {
        let shown = self.shown();
        let mut steps = Base::default();
        // Before root is given up: others may not be able to reach these files.
        if input.identity.is_root() {
            Self::open(&mut steps, &shown);
            self.open_kvm(&mut steps, input, user);
        }
        steps.enter_as_one_user(input, user);
        if !input.identity.is_root() {
            Self::open(&mut steps, &shown);
            self.open_kvm(&mut steps, input, user);
        }
        steps.open_common();
        steps.make_base(&["dev", "proc", "vm"]);
        if self.takes_requests() {
            steps.make_mount_point(Place::new(slot::BASE, relative(Path::new(inside::RUN))), true);
        }
        steps.pivot_to_base();
        for (path, target) in &self.libraries {
            if let Some(target) = target {
                let at = Place::new(slot::BASE, relative(path));
                steps.push(Step::MakeSymlink { at, target: target.into() });
            }
        }
        for (number, shown) in (FIRST_SHOWN..).zip(&shown) {
            let at = Place::new(slot::BASE, relative(&shown.at));
            steps.make_mount_point(at.clone(), shown.is_dir);
            steps.push(Step::Attach { tree: Slot(number), at });
        }
        if self.uses_kvm() {
            // Monitors open it by its usual name.
            self.attach_kvm(&mut steps, input);
            steps.make_dev_with(&[("kvm", inside::KVM)]);
        } else {
            steps.make_dev();
        }
        steps.freeze_base();
        steps.into_steps()
    }

    fn open(steps: &mut Base, shown: &[Shown]) {
        for (number, shown) in (FIRST_SHOWN..).zip(shown) {
            let (path, into) = (RawPath::from(&shown.from), Slot(number));
            steps.push(Step::OpenHostTree { path, recursive: false, into });
            steps.push(Step::SetMountFlags { tree: into, flags: READ_ONLY_TREE });
        }
    }

    fn uses_kvm(&self) -> bool {
        self.machine.acceleration == Acceleration::Kvm
    }

    fn takes_requests(&self) -> bool {
        self.monitor.driver.control() == Control::Requests
    }

    /// The device, as one that the monitor's user may open. Root makes that user one of its own;
    /// what an ordinary user may open it may open inside.
    fn open_kvm(&self, steps: &mut Base, input: &RingInput<'_>, user: (u32, u32)) {
        if !self.uses_kvm() {
            return;
        }
        let maps = input.identity.one_user(user);
        match (maps.uids.first(), maps.gids.first()) {
            (Some(uid), Some(gid)) if input.identity.is_root() => {
                let (uid, gid) = (uid.outside, gid.outside);
                steps.push(Step::OwnDevice { device: KVM_DEVICE.into(), uid, gid, into: KVM });
            }
            _ => {
                let path = RawPath::from(KVM_DEVICE);
                steps.push(Step::OpenHostTree { path, recursive: false, into: KVM });
                steps.push(Step::SetMountFlags { tree: KVM, flags: ONE_DEVICE });
            }
        }
    }

    /// A directory with one device file, or the file itself.
    fn attach_kvm(&self, steps: &mut Base, input: &RingInput<'_>) {
        let is_dir = input.identity.is_root();
        let at = if is_dir { inside::DEVICES } else { inside::KVM };
        let at = Place::new(slot::BASE, relative(Path::new(at)));
        steps.make_mount_point(at.clone(), is_dir);
        steps.push(Step::Attach { tree: KVM, at });
    }

    /// What each ring does before it is one sandbox's.
    fn ahead(&self, input: &RingInput<'_>) -> Vec<Step> {
        let mut steps = Base::default();
        steps.begin_run(input, "/");
        steps.open_proc(input);
        steps.attach_proc(slot::ROOT, slot::ROOT);
        if self.takes_requests() {
            let flags = MountFlags { no_exec: true, ..MountFlags::default() };
            steps.push(Step::SetMountFlags { tree: slot::SCRATCH, flags });
            let at = Place::new(slot::ROOT, relative(Path::new(inside::RUN)));
            steps.push(Step::Attach { tree: slot::SCRATCH, at });
            // A guest that connects is led to the engine's socket, which no path leads to.
            let at = Place::new(slot::SCRATCH, door_name());
            let target = format!("/proc/self/fd/{}", descriptor::DOOR).into();
            steps.push(Step::MakeSymlink { at, target });
        }
        steps.into_steps()
    }

    fn last(&self, input: &RingInput<'_>) -> Vec<Step> {
        let mut steps = Base::default();
        let mut rules: Vec<(RawPath, PathAccess)> = self
            .shown()
            .iter()
            .map(|shown| {
                let program = shown.is_dir || shown.at == self.monitor.program;
                let access = if program { PathAccess::Read } else { PathAccess::ReadFiles };
                (RawPath::from(&shown.at), access)
            })
            .collect();
        rules.push(("/dev".into(), PathAccess::Device));
        if self.uses_kvm() {
            rules.push((inside::DEVICES.into(), PathAccess::Device));
        }
        if self.takes_requests() {
            rules.push((inside::RUN.into(), PathAccess::Write));
        }
        rules.push(("/proc".into(), PathAccess::Read));
        if !self.uses_kvm() {
            // Translated code is spread thin over its buffer.
            steps.push(Step::NoHugePages);
        }
        // Monitors put filters on themselves, each thread its own.
        steps.confines_itself = true;
        steps.confine(input, Step::Landlock { rules });
        let first = slot::FIRST_CGROUP + input.cgroup_files;
        let passed = match self.machine.memory {
            Memory::Fresh => 1,
            Memory::Shared | Memory::Copied | Memory::Received => 2,
        };
        let mut descriptors = vec![slot::STREAM];
        descriptors.extend((first..first + passed).map(Slot::passed));
        steps.push(Step::Exec {
            program: RawPath::from(&self.monitor.program),
            arguments: self.monitor.driver.arguments(&self.machine),
            environment: vec![ONE_HEAP.to_owned()],
            descriptors,
            open_files: Some(MONITOR_FILES.into()),
        });
        steps.into_steps()
    }
}

impl Ring for VmRing {
    fn kind(&self) -> RingKind {
        RingKind::Vm
    }

    fn plan(&self, input: &RingInput<'_>) -> Result<RingPlan, PlanError> {
        if matches!(input.identity, Identity::ConfinedRoot { .. }) {
            return Err(PlanError::ConfinedRoot("a vm ring"));
        }
        Ok(RingPlan {
            ring: RingKind::Vm,
            template: self.template(input, input.identity.user_inside()),
            ahead: self.ahead(input),
            last: self.last(input),
            expected: Expected { open_files: MONITOR_FILES.into(), ..Expected::of_one_user(input) },
            // The engine says where in the guest the workspace is.
            working_directory: PathBuf::from("/"),
        })
    }
}

/// The name that a monitor looks for when its guest connects.
fn door_name() -> String {
    let socket = Path::new(inside::VSOCK).file_name().unwrap_or_default().to_string_lossy();
    format!("{socket}_{}", guest_paths::VSOCK_PORT)
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests;
