//! Reads a directory tree and makes a stream of it, a piece at a time.
//!
//! The tree may change under our hands. What vanishes between two looks is left out in silence;
//! the stream stays well-formed whatever happens.

mod listing;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, OFlags, Stat};
use rustix::io::Errno;

use crate::OverlayKind;
use crate::beneath;
use crate::entry::{Entry, MAGIC, MAX_TARGET_BYTES, Time, check_path, shown, split};
use listing::{ListError, Listing, Room};

/// Names in one directory.
const MAX_NAMES: usize = 1_000_000;
/// Names that are held at once, of a directory and all above it.
const MAX_NAME_BYTES: usize = 128 << 20;
/// Entries that are looked at in one go, sent or not: the caller has others to serve.
const STEPS_AT_ONCE: usize = 1024;
const READ_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackOptions {
    /// Paths below the directory that are left out with all that is in them.
    pub skip: Vec<PathBuf>,
    /// The directory is the upper one of such an overlay: its whiteouts and opaque directories are
    /// sent as what they mean.
    pub overlay: Option<OverlayKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    More,
    /// The stream is complete.
    Done,
}

/// What a stream holds so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packed {
    pub entries: u64,
    /// The contents of all files together.
    pub bytes: u64,
    pub left_out: LeftOut,
}

/// What was met and not sent, by the reason why; a directory counts once. Paths that were to be
/// skipped do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Devices, FIFOs and sockets.
    pub special: u64,
    /// What the caller may not read.
    pub unreadable: u64,
    /// Another file system is mounted there.
    pub mounts: u64,
    /// Too deep, or with a path or link target too long for the stream.
    pub too_long: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("{path} cannot be left out: it must be a path below the directory, without \"..\"")]
    BadSkip { path: String },
    #[error("the directory to send cannot be opened")]
    Open { source: io::Error },
    #[error("{path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error(
        "{path} has too many entries for one directory (more than {MAX_NAMES}, or too long names)"
    )]
    TooMany { path: String },
    #[error(
        "{path} has the overlay attribute {attribute}, so that a part of it is elsewhere; mount the overlay with redirect_dir=off,metacopy=off"
    )]
    Overlay { path: String, attribute: &'static str },
    #[error("the tree could not be read before")]
    Stopped,
}

/// Makes the stream of one directory. The directory itself has no record: its mode and time are
/// the receiver's business.
#[derive(Debug)]
pub struct Packer {
    root: OwnedFd,
    skip: BTreeSet<Vec<u8>>,
    overlay: Option<OverlayKind>,
    /// The directory being read, opened again when the way back up leads to it: a stack of
    /// descriptors would be as high as a hostile tree is deep.
    current: Option<OwnedFd>,
    path: Vec<u8>,
    levels: Vec<Listing>,
    file: Option<Sending>,
    packed: Packed,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Walking,
    Done,
    Stopped,
}

/// A file whose content was announced and not all sent.
#[derive(Debug)]
struct Sending {
    path: Vec<u8>,
    file: OwnedFd,
    left: u64,
}

/// Why an entry is passed over.
enum Passed {
    /// Gone, or something else by now.
    Gone,
    Unreadable,
    Mount,
    Failed(PackError),
}

impl Packer {
    /// `dir` may be opened with `O_PATH`.
    pub fn new(dir: OwnedFd, options: PackOptions) -> Result<Packer, PackError> {
        let open_error = |errno: Errno| PackError::Open { source: errno.into() };
        let skip = options.skip.iter().map(|path| skipped(path)).collect::<Result<_, _>>()?;
        let current = beneath::open_dir(&dir, b"").map_err(open_error)?;
        let listing = Listing::open(&current).map_err(open_error)?;
        let packer = Packer {
            root: dir,
            skip,
            overlay: options.overlay,
            current: None,
            path: Vec::new(),
            levels: vec![listing],
            file: None,
            packed: Packed::default(),
            state: State::New,
        };
        // The root has no record that could say so.
        if let (true, Some(kind)) = (packer.is_opaque(&current, b"")?, packer.overlay) {
            return Err(PackError::Overlay { path: shown(b""), attribute: kind.opaque() });
        }
        Ok(Packer { current: Some(current), ..packer })
    }

    /// Appends about `room` bytes of the stream to `out`, at most one record more, or less: the
    /// work of one call is bounded too.
    pub fn fill(&mut self, out: &mut Vec<u8>, room: usize) -> Result<Progress, PackError> {
        let filled = self.walk(out, room);
        if filled.is_err() {
            self.state = State::Stopped;
        }
        filled
    }

    /// What was sent and left out so far.
    pub fn packed(&self) -> Packed {
        self.packed
    }

    fn walk(&mut self, out: &mut Vec<u8>, room: usize) -> Result<Progress, PackError> {
        let start = out.len();
        for _ in 0..STEPS_AT_ONCE {
            let room = room.saturating_sub(out.len() - start);
            match self.state {
                State::Done => return Ok(Progress::Done),
                State::Stopped => return Err(PackError::Stopped),
                _ if room == 0 => return Ok(Progress::More),
                State::New => {
                    out.extend_from_slice(&MAGIC);
                    self.state = State::Walking;
                }
                State::Walking => self.step(out, room)?,
            }
        }
        Ok(if self.state == State::Done { Progress::Done } else { Progress::More })
    }

    fn step(&mut self, out: &mut Vec<u8>, room: usize) -> Result<(), PackError> {
        if let Some(sending) = self.file.take() {
            self.file = sending.send(out, room)?;
            return Ok(());
        }
        let held: usize = self.levels.iter().map(Listing::bytes).sum();
        let Some(listing) = self.levels.last_mut() else {
            let Packed { entries, bytes, .. } = self.packed;
            self.record(&Entry::End { entries, bytes }, b"", out)?;
            self.state = State::Done;
            return Ok(());
        };
        if !listing.is_read() {
            let bytes = MAX_NAME_BYTES.saturating_sub(held - listing.bytes());
            return listing.read(Room { names: MAX_NAMES, bytes }).map_err(|error| match error {
                ListError::TooMany => PackError::TooMany { path: shown(&self.path) },
                ListError::Read(errno) => unreadable(&self.path, errno),
            });
        }
        match listing.next() {
            Some(name) => {
                let name = name.to_vec();
                self.name(&name, out)
            }
            None => {
                self.levels.pop();
                self.path.truncate(split(&self.path).0.len());
                self.current = None;
                Ok(())
            }
        }
    }

    fn name(&mut self, name: &[u8], out: &mut Vec<u8>) -> Result<(), PackError> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        if self.skip.contains(&path) {
            return Ok(());
        }
        if check_path(&path).is_err() {
            self.packed.left_out.too_long += 1;
            return Ok(());
        }
        match self.entry(path, name, out) {
            Ok(()) | Err(Passed::Gone) => {}
            Err(Passed::Unreadable) => self.packed.left_out.unreadable += 1,
            Err(Passed::Mount) => self.packed.left_out.mounts += 1,
            Err(Passed::Failed(error)) => return Err(error),
        }
        Ok(())
    }

    fn entry(&mut self, path: Vec<u8>, name: &[u8], out: &mut Vec<u8>) -> Result<(), Passed> {
        let current = match self.current.take() {
            Some(current) => current,
            None => beneath::open_dir(&self.root, &self.path)
                .map_err(|errno| Passed::because(&self.path, errno))?,
        };
        let current = &*self.current.insert(current);
        // A look before anything is opened: to open a device may wake it up.
        let stat = rustix::fs::statat(current, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| Passed::because(&path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let opened = beneath::open_dir(current, name);
                self.directory(opened.map_err(|errno| Passed::because(&path, errno))?, path, out)
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                let opened = beneath::open(current, name, flags);
                self.file(opened.map_err(|errno| Passed::because(&path, errno))?, path, out)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(current, name, Vec::new());
                let target = match target {
                    // No link any more.
                    Err(Errno::INVAL) => return Err(Passed::Gone),
                    other => other.map_err(|errno| Passed::because(&path, errno))?.into_bytes(),
                };
                if target.is_empty() || target.len() > MAX_TARGET_BYTES {
                    self.packed.left_out.too_long += 1;
                    return Ok(());
                }
                let link = Entry::Link { path: path.clone(), target, mtime: modified(&stat) };
                self.counted(&link, &path, out)
            }
            FileType::CharacterDevice if self.overlay.is_some() && stat.st_rdev == 0 => {
                self.counted(&Entry::Whiteout { path: path.clone() }, &path, out)
            }
            _ => {
                self.packed.left_out.special += 1;
                Ok(())
            }
        }
    }

    fn directory(&mut self, dir: OwnedFd, path: Vec<u8>, out: &mut Vec<u8>) -> Result<(), Passed> {
        let failed = |errno| Passed::because(&path, errno);
        let stat = rustix::fs::fstat(&dir).map_err(failed)?;
        let listing = Listing::open(&dir).map_err(failed)?;
        let opaque = self.is_opaque(&dir, &path).map_err(Passed::Failed)?;
        let mode = stat.st_mode & 0o777;
        let mtime = modified(&stat);
        self.counted(&Entry::Dir { path: path.clone(), mode, mtime, opaque }, &path, out)?;
        self.levels.push(listing);
        self.path = path;
        self.current = Some(dir);
        Ok(())
    }

    fn file(&mut self, file: OwnedFd, path: Vec<u8>, out: &mut Vec<u8>) -> Result<(), Passed> {
        let stat = rustix::fs::fstat(&file).map_err(|errno| Passed::because(&path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Passed::Gone);
        }
        if let Some(kind) = self.overlay
            && attribute(&file, &path, kind.metacopy()).map_err(Passed::Failed)?.is_some()
        {
            let attribute = kind.metacopy();
            return Err(Passed::Failed(PackError::Overlay { path: shown(&path), attribute }));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mode = stat.st_mode & 0o777;
        let mtime = modified(&stat);
        self.counted(&Entry::File { path: path.clone(), mode, mtime, size }, &path, out)?;
        self.packed.bytes = self.packed.bytes.saturating_add(size);
        self.file = (size > 0).then_some(Sending { path, file, left: size });
        Ok(())
    }

    /// Whether the overlay shows nothing of what lies below the directory.
    fn is_opaque(&self, dir: &OwnedFd, path: &[u8]) -> Result<bool, PackError> {
        let Some(kind) = self.overlay else {
            return Ok(false);
        };
        if attribute(dir, path, kind.redirect())?.is_some() {
            return Err(PackError::Overlay { path: shown(path), attribute: kind.redirect() });
        }
        match attribute(dir, path, kind.opaque())? {
            None => Ok(false),
            Some(b'y') => Ok(true),
            // Other values change what files in it mean; no upper directory has them.
            Some(_) => Err(PackError::Overlay { path: shown(path), attribute: kind.opaque() }),
        }
    }

    fn counted(&mut self, entry: &Entry, path: &[u8], out: &mut Vec<u8>) -> Result<(), Passed> {
        self.record(entry, path, out).map_err(Passed::Failed)?;
        self.packed.entries += 1;
        Ok(())
    }

    fn record(&self, entry: &Entry, path: &[u8], out: &mut Vec<u8>) -> Result<(), PackError> {
        entry.encode(out).map_err(|source| PackError::Read { path: shown(path), source })
    }
}

impl Sending {
    /// Sends a part of the content; what is left to send. The size was announced, so a file that
    /// shrank meanwhile is padded with zeros and one that grew is cut.
    fn send(mut self, out: &mut Vec<u8>, room: usize) -> Result<Option<Sending>, PackError> {
        let wanted = usize::try_from(self.left).unwrap_or(READ_BYTES).min(READ_BYTES).min(room);
        let start = out.len();
        out.resize(start + wanted, 0);
        let sent = match rustix::io::read(&self.file, &mut out[start..]) {
            // At the end before the end: the zeros stay.
            Ok(0) => wanted,
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => {
                out.truncate(start);
                return Err(unreadable(&self.path, errno));
            }
        };
        out.truncate(start + sent);
        self.left -= sent as u64;
        Ok((self.left > 0).then_some(self))
    }
}

impl Passed {
    fn because(path: &[u8], errno: Errno) -> Passed {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::STALE => Passed::Gone,
            Errno::ACCESS | Errno::PERM => Passed::Unreadable,
            Errno::XDEV => Passed::Mount,
            errno => Passed::Failed(unreadable(path, errno)),
        }
    }
}

/// The first byte of an extended attribute, zero if it is not the only one; `None` if there is no
/// such attribute.
fn attribute(file: &OwnedFd, path: &[u8], name: &str) -> Result<Option<u8>, PackError> {
    let mut value = [0; 64];
    match rustix::fs::fgetxattr(file, name, &mut value[..]) {
        Ok(1) => Ok(Some(value[0])),
        Ok(_) | Err(Errno::RANGE) => Ok(Some(0)),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(errno) => Err(unreadable(path, errno)),
    }
}

/// Fails on what could never match: it was meant to hide something.
fn skipped(path: &Path) -> Result<Vec<u8>, PackError> {
    let bad = || PackError::BadSkip { path: shown(path.as_os_str().as_bytes()) };
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part.as_bytes()),
            Component::CurDir => {}
            _ => return Err(bad()),
        }
    }
    if parts.is_empty() { Err(bad()) } else { Ok(parts.join(&b'/')) }
}

fn modified(stat: &Stat) -> Time {
    (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

fn unreadable(path: &[u8], errno: Errno) -> PackError {
    PackError::Read { path: shown(path), source: errno.into() }
}
