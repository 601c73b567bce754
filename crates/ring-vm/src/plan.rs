//! The jail of a monitor, as a plan: its program and libraries, the machine's files, nothing else.

use std::path::{Path, PathBuf};

use ringwall_linux::step::{MountFlags, PathAccess, Place, RawPath, Slot, Step};
use ringwall_ring::{Base, Expected, PlanError, Ring, RingInput, RingPlan, run_slots as slot};
use ringwall_spec::RingKind;
use ringwall_wire::guest_paths;

use crate::driver::{Found, inside};
use crate::machine::{Machine, Memory};

/// The host's directories with what programs are made of, shown if they are there.
const LIBRARIES: [&str; 4] = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"];
/// How libraries are found quickly.
const LIBRARY_CACHE: &str = "/etc/ld.so.cache";

/// Threads of a monitor: one for each processor, and those for its disks.
pub const MONITOR_THREADS: u32 = 96;
/// What a monitor needs besides the guest's memory.
pub const MONITOR_BYTES: u64 = 224 << 20;
/// Descriptors that a monitor has open.
const MONITOR_FILES: u64 = 256;

const FIRST_SHOWN: u16 = slot::FIRST_VISIBLE;
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
        if self.machine.memory != Memory::Copied {
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
        }
        steps.enter_as_one_user(input, user);
        if !input.identity.is_root() {
            Self::open(&mut steps, &shown);
        }
        steps.open_common();
        steps.make_base(&["dev", "proc", "vm"]);
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
        steps.make_dev();
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
        rules.push(("/proc".into(), PathAccess::Read));
        steps.confine(input, Step::Landlock { rules });
        let first = slot::FIRST_CGROUP + input.cgroup_files;
        let passed = match self.machine.memory {
            Memory::Fresh => 1,
            Memory::Shared | Memory::Copied => 2,
        };
        let mut descriptors = vec![slot::STREAM];
        descriptors.extend((first..first + passed).map(Slot::passed));
        steps.push(Step::Exec {
            program: RawPath::from(&self.monitor.program),
            arguments: self.monitor.driver.arguments(&self.machine),
            descriptors,
            open_files: Some(MONITOR_FILES),
        });
        steps.into_steps()
    }
}

impl Ring for VmRing {
    fn kind(&self) -> RingKind {
        RingKind::Vm
    }

    fn plan(&self, input: &RingInput<'_>) -> Result<RingPlan, PlanError> {
        let in_workspace = input.admitted.spec().workspace.is_some();
        let working_directory = if in_workspace { guest_paths::WORKSPACE } else { "/" };
        Ok(RingPlan {
            ring: RingKind::Vm,
            template: self.template(input, input.identity.user_inside()),
            ahead: ahead(input),
            last: self.last(input),
            expected: Expected { open_files: MONITOR_FILES, ..Expected::of_one_user(input) },
            working_directory: PathBuf::from(working_directory),
        })
    }
}

fn ahead(input: &RingInput<'_>) -> Vec<Step> {
    let mut steps = Base::default();
    steps.begin_run(input, "/");
    steps.open_proc();
    steps.attach_proc(slot::ROOT, slot::ROOT);
    steps.into_steps()
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

#[cfg(test)]
mod tests;
