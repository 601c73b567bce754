//! Which kernel each wall needs, and what is different on an older one. The only place that says so:
//! doctor, the documents and the tests of other machines read these tables.
//!
//! Versions are those of kernel.org. A distribution may have taken a feature into an older kernel, so
//! nothing is refused for its version: the trial of a feature decides, and the table explains it.

use std::fmt;

use serde::Serialize;

/// Major and minor version of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The oldest kernel that tests boot. On an older one a wall is refused where it misses a feature, and
/// nothing is promised where it misses none.
pub const OLDEST_TESTED: Version = Version(6, 1);

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wall {
    Process,
    Container,
    Wasm,
    Vm,
    /// A copy-on-write workspace in any of the others.
    Workspace,
}

impl Wall {
    pub const ALL: [Wall; 5] =
        [Wall::Process, Wall::Container, Wall::Wasm, Wall::Vm, Wall::Workspace];

    pub fn name(self) -> &'static str {
        match self {
            Wall::Process => "process",
            Wall::Container => "container",
            Wall::Wasm => "wasm",
            Wall::Vm => "vm",
            Wall::Workspace => "workspace",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum User {
    Root,
    Ordinary,
}

impl User {
    pub const ALL: [User; 2] = [User::Root, User::Ordinary];

    pub fn name(self) -> &'static str {
        match self {
            User::Root => "root",
            User::Ordinary => "user",
        }
    }
}

/// Whose walls need a feature or have a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    Everybody,
    RootOnly,
}

impl Who {
    fn includes(self, user: User) -> bool {
        self == Who::Everybody || user == User::Root
    }
}

/// A feature without which walls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Needed {
    /// As doctor calls it.
    pub feature: &'static str,
    pub since: Version,
    pub walls: &'static [Wall],
    pub who: Who,
    pub purpose: &'static str,
}

/// Walls that work on an older kernel, too, but not in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub feature: &'static str,
    /// On kernels before this one.
    pub below: Version,
    pub walls: &'static [Wall],
    pub who: Who,
    pub kind: Kind,
    pub what: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Another layer holds the same, so nothing gets through. One layer stands where two would.
    OneLayerLess,
    /// Just as strong, by other means.
    OtherMeans,
    /// Jobs or people can do less.
    CanDoLess,
}

/// Every wall has a ring on the host: that of a microVM is its jail.
const EVERY: &[Wall] = &Wall::ALL;
const LAYERS: &[Wall] = &[Wall::Container, Wall::Workspace];
/// The host's files are under overlays, too.
const OVERLAYS: &[Wall] = &[Wall::Process, Wall::Container, Wall::Workspace];

const fn needed(feature: &'static str, since: Version, purpose: &'static str) -> Needed {
    Needed { feature, since, walls: EVERY, who: Who::Everybody, purpose }
}

/// Sorted by version.
pub const NEEDED: &[Needed] = &[
    needed("new-mount-api", Version(5, 2), "mounts that are complete before anybody sees them"),
    needed("pidfd", Version(5, 3), "processes that cannot be mixed up"),
    needed("clone3", Version(5, 5), "all namespaces in one call"),
    needed("openat2", Version(5, 6), "paths that cannot lead outside"),
    needed("close-range", Version(5, 11), "no inherited descriptor"),
    Needed {
        feature: "overlayfs",
        since: Version(5, 11),
        walls: OVERLAYS,
        who: Who::Everybody,
        purpose: "overlays in a user namespace",
    },
    needed("mount-setattr", Version(5, 12), "whole trees read-only"),
    Needed {
        feature: "idmapped-mount",
        since: Version(5, 12),
        walls: LAYERS,
        who: Who::RootOnly,
        purpose: "files of the host shown with the ring's owners",
    },
    needed("landlock", Version(5, 13), "files denied by the kernel a second time"),
    Needed {
        feature: "idmapped-layers",
        since: Version(5, 19),
        walls: &[Wall::Container],
        who: Who::RootOnly,
        purpose: "overlays over files that are shown with other owners",
    },
];

/// Sorted by version.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        feature: "landlock-refer",
        below: Version(5, 19),
        walls: EVERY,
        who: Who::Everybody,
        kind: Kind::CanDoLess,
        what: "jobs cannot rename or link files from one directory to another (EXDEV)",
    },
    Difference {
        feature: "landlock-truncate",
        below: Version(6, 2),
        walls: EVERY,
        who: Who::Everybody,
        kind: Kind::OneLayerLess,
        what: "read-only mounts alone keep files from being cut short, without Landlock",
    },
    Difference {
        feature: "tiocsti-off",
        below: Version(6, 2),
        walls: EVERY,
        who: Who::Everybody,
        kind: Kind::OneLayerLess,
        what: "the seccomp filter alone keeps jobs from typing into the caller's terminal",
    },
    Difference {
        feature: "idmapped-tmpfs",
        below: Version(6, 3),
        walls: LAYERS,
        who: Who::RootOnly,
        kind: Kind::CanDoLess,
        what: "a workspace or RINGWALL_HOME on tmpfs is refused: keep it on ext4, xfs or btrfs",
    },
    Difference {
        feature: "tmpfs-user-xattr",
        below: Version(6, 6),
        walls: &[Wall::Workspace],
        who: Who::Everybody,
        kind: Kind::OtherMeans,
        what: "the workspace is copied, so it must fit in the disk limit of the sandbox",
    },
    Difference {
        feature: "tmpfs-user-xattr",
        below: Version(6, 6),
        walls: &[Wall::Container],
        who: Who::Everybody,
        kind: Kind::CanDoLess,
        what: "jobs cannot remove or replace directories that come with the image (EIO)",
    },
    Difference {
        feature: "landlock-ioctl",
        below: Version(6, 10),
        walls: EVERY,
        who: Who::Everybody,
        kind: Kind::OneLayerLess,
        what: "the ring's own /dev and the seccomp filter alone keep devices away",
    },
    Difference {
        feature: "landlock-scope",
        below: Version(6, 12),
        walls: EVERY,
        who: Who::Everybody,
        kind: Kind::OneLayerLess,
        what: "namespaces alone hold signals and abstract sockets in",
    },
    Difference {
        feature: "overlay-descriptors",
        below: Version(6, 13),
        walls: OVERLAYS,
        who: Who::Everybody,
        kind: Kind::OtherMeans,
        what: "overlays take their layers by the names of descriptors, at most 500",
    },
];

/// What one kind of user gets of one wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Support {
    pub wall: Wall,
    pub user: User,
    /// The first kernel with all that the wall needs, and the feature that came last.
    pub since: Version,
    pub because: &'static str,
    pub differences: Vec<Difference>,
}

/// The whole table: every wall for every kind of user.
pub fn table() -> Vec<Support> {
    let users = |wall| User::ALL.map(|user| support(wall, user));
    Wall::ALL.into_iter().flat_map(users).collect()
}

pub fn support(wall: Wall, user: User) -> Support {
    let last = NEEDED
        .iter()
        .filter(|needed| needed.walls.contains(&wall) && needed.who.includes(user))
        .max_by_key(|needed| needed.since);
    let differences =
        DIFFERENCES.iter().filter(|d| d.walls.contains(&wall) && d.who.includes(user));
    Support {
        wall,
        user,
        since: last.map_or(Version(0, 0), |needed| needed.since),
        because: last.map_or("", |needed| needed.feature),
        differences: differences.copied().collect(),
    }
}

/// The kernel from which on a feature is there, or nothing is different for want of it.
pub fn since(feature: &str) -> Option<Version> {
    let needed = NEEDED.iter().filter(|needed| needed.feature == feature).map(|n| n.since);
    let different = DIFFERENCES.iter().filter(|d| d.feature == feature).map(|d| d.below);
    needed.chain(different).max()
}

/// What to do about a missing feature, if a newer kernel is the answer.
pub fn boot(feature: &str) -> Option<String> {
    since(feature).map(|version| format!("boot Linux {version} or later"))
}

/// What is different for want of a feature, in the words of the table.
pub fn without(feature: &str) -> Option<String> {
    let different = DIFFERENCES.iter().filter(|d| d.feature == feature);
    let told: Vec<&str> = different.map(|d| d.what).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wall_works_on_the_oldest_tested_kernel_for_everybody() {
        let table = table();
        assert_eq!(table.len(), Wall::ALL.len() * User::ALL.len());
        for row in &table {
            assert!(row.since <= OLDEST_TESTED, "{row:?}");
            assert!(!row.because.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn root_needs_more_where_files_of_the_host_have_other_owners() {
        let since = |wall, user| support(wall, user).since;
        assert_eq!(since(Wall::Container, User::Root), Version(5, 19));
        assert_eq!(since(Wall::Container, User::Ordinary), Version(5, 13));
        assert_eq!(since(Wall::Process, User::Root), since(Wall::Process, User::Ordinary));
    }

    #[test]
    fn the_lists_are_sorted_and_say_something() {
        assert!(NEEDED.is_sorted_by_key(|needed| needed.since));
        assert!(DIFFERENCES.is_sorted_by_key(|difference| difference.below));
        for needed in NEEDED {
            assert!(!needed.purpose.is_empty() && !needed.walls.is_empty(), "{needed:?}");
        }
        for difference in DIFFERENCES {
            assert!(!difference.what.is_empty() && !difference.walls.is_empty(), "{difference:?}");
        }
    }

    #[test]
    fn a_missing_feature_names_its_kernel() {
        assert_eq!(boot("tmpfs-user-xattr").as_deref(), Some("boot Linux 6.6 or later"));
        assert_eq!(boot("overlayfs").as_deref(), Some("boot Linux 5.11 or later"));
        assert_eq!(boot("a-free-lunch"), None);
        assert!(without("tmpfs-user-xattr").unwrap().contains("workspace is copied"));
        assert_eq!(without("pidfd"), None);
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(Version(6, 10) > Version(6, 9) && Version(6, 0) > Version(5, 19));
        assert_eq!(Version(6, 10).to_string(), "6.10");
    }
}
