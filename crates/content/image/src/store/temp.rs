//! Work in progress: files and directories that vanish unless they are put in their place.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Access, new_file, random_name};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::{Store, StoreError};

/// A file or directory under `tmp/`, removed when dropped.
#[derive(Debug)]
pub(crate) struct Temp {
    path: PathBuf,
    moved: bool,
}

impl Store {
    pub(super) fn temp_file(&self) -> Result<(File, Temp), StoreError> {
        let path = self.temp_path()?;
        let file = new_file(&path, Access::Change)
            .map_err(|error| StoreError::io("create", &path)(error.into()))?;
        Ok((file, Temp { path, moved: false }))
    }

    /// A file without a name, gone when it is closed.
    pub(crate) fn anonymous_file(&self) -> Result<File, StoreError> {
        self.make_layout()?;
        Ok(self.temp_file()?.0)
    }

    pub(super) fn temp_directory(&self) -> Result<Temp, StoreError> {
        let path = self.temp_path()?;
        DirBuilder::new().mode(0o700).create(&path).map_err(StoreError::io("create", &path))?;
        Ok(Temp { path, moved: false })
    }

    /// Deletes a whole directory. It first loses its name, so that nobody sees half of it.
    pub(super) fn delete_directory(&self, path: &Path) -> Result<(), StoreError> {
        let doomed = self.temp_path()?;
        fs::rename(path, &doomed).map_err(StoreError::io("remove", path))?;
        remove_tree(&doomed).map_err(StoreError::io("remove", &doomed))
    }

    fn temp_path(&self) -> Result<PathBuf, StoreError> {
        let directory = self.root.join("tmp");
        let name = random_name::<16>()
            .map_err(|error| StoreError::io("choose a name in", &directory)(error.into()))?;
        Ok(directory.join(name))
    }
}

impl Temp {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the file to `place`, over whatever file is there.
    pub(super) fn replace(mut self, place: &Path) -> Result<(), StoreError> {
        fs::rename(&self.path, place).map_err(StoreError::io("write", place))?;
        self.moved = true;
        Ok(())
    }

    /// Moves the directory to `place`, unless someone else was faster: theirs is the same.
    pub(super) fn settle(mut self, place: &Path) -> Result<(), StoreError> {
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(CWD, &self.path, CWD, place, flags) {
            Ok(()) => self.moved = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => {}
            Err(errno) => return Err(StoreError::io("write", place)(errno.into())),
        }
        Ok(())
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if !self.moved {
            // Nothing more can be done here; `gc` finds what is left.
            let _ = remove_tree(&self.path);
        }
    }
}

/// Removes a file or a directory with all it holds, also directories that an image made unreadable.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
    let name = CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    remove_beneath(parent.as_fd(), &name)?;
    Ok(())
}

/// One level of recursion for each directory; the unpacker bounds how deep they go.
fn remove_beneath(parent: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(parent, name, flags, Mode::empty());
    let directory = match open() {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            open()?
        }
        other => other?,
    };
    // An ordinary user needs write access to empty it, whatever mode the image gave it.
    rustix::fs::fchmod(&directory, Mode::RWXU)?;
    let mut children = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let child = entry?.file_name().to_owned();
        if child.as_bytes() != b"." && child.as_bytes() != b".." {
            children.push(child);
        }
    }
    for child in &children {
        remove_beneath(directory.as_fd(), child)?;
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}
