//! Puts whiteouts for hidden files into a fresh upper directory, before the overlay is mounted.
//!
//! A whiteout is a character device 0:0, which any user may make since Linux 5.8. The
//! directories above it must be there with the mode of the host's, as the overlay shows the
//! upper one's.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Gid, Mode, Uid};

use crate::beneath;
use crate::path::RelPath;
use crate::show::quoted;

/// Who is to own planted directories, as the host numbers users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    #[error("cannot hide {path} from the sandbox: the path is not usable")]
    BadPath { path: String },
    #[error("cannot hide {path} from the sandbox")]
    Create { path: String, source: std::io::Error },
    #[error(
        "cannot hide {path} from the sandbox: its directory changed while the run was prepared; run again"
    )]
    Moved { path: String },
}

/// The directories that must be in the upper directory before the whiteouts of `hidden` can be,
/// with their modes, parents first.
pub fn hidden_parents(
    workspace: BorrowedFd<'_>,
    hidden: &[PathBuf],
) -> Result<Vec<(PathBuf, u32)>, PlantError> {
    // In order of path, so parents come first.
    let mut parents: BTreeMap<PathBuf, u32> = BTreeMap::new();
    for path in hidden {
        for parent in checked(path)?.ancestors() {
            if parents.contains_key(parent) {
                break;
            }
            let stat = beneath::stat(workspace, parent)
                .map_err(|error| PlantError::Create { path: quoted(path), source: error.into() })?
                .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
                .ok_or_else(|| PlantError::Moved { path: quoted(path) })?;
            parents.insert(parent.to_owned(), stat.st_mode & 0o777);
        }
    }
    Ok(parents.into_iter().collect())
}

/// Makes the whiteouts and the directories above them. `owner` is for root, whose sandbox has
/// another user; without it the directories belong to the caller.
///
/// The caller's own user must be one of the file system's: on a tmpfs that was mounted in a user
/// namespace without host root the kernel refuses host root with EOVERFLOW. The launcher, which
/// is inside, does it there from [`hidden_parents`].
pub fn plant_whiteouts(
    upper: BorrowedFd<'_>,
    workspace: BorrowedFd<'_>,
    hidden: &[PathBuf],
    owner: Option<Owner>,
) -> Result<(), PlantError> {
    let parents = hidden_parents(workspace, hidden)?;
    let planted = |path: &Path, done: rustix::io::Result<()>| {
        done.map_err(|error| PlantError::Create { path: quoted(path), source: error.into() })
    };
    for (path, _) in &parents {
        planted(path, make_directory(upper, &checked(path)?, owner))?;
    }
    for path in hidden {
        planted(path, make_whiteout(upper, &checked(path)?))?;
    }
    // Modes last, deepest first: a directory without write permission could not be filled.
    for (path, mode) in parents.iter().rev() {
        let handle = beneath::open_handle(upper, path);
        planted(path, handle.and_then(|handle| beneath::chmod_handle(handle, *mode)))?;
    }
    Ok(())
}

fn make_directory(
    upper: BorrowedFd<'_>,
    path: &RelPath,
    owner: Option<Owner>,
) -> rustix::io::Result<()> {
    let parent = beneath::open_dir_handle(upper, path.parent().as_ref())?;
    fs::mkdirat(&parent, path.file_name(), Mode::RWXU)?;
    let Some(owner) = owner else { return Ok(()) };
    let dir = beneath::open_dir(upper, Some(path))?;
    fs::fchown(dir, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn make_whiteout(upper: BorrowedFd<'_>, path: &RelPath) -> rustix::io::Result<()> {
    let parent = beneath::open_dir_handle(upper, path.parent().as_ref())?;
    let kind = FileType::CharacterDevice;
    fs::mknodat(&parent, path.file_name(), kind, Mode::empty(), 0)
}

fn checked(path: &Path) -> Result<RelPath, PlantError> {
    RelPath::new(path).map_err(|_| PlantError::BadPath { path: quoted(path) })
}
