//! The directory of ours that new contents are copied into.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Access, new_file};
use rustix::fs::Stat;

use super::{Bounds, CollectError};
use crate::content::{self, Content, CopyError};
use crate::manifest::BLOBS;

#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    next: u64,
    max_file_bytes: u64,
    max_total_bytes: u64,
    bytes_left: u64,
    /// Contents of files with several names, by device and inode: copied once.
    shared: HashMap<(u64, u64), (u64, Content)>,
}

/// What became of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Blob { number: u64, content: Content },
    TooLarge,
    Unreadable,
}

impl Store {
    pub(super) fn create(dir: &Path, bounds: &Bounds) -> Result<Self, CollectError> {
        let error = |source| CollectError::Store { dir: dir.display().to_string(), source };
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => {}
            Err(exists) if exists.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(dir).map_err(error)?.next().is_some() {
                    return Err(CollectError::StoreNotEmpty { dir: dir.display().to_string() });
                }
            }
            Err(source) => return Err(error(source)),
        }
        DirBuilder::new().mode(0o700).create(dir.join(BLOBS)).map_err(error)?;
        Ok(Store {
            dir: dir.to_owned(),
            next: 0,
            max_file_bytes: bounds.max_file_bytes,
            max_total_bytes: bounds.max_total_bytes,
            bytes_left: bounds.max_total_bytes,
            shared: HashMap::new(),
        })
    }

    /// Copies a file of the upper directory in.
    pub(super) fn add(&mut self, mut file: File, stat: &Stat) -> Result<Kept, CollectError> {
        let inode = (stat.st_dev, stat.st_ino);
        if let Some((number, content)) = self.shared.get(&inode) {
            return Ok(Kept::Blob { number: *number, content: *content });
        }
        if u64::try_from(stat.st_size).is_ok_and(|size| size > self.max_file_bytes) {
            return Ok(Kept::TooLarge);
        }
        let number = self.next;
        let path = self.blob(number);
        let mut blob = new_file(&path, Access::Change).map_err(|error| self.error(error.into()))?;
        let max_bytes = self.max_file_bytes.min(self.bytes_left);
        let copied = content::copy(&mut file, &mut blob, max_bytes);
        drop(blob);
        let content = match copied {
            Ok(Some(content)) => content,
            other => {
                self.remove(number);
                return match other {
                    Err(CopyError::Write(source)) => Err(self.error(source)),
                    Err(CopyError::Read(_)) => Ok(Kept::Unreadable),
                    _ if max_bytes < self.max_file_bytes => {
                        Err(CollectError::TooManyBytes { max: self.max_total_bytes })
                    }
                    _ => Ok(Kept::TooLarge),
                };
            }
        };
        self.next += 1;
        self.bytes_left -= content.size;
        if stat.st_nlink > 1 {
            self.shared.insert(inode, (number, content));
        }
        Ok(Kept::Blob { number, content })
    }

    /// Gives up a copy that turned out to be the host's own content, unless another name has it.
    pub(super) fn forget(&mut self, number: u64, size: u64, stat: &Stat) {
        if !self.shared.contains_key(&(stat.st_dev, stat.st_ino)) {
            self.remove(number);
            self.bytes_left += size;
        }
    }

    /// Removes everything that was written.
    pub(super) fn discard(&self) {
        // Nothing better can be done about a failure here; the caller reports the first one.
        let _ = fs::remove_dir_all(self.dir.join(BLOBS));
        let _ = fs::remove_dir(&self.dir);
    }

    pub(super) fn error(&self, source: io::Error) -> CollectError {
        CollectError::Store { dir: self.dir.display().to_string(), source }
    }

    fn blob(&self, number: u64) -> PathBuf {
        self.dir.join(BLOBS).join(number.to_string())
    }

    fn remove(&self, number: u64) {
        // A blob that no entry names is only wasted space.
        let _ = fs::remove_file(self.blob(number));
    }
}
