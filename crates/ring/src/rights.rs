//! A change of where a job may write, as steps for a ring that is up.
//!
//! The workspace is one mount. What stays writable in a workspace that is not gets a mount of its
//! own over the same place; so does what must stay read-only in one that is writable. The kernel
//! refuses to take write access from a mount through which a file is open for writing: then nothing
//! changes.

use std::path::{Path, PathBuf};

use ringwall_linux::step::{Place, Slot, Step};
use ringwall_spec::WriteRights;

const USER_NAMESPACE: Slot = Slot::passed(0);
const MOUNT_NAMESPACE: Slot = Slot::passed(1);
const WORKSPACE: Slot = Slot(0);
/// The workspace where no job sees it.
const ASIDE: Slot = Slot(1);
const FIRST_FREE: u16 = 2;

/// Steps for a launcher that gets the ring's user and mount namespaces. `workspace` and `user` are
/// as the ring has them.
pub fn rights_steps(
    workspace: &Path,
    (uid, gid): (u32, u32),
    before: &WriteRights,
    after: &WriteRights,
) -> Vec<Step> {
    let at = |path: &Path| Place::new(WORKSPACE, path);
    let mut steps = vec![
        Step::EnterUserNamespace { from: USER_NAMESPACE },
        Step::EnterMountNamespace { from: MOUNT_NAMESPACE },
        Step::BecomeUser { uid, gid },
        Step::OpenHere { path: workspace.into(), into: WORKSPACE },
    ];
    let opened = own_mounts(before);
    let mut mounts = vec![WORKSPACE];
    for (path, slot) in opened.iter().zip((FIRST_FREE..).map(Slot)) {
        steps.push(Step::OpenPlace { at: at(path), into: slot });
        mounts.push(slot);
    }
    steps.push(Step::ForbidWrites { mounts });
    // Exceptions lie on top of what they are exceptions from.
    let laid = before.read_only.iter().chain(opened);
    steps.extend(laid.map(|path| Step::DetachMount { at: at(path) }));
    if after.is_everywhere() {
        steps.push(Step::AllowWrites { mount: WORKSPACE });
    } else if !after.writable.is_empty() {
        steps.push(Step::OpenTree { at: at(Path::new("")), recursive: true, into: ASIDE });
        steps.push(Step::AllowWrites { mount: ASIDE });
        for path in own_mounts(after) {
            steps.push(Step::MakeDirs { at: Place::new(ASIDE, path), mode: 0o755 });
            let tree = Slot(FIRST_FREE);
            steps.push(Step::OpenTree { at: at(path), recursive: true, into: tree });
            steps.push(Step::AllowWrites { mount: tree });
            steps.push(Step::Attach { tree, at: at(path) });
        }
    }
    let exceptions = after.read_only.iter().filter(|path| covers(&after.writable, path));
    steps.extend(exceptions.map(|path| Step::KeepReadOnly { at: at(path) }));
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

fn covers(list: &[PathBuf], path: &Path) -> bool {
    list.iter().any(|above| path.starts_with(above))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(writable: &[&str], read_only: &[&str]) -> WriteRights {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        WriteRights { writable: paths(writable), read_only: paths(read_only) }
    }

    fn steps(before: &WriteRights, after: &WriteRights) -> Vec<Step> {
        rights_steps(Path::new("/workspace"), (1000, 1000), before, after)
    }

    fn position(steps: &[Step], wanted: impl Fn(&Step) -> bool) -> usize {
        steps.iter().position(wanted).unwrap()
    }

    #[test]
    fn writing_is_forbidden_everywhere_before_anything_is_allowed() {
        let steps = steps(&rights(&["docs"], &[]), &rights(&["src"], &[]));
        let forbidden = position(&steps, |step| matches!(step, Step::ForbidWrites { .. }));
        let allowed = position(&steps, |step| matches!(step, Step::AllowWrites { .. }));
        assert!(forbidden < allowed);
        let mounts = vec![WORKSPACE, Slot(FIRST_FREE)];
        assert_eq!(steps[forbidden], Step::ForbidWrites { mounts });
    }

    #[test]
    fn the_workspace_itself_stays_read_only_unless_all_of_it_is_writable() {
        let opens = |after| {
            let steps = steps(&WriteRights::everywhere(), &after);
            steps.contains(&Step::AllowWrites { mount: WORKSPACE })
        };
        assert!(opens(WriteRights::everywhere()));
        assert!(opens(rights(&["", "docs"], &["ci"])));
        assert!(!opens(rights(&["docs"], &[])));
        assert!(!opens(WriteRights::nowhere()));
    }

    #[test]
    fn what_lies_in_another_writable_place_gets_no_mount_of_its_own() {
        let steps = steps(&WriteRights::nowhere(), &rights(&["a/b", "a", "ab"], &[]));
        let attached: Vec<_> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Attach { at, .. } => Some(at.path.as_path().to_owned()),
                _ => None,
            })
            .collect();
        assert_eq!(attached, [PathBuf::from("a"), PathBuf::from("ab")]);
    }
}
