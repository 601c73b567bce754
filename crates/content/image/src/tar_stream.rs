//! Reads a tar archive from hostile bytes, one entry at a time, in bounded memory.
//!
//! The `tar` crate parses single headers; the walk over them is done here, because extended
//! headers must be bounded before they are read and because there must be one answer to how long an
//! entry is. The rules are those of Go's `archive/tar`, which nearly every image tool is built on, so
//! that we see the same files as the tool that made the image.

use std::io::{self, Read};

use tar::Header;

use crate::limits::MAX_EXTENDED_HEADER_BYTES;

const BLOCK: usize = 512;

/// One file, directory or link of an archive, as the archive has it: nothing is checked yet.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) link_target: Vec<u8>,
    pub(crate) kind: EntryKind,
    /// Bytes of content that follow.
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    /// Seconds since the epoch.
    pub(crate) mtime: u64,
    /// Names of the extended attributes. Values are not kept: no attribute is ever set.
    pub(crate) xattr_names: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink,
    HardLink,
    Fifo,
    Device,
}

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("the archive ends in the middle of an entry")]
    Truncated,
    #[error("the archive has a header with a wrong checksum or a malformed number")]
    BadHeader,
    #[error("the archive has a malformed PAX header")]
    BadPax,
    #[error(
        "the archive has an extended header of {0} bytes; at most {MAX_EXTENDED_HEADER_BYTES} are accepted"
    )]
    ExtendedHeaderTooLarge(u64),
    #[error(
        "the archive has a sparse file; rebuild the image without sparse archives (GNU tar: no --sparse)"
    )]
    Sparse,
    #[error("the archive has an entry of the unknown type {0:?}")]
    UnknownType(char),
    #[error("the archive cannot be read")]
    Read(#[source] io::Error),
}

/// What the extended headers before an entry said about it.
#[derive(Default)]
struct Overrides {
    name: Option<Vec<u8>>,
    link_target: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    xattr_names: Vec<Vec<u8>>,
}

/// A tar archive being read.
pub(crate) struct TarStream<R> {
    reader: R,
    /// Bytes taken from `reader`: where the content of the current entry begins.
    position: u64,
    content_left: u64,
    padding_left: u64,
    finished: bool,
}

impl<R: Read> TarStream<R> {
    pub(crate) fn new(reader: R) -> TarStream<R> {
        TarStream { reader, position: 0, content_left: 0, padding_left: 0, finished: false }
    }

    /// Where the next unread byte lies in the archive.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    /// Skips what is left of the current entry and reads the next one; `None` at the end.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, ArchiveError> {
        let mut overrides = Overrides::default();
        loop {
            self.skip_content()?;
            let Some(block) = self.read_header_block()? else {
                return Ok(None);
            };
            let header = Header::from_byte_slice(&block);
            check_sum(header)?;
            let size = number(header.entry_size(), &header.as_old().size)?;
            match header.entry_type().as_byte() {
                b'L' => overrides.name = Some(self.read_long_name(size)?),
                b'K' => overrides.link_target = Some(self.read_long_name(size)?),
                b'x' | b'X' => {
                    let records = self.read_extended(size)?;
                    overrides.apply_pax(&records)?;
                }
                // Defaults for the whole archive: image tools write comments here at most, and
                // Go's reader does not apply them either.
                b'g' => drop(self.read_extended(size)?),
                _ => {
                    let entry = overrides.into_entry(header, size)?;
                    self.expect_content(entry.size)?;
                    return Ok(Some(entry));
                }
            }
        }
    }

    /// Reads to the end of the underlying stream, which may go on after the archive's own end.
    pub(crate) fn drain(&mut self) -> Result<(), ArchiveError> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match self.reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.position += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ArchiveError::Read(error)),
            }
        }
    }

    fn expect_content(&mut self, size: u64) -> Result<(), ArchiveError> {
        // Sizes near the end of the number range would wrap the padding; no archive has them.
        if size > u64::MAX / 2 {
            return Err(ArchiveError::BadHeader);
        }
        self.content_left = size;
        self.padding_left = size.next_multiple_of(BLOCK as u64) - size;
        Ok(())
    }

    fn skip_content(&mut self) -> Result<(), ArchiveError> {
        let to_skip = self.content_left + self.padding_left;
        if to_skip == 0 {
            return Ok(());
        }
        self.content_left = 0;
        self.padding_left = 0;
        let skipped = io::copy(&mut (&mut self.reader).take(to_skip), &mut io::sink())
            .map_err(ArchiveError::Read)?;
        self.position += skipped;
        if skipped == to_skip { Ok(()) } else { Err(ArchiveError::Truncated) }
    }

    /// The next header; `None` at the end, which is a zero block or simply the last byte.
    fn read_header_block(&mut self) -> Result<Option<[u8; BLOCK]>, ArchiveError> {
        if self.finished {
            return Ok(None);
        }
        let mut block = [0; BLOCK];
        let count = self.read_up_to(&mut block)?;
        if count == 0 || (count == BLOCK && block.iter().all(|byte| *byte == 0)) {
            self.finished = true;
            return Ok(None);
        }
        if count < BLOCK { Err(ArchiveError::Truncated) } else { Ok(Some(block)) }
    }

    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ArchiveError::Read(error)),
            }
        }
        self.position += filled as u64;
        Ok(filled)
    }

    fn read_extended(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        if size > MAX_EXTENDED_HEADER_BYTES {
            return Err(ArchiveError::ExtendedHeaderTooLarge(size));
        }
        self.expect_content(size)?;
        let mut bytes = vec![0; size as usize];
        let count = self.read_up_to(&mut bytes)?;
        self.content_left = 0;
        if (count as u64) < size { Err(ArchiveError::Truncated) } else { Ok(bytes) }
    }

    /// GNU's long names end in one NUL; one anywhere else stays, to be refused with the name.
    fn read_long_name(&mut self, size: u64) -> Result<Vec<u8>, ArchiveError> {
        let mut name = self.read_extended(size)?;
        if name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }
}

/// Reads the current entry's content.
impl<R: Read> Read for TarStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.content_left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let count = self.reader.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content_left -= count as u64;
        self.position += count as u64;
        Ok(count)
    }
}

impl Overrides {
    fn apply_pax(&mut self, mut records: &[u8]) -> Result<(), ArchiveError> {
        while !records.is_empty() {
            let (key, value, rest) = split_pax_record(records).ok_or(ArchiveError::BadPax)?;
            records = rest;
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link_target = Some(value.to_vec()),
                b"size" => self.size = Some(parse_decimal(value)?),
                b"uid" => self.uid = Some(parse_decimal(value)?),
                b"gid" => self.gid = Some(parse_decimal(value)?),
                _ if key.starts_with(b"GNU.sparse.") => return Err(ArchiveError::Sparse),
                _ => {
                    let xattr = key
                        .strip_prefix(b"SCHILY.xattr.")
                        .or_else(|| key.strip_prefix(b"LIBARCHIVE.xattr."));
                    self.xattr_names.extend(xattr.map(<[u8]>::to_vec));
                }
            }
        }
        Ok(())
    }

    fn into_entry(self, header: &Header, header_size: u64) -> Result<Entry, ArchiveError> {
        let name = self.name.unwrap_or_else(|| header.path_bytes().into_owned());
        let size = self.size.unwrap_or(header_size);
        let type_byte = header.entry_type().as_byte();
        let kind = match type_byte {
            // Before POSIX a directory was a file with a slash at the end of its name.
            b'0' | 0 if name.ends_with(b"/") && size == 0 => EntryKind::Directory,
            b'0' | 0 | b'7' => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'3' | b'4' => EntryKind::Device,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            b'S' => return Err(ArchiveError::Sparse),
            other => return Err(ArchiveError::UnknownType(char::from(other))),
        };
        let old = header.as_old();
        Ok(Entry {
            name,
            link_target: match self.link_target {
                Some(target) => target,
                None => header.link_name_bytes().map(|t| t.into_owned()).unwrap_or_default(),
            },
            kind,
            // Some tools write a size for directories and links, yet no content follows.
            size: if kind == EntryKind::File { size } else { 0 },
            mode: number(header.mode(), &old.mode)?,
            uid: match self.uid {
                Some(uid) => uid,
                None => number(header.uid(), &old.uid)?,
            },
            gid: match self.gid {
                Some(gid) => gid,
                None => number(header.gid(), &old.gid)?,
            },
            mtime: header.mtime().unwrap_or(0),
            xattr_names: self.xattr_names,
        })
    }
}

/// Splits `"<length> <key>=<value>\n"` off the front, where the length counts all of it.
fn split_pax_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(parse_decimal(&records[..space]).ok()?).ok()?;
    let record = records.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &records[length..]))
}

/// A header's number; a blank field means zero, as some tools write it.
fn number<N: Default>(parsed: io::Result<N>, field: &[u8]) -> Result<N, ArchiveError> {
    match parsed {
        Ok(number) => Ok(number),
        Err(_) if field.iter().all(|byte| matches!(byte, 0 | b' ')) => Ok(N::default()),
        Err(_) => Err(ArchiveError::BadHeader),
    }
}

fn parse_decimal(digits: &[u8]) -> Result<u64, ArchiveError> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits)
        .ok()
        .filter(|_| all_digits)
        .and_then(|text| text.parse().ok())
        .ok_or(ArchiveError::BadPax)
}

fn check_sum(header: &Header) -> Result<(), ArchiveError> {
    const FIELD: std::ops::Range<usize> = 148..156;
    let bytes = header.as_bytes().iter().enumerate();
    let sum: u32 =
        bytes.map(|(i, byte)| u32::from(if FIELD.contains(&i) { b' ' } else { *byte })).sum();
    match header.cksum() {
        Ok(stored) if stored == sum => Ok(()),
        _ => Err(ArchiveError::BadHeader),
    }
}
