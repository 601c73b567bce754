//! The host's side of a copy: directories as descriptors, one name at a time.
//!
//! Invariant: no name that came from a sandbox is used before [`Name::new`] has accepted it, and
//! no symbolic link is followed below the path that the person typed.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, fchmod, fstat, mkdirat, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;

use crate::report::printable_bytes;

/// One component of a path: no slash, no NUL, not `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name(CString);

impl Name {
    pub(super) fn new(bytes: &[u8]) -> anyhow::Result<Name> {
        let usable = !bytes.is_empty() && !bytes.contains(&b'/') && bytes != b"." && bytes != b"..";
        let name = usable.then(|| CString::new(bytes).ok()).flatten();
        let name = name.with_context(|| {
            format!("the name {:?} cannot be used for a file here", printable_bytes(bytes))
        })?;
        Ok(Name(name))
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.to_bytes()
    }
}

/// What stands at a path of the host.
#[derive(Debug)]
pub(super) enum Source {
    File(File, RawMode),
    Directory(OwnedFd, RawMode),
    /// A symbolic link, device, pipe or socket: nothing to copy.
    Other,
}

/// Opens a path that a person typed. The last component must not be a link.
pub(super) fn open_source(path: &Path) -> anyhow::Result<Source> {
    open_at(CWD, path)
        .with_context(|| format!("{} cannot be read", printable_bytes(path.as_os_str().as_bytes())))
}

/// Opens an entry of a directory.
pub(super) fn open_entry(directory: &OwnedFd, name: &Name) -> anyhow::Result<Source> {
    open_at(directory, name.0.as_c_str())
        .with_context(|| format!("{} cannot be read", printable_bytes(name.as_bytes())))
}

fn open_at(directory: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> io::Result<Source> {
    // Non-blocking, so that a pipe without a writer is seen for what it is.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(directory, path, flags | OFlags::NOCTTY, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::LOOP | Errno::NXIO | Errno::NODEV) => return Ok(Source::Other),
        Err(error) => return Err(error.into()),
    };
    let stat = fstat(&opened)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Source::File(File::from(opened), stat.st_mode & 0o777),
        FileType::Directory => Source::Directory(opened, stat.st_mode & 0o777),
        _ => Source::Other,
    })
}

/// The names in a directory, sorted, so that copies are the same every time.
pub(super) fn names(directory: &OwnedFd) -> anyhow::Result<Vec<Name>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if bytes != b"." && bytes != b".." {
            names.push(Name::new(bytes)?);
        }
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// Where a copy from a sandbox arrives: an open directory and the name to make in it.
#[derive(Debug)]
pub(super) struct Target {
    directory: OwnedFd,
    name: Name,
}

impl Target {
    /// As `cp` does it: an existing directory receives `source_name`, anything else is the new
    /// name itself.
    pub(super) fn at(path: &Path, source_name: Option<&OsStr>) -> anyhow::Result<Target> {
        let shown = || printable_bytes(path.as_os_str().as_bytes());
        let open = |path: &Path| {
            openat(CWD, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        };
        if let Ok(directory) = open(path) {
            let name = source_name.with_context(|| {
                format!("the source has no name to use in {}; give the new name", shown())
            })?;
            return Ok(Target { directory, name: Name::new(name.as_bytes())? });
        }
        let name = path.file_name().with_context(|| format!("{} is not a file name", shown()))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = open(parent.unwrap_or(Path::new(".")))
            .with_context(|| format!("the directory for {} cannot be opened", shown()))?;
        Ok(Target { directory, name: Name::new(name.as_bytes())? })
    }

    /// Makes the directory, or enters the one that is there, and gives the place of an entry.
    pub(super) fn make_directory(&self, mode: RawMode) -> anyhow::Result<OwnedFd> {
        let name = self.name.0.as_c_str();
        let shown = || printable_bytes(self.name.as_bytes());
        match mkdirat(&self.directory, name, Mode::from_raw_mode(mode & 0o777 | 0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("{} cannot be made", shown()));
            }
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        openat(&self.directory, name, flags, Mode::empty())
            .with_context(|| format!("{} is not a directory here; remove it first", shown()))
    }

    pub(super) fn inside(directory: &OwnedFd, name: Name) -> anyhow::Result<Target> {
        Ok(Target { directory: directory.try_clone()?, name })
    }

    /// Writes the file beside its place and moves it there when it is whole: a link with that
    /// name is replaced, not followed.
    pub(super) fn write_file(
        &self,
        mode: RawMode,
        fill: impl FnOnce(&mut File) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let partial = format!(".ringwall-cp-{}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let private = Mode::RUSR | Mode::WUSR;
        let created = openat(&self.directory, &partial, flags | OFlags::CLOEXEC, private);
        let mut file = File::from(created.context("no file can be made there")?);
        let written = fill(&mut file).and_then(|()| {
            fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
            renameat(&self.directory, &partial, &self.directory, self.name.0.as_c_str())
                .with_context(|| {
                    let name = printable_bytes(self.name.as_bytes());
                    format!("{name} is in the way; remove it first")
                })
        });
        if written.is_err() {
            let _ = unlinkat(&self.directory, &partial, AtFlags::empty());
        }
        written
    }
}

#[cfg(test)]
mod tests;
