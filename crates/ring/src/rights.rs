//! A change of where a job may write, as steps for a ring that is up.
//!
//! What a job sees as its workspace becomes read-only for good, with everything that lies in it: a
//! job that holds a directory of it holds nothing that it could write to. Over it comes a fresh
//! mount of the same files, and in that one more for every place that stays writable, or read-only.
//! Until it is all there, nothing can be written.

use std::path::{Path, PathBuf};

use ringwall_linux::step::{Place, Slot, Step};
use ringwall_spec::WriteRights;

const USER_NAMESPACE: Slot = Slot::passed(0);
const MOUNT_NAMESPACE: Slot = Slot::passed(1);
/// The workspace as it was.
const OLD: Slot = Slot(0);
const FRESH: Slot = Slot(1);
/// The workspace where no job sees it.
const ASIDE: Slot = Slot(2);
const PART: Slot = Slot(3);

/// Steps for a launcher that gets the ring's user and mount namespaces. `workspace` and `user` are
/// as the ring has them.
pub fn rights_steps(workspace: &Path, (uid, gid): (u32, u32), rights: &WriteRights) -> Vec<Step> {
    let tree = |at, into| Step::OpenTree { at, recursive: false, into };
    let mut steps = vec![
        Step::EnterUserNamespace { from: USER_NAMESPACE },
        Step::EnterMountNamespace { from: MOUNT_NAMESPACE },
        Step::BecomeUser { uid, gid },
        Step::OpenHere { path: workspace.into(), into: OLD },
        Step::ForbidWrites { mount: OLD },
        tree(Place::root(OLD), FRESH),
        Step::Attach { tree: FRESH, at: Place::root(OLD) },
    ];
    let parts = own_mounts(rights);
    if !parts.is_empty() {
        steps.extend([tree(Place::root(FRESH), ASIDE), Step::AllowWrites { mount: ASIDE }]);
    }
    for path in parts {
        steps.extend([
            Step::MakeDirs { at: Place::new(ASIDE, path), mode: 0o755 },
            tree(Place::new(FRESH, path), PART),
            Step::Attach { tree: PART, at: Place::new(FRESH, path) },
        ]);
        steps.extend(exceptions(rights, path));
        steps.push(Step::AllowWrites { mount: PART });
    }
    if rights.is_everywhere() {
        steps.extend(exceptions(rights, Path::new("")));
        steps.push(Step::AllowWrites { mount: FRESH });
    }
    steps
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

fn exceptions<'a>(rights: &'a WriteRights, below: &'a Path) -> impl Iterator<Item = Step> + 'a {
    let inside = rights.read_only.iter().filter(move |path| path.starts_with(below));
    inside.map(|path| Step::KeepReadOnly { at: Place::new(FRESH, path) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(writable: &[&str], read_only: &[&str]) -> WriteRights {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        WriteRights { writable: paths(writable), read_only: paths(read_only) }
    }

    fn steps(rights: &WriteRights) -> Vec<Step> {
        rights_steps(Path::new("/workspace"), (1000, 1000), rights)
    }

    fn attached(steps: &[Step]) -> Vec<PathBuf> {
        let places = steps.iter().filter_map(|step| match step {
            Step::Attach { at, .. } | Step::KeepReadOnly { at } => Some(at.path.as_path().into()),
            _ => None,
        });
        places.collect()
    }

    #[test]
    fn nothing_is_writable_before_all_that_must_not_be_is_in_its_place() {
        for rights in [rights(&["", "a"], &["a/b", "c"]), rights(&["a"], &["a/b"])] {
            let steps = steps(&rights);
            let forbidden = steps.iter().position(|it| *it == Step::ForbidWrites { mount: OLD });
            let seen = |it: &Step| match it {
                Step::AllowWrites { mount } => *mount != ASIDE,
                _ => false,
            };
            let allowed = steps.iter().position(seen).unwrap();
            let last = steps.iter().rposition(|it| matches!(it, Step::KeepReadOnly { .. }));
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
}
