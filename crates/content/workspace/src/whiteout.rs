//! Puts whiteouts for hidden files into a fresh upper directory, before the overlay is mounted.
//!
//! A whiteout is a character device 0:0, which any user may make since Linux 5.8. The
//! directories above it must be there with the mode of the host's, as the overlay shows the
//! upper one's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use ringwall_safekeeping::beneath::{Mounts, open as open_beneath};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, StatxAttributes, StatxFlags, Uid};
use rustix::io::Errno;

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
        planted(path, plant(upper, &checked(path)?))?;
    }
    // Modes last, deepest first: a directory without write permission could not be filled.
    for (path, mode) in parents.iter().rev() {
        let handle = beneath::open_handle(upper, path);
        planted(path, handle.and_then(|handle| beneath::chmod_handle(handle, *mode)))?;
    }
    Ok(())
}

/// Something to be done to the upper directory.
pub type Deed<'a> = &'a dyn Fn() -> rustix::io::Result<()>;

/// A workspace that a sandbox sees through an overlay, while it does.
pub struct LiveView<'a> {
    /// The overlay, by a mount that can be written.
    pub view: BorrowedFd<'a>,
    pub upper: BorrowedFd<'a>,
    pub workspace: BorrowedFd<'a>,
    /// Does something as a user that the file system of the upper directory knows.
    pub as_owner: &'a dyn Fn(Deed<'_>) -> rustix::io::Result<()>,
}

impl std::fmt::Debug for LiveView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveView").field("view", &self.view).finish_non_exhaustive()
    }
}

impl LiveView<'_> {
    /// Takes what the host has at `path` out of the view. What the sandbox has put there itself stays, and
    /// then the host's would be seen as soon as the sandbox removes its own, so this has to be done again
    /// after that. Fails if something of the host's could not be taken out.
    pub fn white_out(&self, path: &Path) -> Result<(), PlantError> {
        let path = checked(path)?;
        self.take_out(&path, 0).map_err(|error| PlantError::Create {
            path: quoted(path.as_path()),
            source: error.into(),
        })
    }

    fn take_out(&self, path: &RelPath, depth: usize) -> rustix::io::Result<()> {
        if depth > MAX_HIDDEN_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let Some(seen) = beneath::stat(self.view, path.as_path())? else {
            return self.plant_ahead(path);
        };
        let is_dir = is_directory(&seen);
        if !is_dir && beneath::stat(self.upper, path.as_path())?.is_some() {
            return Ok(());
        }
        if is_dir && self.covers_the_hosts(path) {
            return Ok(());
        }
        if is_dir {
            let listed = beneath::open_dir(self.workspace, Some(path))
                .and_then(|dir| beneath::list(dir, MAX_HIDDEN_ENTRIES));
            let entries = match listed {
                Ok(entries) => entries.ok_or(Errno::OVERFLOW)?,
                // The host has no directory there any more.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
                Err(error) => return Err(error),
            };
            for entry in entries {
                let below =
                    RelPath::in_dir(Some(path), &entry.name).map_err(|_| Errno::NAMETOOLONG)?;
                self.take_out(&below, depth + 1)?;
            }
        }
        // By the overlay itself, which knows what it has remembered of the name.
        let parent = beneath::open_dir_handle(self.view, path.parent().as_ref())?;
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match fs::unlinkat(&parent, path.file_name(), flags) {
            // All that the host had in a directory is out by now: the rest is the sandbox's own.
            Err(Errno::NOENT | Errno::NOTEMPTY) => Ok(()),
            done => done,
        }
    }

    /// A name that was looked up before the host had it is missing in the overlay, but only as long as
    /// the kernel remembers that. A job can make the kernel forget. The same is true of the directories above
    /// the name, so these are put into the upper directory too.
    fn plant_ahead(&self, path: &RelPath) -> rustix::io::Result<()> {
        if beneath::stat(self.workspace, path.as_path())?.is_none() {
            return Ok(());
        }
        for parent in parents_outermost_first(path) {
            if !self.has_upper_directory(&parent)? {
                return Ok(());
            }
        }
        if beneath::stat(self.upper, path.as_path())?.is_some() {
            return Ok(());
        }
        let directory = beneath::open_dir_handle(self.upper, path.parent().as_ref())?;
        let plant = || make_whiteout(directory.as_fd(), path.file_name());
        unless_there((self.as_owner)(&plant))
    }

    /// Sees to it that a directory of the host is in the upper directory too. False if the sandbox can never
    /// see what the host has in it.
    fn has_upper_directory(&self, path: &RelPath) -> rustix::io::Result<bool> {
        if let Some(stat) = beneath::stat(self.upper, path.as_path())? {
            return Ok(is_directory(&stat) && !self.covers_the_hosts(path));
        }
        let hosts = beneath::stat(self.workspace, path.as_path())?.filter(is_directory);
        let Some(hosts) = hosts else { return Ok(false) };
        let seen = beneath::stat(self.view, path.as_path())?.filter(is_directory);
        if let Some(seen) = seen {
            // Any change has the overlay make it in the upper directory.
            let handle = beneath::open_handle(self.view, path.as_path())?;
            beneath::chmod_handle(handle, seen.st_mode & 0o7777)?;
            return Ok(true);
        }
        let above = beneath::open_dir_handle(self.upper, path.parent().as_ref())?;
        let make = || {
            fs::mkdirat(&above, path.file_name(), Mode::RWXU)?;
            let made = beneath::open_handle(self.upper, path.as_path())?;
            beneath::chmod_handle(made, hosts.st_mode & 0o777)
        };
        unless_there((self.as_owner)(&make))?;
        Ok(true)
    }

    /// Whether a directory of the upper directory stands in place of the host's. What cannot be read does
    /// not count: the worst is then a whiteout too many.
    fn covers_the_hosts(&self, path: &RelPath) -> bool {
        let opened = beneath::open_dir(self.upper, Some(path));
        opened.is_ok_and(|dir| beneath::xattr(&dir, beneath::OPAQUE) == Ok(Some(b"y".to_vec())))
    }
}

fn parents_outermost_first(path: &RelPath) -> Vec<RelPath> {
    let mut parents: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
    parents.reverse();
    parents
}

/// A job may have been quicker: then there is something at that name.
fn unless_there(made: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

fn is_directory(stat: &fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Makes a whiteout of a name in an upper directory.
fn make_whiteout(directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0)
}

/// Whether a file or directory at `path` can be seen through a view of a workspace: it is there, and
/// no cover is mounted on it. A link holds nothing.
pub fn is_seen(view: BorrowedFd<'_>, path: &Path) -> std::io::Result<bool> {
    match beneath::open_handle(view, path) {
        Ok(handle) => {
            let kind = FileType::from_raw_mode(fs::fstat(handle)?.st_mode);
            Ok(kind != FileType::Symlink)
        }
        Err(Errno::XDEV) => is_seen_through_mounts(view, path),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A mount is on the way: a cover, or a directory that is kept where it is by being mounted on itself. A cover
/// is of another file system than the directory that it is in.
fn is_seen_through_mounts(view: BorrowedFd<'_>, path: &Path) -> std::io::Result<bool> {
    let look_at = |path: &Path| {
        let opened = open_beneath(view, path, OFlags::PATH, Mounts::Entered)?;
        fs::statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
    };
    let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
    let found =
        look_at(path).and_then(|it| Ok((it, look_at(directory.unwrap_or(Path::new(".")))?)));
    let (found, directory) = match found {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        other => other?,
    };
    let is_link = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Symlink;
    let device = |it: &fs::Statx| (it.stx_dev_major, it.stx_dev_minor);
    let is_cover = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
        && device(&found) != device(&directory);
    Ok(!is_link && !is_cover)
}

/// Directories within one another that a hidden one may have.
const MAX_HIDDEN_DEPTH: usize = 64;
/// Entries of one hidden directory.
const MAX_HIDDEN_ENTRIES: u64 = 10_000;

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

fn plant(upper: BorrowedFd<'_>, path: &RelPath) -> rustix::io::Result<()> {
    let parent = beneath::open_dir_handle(upper, path.parent().as_ref())?;
    make_whiteout(parent.as_fd(), path.file_name())
}

fn checked(path: &Path) -> Result<RelPath, PlantError> {
    RelPath::new(path).map_err(|_| PlantError::BadPath { path: quoted(path) })
}
