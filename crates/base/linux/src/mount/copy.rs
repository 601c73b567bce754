//! A copy of a directory in place of an overlay over it.
//!
//! Before Linux 6.6 tmpfs has no `user.` attributes. An overlay with its upper directory there can
//! mark no directory as replaced, so nobody can remove or replace a directory in it (EIO). A copy has
//! no such gap. It takes its room from the same capped file system, and a list beside it says what
//! was copied, so that changes can be told from what was there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

/// The list of what was copied, in the work directory of the overlay that is not made.
const LIST: &str = "copied";

/// The list of the largest workspace that anybody has; each entry is a path and a few numbers.
const MAX_LIST: u64 = 256 << 20;

/// The kernel's clock for files ticks at least 100 times a second. What a job changes has a later
/// time than what was copied.
const ONE_TICK: Duration = Duration::from_millis(20);

/// One copied file, directory or symbolic link, as it was when the copy was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Below the copied directory.
    pub path: PathBuf,
    pub inode: u64,
    /// Seconds and nanoseconds. No program can set it.
    pub changed: (i64, u64),
}

/// Copies `from` into `to`, and lists what was copied in `work`. A device 0/0 in `to` keeps out what
/// has its name, as in an overlay, and goes away. Sockets, FIFOs, devices and what this user may not
/// read are left out.
pub(super) fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    work: BorrowedFd<'_>,
) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let list = rustix::fs::openat(work, LIST, flags, Mode::RUSR)?;
    let mut copying =
        Copying { from, to, list: io::BufWriter::new(File::from(list)), pending: Vec::new() };
    let root = PathBuf::from(".");
    copying.pending.push(root);
    while let Some(directory) = copying.pending.pop() {
        copying.directory(&directory).map_err(no_room)?;
    }
    copying.list.flush().map_err(no_room)?;
    std::thread::sleep(ONE_TICK);
    Ok(())
}

/// What a copy in place of an overlay began with; `None` if there is an overlay.
pub fn copied(work: BorrowedFd<'_>) -> io::Result<Option<Vec<Copied>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let list = match rustix::fs::openat(work, LIST, flags, Mode::empty()) {
        Ok(list) => File::from(list),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    list.take(MAX_LIST + 1).read_to_end(&mut bytes)?;
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "the list of copied files is broken");
    if bytes.len() as u64 > MAX_LIST {
        return Err(wrong());
    }
    let entries = bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    entries.map(|entry| parse(entry).ok_or_else(wrong)).collect::<io::Result<_>>().map(Some)
}

fn parse(entry: &[u8]) -> Option<Copied> {
    let mut parts = entry.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok();
    let (inode, seconds, nanoseconds) = (number()?, number()?, number()?);
    let changed = (seconds.parse().ok()?, nanoseconds.parse().ok()?);
    let path = PathBuf::from(OsString::from_vec(parts.next()?.to_vec()));
    Some(Copied { path, inode: inode.parse().ok()?, changed })
}

struct Copying<'c> {
    from: BorrowedFd<'c>,
    to: BorrowedFd<'c>,
    list: io::BufWriter<File>,
    /// Directories that are there in the copy, still without content.
    pending: Vec<PathBuf>,
}

impl Copying<'_> {
    fn directory(&mut self, path: &Path) -> io::Result<()> {
        let from = match open(self.from, path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if left_out(error) => return Ok(()),
            opened => opened?,
        };
        let to = open(self.to, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        for entry in rustix::fs::Dir::read_from(&from)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                self.entry(path, Path::new(name), &from, &to)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, at: &Path, name: &Path, from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
        let there = match rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_whiteout(&stat) => {
                return Ok(rustix::fs::unlinkat(to, name, AtFlags::empty())?);
            }
            Ok(_) => true,
            Err(Errno::NOENT) => false,
            Err(error) => return Err(error.into()),
        };
        let handle = match open(from.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(error) if left_out(error) => return Ok(()),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&handle)?;
        let path = at.strip_prefix(".").unwrap_or(at).join(name);
        let copied = match FileType::from_raw_mode(stat.st_mode) {
            // One that is there holds what is kept out: it has its mode already.
            FileType::Directory => {
                if !there {
                    rustix::fs::mkdirat(to, name, mode(&stat))?;
                }
                self.pending.push(path.clone());
                true
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&handle, "", Vec::new())?;
                rustix::fs::symlinkat(target, to, name)?;
                true
            }
            FileType::RegularFile => copy_file(from, to, name)?,
            _ => false,
        };
        if copied { self.note(&path, to, name) } else { Ok(()) }
    }

    fn note(&mut self, path: &Path, to: &OwnedFd, name: &Path) -> io::Result<()> {
        let stat = rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW)?;
        write!(self.list, "{} {} {} ", stat.st_ino, stat.st_ctime, stat.st_ctime_nsec)?;
        self.list.write_all(path.as_os_str().as_bytes())?;
        self.list.write_all(&[0])
    }
}

/// Whether it was copied. What changed its kind since it was looked at is left out.
fn copy_file(from: &OwnedFd, to: &OwnedFd, name: &Path) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let source = match open(from.as_fd(), name, flags) {
        Err(error) if left_out(error) => return Ok(false),
        opened => File::from(opened?),
    };
    let stat = rustix::fs::fstat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(false);
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut copy = File::from(rustix::fs::openat(to, name, flags, mode(&stat))?);
    io::copy(&mut &source, &mut copy)?;
    let time = |tv_sec, tv_nsec: u64| Timespec { tv_sec, tv_nsec: tv_nsec.cast_signed() };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    };
    rustix::fs::futimens(&copy, &times)?;
    Ok(true)
}

fn open(dir: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let resolve = if flags.contains(OFlags::PATH) { ResolveFlags::BENEATH } else { resolve };
    rustix::fs::openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Setuid and setgid mean nothing in a ring.
fn mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o1777)
}

fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// This user may not read it, or it went away since it was listed.
fn left_out(error: Errno) -> bool {
    [Errno::ACCESS, Errno::PERM, Errno::NOENT, Errno::LOOP, Errno::NXIO].contains(&error)
}

fn no_room(error: io::Error) -> io::Error {
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    if !error.raw_os_error().is_some_and(|errno| full.contains(&errno)) {
        return error;
    }
    let reason = "the workspace does not fit in the sandbox's disk limit; it is copied there, as it \
         belongs to another user or group, or as Linux is older than 6.6; raise --disk and --inodes";
    io::Error::new(io::ErrorKind::StorageFull, reason)
}

#[cfg(test)]
mod tests;
