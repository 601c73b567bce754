//! What a ring plan is made from: facts of the host and the request, already read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringwall_linux::host::{FULL_RANGE, PrivateIds};
use ringwall_linux::mount::WithoutMarks;
use ringwall_linux::step::{FileId, IdMaps, IdRange, Step};
use ringwall_spec::{LimitName, SandboxSpec, ValidSpec, WorkspaceMode};

use crate::show::Part;

/// Tells a warden to put on each of its jobs the filter that its ring leaves out.
const SEAL_JOBS: &str = "--seal-jobs";

/// Who runs Ringwall, and so which ids a ring can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Root: each ring gets ids of a private range of the host's.
    Root { ids: PrivateIds },
    /// Root that may not copy mounts, as in a container without CAP_SYS_ADMIN: a ring has one user of
    /// a private range, and sees only files that this user may see.
    ConfinedRoot { ids: PrivateIds },
    /// An ordinary user: a ring has one user, which is the caller outside.
    User { uid: u32, gid: u32 },
}

impl Identity {
    pub const RANGE: u32 = FULL_RANGE;

    /// The user inside when root runs Ringwall; programs behave better when they are not root.
    const USER_FOR_ROOT: u32 = 1000;

    /// The last ids of a range: one for a user whose number is beyond it, one for the gateway. The
    /// first of them is a usual id, too, in a range of the usual size: 65534.
    const RESERVED: u32 = 2;

    /// Root with a range of the usual size.
    pub const fn root(first_id: u32) -> Identity {
        Identity::Root { ids: PrivateIds::full(first_id) }
    }

    /// The user of a ring that has one only.
    pub fn user_inside(self) -> (u32, u32) {
        match self {
            Identity::Root { .. } | Identity::ConfinedRoot { .. } => {
                (Self::USER_FOR_ROOT, Self::USER_FOR_ROOT)
            }
            Identity::User { uid, gid } => (uid, gid),
        }
    }

    /// Maps for a ring with this one user.
    pub fn one_user(self, inside: (u32, u32)) -> IdMaps {
        let (uid, gid) = match self {
            Identity::Root { ids } | Identity::ConfinedRoot { ids } => {
                (Self::outside(ids, inside.0), Self::outside(ids, inside.1))
            }
            Identity::User { uid, gid } => (uid, gid),
        };
        let one = |inside, outside| vec![IdRange { inside, outside, count: 1 }];
        IdMaps { uids: one(inside.0, uid), gids: one(inside.1, gid) }
    }

    /// Maps for a ring whose files have many owners: all of the range where root can give it, and
    /// always this user.
    pub fn many_users(self, inside: (u32, u32)) -> IdMaps {
        match self {
            Identity::Root { ids } => {
                let all = |user| Self::all_with(ids, user);
                IdMaps { uids: all(inside.0), gids: all(inside.1) }
            }
            Identity::ConfinedRoot { .. } | Identity::User { .. } => self.one_user(inside),
        }
    }

    /// What an id inside is outside. One beyond the range is the first of its last ids.
    pub fn outside(ids: PrivateIds, inside: u32) -> u32 {
        let beyond = ids.count.saturating_sub(Self::RESERVED);
        let offset = if inside < Self::plain(ids) { inside } else { beyond };
        ids.first.saturating_add(offset)
    }

    /// Never the last id, which is the gateway's.
    fn all_with(ids: PrivateIds, user: u32) -> Vec<IdRange> {
        let range = |count| IdRange { inside: 0, outside: ids.first, count };
        if user < Self::plain(ids) {
            return vec![range(Self::plain(ids))];
        }
        let one = IdRange { inside: user, outside: Self::outside(ids, user), count: 1 };
        vec![range(ids.count.saturating_sub(Self::RESERVED)), one]
    }

    /// Ids that are the same number inside, counted from the first of the range.
    fn plain(ids: PrivateIds) -> u32 {
        let reserved = if ids.count < Self::RANGE { Self::RESERVED } else { 1 };
        ids.count.saturating_sub(reserved)
    }

    /// The user of root's gateways: of the engine's range, and in no ring.
    pub fn gateway_user(self) -> Option<u32> {
        match self {
            Identity::Root { ids } | Identity::ConfinedRoot { ids } => {
                Some(ids.first.saturating_add(ids.count.saturating_sub(1)))
            }
            Identity::User { .. } => None,
        }
    }

    /// Whether what a ring is made from is opened as root, and shown with other owners.
    pub fn is_root(self) -> bool {
        matches!(self, Identity::Root { .. })
    }
}

/// Everything that a plan depends on.
#[derive(Debug, Clone)]
pub struct RingInput<'a> {
    pub admitted: &'a ValidSpec,
    pub identity: Identity,
    /// The warden program on the host.
    pub warden: PathBuf,
    /// The program that runs tools on the host, if a wasm ring comes inside this one.
    pub wasm_warden: Option<PathBuf>,
    /// Host paths to show read-only.
    pub shown: Vec<ShownPath>,
    /// Host paths that must not be seen, where their directories are; for the process ring's view.
    pub masked: Vec<PathBuf>,
    pub workspace: Option<WorkspaceInput>,
    /// Top-level entries of the host's root that are links, with their targets, and those that are
    /// directories; for the process ring's view.
    pub host_links: Vec<(String, PathBuf)>,
    pub host_dirs: Vec<String>,
    /// Directories of the host that are shown and in which something is mounted, with all that is in
    /// them.
    pub in_parts: BTreeMap<PathBuf, Vec<Part>>,
    /// Image layers on the host, bottom to top; for the container ring.
    pub layers: Vec<PathBuf>,
    /// The user that the image wants, already looked up.
    pub image_user: (u32, u32),
    /// How many control-group join files will be passed.
    pub cgroup_files: u16,
    /// Limits that no control group keeps here.
    pub without_cgroup: Vec<LimitName>,
    /// Seccomp filters that are on the engine itself: every ring inherits them.
    pub inherited_filters: u32,
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

    /// Which filter the ring itself has.
    pub fn filter(&self) -> JobFilter {
        let spec = self.admitted.spec();
        JobFilter::of(spec, spec.wall.rings_in_ring() > 0)
    }

    /// How many filters the ring has: those that the launcher puts on it, and those from before.
    pub fn seccomp_filters(&self) -> u32 {
        self.inherited_filters + if self.is_watched() { 2 } else { 1 }
    }
}

/// What the filter of a ring says about more filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobFilter {
    /// None can be added.
    Sealed,
    /// The warden can add some, for the ring that it raises; it seals each of its jobs.
    Nesting,
    /// Jobs can add some: that was asked for.
    Open,
}

impl JobFilter {
    /// `nests` is whether another ring comes inside this one.
    pub fn of(spec: &SandboxSpec, nests: bool) -> JobFilter {
        match (spec.own_filters, nests) {
            (true, _) => JobFilter::Open,
            (false, true) => JobFilter::Nesting,
            (false, false) => JobFilter::Sealed,
        }
    }

    pub(crate) fn step(self) -> Step {
        match self {
            JobFilter::Sealed => Step::Seccomp,
            JobFilter::Nesting | JobFilter::Open => Step::SeccompNesting,
        }
    }

    /// What a ring's warden is told.
    pub(crate) fn warden_arguments(self) -> Vec<String> {
        Vec::from_iter((self == JobFilter::Nesting).then(|| SEAL_JOBS.to_owned()))
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
    /// The identity that was checked: nothing else may be shown.
    pub id: FileId,
    pub is_dir: bool,
    /// Files and directories in it that the ring must not see, relative to it.
    pub hidden: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    /// Canonical host path of a directory.
    pub path: PathBuf,
    /// The identity that was checked: nothing else may be the workspace. None in a guest, which
    /// holds nothing but its own copy.
    pub id: Option<FileId>,
    /// Where the ring shows it: the same path, unless something of the ring stands in the way.
    pub inside: PathBuf,
    pub mode: WorkspaceMode,
    pub owner_uid: u32,
    pub owner_gid: u32,
    /// Whether an overlay would be of no use in a ring of one user, as something in it belongs to others.
    pub copied: bool,
    /// Files that the ring must not see, relative to the workspace.
    pub hidden: Vec<PathBuf>,
    /// The directories above them, parents first, with their modes: the overlay shows ours.
    pub hidden_parents: Vec<(PathBuf, u32)>,
}

impl WorkspaceInput {
    /// What stands in for an overlay over it. The ring of an ordinary user has that one user and
    /// group, and an overlay copies up nothing that belongs to others.
    pub(crate) fn without_marks(&self, identity: Identity) -> WithoutMarks {
        match identity {
            Identity::User { uid, gid }
                if self.copied || (uid, gid) != (self.owner_uid, self.owner_gid) =>
            {
                WithoutMarks::AlwaysCopy
            }
            _ => WithoutMarks::Copy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: PrivateIds = PrivateIds { first: 1024, count: 512 };

    fn highest(maps: &[IdRange]) -> u32 {
        maps.iter().map(|range| range.outside + range.count - 1).max().unwrap()
    }

    #[test]
    fn a_small_range_has_every_user_that_an_image_may_want() {
        let root = Identity::Root { ids: SMALL };
        for user in [0, 33, 509, 510, 999, 1000, 65_534, 65_535] {
            let maps = root.many_users((user, 0));
            let has = |range: &IdRange| (range.inside..range.inside + range.count).contains(&user);
            assert_eq!(maps.uids.iter().filter(|range| has(range)).count(), 1, "{user}: {maps:?}");
            assert!(maps.uids.iter().all(|range| range.outside >= SMALL.first));
            assert!(highest(&maps.uids) < root.gateway_user().unwrap(), "{user}: {maps:?}");
        }
    }

    #[test]
    fn the_user_of_a_ring_is_in_the_range_however_small_it_is() {
        for identity in [Identity::Root { ids: SMALL }, Identity::ConfinedRoot { ids: SMALL }] {
            let maps = identity.one_user(identity.user_inside());
            assert_eq!((maps.uids[0].inside, maps.uids[0].count), (1000, 1));
            assert_eq!(maps.uids[0].outside, 1024 + 510);
        }
    }

    #[test]
    fn a_range_of_the_usual_size_is_given_as_a_whole_but_for_the_gateway() {
        let maps = Identity::root(1 << 30).many_users((1000, 1000));
        assert_eq!(maps.uids, [IdRange { inside: 0, outside: 1 << 30, count: 65_535 }]);
    }

    #[test]
    fn no_ring_has_the_gateways_user_whatever_user_an_image_wants() {
        let full = PrivateIds::full(1 << 30);
        for ids in [SMALL, full] {
            for identity in [Identity::Root { ids }, Identity::ConfinedRoot { ids }] {
                let gateway = identity.gateway_user().unwrap();
                for user in [0, 1, 1000, 65_533, 65_534, 65_535, 65_536, 1_000_620_000] {
                    let wanted = (user, user);
                    for maps in [identity.many_users(wanted), identity.one_user(wanted)] {
                        assert!(highest(&maps.uids) < gateway, "{identity:?} {user}: {maps:?}");
                        assert!(highest(&maps.gids) < gateway, "{identity:?} {user}: {maps:?}");
                        let has = |range: &IdRange| {
                            range.inside <= user && user - range.inside < range.count
                        };
                        assert!(maps.uids.iter().any(has), "{identity:?} {user}: {maps:?}");
                        assert!(apart(&maps.uids), "{identity:?} {user}: {maps:?}");
                    }
                }
            }
        }
    }

    /// The kernel refuses maps in which an id stands twice.
    fn apart(maps: &[IdRange]) -> bool {
        let outside = |range: &IdRange| range.outside..range.outside + range.count;
        let pairs =
            maps.iter().enumerate().flat_map(|(at, a)| maps[at + 1..].iter().map(move |b| (a, b)));
        pairs
            .into_iter()
            .all(|(a, b)| outside(a).end <= outside(b).start || outside(b).end <= outside(a).start)
    }
}
