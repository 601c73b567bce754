//! What can be seen of the ring from in here, for the engine to compare with its plan.
//!
//! A fact that cannot be read stays empty or zero, and the engine's check of it fails: nothing is
//! guessed. Forbidden things are really tried, in ways that change nothing where they succeed.

mod parse;

use std::os::fd::OwnedFd;

use ringwall_linux::{inside, seccomp};
use ringwall_spec::{DeniedOpen, LandlockFacts, Namespace, NamespaceKind, RingFacts, SeccompFacts};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::Resource;

/// The largest of these files, `mountinfo`, has a few hundred bytes per mount.
const FILE_MAX: usize = 64 << 10;
/// Most of them fit into one read of this size.
const READ_BYTES: usize = 8 << 10;
/// The file that only Landlock forbids to open.
const CANARY: &str = "canary";

/// Everything but the canary is read anew for each request.
pub fn gather(denied_open: DeniedOpen) -> RingFacts {
    let status = parse::status(&read("/proc/self/status"));
    let files = rustix::process::getrlimit(Resource::Nofile);
    let unlimited = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    RingFacts {
        kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
        boot_id: read("/proc/sys/kernel/random/boot_id").trim().to_owned(),
        pid: rustix::process::getpid().as_raw_nonzero().get().unsigned_abs(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        namespaces: namespaces(),
        uid_map: parse::id_map(&read("/proc/self/uid_map")),
        gid_map: parse::id_map(&read("/proc/self/gid_map")),
        capabilities: status.capabilities,
        no_new_privs: status.no_new_privs,
        seccomp: SeccompFacts {
            mode: status.seccomp_mode,
            filters: status.seccomp_filters,
            fingerprint: seccomp::read_fingerprint(),
            refuses_io_uring: inside::refuses_io_uring(),
            refuses_user_namespace: inside::refuses_user_namespace(),
        },
        landlock: LandlockFacts { abi: inside::landlock_abi(), denied_open },
        network_devices: parse::network_devices(&read("/proc/self/net/dev")),
        root_read_only: rustix::fs::statvfs("/")
            .is_ok_and(|root| root.f_flag.contains(StatVfsMountFlags::RDONLY)),
        mounts: parse::mounts(&read("/proc/self/mountinfo")),
        open_files: (unlimited(files.current), unlimited(files.maximum)),
        apparmor: read_start("/proc/self/attr/apparmor/current", FILE_MAX)
            .and_then(|label| parse::apparmor(&label)),
        core_bytes: unlimited(rustix::process::getrlimit(Resource::Core).maximum),
    }
}

/// Reads what [`gather`] reads, for the kernel to have it at hand, but for the boot id: a kernel that
/// nobody has asked for it has none yet.
pub fn warm_up() {
    for path in [
        "/proc/self/status",
        "/proc/self/uid_map",
        "/proc/self/gid_map",
        "/proc/self/net/dev",
        "/proc/self/mountinfo",
        "/proc/self/attr/apparmor/current",
    ] {
        read(path);
    }
    namespaces();
}

/// Tries the canary and closes the way to it: no job may ever hold that directory.
pub fn try_denied_open(directory: Option<OwnedFd>) -> DeniedOpen {
    let Some(directory) = directory else {
        return DeniedOpen::NotTried;
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::openat(&directory, CANARY, flags, Mode::empty()) {
        Ok(_) => DeniedOpen::Allowed,
        Err(Errno::ACCESS) => DeniedOpen::Denied,
        // Any other error says nothing about Landlock.
        Err(_) => DeniedOpen::NotTried,
    }
}

/// Where there is no canary: tries to list a directory of our own, which only Landlock can forbid.
pub fn try_denied_listing(directory: &str) -> DeniedOpen {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(_) => DeniedOpen::Allowed,
        Err(Errno::ACCESS) => DeniedOpen::Denied,
        Err(_) => DeniedOpen::NotTried,
    }
}

fn namespaces() -> Vec<Namespace> {
    let id_of = |kind: NamespaceKind| {
        let path = format!("/proc/self/ns/{}", kind.proc_name());
        rustix::fs::stat(path).ok().map(|stat| Namespace { kind, id: stat.st_ino })
    };
    NamespaceKind::ALL.into_iter().filter_map(id_of).collect()
}

fn read(path: &str) -> String {
    read_start(path, FILE_MAX).unwrap_or_default()
}

/// The start of a file, at most `most` bytes of it, as text.
pub fn read_start(path: &str, most: usize) -> Option<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    while bytes.len() < most {
        // Files of /proc have no size to go by.
        bytes.reserve(most.min(READ_BYTES));
        match rustix::io::read(&file, spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(most);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_process_are_the_kernel_s() {
        let facts = gather(DeniedOpen::NotTried);
        assert_eq!(facts.pid, std::process::id());
        assert_eq!(facts.namespaces.len(), NamespaceKind::ALL.len());
        assert!(!facts.uid_map.is_empty());
        assert!(facts.mounts.iter().any(|mount| mount.path == "/"));
        assert!(facts.network_devices.iter().any(|device| device == "lo"));
        let release = read("/proc/sys/kernel/osrelease");
        assert_eq!(facts.kernel_release, release.trim());
    }

    #[test]
    fn without_landlock_the_canary_opens() {
        let directory = std::env::temp_dir().join(format!("canary-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let open = || rustix::fs::open(&directory, OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(try_denied_open(Some(open())), DeniedOpen::NotTried);
        std::fs::write(directory.join(CANARY), "x").unwrap();
        assert_eq!(try_denied_open(Some(open())), DeniedOpen::Allowed);
        assert_eq!(try_denied_open(None), DeniedOpen::NotTried);
        assert_eq!(try_denied_listing(&directory.to_string_lossy()), DeniedOpen::Allowed);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(try_denied_listing(&directory.to_string_lossy()), DeniedOpen::NotTried);
    }
}
