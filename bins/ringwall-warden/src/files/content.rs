//! Reads and writes the content of ordinary files.

use std::os::fd::OwnedFd;

use ringwall_wire::{Channel, Connection, RemoteError, StreamId, WriteHow};
use rustix::fs::{FileType, Mode, OFlags, PROC_SUPER_MAGIC};
use rustix::io::Errno;

use super::path::{absolute, open};
use super::{Progress, not_a_file, permissions};
use crate::error::{failed, show};

#[derive(Debug)]
pub(crate) struct Reader {
    file: OwnedFd,
    path: Vec<u8>,
    offset: u64,
    /// How much may still be sent.
    left: u64,
}

impl Reader {
    pub(crate) fn open(path: &[u8], offset: u64, max_bytes: u64) -> Result<Reader, RemoteError> {
        // Without blocking, or a pipe with no writer would hold us for ever.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(&absolute(path)?, flags, Mode::empty())
            .map_err(|errno| failed(&format!("cannot read {}", show(path)), errno))?;
        if !is_ordinary(&file) {
            return Err(not_a_file(path));
        }
        Ok(Reader { file, path: path.to_vec(), offset, left: max_bytes })
    }

    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        stream: StreamId,
        buffer: &mut [u8],
    ) -> Progress {
        let room = connection.sendable(stream).min(buffer.len());
        let wanted = usize::try_from(self.left).map_or(room, |left| left.min(room));
        if self.left > 0 && room == 0 {
            return Progress::Waiting;
        }
        match rustix::io::pread(&self.file, &mut buffer[..wanted], self.offset) {
            Ok(0) => Progress::Finished(Ok(())),
            Ok(count) => {
                connection.send(stream, Channel::Bytes, &buffer[..count]);
                self.offset += count as u64;
                self.left -= count as u64;
                Progress::Again
            }
            Err(Errno::INTR) => Progress::Again,
            Err(errno) => {
                let doing = format!("cannot read {}", show(&self.path));
                Progress::Finished(Err(failed(&doing, errno)))
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    file: OwnedFd,
    path: Vec<u8>,
}

impl Writer {
    pub(crate) fn open(path: &[u8], mode: u32, how: WriteHow) -> Result<Writer, RemoteError> {
        let how_flags = match how {
            WriteHow::CreateNew => OFlags::CREATE | OFlags::EXCL,
            // Emptied only once it is known to be an ordinary file.
            WriteHow::Replace => OFlags::CREATE,
            WriteHow::Append => OFlags::CREATE | OFlags::APPEND,
        };
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | how_flags;
        let failure = |errno| failed(&format!("cannot write {}", show(path)), errno);
        let file = open(&absolute(path)?, flags, permissions(mode)).map_err(failure)?;
        // Files of /proc look ordinary, but writing there is a command, to us of all processes.
        if !is_ordinary(&file) || is_in_proc(&file) {
            return Err(not_a_file(path));
        }
        if how == WriteHow::Replace {
            rustix::fs::ftruncate(&file, 0).map_err(failure)?;
        }
        Ok(Writer { file, path: path.to_vec() })
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), RemoteError> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.file, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(failed(&format!("cannot write {}", show(&self.path)), errno));
                }
            }
        }
        Ok(())
    }
}

fn is_ordinary(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

fn is_in_proc(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).map_or(true, |system| system.f_type == PROC_SUPER_MAGIC)
}
