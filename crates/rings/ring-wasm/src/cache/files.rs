//! Files of the cache: made whole or not at all, and used only if nobody else could have made them.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

pub(super) const KEY: &str = "key";

/// No file takes so long to write.
const ABANDONED_SECONDS: u64 = 3600;

/// Our own directory, which nobody else can enter.
pub(super) fn private_directory(path: &Path) -> io::Result<OwnedFd> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&directory)?;
    if !is_own(&stat) || stat.st_mode & 0o077 != 0 {
        let reason = "it belongs to somebody else or is open to others";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(directory)
}

/// The key of this cache, made at first use.
pub(super) fn key(directory: BorrowedFd<'_>) -> io::Result<[u8; 32]> {
    let made = make_key(directory);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    let mut file = open(directory, KEY)?;
    if rustix::fs::fstat(&file)?.st_mode & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut key = [0; 32];
    file.read_exact(&mut key)?;
    Ok(key)
}

/// Made whole beside its place and then linked there, so that no one ever reads half a key.
fn make_key(directory: BorrowedFd<'_>) -> io::Result<()> {
    if rustix::fs::statat(directory, KEY, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut key = [0; 32];
    rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
    let beside = beside(KEY);
    write_new(directory, &beside, &key, 0o400)?;
    let linked = rustix::fs::linkat(directory, &beside, directory, KEY, AtFlags::empty());
    rustix::fs::unlinkat(directory, &beside, AtFlags::empty())?;
    Ok(linked?)
}

/// Opens a file of ours for reading. One that is a link, has other names, belongs to somebody else
/// or can be written is not ours.
pub(super) fn open(directory: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    // Without waiting: a pipe without a writer never opens.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !plain || !is_own(&stat) || stat.st_nlink != 1 || stat.st_mode & 0o222 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(file.into())
}

/// Puts a file in place of another. Readers see the old one or the new one.
pub(super) fn replace(directory: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(name);
    // A ring reads code as another user, by a descriptor; the directory keeps all others out.
    let written = write_new(directory, &beside, bytes, 0o444);
    let placed =
        written.and_then(|()| Ok(rustix::fs::renameat(directory, &beside, directory, name)?));
    if placed.is_err() {
        // The first error is the one to tell.
        let _ = rustix::fs::unlinkat(directory, &beside, AtFlags::empty());
    }
    placed
}

fn write_new(directory: BorrowedFd<'_>, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    file.sync_data()
}

/// The names in the directory.
pub(super) fn list(directory: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        // Names that are no text are not ours.
        names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
    }
    Ok(names)
}

/// Half a file that nobody is writing any more.
pub(super) fn is_abandoned(directory: BorrowedFd<'_>, name: &str) -> bool {
    let half = name.starts_with('.') && [".code.", ".tool."].iter().any(|kind| name.contains(kind));
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    half && stat.is_ok_and(|stat| {
        u64::try_from(stat.st_mtime).is_ok_and(|then| then + ABANDONED_SECONDS < now)
    })
}

fn is_own(stat: &rustix::fs::Stat) -> bool {
    stat.st_uid == rustix::process::geteuid().as_raw()
}

/// A name that no other writer uses.
fn beside(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".{name}.{}.{number}", std::process::id())
}
