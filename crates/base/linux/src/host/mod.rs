//! What this host offers: cheap facts that are only read, and dear ones that are really tried.
//!
//! [`HostFacts::read`] looks at /proc, /sys and a few system calls with arguments that change
//! nothing; it may run at every start. [`probe`](probe()) makes namespaces and mounts in a child of its
//! own, with the very functions that the launcher uses; only `doctor` and error reports need it.

mod ids;
mod namespaces;
mod own;
mod place;
mod probe;
mod subid;
pub mod support;
mod syscalls;

use std::fs;
use std::io::Read;

use rustix::fs::{Access, access};

use crate::cgroup::Hierarchy;

pub use ids::{FULL_RANGE, HeldIds, NoIds, PrivateIds};
pub(crate) use namespaces::advice;
pub use namespaces::{Obstacle, UserNamespaces, raise_limit};
pub use own::seccomp_filters;
pub use place::Place;
pub use probe::{Probe, ProbeError, Trial, Tried, probe};
pub use subid::IdRangeGiven;
pub use syscalls::{Syscalls, may_mount};

/// No file of /proc or /sys that is read here is longer; what is longer is cut.
const LONGEST_FILE: u64 = 256 * 1024;

/// Facts about the host, as one process saw them at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    pub kernel: Kernel,
    pub uid: u32,
    pub gid: u32,
    pub user_namespaces: UserNamespaces,
    /// 0 when the kernel has no Landlock or it is switched off.
    pub landlock_abi: u32,
    pub seccomp_filter: bool,
    pub syscalls: Syscalls,
    /// Whether the kernel lists overlayfs; one built as a module is listed once it is loaded.
    pub overlay_listed: bool,
    pub cgroup: Hierarchy,
    pub apparmor: bool,
    /// Whether a program may type into its terminal; absent before kernel 6.2, where it may.
    pub legacy_tiocsti: Option<bool>,
    /// Ranges of subordinate ids in /etc/subuid and /etc/subgid.
    pub subordinate_uids: Vec<IdRangeGiven>,
    pub subordinate_gids: Vec<IdRangeGiven>,
    pub kvm: Device,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    /// CPUs that this process may run on.
    pub cpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub release: String,
    /// Major and minor; zeros when the release does not start with numbers.
    pub version: (u32, u32),
}

/// A device file, as far as can be told without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Missing,
    /// There, but this user may not read and write it.
    Denied,
    Usable,
}

impl HostFacts {
    pub fn read() -> HostFacts {
        let uid = rustix::process::getuid().as_raw();
        let name = subid::user_name(uid);
        let subordinate = |path| subid::ranges(path, uid, name.as_deref());
        let (memory_bytes, swap_bytes) = memory();
        HostFacts {
            kernel: Kernel::read(),
            uid,
            gid: rustix::process::getgid().as_raw(),
            user_namespaces: UserNamespaces::read(),
            landlock_abi: crate::inside::landlock_abi(),
            seccomp_filter: syscalls::seccomp_filter(),
            syscalls: Syscalls::read(),
            overlay_listed: overlay_listed(&read_text("/proc/filesystems").unwrap_or_default()),
            cgroup: Hierarchy::detect(),
            apparmor: crate::apparmor::enabled(),
            legacy_tiocsti: read_switch("/proc/sys/dev/tty/legacy_tiocsti"),
            subordinate_uids: subordinate("/etc/subuid"),
            subordinate_gids: subordinate("/etc/subgid"),
            kvm: Device::at("/dev/kvm"),
            memory_bytes,
            swap_bytes,
            cpus: cpus(),
        }
    }

    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// What the settings alone say against user namespaces for this user. `None` does not promise
    /// that they work: a container or a security module may still refuse; only a probe can tell.
    pub fn user_namespace_obstacle(&self) -> Option<Obstacle> {
        self.user_namespaces.obstacle(self.is_root())
    }
}

impl Kernel {
    fn read() -> Kernel {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Kernel { version: parse_version(&release).unwrap_or_default(), release }
    }

    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        self.version >= (major, minor)
    }
}

impl Device {
    fn at(path: &str) -> Device {
        match access(path, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => Device::Usable,
            Err(_) if access(path, Access::EXISTS).is_ok() => Device::Denied,
            Err(_) => Device::Missing,
        }
    }
}

/// `6.18.44-x86` is 6 and 18.
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn overlay_listed(file_systems: &str) -> bool {
    file_systems.lines().any(|line| line.split_whitespace().next_back() == Some("overlay"))
}

fn memory() -> (u64, u64) {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit);
    (info.totalram.saturating_mul(unit), info.totalswap.saturating_mul(unit))
}

fn cpus() -> u32 {
    let count = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    count.max(1)
}

fn read_text(path: &str) -> Option<String> {
    // Room for most files of /proc at once: the kernel is asked twice instead of for a piece after another.
    let mut bytes = Vec::with_capacity(4096);
    fs::File::open(path).ok()?.take(LONGEST_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_switch(path: &str) -> Option<bool> {
    match read_text(path)?.trim() {
        "0" => Some(false),
        _ => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_this_host_are_read() {
        let facts = HostFacts::read();
        assert!(facts.kernel.version.0 >= 5, "{:?}", facts.kernel);
        assert!(facts.cpus >= 1 && facts.memory_bytes > 1 << 20);
        assert_eq!(facts.uid, rustix::process::getuid().as_raw());
        assert_eq!(facts, HostFacts::read(), "nothing changes by reading");
    }

    #[test]
    fn kernel_versions_compare_as_numbers() {
        let kernel = |release: &str| Kernel {
            version: parse_version(release).unwrap_or_default(),
            release: release.to_owned(),
        };
        assert!(kernel("6.10.3-arch1").at_least(6, 6));
        assert!(!kernel("6.1.0-28-amd64").at_least(6, 6));
        assert!(!kernel("5.15").at_least(6, 0));
        assert!(!kernel("odd").at_least(1, 0));
    }

    #[test]
    fn overlay_is_told_apart_from_names_that_contain_it() {
        assert!(overlay_listed("nodev\ttmpfs\nnodev\toverlay\n\text4\n"));
        assert!(!overlay_listed("nodev\toverlayx\nnodev\tfuse.overlay\n"));
    }
}
