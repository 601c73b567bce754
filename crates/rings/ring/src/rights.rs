//! A change of where a job may write, as steps for a ring that is up.
//!
//! What a job sees as its workspace becomes read-only for good, with everything that lies in it: a
//! job that holds a directory of it holds nothing that it could write to. Over it comes a fresh
//! mount of the same files, and in that one more for every place that stays writable, or read-only.
//! Until it is all there, nothing can be written.
//!
//! Invariant: the workspace is the mount whose descriptor was kept when the ring was raised. No path
//! of the ring is looked up to find it.

use std::path::{Path, PathBuf};

use ringwall_linux::step::{Place, Slot, Step};
use ringwall_spec::WriteRights;

/// The workspace as it was when the ring was raised. A new tree that is attached there lands on top of all
/// that was attached before.
const WORKSPACE: Slot = Slot::passed(0);
const USER_NAMESPACE: Slot = Slot::passed(1);
const MOUNT_NAMESPACE: Slot = Slot::passed(2);
const FRESH: Slot = Slot(1);
/// The workspace where no job sees it.
const ASIDE: Slot = Slot(2);
const FIRST_PART: u16 = 3;

/// Who makes the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RightsChange {
    /// A launcher outside, which gets the workspace and the user and mount namespaces of the ring.
    /// The user is as the ring has it.
    InRing { uid: u32, gid: u32 },
    /// A launcher that sees what the jobs see, and gets the workspace alone.
    Here,
}

impl RightsChange {
    /// What a launcher does first.
    pub fn enter(self) -> Vec<Step> {
        match self {
            RightsChange::InRing { uid, gid } => vec![
                Step::EnterUserNamespace { from: USER_NAMESPACE },
                Step::EnterMountNamespace { from: MOUNT_NAMESPACE },
                Step::BecomeUser { uid, gid },
            ],
            RightsChange::Here => Vec::new(),
        }
    }

    /// Takes all rights away. Fails, and changes nothing, while a file is open for writing.
    pub fn forbid() -> Vec<Step> {
        vec![Step::ForbidWrites { mount: WORKSPACE }]
    }

    /// Gives these rights, after [`RightsChange::forbid`]. `present` are read-only places that must
    /// be there: the host has them.
    pub fn allow(rights: &WriteRights, present: &[PathBuf]) -> Vec<Step> {
        let tree = |at, into| Step::OpenTree { at, recursive: false, into };
        let mut steps = vec![
            tree(Place::root(WORKSPACE), FRESH),
            Step::Attach { tree: FRESH, at: Place::root(WORKSPACE) },
        ];
        let parts = own_mounts(rights);
        if !parts.is_empty() {
            steps.extend([tree(Place::root(FRESH), ASIDE), Step::AllowWrites { mount: ASIDE }]);
        }
        let mut writable = Vec::new();
        for (number, path) in (FIRST_PART..).zip(parts) {
            let part = Slot(number);
            steps.extend([
                Step::MakeDirs { at: Place::new(ASIDE, path), mode: 0o755 },
                tree(Place::new(FRESH, path), part),
                Step::Attach { tree: part, at: Place::new(FRESH, path) },
            ]);
            steps.extend(exceptions(rights, present, path));
            writable.push(part);
        }
        if rights.is_everywhere() {
            steps.extend(exceptions(rights, present, Path::new("")));
            writable.push(FRESH);
        }
        // Nothing before all is in its place: what fails on the way leaves nothing writable.
        steps.extend(writable.into_iter().map(|mount| Step::AllowWrites { mount }));
        steps
    }
}

/// The places of the workspace that a ring with these rights must have a writable mount for, and no
/// others.
pub fn expected_mounts(rights: &WriteRights) -> Vec<PathBuf> {
    if rights.is_everywhere() {
        return vec![PathBuf::new()];
    }
    own_mounts(rights).into_iter().cloned().collect()
}

/// Places that are writable by a mount of their own.
fn own_mounts(rights: &WriteRights) -> Vec<&PathBuf> {
    if rights.is_everywhere() {
        return Vec::new();
    }
    let mut paths: Vec<_> = rights.writable.iter().collect();
    paths.sort();
    paths.dedup_by(|below, above| below.starts_with(above));
    paths
}

fn exceptions<'a>(
    rights: &'a WriteRights,
    present: &'a [PathBuf],
    below: &'a Path,
) -> impl Iterator<Item = Step> + 'a {
    let inside = rights.read_only.iter().filter(move |path| path.starts_with(below));
    inside.map(|path| Step::KeepReadOnly {
        at: Place::new(FRESH, path),
        may_be_missing: !present.contains(path),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: RightsChange = RightsChange::InRing { uid: 1000, gid: 1000 };

    fn rights(writable: &[&str], read_only: &[&str]) -> WriteRights {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        WriteRights { writable: paths(writable), read_only: paths(read_only) }
    }

    fn steps(rights: &WriteRights) -> Vec<Step> {
        [CHANGE.enter(), RightsChange::forbid(), RightsChange::allow(rights, &[])].concat()
    }

    fn attached(steps: &[Step]) -> Vec<PathBuf> {
        let places = steps.iter().filter_map(|step| match step {
            Step::Attach { at, .. } | Step::KeepReadOnly { at, .. } => {
                Some(at.path.as_path().into())
            }
            _ => None,
        });
        places.collect()
    }

    #[test]
    fn nothing_is_writable_before_all_that_must_not_be_is_in_its_place() {
        let several = rights(&["a", "b"], &["a/b", "b/c"]);
        for rights in [rights(&["", "a"], &["a/b", "c"]), rights(&["a"], &["a/b"]), several] {
            let steps = steps(&rights);
            let forbidden =
                steps.iter().position(|it| *it == Step::ForbidWrites { mount: WORKSPACE });
            let seen = |it: &Step| match it {
                Step::AllowWrites { mount } => *mount != ASIDE,
                _ => false,
            };
            let allowed = steps.iter().position(seen).unwrap();
            let last = steps.iter().rposition(|it| {
                matches!(
                    it,
                    Step::KeepReadOnly { .. } | Step::Attach { .. } | Step::MakeDirs { .. }
                )
            });
            assert!(forbidden.unwrap() < last.unwrap() && last.unwrap() < allowed);
        }
    }

    #[test]
    fn the_workspace_itself_stays_read_only_unless_all_of_it_is_writable() {
        let opens = |rights| steps(&rights).contains(&Step::AllowWrites { mount: FRESH });
        assert!(opens(WriteRights::everywhere()));
        assert!(opens(rights(&["", "docs"], &["ci"])));
        assert!(!opens(rights(&["docs"], &[])));
        assert!(!opens(WriteRights::nowhere()));
        assert!(steps(&WriteRights::nowhere()).iter().all(|it| it.name() != "allow writes"));
    }

    #[test]
    fn what_lies_in_another_writable_place_gets_no_mount_of_its_own() {
        let steps = steps(&rights(&["a/b", "a", "ab"], &["elsewhere"]));
        assert_eq!(attached(&steps), [PathBuf::new(), "a".into(), "ab".into()]);
    }

    #[test]
    fn no_path_of_the_ring_leads_to_the_workspace() {
        let all = steps(&rights(&["", "a"], &["a/b"]));
        assert!(all.iter().all(|step| !matches!(step, Step::OpenHere { .. })));
    }

    #[test]
    fn a_read_only_place_that_the_host_has_must_be_there() {
        let rights = rights(&[""], &["ci", "never"]);
        let kept = RightsChange::allow(&rights, &["ci".into()]);
        let strict: Vec<_> = kept
            .iter()
            .filter_map(|step| match step {
                Step::KeepReadOnly { at, may_be_missing } => {
                    Some((at.path.as_path().to_owned(), *may_be_missing))
                }
                _ => None,
            })
            .collect();
        assert_eq!(strict, [("ci".into(), false), ("never".into(), true)]);
    }
}
