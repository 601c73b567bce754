//! Facts that a warden reads inside its ring, and what the engine makes of them.
//!
//! Facts come from an untrusted place: every list is cut to a bound by the warden and again by
//! the wire, and the engine believes none of them without a check against its plan.

use serde::{Deserialize, Serialize};

use crate::RingKind;

/// Everything one warden could see about its ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RingFacts {
    pub kernel_release: String,
    /// New at every boot of a kernel: two rings with the same share one.
    pub boot_id: String,
    /// The warden's process id as it sees it: 1 in a fresh pid namespace.
    pub pid: u32,
    pub uid: u32,
    pub gid: u32,
    pub namespaces: Vec<Namespace>,
    pub uid_map: Vec<IdMapLine>,
    pub gid_map: Vec<IdMapLine>,
    pub capabilities: Capabilities,
    pub no_new_privs: bool,
    pub seccomp: SeccompFacts,
    pub landlock: LandlockFacts,
    /// Names from /proc/net/dev.
    pub network_devices: Vec<String>,
    pub root_read_only: bool,
    pub mounts: Vec<MountFact>,
    /// Soft and hard limit of open files.
    pub open_files: (u64, u64),
    /// The AppArmor label, when that module is on.
    pub apparmor: Option<String>,
    /// The hard limit on the size of a core dump: 1 means that a crash starts no program either.
    pub core_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamespaceKind {
    User,
    Mount,
    Pid,
    Net,
    Ipc,
    Uts,
    Cgroup,
}

impl NamespaceKind {
    pub const ALL: [NamespaceKind; 7] = [
        NamespaceKind::User,
        NamespaceKind::Mount,
        NamespaceKind::Pid,
        NamespaceKind::Net,
        NamespaceKind::Ipc,
        NamespaceKind::Uts,
        NamespaceKind::Cgroup,
    ];

    /// The file under /proc/PID/ns.
    pub fn proc_name(self) -> &'static str {
        match self {
            NamespaceKind::User => "user",
            NamespaceKind::Mount => "mnt",
            NamespaceKind::Pid => "pid",
            NamespaceKind::Net => "net",
            NamespaceKind::Ipc => "ipc",
            NamespaceKind::Uts => "uts",
            NamespaceKind::Cgroup => "cgroup",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    pub kind: NamespaceKind,
    /// The inode number of the namespace, equal on both sides if it is shared.
    pub id: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapLine {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Capability sets as bit masks, as in /proc/self/status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capabilities {
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub bounding: u64,
    pub ambient: u64,
}

impl Capabilities {
    pub fn is_empty(self) -> bool {
        self == Capabilities::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SeccompFacts {
    /// 2 is filter mode.
    pub mode: u8,
    pub filters: u32,
    /// Read by calling reserved syscall numbers that only our filter answers: proves which filter
    /// is loaded, not just that one is.
    pub fingerprint: u64,
    /// Whether a syscall that the filter must refuse was refused when tried.
    pub refuses_io_uring: bool,
    pub refuses_user_namespace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LandlockFacts {
    /// 0 when the kernel has none.
    pub abi: u32,
    pub denied_open: DeniedOpen,
}

/// What happened when the warden opened a file that only Landlock forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeniedOpen {
    #[default]
    NotTried,
    Denied,
    /// The open worked: Landlock is not in force.
    Allowed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFact {
    pub path: String,
    pub file_system: String,
    pub read_only: bool,
}

/// The checked facts of one ring, kept with the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    pub ring: RingKind,
    pub checks: Vec<CheckedFact>,
    pub facts: RingFacts,
}

/// One layer that the plan promised and the facts confirm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedFact {
    /// `user namespace`, `seccomp filter`, ...
    pub layer: String,
    /// The fact as it was read, in words.
    pub seen: String,
}
