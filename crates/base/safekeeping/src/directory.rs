//! Writes files whole or not at all, in a directory that is held open meanwhile.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::FileError;
use crate::trust::{Access, Demand, Missing, Trust, open_at, read_whole};

/// How the names of temporary files begin.
const LEFTOVER: &str = ".new.";
/// No file takes so long to write.
const ABANDONED_SECONDS: u64 = 3600;

/// What is written, and how.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    bytes: &'a [u8],
    mode: u32,
    durability: Durability,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    Disk,
    Kernel,
}

impl<'a> Content<'a> {
    /// For its owner only, and on the disk before the call returns.
    pub fn durable(bytes: &'a [u8]) -> Content<'a> {
        Content { bytes, mode: 0o600, durability: Durability::Disk }
    }

    /// For its owner only. A crash of the machine may lose it, so it must be possible to make it again.
    pub fn quick(bytes: &'a [u8]) -> Content<'a> {
        Content { durability: Durability::Kernel, ..Content::durable(bytes) }
    }

    /// Others may use it, too.
    #[must_use]
    pub fn with_mode(self, mode: u32) -> Content<'a> {
        Content { mode, ..self }
    }
}

/// Writes a new file. Of many that try at once, in whatever process, one succeeds.
pub fn create_new(path: &Path, content: Content<'_>) -> Result<(), FileError> {
    let (directory, name) = Directory::of_file(path)?;
    directory.create_new(name, content)
}

/// Puts a file in the place of another, or where none is.
pub fn replace(path: &Path, content: Content<'_>) -> Result<(), FileError> {
    let (directory, name) = Directory::of_file(path)?;
    directory.replace(name, content)
}

/// Whether a name is that of a file which a killed writer left.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(LEFTOVER)
}

/// A directory that is held open: whatever happens to its path, the files stay in one place.
#[derive(Debug)]
pub struct Directory {
    file: File,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory that is trusted. Makes it first, for its owner only, where it is missing.
    pub fn make(path: &Path, trust: Trust) -> Result<Directory, FileError> {
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| {
                // What is there is no directory.
                FileError::Use { path: path.to_owned(), source }
            })?;
        }
        Directory::open(path, trust)
    }

    /// Opens a directory that is there and trusted.
    pub fn open(path: &Path, trust: Trust) -> Result<Directory, FileError> {
        let directory = Directory::any(path, OFlags::NOFOLLOW)?;
        trust.check(path, &directory.file, FileType::Directory)?;
        Ok(directory)
    }

    fn any(path: &Path, also: OFlags) -> Result<Directory, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | also;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let file = File::from(opened.map_err(FileError::errno(path))?);
        Ok(Directory { file, path: path.to_owned() })
    }

    /// The directory that a file is in, and the name of the file there.
    fn of_file(path: &Path) -> Result<(Directory, &Path), FileError> {
        let Some(name) = path.file_name() else {
            return Err(FileError::at(path)(io::ErrorKind::InvalidInput.into()));
        };
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let directory = Directory::any(above.unwrap_or(Path::new(".")), OFlags::empty())?;
        Ok((directory, Path::new(name)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a plain file for reading.
    pub fn open_file(&self, name: impl AsRef<Path>, trust: Trust) -> Result<File, FileError> {
        let name = name.as_ref();
        let demand = Demand { trust, access: Access::Read, missing: Missing::Refused };
        open_at(&self.file, name, &self.path.join(name), demand)
    }

    /// Reads a whole file of at most so many bytes.
    pub fn read(
        &self,
        name: impl AsRef<Path>,
        trust: Trust,
        most: u64,
    ) -> Result<Vec<u8>, FileError> {
        let file = self.open_file(&name, trust)?;
        read_whole(&file, &self.path.join(name), most)
    }

    /// Writes a new file. Of many that try at once, in whatever process, one succeeds.
    pub fn create_new(
        &self,
        name: impl AsRef<Path>,
        content: Content<'_>,
    ) -> Result<(), FileError> {
        let name = name.as_ref();
        let wrong = |errno| FileError::errno(&self.path.join(name))(errno);
        let beside = self.write_beside(name, content)?;
        // A link never takes the place of what is there.
        let linked = rustix::fs::linkat(&self.file, &beside, &self.file, name, AtFlags::empty());
        self.forget(&beside);
        linked.map_err(wrong)?;
        self.settle(content.durability)
    }

    /// Puts a file in the place of another. A link there is replaced, not followed.
    pub fn replace(&self, name: impl AsRef<Path>, content: Content<'_>) -> Result<(), FileError> {
        let name = name.as_ref();
        let beside = self.write_beside(name, content)?;
        if let Err(errno) = rustix::fs::renameat(&self.file, &beside, &self.file, name) {
            self.forget(&beside);
            return Err(FileError::errno(&self.path.join(name))(errno));
        }
        self.settle(content.durability)
    }

    /// The names of all entries that are text.
    pub fn names(&self) -> Result<Vec<String>, FileError> {
        let wrong = FileError::errno(&self.path);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.file).map_err(&wrong)? {
            names.extend(entry.map_err(&wrong)?.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Removes a file, unless it is gone already.
    pub fn remove(&self, name: impl AsRef<Path>) -> Result<(), FileError> {
        let name = name.as_ref();
        match rustix::fs::unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(FileError::errno(&self.path.join(name))(errno)),
        }
    }

    /// Removes what killed writers left.
    pub fn remove_leftovers(&self) -> Result<(), FileError> {
        let abandoned = |name: &String| is_leftover(name) && self.is_abandoned(name);
        self.names()?.iter().filter(|name| abandoned(name)).try_for_each(|name| self.remove(name))
    }

    /// Whether a writer that still lives would have been done long ago.
    fn is_abandoned(&self, name: &str) -> bool {
        let stat = rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        stat.is_ok_and(|stat| {
            u64::try_from(stat.st_mtime).is_ok_and(|then| then + ABANDONED_SECONDS < now)
        })
    }

    /// Returns when the names in the directory are on the disk.
    pub fn sync(&self) -> Result<(), FileError> {
        self.file.sync_all().map_err(FileError::at(&self.path))
    }

    fn settle(&self, durability: Durability) -> Result<(), FileError> {
        match durability {
            Durability::Disk => self.sync(),
            Durability::Kernel => Ok(()),
        }
    }

    /// A file with a name of its own, whole.
    fn write_beside(&self, name: &Path, content: Content<'_>) -> Result<String, FileError> {
        let wrong = |error| FileError::at(&self.path.join(name))(error);
        let beside = format!("{LEFTOVER}{}", crate::random_name::<12>()?);
        self.write_first(&beside, content).map_err(wrong)?;
        Ok(beside)
    }

    fn write_first(&self, beside: &str, content: Content<'_>) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let private = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(&self.file, beside, flags | OFlags::CLOEXEC, private)?;
        let written = fill(File::from(file), content);
        if written.is_err() {
            // What is there is ours: it was made a moment ago.
            self.forget(beside);
        }
        written
    }

    fn forget(&self, beside: &str) {
        // The first error is the one to tell. What stays has a name that shows what it is.
        let _ = rustix::fs::unlinkat(&self.file, beside, AtFlags::empty());
    }
}

fn fill(mut file: File, content: Content<'_>) -> io::Result<()> {
    file.write_all(content.bytes)?;
    // Before the file gets its name, and whatever the umask is.
    rustix::fs::fchmod(&file, Mode::from_raw_mode(content.mode))?;
    match content.durability {
        Durability::Disk => file.sync_all(),
        Durability::Kernel => Ok(()),
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_planted_at_a_temporary_name_is_neither_followed_nor_removed() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path(), Trust::Own).unwrap();
        let victim = place.path().join("victim");
        std::fs::write(&victim, "as it was").unwrap();
        symlink(&victim, place.path().join(".new.guessed")).unwrap();
        let planted = directory.write_first(".new.guessed", Content::durable(b"mine"));
        assert_eq!(planted.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&victim).unwrap(), b"as it was");
        assert!(place.path().join(".new.guessed").is_symlink());
    }
}
