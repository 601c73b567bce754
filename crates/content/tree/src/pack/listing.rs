//! The names in one directory, each once and in order.
//!
//! A directory that changes while it is read may tell a name twice, and a name that comes twice is
//! refused at the other end; so a directory is read to its end before any of it is sent. Names lie
//! in one piece of memory, not one allocation each: a job may make very many.

use std::os::fd::OwnedFd;

use rustix::fs::Dir;
use rustix::io::Errno;

/// Names that are read between two looks at whether it is enough for now.
const NAMES_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Listing {
    /// While it is being read.
    dir: Option<Dir>,
    names: Vec<u8>,
    /// Where each name starts and ends.
    spans: Vec<(u32, u32)>,
    next: usize,
}

/// How many names a directory may have, and all names that are held may take together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) names: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) enum ListError {
    TooMany,
    Read(Errno),
}

impl Listing {
    pub(super) fn open(dir: &OwnedFd) -> Result<Listing, Errno> {
        let dir = Some(Dir::read_from(dir)?);
        Ok(Listing { dir, names: Vec::new(), spans: Vec::new(), next: 0 })
    }

    pub(super) fn is_read(&self) -> bool {
        self.dir.is_none()
    }

    /// Reads some more names; `room.bytes` is what this listing may hold.
    pub(super) fn read(&mut self, room: Room) -> Result<(), ListError> {
        for _ in 0..NAMES_AT_ONCE {
            let Some(dir) = self.dir.as_mut() else {
                return Ok(());
            };
            match dir.read() {
                Some(Ok(entry)) => self.add(entry.file_name().to_bytes(), room)?,
                // Removed while it is read.
                Some(Err(Errno::NOENT)) | None => {
                    self.dir = None;
                    self.sort();
                }
                Some(Err(errno)) => return Err(ListError::Read(errno)),
            }
        }
        Ok(())
    }

    /// The next name, once all were read.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        let (start, end) = *self.spans.get(self.next)?;
        self.next += 1;
        self.names.get(start as usize..end as usize)
    }

    pub(super) fn bytes(&self) -> usize {
        self.names.len()
    }

    fn add(&mut self, name: &[u8], room: Room) -> Result<(), ListError> {
        if matches!(name, b"." | b"..") {
            return Ok(());
        }
        // A broken file system could hand out a name that leads elsewhere.
        if name.is_empty() || name.contains(&b'/') {
            return Err(ListError::Read(Errno::IO));
        }
        let start = self.names.len();
        let end = start + name.len();
        let (Ok(from), Ok(to)) = (u32::try_from(start), u32::try_from(end)) else {
            return Err(ListError::TooMany);
        };
        if self.spans.len() >= room.names || end > room.bytes {
            return Err(ListError::TooMany);
        }
        self.names.extend_from_slice(name);
        self.spans.push((from, to));
        Ok(())
    }

    fn sort(&mut self) {
        let names = &self.names;
        let name = |span: &(u32, u32)| &names[span.0 as usize..span.1 as usize];
        self.spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        self.spans.dedup_by(|a, b| name(a) == name(b));
    }
}
