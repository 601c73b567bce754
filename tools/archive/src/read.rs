//! Reads the entries of an archive one after the other, whatever its format.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use ringwall_tool_sdk::Failure;
use serde::{Deserialize, Serialize};
use tar::EntryType;

use crate::check::Limits;

/// The longest target of a link.
const MAX_TARGET_BYTES: u64 = 4096;
/// What headers and padding of one tar entry may add to its content.
const TAR_OVERHEAD: u64 = 16 << 10;
/// Bits of a file's mode that let it be executed.
const EXECUTABLE: u32 = 0o111;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Format {
    #[serde(rename = "tar")]
    Tar,
    #[serde(rename = "tar.gz")]
    TarGz,
    #[serde(rename = "zip")]
    Zip,
}

impl Format {
    pub(crate) fn of_name(name: &str) -> Result<Self, Failure> {
        let name = name.to_ascii_lowercase();
        let ends = |end: &str| name.ends_with(end);
        match () {
            () if ends(".tar.gz") || ends(".tgz") || ends(".crate") => Ok(Self::TarGz),
            () if ends(".tar") => Ok(Self::Tar),
            () if ends(".zip") || ends(".jar") || ends(".whl") => Ok(Self::Zip),
            () => Err(Failure::bad_input(format_args!(
                "{name:?} does not say what it is; give format: tar, tar.gz or zip"
            ))),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) executable: bool,
    /// Where a link points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    File,
    Dir,
    Link,
    HardLink,
    /// Devices, pipes and what else a tar file can hold.
    Special,
}

/// An archive on disk, to be read as often as needed.
pub(crate) struct Source<'a> {
    path: PathBuf,
    name: &'a str,
    format: Format,
    pub(crate) limits: Limits,
    pub(crate) archive_bytes: u64,
}

pub(crate) type Visit<'v> = dyn FnMut(Entry, &mut dyn Read) -> Result<(), Failure> + 'v;

impl<'a> Source<'a> {
    pub(crate) fn new(
        path: &Path,
        name: &'a str,
        format: Format,
        limits: Limits,
    ) -> Result<Self, Failure> {
        let about = path.metadata().map_err(|error| Failure::io(name, &error))?;
        if !about.is_file() {
            return Err(Failure::bad_input(format_args!("{name:?} is no file")));
        }
        Ok(Self { path: path.to_owned(), name, format, limits, archive_bytes: about.len() })
    }

    /// Calls `visit` with every entry and its content, in the order of the archive.
    pub(crate) fn visit(&self, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let file = File::open(&self.path).map_err(|error| Failure::io(self.name, &error))?;
        let file = BufReader::new(file);
        match self.format {
            Format::Tar => self.visit_tar(file, visit),
            Format::TarGz => self.visit_tar(MultiGzDecoder::new(file), visit),
            Format::Zip => self.visit_zip(file, visit),
        }
    }

    fn visit_tar(&self, content: impl Read, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let most = self.limits.max_bytes + self.limits.max_files as u64 * TAR_OVERHEAD;
        let mut archive = tar::Archive::new(Limited { inner: content, left: most });
        let entries = archive.entries().map_err(|error| self.malformed(&error))?;
        for entry in entries {
            let mut entry = entry.map_err(|error| self.malformed(&error))?;
            let kind = match entry.header().entry_type() {
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File,
                EntryType::Directory => Kind::Dir,
                EntryType::Symlink => Kind::Link,
                EntryType::Link => Kind::HardLink,
                EntryType::XGlobalHeader => continue,
                _ => Kind::Special,
            };
            let about = Entry {
                path: self.text(entry.path_bytes().into_owned())?,
                kind,
                bytes: if kind == Kind::File { entry.size() } else { 0 },
                executable: kind == Kind::File
                    && entry.header().mode().is_ok_and(|mode| mode & EXECUTABLE != 0),
                target: entry
                    .link_name_bytes()
                    .map(|name| self.text(name.into_owned()))
                    .transpose()?,
            };
            visit(about, &mut entry)?;
        }
        Ok(())
    }

    fn visit_zip(&self, file: BufReader<File>, visit: &mut Visit<'_>) -> Result<(), Failure> {
        let mut archive = zip::ZipArchive::new(file).map_err(|error| self.malformed(&error))?;
        for index in 0..archive.len() {
            let mut entry = archive.by_index(index).map_err(|error| self.malformed(&error))?;
            let path = self.text(entry.name_raw().to_vec())?;
            let mode = entry.unix_mode().unwrap_or(0);
            let (kind, target) = if entry.is_symlink() {
                let mut target = Vec::new();
                let mut content = entry.by_ref().take(MAX_TARGET_BYTES);
                content.read_to_end(&mut target).map_err(|error| self.malformed(&error))?;
                (Kind::Link, Some(self.text(target)?))
            } else {
                (if entry.is_dir() { Kind::Dir } else { Kind::File }, None)
            };
            let bytes = if kind == Kind::File { entry.size() } else { 0 };
            let executable = kind == Kind::File && mode & EXECUTABLE != 0;
            visit(Entry { path, kind, bytes, executable, target }, &mut entry)?;
        }
        Ok(())
    }

    fn text(&self, bytes: Vec<u8>) -> Result<String, Failure> {
        String::from_utf8(bytes).map_err(|error| {
            let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
            self.refused(&name, "its name is no UTF-8 text")
        })
    }

    pub(crate) fn malformed(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::bad_input(format_args!("{:?} cannot be read: {error}", self.name))
    }

    pub(crate) fn refused(&self, entry: &str, why: &str) -> Failure {
        let archive = self.name;
        Failure::new("refused", format_args!("{archive:?} is refused: entry {entry:?}: {why}"))
    }
}

/// Ends a stream with an error when it gives more than it may.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other("it unpacks to more than limits.max_bytes; is it a bomb?")
        })?;
        Ok(read)
    }
}
