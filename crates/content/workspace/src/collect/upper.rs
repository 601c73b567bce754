//! The sandbox's side: walks the upper directory and tells what each entry in it means.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FileType, Stat};
use rustix::io::Errno;

use super::lower::{Host, Look};
use super::store::Kept;
use super::{CollectError, Collector};
use crate::apply::STAGING_PREFIX;
use crate::beneath;
use crate::manifest::{After, Before, Change, NoteKind, RefusedWhy, closed_mode};
use crate::path::{EscapedBytes, RelPath};
use crate::pattern;

/// A directory of the upper side that is still to be read.
#[derive(Debug)]
struct Pending {
    /// `None` is the workspace itself.
    path: Option<RelPath>,
    /// The host has a directory here too.
    on_host: bool,
    /// The sandbox does not see the host's entries here.
    opaque: bool,
    /// Empty files with a whiteout attribute are whiteouts here.
    attribute_whiteouts: bool,
    /// It is part of a copy, and the very directory that was copied.
    copied: bool,
}

/// What the overlay attributes of a directory say.
enum DirMeaning {
    Plain,
    Opaque,
    AttributeWhiteouts,
    Refused,
}

/// What an entry of the upper directory takes the place of.
#[derive(Debug, Default)]
struct HostSide {
    before: Option<Before>,
    /// Deletions inside a host directory that became something else.
    gone: Vec<Change>,
}

/// Attributes that make overlayfs take content or names from elsewhere. With `userxattr` mounts
/// the kernel never writes them; a forged one must not be believed.
const REDIRECTING: [&str; 3] =
    ["user.overlay.redirect", "user.overlay.metacopy", "trusted.overlay.redirect"];
const WHITEOUT: &str = "user.overlay.whiteout";

impl Collector<'_> {
    pub(super) fn walk(&mut self) -> Result<(), CollectError> {
        let root = beneath::open_dir(self.upper, None).map_err(upper_error)?;
        let mut pending = vec![match dir_meaning(&root) {
            DirMeaning::Refused => return Err(upper_error(Errno::INVAL)),
            meaning => Pending {
                path: None,
                on_host: true,
                opaque: matches!(meaning, DirMeaning::Opaque),
                attribute_whiteouts: matches!(meaning, DirMeaning::AttributeWhiteouts),
                copied: self.copied.is_some(),
            },
        }];
        // A list of its own instead of recursion: depth is the sandbox's choice.
        while let Some(directory) = pending.pop() {
            self.directory(&directory, &mut pending)?;
        }
        Ok(())
    }

    fn directory(&mut self, at: &Pending, pending: &mut Vec<Pending>) -> Result<(), CollectError> {
        let listed = beneath::open_dir(self.upper, at.path.as_ref())
            .and_then(|dir| Ok((beneath::list(&dir, self.entries_left)?, dir)));
        let (entries, dir) = match (listed, &at.path) {
            (Ok((Some(entries), dir)), _) => (entries, dir),
            (Ok((None, _)), _) => {
                return Err(CollectError::TooManyEntries { max: self.bounds.max_entries });
            }
            (Err(error), None) => return Err(upper_error(error)),
            (Err(_), Some(path)) => {
                self.refuse(path.clone(), RefusedWhy::Unreadable);
                return Ok(());
            }
        };
        self.count(entries.len())?;
        for entry in &entries {
            match RelPath::in_dir(at.path.as_ref(), &entry.name) {
                Ok(path) if path.depth() > self.bounds.max_depth => {
                    self.refuse(path, RefusedWhy::TooDeep);
                }
                Ok(path) => self.entry(at, &dir, path, pending)?,
                Err(_) => {
                    let parent = at.path.clone();
                    parent.into_iter().for_each(|path| self.refuse(path, RefusedWhy::TooDeep));
                }
            }
        }
        if at.copied {
            self.delete_removed(at.path.as_ref(), &entries)?;
        } else if at.opaque && at.on_host {
            self.delete_unlisted(at.path.as_ref(), &entries)?;
        }
        Ok(())
    }

    /// Deletes the entries that were copied into a directory and are gone now.
    fn delete_removed(
        &mut self,
        directory: Option<&RelPath>,
        listed: &[beneath::Entry],
    ) -> Result<(), CollectError> {
        let is_listed = |name: &OsStr| {
            listed.binary_search_by(|known| known.name.as_os_str().cmp(name)).is_ok()
        };
        let names = self.copied.iter().flat_map(|copied| copied.names(directory));
        let removed: Vec<_> = names
            .filter(|name| !is_listed(name))
            .filter_map(|name| RelPath::in_dir(directory, name).ok())
            .collect();
        removed.into_iter().try_for_each(|path| self.delete(path))
    }

    fn entry(
        &mut self,
        at: &Pending,
        dir: &OwnedFd,
        path: RelPath,
        pending: &mut Vec<Pending>,
    ) -> Result<(), CollectError> {
        self.count_bytes(path.as_path().as_os_str().len())?;
        let name = Path::new(path.file_name());
        let seen =
            beneath::open_handle(dir, name).and_then(|handle| Ok((fs::fstat(&handle)?, handle)));
        let (stat, handle) = match seen {
            Ok(seen) => seen,
            // A sandbox that still runs may have removed it.
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => {
                self.refuse(path, RefusedWhy::Unreadable);
                return Ok(());
            }
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            return if at.on_host { self.delete(path) } else { Ok(()) };
        }
        if pattern::fold(path.file_name().as_encoded_bytes()).starts_with(STAGING_PREFIX.as_bytes())
        {
            self.refuse(path, RefusedWhy::ReservedName);
            return Ok(());
        }
        let copied = self.copied.as_ref().filter(|_| at.copied && kind != FileType::Directory);
        if copied.is_some_and(|copied| copied.is_untouched(&path, &stat)) {
            return Ok(());
        }
        match kind {
            FileType::Directory => self.subdirectory(at, &handle, &stat, path, pending),
            FileType::RegularFile => self.file(at, dir, &handle, &stat, path),
            FileType::Symlink => self.symlink(at, dir, path),
            other => {
                self.refuse(path, refused_kind(other));
                Ok(())
            }
        }
    }

    fn subdirectory(
        &mut self,
        at: &Pending,
        handle: &OwnedFd,
        stat: &Stat,
        path: RelPath,
        pending: &mut Vec<Pending>,
    ) -> Result<(), CollectError> {
        let Ok(dir) = self.open_upper_dir(handle, stat, &path) else {
            self.refuse(path, RefusedWhy::Unreadable);
            return Ok(());
        };
        let meaning = dir_meaning(&dir);
        if matches!(meaning, DirMeaning::Refused) {
            self.refuse(path, RefusedWhy::OverlayAttribute);
            return Ok(());
        }
        let Some(host) = self.host_side(at, &path, FileType::Directory)? else {
            return Ok(());
        };
        let host_mode = match host.before {
            Some(Before::Directory { mode }) => Some(mode),
            _ => None,
        };
        let mode = closed_mode(stat.st_mode, host_mode);
        if host_mode.is_none_or(|host_mode| host_mode & 0o777 != mode) {
            self.note_special_bits(&path, stat);
            self.record_against(path.clone(), host, After::Directory { mode });
        }
        let was = self.copied.as_ref().filter(|_| at.copied);
        let copied = was.is_some_and(|was| was.is_same(&path, stat));
        let replaced = was.is_some_and(|was| was.had(&path)) && !copied;
        pending.push(Pending {
            path: Some(path),
            on_host: host_mode.is_some(),
            opaque: at.opaque || replaced || matches!(meaning, DirMeaning::Opaque),
            attribute_whiteouts: matches!(meaning, DirMeaning::AttributeWhiteouts),
            copied,
        });
        Ok(())
    }

    fn file(
        &mut self,
        at: &Pending,
        dir: &OwnedFd,
        handle: &OwnedFd,
        stat: &Stat,
        path: RelPath,
    ) -> Result<(), CollectError> {
        let Ok(file) = self.open_upper_file(dir, handle, stat, &path) else {
            self.refuse(path, RefusedWhy::Unreadable);
            return Ok(());
        };
        match file_meaning(&file, stat, at.attribute_whiteouts) {
            FileMeaning::Content => {}
            FileMeaning::Whiteout => {
                return if at.on_host { self.delete(path) } else { Ok(()) };
            }
            FileMeaning::Refused => {
                self.refuse(path, RefusedWhy::OverlayAttribute);
                return Ok(());
            }
        }
        let Some(host) = self.host_side(at, &path, FileType::RegularFile)? else {
            return Ok(());
        };
        let (number, content) = match self.store.add(file, stat)? {
            Kept::Blob { number, content } => (number, content),
            Kept::TooLarge => {
                self.refuse(path, RefusedWhy::FileTooLarge);
                return Ok(());
            }
            Kept::Unreadable => {
                self.refuse(path, RefusedWhy::Unreadable);
                return Ok(());
            }
        };
        let host_mode = match host.before {
            Some(Before::File { mode, .. }) => Some(mode),
            _ => None,
        };
        let mode = closed_mode(stat.st_mode, host_mode);
        let mut blob = Some(number);
        if let Some(Before::File { mode: host_mode, sha256: Some(sha256), .. }) = &host.before
            && *sha256 == content.sha256
        {
            self.store.forget(number, content.size, stat);
            if host_mode & 0o777 == mode {
                return Ok(());
            }
            blob = None;
        }
        self.note_special_bits(&path, stat);
        if stat.st_nlink > 1 {
            self.note(&path, NoteKind::HardLinkSplit);
        }
        let after = After::File { mode, size: content.size, sha256: content.sha256, blob };
        self.record_against(path, host, after);
        Ok(())
    }

    fn symlink(&mut self, at: &Pending, dir: &OwnedFd, path: RelPath) -> Result<(), CollectError> {
        let Ok(target) = beneath::read_link(dir, Path::new(path.file_name())) else {
            self.refuse(path, RefusedWhy::Unreadable);
            return Ok(());
        };
        self.count_bytes(target.len())?;
        let target = EscapedBytes(target);
        let Some(host) = self.host_side(at, &path, FileType::Symlink)? else {
            return Ok(());
        };
        let same = matches!(&host.before, Some(Before::Symlink { target: was }) if *was == target);
        if !same {
            self.record_against(path, host, After::Symlink { target });
        }
        Ok(())
    }

    /// The host's side of an entry that is there in the upper directory, or `None` if the entry
    /// was refused because of it.
    fn host_side(
        &mut self,
        at: &Pending,
        path: &RelPath,
        kind: FileType,
    ) -> Result<Option<HostSide>, CollectError> {
        if !at.on_host {
            return Ok(Some(HostSide::default()));
        }
        // Only a file can have the content of a file.
        let look = if kind == FileType::RegularFile { Look::AtContent } else { Look::AtMetadata };
        let before = match self.host(path, look)? {
            Host::Nothing => return Ok(Some(HostSide::default())),
            Host::Other => {
                self.refuse(path.clone(), RefusedWhy::UnknownOnHost);
                return Ok(None);
            }
            Host::Known(before) => before,
        };
        let mut gone = Vec::new();
        if matches!(before, Before::Directory { .. }) && kind != FileType::Directory {
            let expanded = self.expand(path)?;
            if expanded.kept || self.is_hidden(path) {
                self.refuse(path.clone(), RefusedWhy::CoversHiddenFiles);
                return Ok(None);
            }
            gone = expanded.inside;
        }
        Ok(Some(HostSide { before: Some(before), gone }))
    }

    fn record_against(&mut self, path: RelPath, host: HostSide, after: After) {
        self.manifest.changes.extend(host.gone);
        self.record(path, host.before, Some(after));
    }

    fn note_special_bits(&mut self, path: &RelPath, stat: &Stat) {
        if stat.st_mode & 0o7000 != 0 {
            self.note(path, NoteKind::SpecialBitsRemoved);
        }
    }

    /// Opens a directory of the upper side. An ordinary user's sandbox can take its owner's
    /// permission to read it away; the owner takes it back until the walk is over.
    fn open_upper_dir(
        &mut self,
        handle: &OwnedFd,
        stat: &Stat,
        path: &RelPath,
    ) -> rustix::io::Result<OwnedFd> {
        let needed = 0o500;
        if stat.st_mode & needed != needed && !rustix::process::geteuid().is_root() {
            let mode = stat.st_mode & 0o7777;
            beneath::chmod_handle(handle, mode | needed)?;
            self.unlocked.push((path.clone(), mode));
        }
        beneath::open_dir(self.upper, Some(path))
    }

    /// Opens a file of the upper directory: its attributes, too, need the permission to read.
    fn open_upper_file(
        &mut self,
        dir: &OwnedFd,
        handle: &OwnedFd,
        stat: &Stat,
        path: &RelPath,
    ) -> rustix::io::Result<File> {
        let name = Path::new(path.file_name());
        let opened = match beneath::open_file(dir, name) {
            Err(Errno::ACCESS) => {
                let mode = stat.st_mode & 0o7777;
                beneath::chmod_handle(handle, mode | 0o400)?;
                self.unlocked.push((path.clone(), mode));
                beneath::open_file(dir, name)
            }
            opened => opened,
        };
        opened.map(|(file, _)| file)
    }

    /// Gives the files that were made readable their modes back.
    pub(super) fn lock_again(&mut self) {
        for (path, mode) in std::mem::take(&mut self.unlocked).into_iter().rev() {
            // Only matters to a sandbox that still runs, which may well have removed it.
            let _ = beneath::open_handle(self.upper, path.as_path())
                .and_then(|handle| beneath::chmod_handle(handle, mode));
        }
    }
}

enum FileMeaning {
    Content,
    Whiteout,
    Refused,
}

fn file_meaning(file: impl AsFd, stat: &Stat, attribute_whiteouts: bool) -> FileMeaning {
    if redirects(&file) {
        return FileMeaning::Refused;
    }
    match beneath::xattr(&file, WHITEOUT) {
        Ok(None) => FileMeaning::Content,
        Ok(Some(_)) if attribute_whiteouts && stat.st_size == 0 => FileMeaning::Whiteout,
        Ok(Some(_)) | Err(_) => FileMeaning::Refused,
    }
}

fn dir_meaning(dir: impl AsFd) -> DirMeaning {
    if redirects(&dir) {
        return DirMeaning::Refused;
    }
    match beneath::xattr(&dir, beneath::OPAQUE).as_ref().map(Option::as_deref) {
        Ok(None) => DirMeaning::Plain,
        Ok(Some(b"y")) => DirMeaning::Opaque,
        Ok(Some(b"x")) => DirMeaning::AttributeWhiteouts,
        Ok(Some(_)) | Err(_) => DirMeaning::Refused,
    }
}

fn redirects(file: impl AsFd) -> bool {
    REDIRECTING.iter().any(|name| !matches!(beneath::xattr(&file, name), Ok(None)))
}

fn refused_kind(kind: FileType) -> RefusedWhy {
    match kind {
        FileType::Fifo => RefusedWhy::Fifo,
        FileType::Socket => RefusedWhy::Socket,
        _ => RefusedWhy::Device,
    }
}

fn upper_error(error: Errno) -> CollectError {
    CollectError::Upper { source: error.into() }
}
