//! Lists a directory, one buffer of the kernel at a time.

use std::os::fd::OwnedFd;

use ringwall_wire::{Connection, DirEntry, OUTGOING_HIGH_WATER, RemoteError, Reply, StreamId};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::path::{absolute, open};
use super::{Progress, file_stat};
use crate::error::{failed, show};

/// What the kernel hands out at once; the entries of one reply.
pub(super) const BUFFER_BYTES: usize = 32 << 10;

#[derive(Debug)]
pub(crate) struct Listing {
    directory: OwnedFd,
    path: Vec<u8>,
}

impl Listing {
    pub(crate) fn open(path: &[u8]) -> Result<Listing, RemoteError> {
        let directory = open(&absolute(path)?, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .map_err(|errno| failed(&format!("cannot list {}", show(path)), errno))?;
        Ok(Listing { directory, path: path.to_vec() })
    }

    pub(crate) fn step(&mut self, connection: &mut Connection, stream: StreamId) -> Progress {
        // Replies need no credit, so the engine's reading speed has to be minded here.
        if connection.outgoing().len() >= OUTGOING_HIGH_WATER / 2 {
            return Progress::Waiting;
        }
        match self.next_entries() {
            Ok(None) => Progress::Finished(Ok(())),
            Ok(Some(entries)) => {
                if !entries.is_empty() {
                    connection.reply(stream, &Reply::Entries(entries));
                }
                // A listing that became too long has been refused and closed by the connection.
                if connection.is_open(stream) {
                    Progress::Again
                } else {
                    Progress::Finished(Ok(()))
                }
            }
            Err(errno) => {
                let doing = format!("cannot list {}", show(&self.path));
                Progress::Finished(Err(failed(&doing, errno)))
            }
        }
    }

    /// `None` at the end of the directory.
    fn next_entries(&mut self) -> Result<Option<Vec<DirEntry>>, Errno> {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut raw = RawDir::new(&self.directory, buffer.spare_capacity_mut());
        let mut entries = Vec::new();
        let mut any = false;
        while let Some(entry) = raw.next() {
            let entry = entry?;
            any = true;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => entries
                        .push(DirEntry { name: name.to_bytes().to_vec(), stat: file_stat(&stat) }),
                    // Removed in the meantime.
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
            }
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(any.then_some(entries))
    }
}
