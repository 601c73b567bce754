//! The host's side: the file at a path, and everything below a directory that was deleted.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::{CollectError, Collector};
use crate::beneath;
use crate::content;
use crate::manifest::{Before, Change, NoteKind, RefusedWhy};
use crate::path::{EscapedBytes, RelPath};
use crate::show::quoted;

/// What the host has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    Nothing,
    Known(Before),
    /// A device, socket or FIFO, another file system, or something that cannot be looked at.
    Other,
}

/// What deleting a host directory comes to.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// One deletion for everything inside, without the directory itself.
    pub(super) inside: Vec<Change>,
    /// Something inside must stay, so the directory must too.
    pub(super) kept: bool,
}

/// Whether it matters what a file of the host has in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// It is compared with what the sandbox left.
    AtContent,
    /// It is to go: its size and time tell whether the host has changed it since. A job that
    /// deletes names must not have us read what they stand for.
    AtMetadata,
}

impl Collector<'_> {
    pub(super) fn host(&mut self, path: &RelPath, look: Look) -> Result<Host, CollectError> {
        let stat = match beneath::stat(&self.lower, path.as_path()) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(Host::Nothing),
            Err(Errno::XDEV | Errno::LOOP | Errno::ACCESS) => return Ok(Host::Other),
            Err(error) => return Err(lower_error(path, error)),
        };
        let mode = stat.st_mode & 0o7777;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Host::Known(Before::Directory { mode }),
            FileType::Symlink => match beneath::read_link(&self.lower, path.as_path()) {
                Ok(target) => Host::Known(Before::Symlink { target: EscapedBytes(target) }),
                Err(_) => Host::Other,
            },
            FileType::RegularFile => Host::Known(self.host_file(path, &stat, look)?),
            _ => Host::Other,
        })
    }

    fn host_file(
        &mut self,
        path: &RelPath,
        stat: &Stat,
        look: Look,
    ) -> Result<Before, CollectError> {
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        // The digest of a short secret gives the secret away, so hidden files get none.
        let unread = look == Look::AtMetadata || size > self.hash_left;
        let sha256 = if unread || self.is_hidden(path) {
            None
        } else {
            self.hash_left -= size;
            match beneath::open_file(&self.lower, path.as_path()) {
                Ok((mut file, _)) => content::hash(&mut file, size)
                    .map_err(|source| CollectError::Lower { path: quoted(path.as_path()), source })?
                    .map(|content| content.sha256),
                Err(_) => None,
            }
        };
        let modified = modified(stat);
        Ok(Before::File { mode: stat.st_mode & 0o7777, size, modified, sha256 })
    }

    /// The sandbox removed `path`, or put something else there.
    pub(super) fn delete(&mut self, path: RelPath) -> Result<(), CollectError> {
        if self.is_hidden(&path) {
            return Ok(());
        }
        match self.host(&path, Look::AtMetadata)? {
            Host::Nothing => {}
            Host::Other => self.refuse(path, RefusedWhy::UnknownOnHost),
            Host::Known(before) => {
                let expanded = match before {
                    Before::Directory { .. } => self.expand(&path)?,
                    _ => Expanded::default(),
                };
                self.manifest.changes.extend(expanded.inside);
                if expanded.kept {
                    self.note(&path, NoteKind::KeptForHiddenFiles);
                } else {
                    self.record(path, Some(before), None);
                }
            }
        }
        Ok(())
    }

    /// Everything inside a host directory, as deletions. Not recursive: host trees can be deep.
    pub(super) fn expand(&mut self, top: &RelPath) -> Result<Expanded, CollectError> {
        let mut inside = Vec::new();
        let mut staying: BTreeSet<RelPath> = BTreeSet::new();
        let mut pending = vec![top.clone()];
        while let Some(directory) = pending.pop() {
            let listed = beneath::open_dir(&self.lower, Some(&directory))
                .and_then(|dir| beneath::list(dir.as_fd(), self.entries_left));
            let entries = match listed {
                Ok(Some(entries)) => entries,
                Ok(None) => {
                    return Err(CollectError::TooManyEntries { max: self.bounds.max_entries });
                }
                Err(_) => {
                    self.refuse(directory.clone(), RefusedWhy::UnknownOnHost);
                    keep(&mut staying, &directory);
                    continue;
                }
            };
            self.count(entries.len())?;
            for entry in entries {
                let Ok(path) = RelPath::in_dir(Some(&directory), &entry.name) else {
                    self.refuse(directory.clone(), RefusedWhy::UnknownOnHost);
                    keep(&mut staying, &directory);
                    continue;
                };
                self.count_bytes(path.as_path().as_os_str().len())?;
                if self.is_hidden(&path) {
                    keep(&mut staying, &path);
                    continue;
                }
                match self.host(&path, Look::AtMetadata)? {
                    Host::Nothing => {}
                    Host::Other => {
                        keep(&mut staying, &path);
                        self.refuse(path, RefusedWhy::UnknownOnHost);
                    }
                    Host::Known(before) => {
                        if matches!(before, Before::Directory { .. }) {
                            pending.push(path.clone());
                        }
                        inside.push(Change {
                            path,
                            before: Some(before),
                            after: None,
                            hidden: false,
                            period: 0,
                        });
                    }
                }
            }
        }
        inside.retain(|change| !staying.contains(&change.path));
        Ok(Expanded { inside, kept: staying.contains(top) })
    }

    /// Deletes what the host has in an opaque directory beyond the names that the upper one has.
    pub(super) fn delete_unlisted(
        &mut self,
        directory: Option<&RelPath>,
        listed: &[beneath::Entry],
    ) -> Result<(), CollectError> {
        let shown = directory.map_or(Path::new("."), RelPath::as_path);
        let error =
            |error: Errno| CollectError::Lower { path: quoted(shown), source: error.into() };
        let dir = beneath::open_dir(&self.lower, directory).map_err(error)?;
        let entries = beneath::list(dir, self.entries_left)
            .map_err(error)?
            .ok_or(CollectError::TooManyEntries { max: self.bounds.max_entries })?;
        self.count(entries.len())?;
        for entry in entries {
            if listed.binary_search_by(|known| known.name.cmp(&entry.name)).is_ok() {
                continue;
            }
            if let Ok(path) = RelPath::in_dir(directory, &entry.name) {
                self.delete(path)?;
            }
        }
        Ok(())
    }
}

/// Marks `path` and every directory above it as staying.
fn keep(staying: &mut BTreeSet<RelPath>, path: &RelPath) {
    let mut next = Some(path.clone());
    while let Some(path) = next {
        next = path.parent();
        staying.insert(path);
    }
}

/// Seconds and nanoseconds.
pub(crate) fn modified(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

fn lower_error(path: &RelPath, error: Errno) -> CollectError {
    CollectError::Lower { path: quoted(path.as_path()), source: error.into() }
}
