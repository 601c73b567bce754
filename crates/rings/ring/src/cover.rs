//! Covers for files that came to a directory after a ring began to see it, as steps for a ring that
//! is up.

use std::path::PathBuf;

use ringwall_linux::step::{Place, Slot, Step};

const USER_NAMESPACE: Slot = Slot::passed(0);
const MOUNT_NAMESPACE: Slot = Slot::passed(1);
/// The directory as the ring has it mounted. No path of the ring leads there: a job can rename what
/// is above.
const DIRECTORY: Slot = Slot::passed(2);
const COVERS: Slot = Slot(0);
/// On the ring's own /dev, which no job can change.
const COVERS_PATH: &str = "/dev/.ringwall";

/// Steps for a launcher that gets the ring's user and mount namespaces and the mount of the directory.
/// The user is as the ring has it.
pub fn cover_steps(uid: u32, gid: u32, paths: &[PathBuf]) -> Vec<Step> {
    let mut steps = vec![
        Step::EnterUserNamespace { from: USER_NAMESPACE },
        Step::EnterMountNamespace { from: MOUNT_NAMESPACE },
        Step::BecomeUser { uid, gid },
        Step::OpenHere { path: COVERS_PATH.into(), into: COVERS },
    ];
    steps.extend(paths.iter().map(|path| Step::Mask {
        file_cover: Place::new(COVERS, "no-file"),
        dir_cover: Place::new(COVERS, "no-dir"),
        at: Place::new(DIRECTORY, path),
    }));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_is_found_by_the_mount_and_not_by_a_path_of_the_ring() {
        let steps = cover_steps(1000, 1000, &["a/.env".into(), ".netrc".into()]);
        let covered: Vec<_> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Mask { at, .. } => Some((at.dir, at.path.as_path().to_owned())),
                _ => None,
            })
            .collect();
        assert_eq!(covered, [(DIRECTORY, "a/.env".into()), (DIRECTORY, ".netrc".into())]);
        let opened = steps.iter().filter(|step| matches!(step, Step::OpenHere { .. })).count();
        assert_eq!(opened, 1, "only the covers are opened by a path");
    }
}
