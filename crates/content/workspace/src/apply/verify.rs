//! Compares every target with what it was when the changes were collected.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Stat};

use super::ApplyError;
use crate::beneath;
use crate::content;
use crate::manifest::{After, Before, Change, ChangeKind, closed_mode};
use crate::path::RelPath;
use crate::show::PathList;

/// Changes that are safe to write, with the files that are in their place now.
#[derive(Debug)]
pub(super) struct Verified<'a> {
    /// In order of path.
    pub(super) work: Vec<Work<'a>>,
    pub(super) already: Vec<RelPath>,
}

#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) change: &'a Change,
    pub(super) current: Current,
}

/// What the host has at a path now. The stat serves to notice a change between this look and
/// the moment of the rename.
#[derive(Debug, Clone)]
pub(super) enum Current {
    Nothing,
    File(Stat),
    Symlink(Stat, Vec<u8>),
    Directory(Stat),
}

impl Current {
    /// The mode that may be given to what takes this place.
    pub(super) fn closed_mode(&self, mode: u32) -> u32 {
        let host = match self {
            Current::File(stat) | Current::Directory(stat) => Some(stat.st_mode),
            // Links have no permissions of their own.
            Current::Nothing | Current::Symlink(..) => None,
        };
        closed_mode(mode, host)
    }
}

pub(super) fn verify<'a>(
    root: &OwnedFd,
    selected: &[&'a Change],
    force: bool,
) -> Result<Verified<'a>, ApplyError> {
    let mut conflicts = Vec::new();
    let mut verified = Verified { work: Vec::new(), already: Vec::new() };
    let new_directories: BTreeSet<&Path> = selected
        .iter()
        .filter(|change| matches!(change.after, Some(After::Directory { .. })))
        .map(|change| change.path.as_path())
        .collect();
    // Directories that take the place of nothing, a file or a link: nothing is in them yet,
    // wherever a link of that name leads now. Parents come before children.
    let mut fresh: BTreeSet<&Path> = BTreeSet::new();
    for change in selected {
        let found = if change.path.ancestors().any(|above| fresh.contains(above)) {
            Some(Current::Nothing)
        } else {
            look(root, &change.path)
        };
        let Some(current) = found else {
            conflicts.push(change.path.clone());
            continue;
        };
        if new_directories.contains(change.path.as_path())
            && !matches!(current, Current::Directory(_))
        {
            fresh.insert(change.path.as_path());
        }
        if is_after(root, change, &current) {
            verified.already.push(change.path.clone());
        } else if !has_parent(root, change, &new_directories)
            || !(is_before(root, change, &current) || (force && can_force(change, &current)))
        {
            conflicts.push(change.path.clone());
        } else {
            verified.work.push(Work { change, current });
        }
    }
    conflicts.extend(directories_with_more(root, &verified));
    if conflicts.is_empty() {
        Ok(verified)
    } else {
        conflicts.sort();
        Err(ApplyError::Conflicts(PathList(conflicts)))
    }
}

/// `None` if it is nothing we write over: a device, a mount, or behind a link.
fn look(root: &OwnedFd, path: &RelPath) -> Option<Current> {
    let stat = match beneath::stat(root, path.as_path()) {
        Ok(None) => return Some(Current::Nothing),
        Ok(Some(stat)) => stat,
        Err(_) => return None,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(Current::File(stat)),
        FileType::Directory => Some(Current::Directory(stat)),
        FileType::Symlink => {
            let target = beneath::read_link(root, path.as_path()).ok()?;
            Some(Current::Symlink(stat, target))
        }
        _ => None,
    }
}

fn is_before(root: &OwnedFd, change: &Change, current: &Current) -> bool {
    match (&change.before, current) {
        (None, Current::Nothing) => true,
        (Some(Before::Symlink { target }), Current::Symlink(_, now)) => target.0 == *now,
        (Some(Before::Directory { mode }), Current::Directory(now)) => {
            change.kind() != ChangeKind::ModeChanged || now.st_mode & 0o777 == mode & 0o777
        }
        (Some(Before::File { mode, size, modified, sha256 }), Current::File(now)) => {
            let same_looks =
                now.st_mode & 0o777 == mode & 0o777 && u64::try_from(now.st_size) == Ok(*size);
            same_looks
                && match sha256 {
                    Some(sha256) => digest_is(root, change, now, *size, sha256),
                    None => *modified == (now.st_mtime, now.st_mtime_nsec),
                }
        }
        _ => false,
    }
}

fn is_after(root: &OwnedFd, change: &Change, current: &Current) -> bool {
    match (&change.after, current) {
        (None, Current::Nothing) => true,
        (Some(After::Symlink { target }), Current::Symlink(_, now)) => target.0 == *now,
        (Some(After::Directory { mode }), Current::Directory(now)) => {
            now.st_mode & 0o777 == current.closed_mode(*mode)
        }
        (Some(After::File { mode, size, sha256, .. }), Current::File(now)) => {
            now.st_mode & 0o777 == current.closed_mode(*mode)
                && u64::try_from(now.st_size) == Ok(*size)
                && digest_is(root, change, now, *size, sha256)
        }
        _ => false,
    }
}

fn digest_is(
    root: &OwnedFd,
    change: &Change,
    seen: &Stat,
    size: u64,
    wanted: &content::Digest,
) -> bool {
    let Ok((mut file, stat)) = beneath::open_file(root, change.path.as_path()) else {
        return false;
    };
    beneath::unchanged(seen, &stat)
        && matches!(content::hash(&mut file, size), Ok(Some(found)) if found.sha256 == *wanted)
}

/// Force overwrites contents. It does not make a tree out of a file or empty a directory that
/// the changes know nothing of, and it does not change the mode of what it has not read.
fn can_force(change: &Change, current: &Current) -> bool {
    let content_kept = matches!(change.after, Some(After::File { blob: None, .. }));
    match current {
        Current::Nothing => !content_kept,
        Current::File(_) => {
            !content_kept && !matches!(change.before, Some(Before::Directory { .. }))
        }
        Current::Symlink(..) => {
            !content_kept && !matches!(change.before, Some(Before::Directory { .. }))
        }
        Current::Directory(_) => matches!(change.after, Some(After::Directory { .. })),
    }
}

/// Something can only be put into a directory that is there or is about to be.
fn has_parent(root: &OwnedFd, change: &Change, new: &BTreeSet<&Path>) -> bool {
    if change.after.is_none() {
        return true;
    }
    let Some(parent) = change.path.parent() else {
        return true;
    };
    if new.contains(parent.as_path()) {
        return true;
    }
    matches!(look(root, &parent), Some(Current::Directory(_)))
}

/// Directories that are to go but hold something that is not.
fn directories_with_more(root: &OwnedFd, verified: &Verified<'_>) -> Vec<RelPath> {
    let no_directory =
        |work: &&Work<'_>| !matches!(work.change.after, Some(After::Directory { .. }));
    let going: BTreeSet<&Path> =
        verified.work.iter().filter(no_directory).map(|work| work.change.path.as_path()).collect();
    let mut with_more = Vec::new();
    for work in verified.work.iter().filter(no_directory) {
        if !matches!(work.current, Current::Directory(_)) {
            continue;
        }
        let path = &work.change.path;
        let listed = beneath::open_dir(root, Some(path))
            .and_then(|dir| beneath::list(dir, going.len() as u64));
        let all_going = matches!(listed, Ok(Some(entries))
            if entries.iter().all(|entry| going.contains(path.as_path().join(&entry.name).as_path())));
        if !all_going {
            with_more.push(path.clone());
        }
    }
    with_more
}
