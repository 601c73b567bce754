//! What a ring plan is made from: facts of the host and the request, already read.

use std::path::PathBuf;

use ringwall_linux::step::{IdMaps, IdRange};
use ringwall_policy::AdmittedSpec;
use ringwall_spec::{LimitName, WorkspaceMode};

/// Who runs Ringwall, and so which ids a ring can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Root: each ring gets a private range of host ids, starting here.
    Root { first_id: u32 },
    /// An ordinary user: a ring has one user, which is the caller outside.
    User { uid: u32, gid: u32 },
}

impl Identity {
    pub const RANGE: u32 = 65_536;

    /// The user inside when root runs Ringwall; programs behave better when they are not root.
    const USER_FOR_ROOT: u32 = 1000;

    /// The user of a ring that has one only.
    pub fn user_inside(self) -> (u32, u32) {
        match self {
            Identity::Root { .. } => (Self::USER_FOR_ROOT, Self::USER_FOR_ROOT),
            Identity::User { uid, gid } => (uid, gid),
        }
    }

    /// Maps for a ring with this one user.
    pub fn one_user(self, inside: (u32, u32)) -> IdMaps {
        let (uid, gid) = match self {
            Identity::Root { first_id } => {
                (first_id.saturating_add(inside.0), first_id.saturating_add(inside.1))
            }
            Identity::User { uid, gid } => (uid, gid),
        };
        let one = |inside, outside| vec![IdRange { inside, outside, count: 1 }];
        IdMaps { uids: one(inside.0, uid), gids: one(inside.1, gid) }
    }

    /// Maps for a ring whose files have many owners: all of the range where root can give it.
    pub fn many_users(self, inside: (u32, u32)) -> IdMaps {
        match self {
            Identity::Root { first_id } => {
                let all = vec![IdRange { inside: 0, outside: first_id, count: Self::RANGE }];
                IdMaps { uids: all.clone(), gids: all }
            }
            Identity::User { .. } => self.one_user(inside),
        }
    }

    /// The user of root's gateways: of the engine's range, and in no ring.
    pub fn gateway_user(self) -> Option<u32> {
        match self {
            Identity::Root { first_id } => Some(first_id.saturating_add(Self::RANGE - 1)),
            Identity::User { .. } => None,
        }
    }

    pub fn is_root(self) -> bool {
        matches!(self, Identity::Root { .. })
    }
}

/// Everything that a plan depends on.
#[derive(Debug, Clone)]
pub struct RingInput<'a> {
    pub admitted: &'a AdmittedSpec,
    pub identity: Identity,
    /// The warden program on the host.
    pub warden: PathBuf,
    /// The program that runs tools on the host, if a wasm ring comes inside this one.
    pub wasm_warden: Option<PathBuf>,
    /// Host paths to show read-only.
    pub shown: Vec<ShownPath>,
    /// Host paths that must not be seen, where what is above them is; for the process ring's view.
    pub masked: Vec<PathBuf>,
    pub workspace: Option<WorkspaceInput>,
    /// Top-level entries of the host's root that are links, with their targets, and those that are
    /// directories; for the process ring's view.
    pub host_links: Vec<(String, PathBuf)>,
    pub host_dirs: Vec<String>,
    /// Image layers on the host, bottom to top; for the container ring.
    pub layers: Vec<PathBuf>,
    /// The user that the image wants, already looked up.
    pub image_user: (u32, u32),
    /// How many control-group join files will be passed.
    pub cgroup_files: u16,
    /// Limits that no control group keeps here.
    pub without_cgroup: Vec<LimitName>,
    /// An AppArmor profile to change to, where the host has one loaded.
    pub apparmor: Option<String>,
    pub hostname: String,
    /// What a ring with a way to the network is given.
    pub network: Option<NetworkInput>,
    /// In a guest, whose warden has prepared everything: files have owners of the ring's, the one
    /// layer is the root and can be written, the workspace is laid over already.
    pub prepared: bool,
}

impl RingInput<'_> {
    /// Whether the engine adds up the ring's memory, for want of a control group.
    pub fn is_watched(&self) -> bool {
        self.without_cgroup.contains(&LimitName::Memory)
    }

    /// How many filters the launcher puts on the ring.
    pub fn seccomp_filters(&self) -> u32 {
        if self.is_watched() { 2 } else { 1 }
    }
}

/// What programs in the ring need to find and trust the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInput {
    /// The certificate of the authority to trust, PEM.
    pub authority: String,
    /// Ports at which connections to any address are the gateway's; none where programs must ask
    /// the proxy.
    pub direct: Vec<u16>,
}

/// A host path that the ring shows read-only at the same place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownPath {
    pub path: PathBuf,
    pub is_dir: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    /// Canonical host path of a directory.
    pub path: PathBuf,
    /// Where the ring shows it: the same path, unless something of the ring stands in the way.
    pub inside: PathBuf,
    pub mode: WorkspaceMode,
    pub owner_uid: u32,
    pub owner_gid: u32,
    /// Files that the ring must not see, relative to the workspace.
    pub hidden: Vec<PathBuf>,
    /// The directories above them, parents first, with their modes: the overlay shows ours.
    pub hidden_parents: Vec<(PathBuf, u32)>,
}
