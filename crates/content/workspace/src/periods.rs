//! When a change was made, so that it is judged by the rights of that time.
//!
//! The time between two changes of rights is a period. At the end of each, while nothing can be
//! written, the upper directory is looked through, and whatever is not as it was at the last look was
//! changed in this period. What a sandbox leaves behind is the work of the period that changed it
//! last: it is taken over if that one's rights allow it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringwall_spec::WriteRights;
use rustix::fs::{self, FileType, Stat};
use rustix::io::Errno;

use crate::beneath;
use crate::collect::{Bounds, CollectError};
use crate::content::{self, Digest};
use crate::manifest::{After, Change};
use crate::path::RelPath;

/// By what a changed file is told from an unchanged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The inode and when it was last changed: the kernel alone sets that time. A file with several names
    /// is told by its content, too. It may be open by a name where the sandbox may write, and writes to its
    /// mapped pages do not set that time on a tmpfs.
    ByInode,
    /// The content: for files that a guest handed over, whose kernel is not to be believed.
    ByContent,
}

/// One entry of the upper directory. Whiteouts share an inode, and the time of a directory changes
/// with every entry in it, so neither counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Look {
    Whiteout,
    Directory { inode: u64, mode: u32, opaque: bool },
    File { inode: u64, mode: u32, size: i64, changed: (i64, u64), linked: Linked },
    Content { mode: u32, sha256: Digest },
    Link { target: Vec<u8> },
    Other { kind: u32 },
}

/// Whether a file has several names, and its content if it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linked {
    OneName,
    Content(Digest),
    /// It could not be read, or not within the bounds. So it may have changed at any time.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    /// `None` if it was there and is not any more.
    look: Option<Look>,
    /// The period of the last change.
    changed: usize,
    /// Since which period the host's entries of that name, and below it, are not to be seen.
    hides: Option<usize>,
    /// The last look that found it.
    seen: u64,
}

/// The rights that counted, one after the other, and the changes that were made under each.
#[derive(Debug, Clone)]
pub struct Periods {
    rights: Vec<WriteRights>,
    told: Told,
    marks: BTreeMap<PathBuf, Mark>,
    looks: u64,
}

impl Periods {
    pub fn new(first: WriteRights, told: Told) -> Periods {
        Periods { rights: vec![first], told, marks: BTreeMap::new(), looks: 0 }
    }

    /// Rights that never changed.
    pub fn always(rights: WriteRights) -> Periods {
        Periods::new(rights, Told::ByInode)
    }

    /// A new period begins, after [`Periods::look`].
    pub fn begin(&mut self, rights: WriteRights) {
        self.rights.push(rights);
    }

    fn now(&self) -> usize {
        self.rights.len().saturating_sub(1)
    }

    /// Looks through the upper directory at the end of a period.
    pub fn look(&mut self, upper: BorrowedFd<'_>, bounds: &Bounds) -> Result<(), CollectError> {
        self.looks += 1;
        let mut looking = Looking {
            upper,
            told: self.told,
            bounds,
            left: bounds.max_entries,
            hash_left: bounds.max_hash_bytes,
            linked: BTreeMap::new(),
        };
        let mut pending = vec![None];
        while let Some(directory) = pending.pop() {
            for (path, look) in looking.directory(directory.as_ref())? {
                if matches!(look, Look::Directory { .. }) {
                    pending.push(Some(path.clone()));
                }
                self.note(path.as_path(), look);
            }
        }
        let (now, looks) = (self.now(), self.looks);
        for mark in self.marks.values_mut() {
            if mark.look.is_some() && mark.seen != looks {
                mark.look = None;
                mark.changed = now;
            }
        }
        Ok(())
    }

    fn note(&mut self, path: &Path, look: Look) {
        let (now, seen) = (self.now(), self.looks);
        let hiding = !matches!(look, Look::Directory { opaque: false, .. });
        let Some(mark) = self.marks.get_mut(path) else {
            let mark = Mark { look: Some(look), changed: now, hides: hiding.then_some(now), seen };
            self.marks.insert(path.to_owned(), mark);
            return;
        };
        mark.seen = seen;
        mark.hides = if hiding { mark.hides.or(Some(now)) } else { None };
        let is_unknown = matches!(look, Look::File { linked: Linked::Unknown, .. });
        if is_unknown || mark.look.as_ref() != Some(&look) {
            mark.changed = now;
            mark.look = Some(look);
        }
    }

    /// The period that a change is the work of. What has no entry of its own in the upper directory
    /// is gone because something above it hides it.
    pub(crate) fn of(&self, path: &RelPath) -> usize {
        if let Some(mark) = self.marks.get(path.as_path()) {
            return mark.changed;
        }
        let above = path.ancestors().filter_map(|above| self.marks.get(above));
        // A copy in place of an overlay has no mark for entries that were removed before the first look.
        above.filter_map(|mark| mark.hides).next().unwrap_or_default()
    }

    /// Whether a change was made where the sandbox could write then. Directories on the way to where it
    /// may are no changes of its making.
    pub(crate) fn allow(&self, change: &Change) -> bool {
        let made = change.before.is_none() && matches!(change.after, Some(After::Directory { .. }));
        let mut writable = self.rights.iter().flat_map(|rights| &rights.writable);
        if made && writable.any(|path| path.starts_with(change.path.as_path())) {
            return true;
        }
        let rights = self.rights.get(self.of(&change.path));
        rights.is_some_and(|rights| rights.allows(change.path.as_path()))
    }
}

struct Looking<'a> {
    upper: BorrowedFd<'a>,
    told: Told,
    bounds: &'a Bounds,
    /// Entries that may still be found; a long path counts as several, so that this bounds memory.
    left: u64,
    /// Bytes of files with several names that may still be read.
    hash_left: u64,
    /// The contents of those files, by inode. All names of a file are read once.
    linked: BTreeMap<u64, Linked>,
}

impl Looking<'_> {
    fn directory(&mut self, path: Option<&RelPath>) -> Result<Vec<(RelPath, Look)>, CollectError> {
        let wrong = |error: Errno| CollectError::Upper { source: error.into() };
        let too_many = || CollectError::TooManyEntries { max: self.bounds.max_entries };
        let opened = match path {
            None => beneath::open_dir(self.upper, None).map_err(wrong)?,
            // Not to be read, so not to be judged: its entries count as new when they are seen.
            Some(path) => match open_locked(self.upper, path) {
                Ok(opened) => opened,
                Err(_) => return Ok(Vec::new()),
            },
        };
        let entries = beneath::list(&opened, self.left).map_err(wrong)?.ok_or_else(too_many)?;
        let mut looks = Vec::with_capacity(entries.len());
        for entry in entries {
            let Ok(path) = RelPath::in_dir(path, &entry.name) else { continue };
            let Ok(look) = self.entry(&opened, &path) else { continue };
            let cost = 1 + path.as_path().as_os_str().len() as u64 / 256;
            self.left = self.left.checked_sub(cost).ok_or_else(too_many)?;
            looks.push((path, look));
        }
        Ok(looks)
    }

    fn entry(&mut self, dir: &OwnedFd, path: &RelPath) -> rustix::io::Result<Look> {
        let name = Path::new(path.file_name());
        let handle = beneath::open_handle(dir, name)?;
        let stat = fs::fstat(&handle)?;
        let mode = stat.st_mode & 0o7777;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice if stat.st_rdev == 0 => Look::Whiteout,
            FileType::Directory => {
                // Made anew by each copy that a guest hands over.
                let inode = if self.told == Told::ByInode { stat.st_ino } else { 0 };
                Look::Directory { inode, mode, opaque: is_opaque(dir, name, &stat) }
            }
            FileType::RegularFile => self.file(dir, name, &stat),
            FileType::Symlink => Look::Link { target: beneath::read_link(dir, name)? },
            other => Look::Other { kind: other.as_raw_mode() },
        })
    }

    fn file(&mut self, dir: &OwnedFd, name: &Path, stat: &Stat) -> Look {
        let mode = stat.st_mode & 0o7777;
        if self.told == Told::ByContent
            && let Ok((mut file, _)) = beneath::open_file(dir, name)
            && let Ok(Some(content)) = content::hash(&mut file, self.bounds.max_total_bytes)
        {
            return Look::Content { mode, sha256: content.sha256 };
        }
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        let linked = if stat.st_nlink > 1 { self.linked(dir, name, stat) } else { Linked::OneName };
        Look::File { inode: stat.st_ino, mode, size: stat.st_size, changed, linked }
    }

    /// The content of a file with several names.
    fn linked(&mut self, dir: &OwnedFd, name: &Path, stat: &Stat) -> Linked {
        if let Some(known) = self.linked.get(&stat.st_ino) {
            return *known;
        }
        let read = beneath::open_file(dir, name).ok().and_then(|(mut file, opened)| {
            let same = beneath::same_inode(&opened, stat);
            let hashed = content::hash(&mut file, self.hash_left).ok().flatten();
            hashed.filter(|_| same)
        });
        let linked = match read {
            Some(content) => {
                self.hash_left -= content.size;
                Linked::Content(content.sha256)
            }
            None => {
                // The bytes that were read in vain count, too.
                self.hash_left = self.hash_left.saturating_sub(stat.st_size.unsigned_abs());
                Linked::Unknown
            }
        };
        self.linked.insert(stat.st_ino, linked);
        linked
    }
}

/// A directory that its owner may not read: an ordinary user's sandbox can take that permission away.
fn open_locked(upper: BorrowedFd<'_>, path: &RelPath) -> rustix::io::Result<OwnedFd> {
    match beneath::open_dir(upper, Some(path)) {
        Err(Errno::ACCESS) => {}
        opened => return opened,
    }
    let handle = beneath::open_dir_handle(upper, Some(path))?;
    let mode = fs::fstat(&handle)?.st_mode & 0o7777;
    beneath::chmod_handle(&handle, mode | 0o500)?;
    let opened = beneath::open_dir(upper, Some(path));
    beneath::chmod_handle(&handle, mode)?;
    opened
}

fn is_opaque(dir: &OwnedFd, name: &Path, stat: &Stat) -> bool {
    let Ok(name) = RelPath::new(name) else { return true };
    let Ok(opened) = open_locked(dir.as_fd(), &name) else { return true };
    let same = fs::fstat(&opened).is_ok_and(|now| beneath::same_inode(&now, stat));
    // What cannot be read may hide everything.
    !same || beneath::xattr(&opened, beneath::OPAQUE) != Ok(None)
}

/// The paths of these where the host has a file, whatever a sandbox makes of it.
pub fn present(workspace: BorrowedFd<'_>, paths: &[PathBuf]) -> Vec<PathBuf> {
    let there = |path: &&PathBuf| !matches!(beneath::stat(workspace, path), Ok(None));
    paths.iter().filter(there).cloned().collect()
}

#[cfg(test)]
mod tests;
