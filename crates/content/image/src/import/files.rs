//! Files by name, out of a directory or out of an archive, without unpacking it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use ringwall_safekeeping::beneath::{self, Mounts};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use super::ImportError;
use crate::budget::{Bomb, Budget};
use crate::limits::UnpackLimits;
use crate::manifest::check_size;
use crate::store::Store;
use crate::tar_stream::{EntryKind, TarStream};
use crate::unpack::LayerReader;

/// Layers times two or three files each: real archives have hundreds.
const MAX_ENTRIES: usize = 20_000;
const MAX_LINKS_FOLLOWED: usize = 4;

/// A directory or an archive with files in it.
pub(super) enum Files {
    Directory(OwnedFd),
    Archive { file: Arc<File>, index: HashMap<String, Slot> },
}

/// Where an archive has a file's content.
pub(super) enum Slot {
    Content { offset: u64, size: u64 },
    Link(String),
}

pub(super) struct OpenFile {
    pub(super) reader: Box<dyn Read>,
    pub(super) size: u64,
    pub(super) content: ContentId,
}

/// Which bytes these are. Several names may lead to the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ContentId {
    Inode { device: u64, inode: u64 },
    Offset(u64),
}

/// Files, and what may be unpacked from them.
pub(super) struct Opened {
    pub(super) files: Files,
    pub(super) budget: Budget,
}

impl Files {
    pub(super) fn open(path: &Path, store: &Store) -> Result<Opened, ImportError> {
        let failed = |source: io::Error| ImportError::Open { path: path.to_owned(), source };
        // O_NONBLOCK: a pipe must not make us wait for a writer; it is refused below.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed(errno.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let budget = Budget::new(store.limits().unpack);
                Ok(Opened { files: Files::Directory(fd), budget })
            }
            FileType::RegularFile => {
                let plain = plain_archive(File::from(fd), store).map_err(|error| match error {
                    ImportError::Read { source, .. } => failed(source),
                    other => other,
                })?;
                let index = index_of(&plain.file)?;
                let files = Files::Archive { file: Arc::new(plain.file), index };
                Ok(Opened { files, budget: plain.budget })
            }
            _ => Err(ImportError::NotAnImage(path.to_owned())),
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.open_file(name).is_ok()
    }

    pub(super) fn open_file(&self, name: &str) -> Result<OpenFile, ImportError> {
        match self {
            Files::Directory(directory) => open_in_directory(directory, name),
            Files::Archive { file, index } => open_in_archive(file, index, name),
        }
    }

    /// Reads a small file.
    pub(super) fn read(
        &self,
        name: &str,
        what: &'static str,
        max_bytes: u64,
    ) -> Result<Vec<u8>, ImportError> {
        let file = self.open_file(name)?;
        check_size(what, file.size, max_bytes)?;
        let mut bytes = Vec::new();
        file.reader
            .take(max_bytes)
            .read_to_end(&mut bytes)
            .map_err(|source| ImportError::Read { name: name.to_owned(), source })?;
        Ok(bytes)
    }
}

fn open_in_directory(directory: &OwnedFd, name: &str) -> Result<OpenFile, ImportError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let not_a_file = |_| ImportError::NotAFile { name: name.to_owned() };
    let fd = beneath::open(directory, name, flags, Mounts::Entered).map_err(not_a_file)?;
    let file = File::from(fd);
    let metadata =
        file.metadata().map_err(|source| ImportError::Read { name: name.to_owned(), source })?;
    if !metadata.is_file() {
        return Err(ImportError::NotAFile { name: name.to_owned() });
    }
    let content = ContentId::Inode { device: metadata.dev(), inode: metadata.ino() };
    Ok(OpenFile { reader: Box::new(file), size: metadata.len(), content })
}

fn open_in_archive(
    file: &Arc<File>,
    index: &HashMap<String, Slot>,
    name: &str,
) -> Result<OpenFile, ImportError> {
    let mut wanted = name;
    for _ in 0..=MAX_LINKS_FOLLOWED {
        match index.get(wanted) {
            Some(Slot::Content { offset, size }) => {
                let reader = Window { file: Arc::clone(file), at: *offset, end: offset + size };
                let content = ContentId::Offset(*offset);
                return Ok(OpenFile { reader: Box::new(reader), size: *size, content });
            }
            Some(Slot::Link(target)) => wanted = target,
            None => break,
        }
    }
    Err(ImportError::NotAFile { name: name.to_owned() })
}

/// Part of a file, readable by several threads at once.
struct Window {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// An archive that is not compressed, and what its layers may unpack to.
struct PlainArchive {
    file: File,
    budget: Budget,
}

/// The archive itself, or its uncompressed content in a file without a name.
fn plain_archive(mut file: File, store: &Store) -> Result<PlainArchive, ImportError> {
    let failed = |source| ImportError::Read { name: "archive".to_owned(), source };
    let mut start = [0; 4];
    let count = file.read_at(&mut start, 0).map_err(failed)?;
    let compressed = start[..count].starts_with(&[0x1f, 0x8b])
        || start[..count].starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    let limits = store.limits().unpack;
    if !compressed {
        return Ok(PlainArchive { file, budget: Budget::new(limits) });
    }
    let source_bytes = file.metadata().map_err(failed)?.len();
    let archive_limits = UnpackLimits { max_bytes: store.limits().max_image_bytes, ..limits };
    let archive_budget = Budget::new(archive_limits);
    let meter = archive_budget.meter(source_bytes);
    let mut reader = LayerReader::new(&mut file, &meter).map_err(failed)?;
    let mut plain = store.anonymous_file()?;
    let plain_bytes = io::copy(&mut reader, &mut plain).map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Bomb>()) {
            Some(bomb) => ImportError::Bomb(*bomb),
            None => failed(error),
        }
    })?;
    plain.flush().and_then(|()| plain.rewind()).map_err(failed)?;
    Ok(PlainArchive { file: plain, budget: Budget::of_archive(limits, source_bytes, plain_bytes) })
}

/// Finds every file of an archive. Later entries replace earlier ones of the same name.
fn index_of(file: &File) -> Result<HashMap<String, Slot>, ImportError> {
    let mut archive = TarStream::new(BufReader::with_capacity(128 * 1024, file));
    let mut index = HashMap::new();
    while let Some(entry) = archive.next_entry()? {
        // Names that matter are ASCII; whatever else is in there is never asked for.
        let Some(name) = normalised("", &entry.name) else {
            continue;
        };
        let slot = match entry.kind {
            EntryKind::File => Slot::Content { offset: archive.position(), size: entry.size },
            EntryKind::Symlink => {
                let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
                match normalised(directory, &entry.link_target) {
                    Some(target) => Slot::Link(target),
                    None => continue,
                }
            }
            EntryKind::HardLink => match normalised("", &entry.link_target) {
                Some(target) => Slot::Link(target),
                None => continue,
            },
            EntryKind::Directory | EntryKind::Fifo | EntryKind::Device => continue,
        };
        index.insert(name, slot);
        if index.len() > MAX_ENTRIES {
            return Err(ImportError::TooManyEntries(MAX_ENTRIES));
        }
    }
    Ok(index)
}

/// Joins and tidies a path by its text alone; `None` if it leaves the archive.
fn normalised(directory: &str, path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok().filter(|path| !path.starts_with('/'))?;
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_inside_an_archive_are_resolved_by_text_and_never_leave_it() {
        assert_eq!(normalised("", b"./a//b").as_deref(), Some("a/b"));
        assert_eq!(normalised("id", b"../other/layer.tar").as_deref(), Some("other/layer.tar"));
        assert_eq!(normalised("id", b"../../etc/passwd"), None);
        assert_eq!(normalised("", b"/etc/passwd"), None);
    }
}
