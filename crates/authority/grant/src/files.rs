//! Files that hold keys and decisions: private, made whole or not at all, and on the disk before
//! anybody is told so.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    #[error("{} is missing", .0.display())]
    Missing(PathBuf),
    #[error(
        "{} is not private: it must be a plain file or directory of yours that nobody else can open (chmod go= {})",
        .0.display(), .0.display()
    )]
    NotPrivate(PathBuf),
    #[error("{} is larger than {most} bytes", .path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error("{} cannot be used", .path.display())]
    Use { path: PathBuf, source: io::Error },
    #[error("the system gave no random bytes")]
    Random(#[source] io::Error),
}

/// Held until dropped; other processes and other threads wait.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closing it is what ends the lock")] File);

fn of(path: &Path) -> impl Fn(io::Error) -> FileError + '_ {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => FileError::Missing(path.to_owned()),
        io::ErrorKind::AlreadyExists => FileError::Exists(path.to_owned()),
        _ => FileError::Use { path: path.to_owned(), source },
    }
}

pub fn random(bytes: &mut [u8]) -> Result<(), FileError> {
    let mut filled = 0;
    while filled < bytes.len() {
        let got =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += got.map_err(|error| FileError::Random(error.into()))?;
    }
    Ok(())
}

/// Makes a directory that nobody else can enter, unless it is there; refuses one that others can.
pub fn private_directory(path: &Path) -> Result<(), FileError> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(of(path))?;
    }
    check_private_directory(path)
}

/// Refuses a directory that others can enter.
pub fn check_private_directory(path: &Path) -> Result<(), FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|error| of(path)(error.into()))?;
    let stat = rustix::fs::fstat(&directory).map_err(|error| of(path)(error.into()))?;
    if is_own(&stat) && stat.st_mode & 0o077 == 0 {
        Ok(())
    } else {
        Err(FileError::NotPrivate(path.to_owned()))
    }
}

/// Opens a plain file of ours that nobody else can read or write.
pub fn open_private(path: &Path) -> Result<File, FileError> {
    // Without waiting: a pipe without a writer never opens.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = match opened {
        Err(rustix::io::Errno::LOOP) => return Err(FileError::NotPrivate(path.to_owned())),
        opened => opened.map_err(|error| of(path)(error.into()))?,
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| of(path)(error.into()))?;
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !plain || !is_own(&stat) || stat.st_mode & 0o077 != 0 {
        return Err(FileError::NotPrivate(path.to_owned()));
    }
    Ok(file.into())
}

/// Reads a file that nobody else can read.
pub fn read_secret(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let file = open_private(path)?;
    // Room for all of it at once, so that no copy of a secret is left behind by growing.
    let mut content = Vec::with_capacity(usize::try_from(most + 1).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut content).map_err(of(path))?;
    if content.len() as u64 > most {
        return Err(FileError::TooLarge { path: path.to_owned(), most });
    }
    Ok(content)
}

/// Writes a new file, whole. Of many that try at once, in whatever process, one succeeds.
pub fn create_new(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let beside = write_beside(path, content)?;
    let linked = rustix::fs::linkat(CWD, &beside, CWD, path, AtFlags::empty());
    // What is left of a writer that is killed here is a file with a name of its own.
    let _ = std::fs::remove_file(&beside);
    linked.map_err(|error| of(path)(error.into()))?;
    sync_directory(path)
}

/// Puts a file in the place of another. Readers see the old one or the new one.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), FileError> {
    let beside = write_beside(path, content)?;
    if let Err(error) = std::fs::rename(&beside, path) {
        let _ = std::fs::remove_file(&beside);
        return Err(of(path)(error));
    }
    sync_directory(path)
}

/// Opens a private file for appending, made if need be.
pub fn open_to_append(path: &Path) -> Result<File, FileError> {
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))
        .map_err(|error| of(path)(error.into()))?;
    Ok(file.into())
}

/// Waits for the lock of this name.
pub fn lock(path: &Path) -> Result<Lock, FileError> {
    let file = open_to_append(path)?;
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(of(path)(error.into())),
            Ok(()) => return Ok(Lock(file)),
        }
    }
}

/// Files that a killed writer left are told by their names.
pub fn is_leftover(name: &str) -> bool {
    name.starts_with(".new.")
}

fn write_beside(path: &Path, content: &[u8]) -> Result<PathBuf, FileError> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut chance = [0; 8];
    random(&mut chance)?;
    let name = format!(".new.{}.{number}.{}", std::process::id(), crate::hex::encode(&chance));
    let beside = path.with_file_name(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let written = rustix::fs::open(&beside, flags, Mode::from_raw_mode(0o600))
        .map_err(io::Error::from)
        .and_then(|file| {
            let mut file = File::from(file);
            file.write_all(content)?;
            file.sync_all()
        });
    match written {
        Ok(()) => Ok(beside),
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            Err(of(path)(error))
        }
    }
}

fn sync_directory(of_file: &Path) -> Result<(), FileError> {
    let parent = of_file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(of(directory))
}

fn is_own(stat: &Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn of_many_writers_of_a_new_file_one_succeeds_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one");
        let won: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|number: u8| {
                    scope.spawn({
                        let path = &path;
                        move || usize::from(create_new(path, &[number]).is_ok())
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        create_new(&path, b"secret").unwrap();
        assert_eq!(read_secret(&path, 6).unwrap(), b"secret");
        assert!(matches!(read_secret(&path, 5), Err(FileError::TooLarge { .. })));
        for mode in [0o640, 0o604, 0o620, 0o644] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read_secret(&path, 6), Err(FileError::NotPrivate(_))), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(read_secret(&link, 6), Err(FileError::NotPrivate(_))));
        assert!(matches!(read_secret(directory.path(), 6), Err(FileError::NotPrivate(_))));
        let missing = directory.path().join("missing");
        assert!(matches!(read_secret(&missing, 6), Err(FileError::Missing(_))));
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        private_directory(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(private_directory(&path), Err(FileError::NotPrivate(_))));
    }
}
