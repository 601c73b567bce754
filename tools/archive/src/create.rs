//! Packs files into an archive that is the same whenever the files are: sorted, without times.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ringwall_tool_sdk::Failure;
use tar::{EntryType, Header};
use zip::write::SimpleFileOptions;

use crate::check::Limits;
use crate::read::{Entry, Format, Kind};

pub(crate) fn create(
    root: &Path,
    archive: &Path,
    format: Format,
    dir: &Path,
    only: &[PathBuf],
    limits: Limits,
    skipped: &mut Vec<String>,
) -> Result<Vec<Entry>, Failure> {
    let top = root.join(dir);
    let mut found = Found { top: &top, archive, limits, entries: Vec::new(), bytes: 0, skipped };
    if only.is_empty() {
        found.walk(Path::new(""))?;
    }
    for path in only {
        found.add(path)?;
    }
    let mut entries = found.entries;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries.dedup();

    let part = archive.with_added_extension("part");
    let packed = pack(&top, &part, format, &entries).and_then(|()| {
        fs::rename(&part, archive).map_err(|error| Failure::io(archive.display(), &error))
    });
    if let Err(failure) = packed {
        // Half an archive helps nobody; if it cannot be removed, the first error says more.
        let _ = fs::remove_file(&part);
        return Err(failure);
    }
    Ok(entries)
}

struct Found<'a> {
    top: &'a Path,
    archive: &'a Path,
    limits: Limits,
    entries: Vec<Entry>,
    bytes: u64,
    skipped: &'a mut Vec<String>,
}

impl Found<'_> {
    fn walk(&mut self, below: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::io(below.display(), &error);
        for entry in fs::read_dir(self.top.join(below)).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            self.add(&below.join(name))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let full = self.top.join(path);
        if full == self.archive {
            return Ok(());
        }
        let name = path.to_string_lossy().into_owned();
        let failed = |error| Failure::io(&name, &error);
        let about = fs::symlink_metadata(&full).map_err(failed)?;
        let mut target = None;
        let kind = if about.is_dir() {
            Kind::Dir
        } else if about.is_file() {
            Kind::File
        } else if about.is_symlink() {
            let points = fs::read_link(&full).map_err(failed)?;
            target = Some(points.to_string_lossy().into_owned());
            Kind::Link
        } else {
            self.skipped.push(name);
            return Ok(());
        };
        let bytes = if kind == Kind::File { about.len() } else { 0 };
        self.bytes += bytes;
        self.entries.push(Entry { path: name, kind, bytes, executable: false, target });
        if self.bytes > self.limits.max_bytes || self.entries.len() > self.limits.max_files {
            return Err(Failure::limit("more than limits.max_bytes or limits.max_files allow"));
        }
        if kind == Kind::Dir { self.walk(path) } else { Ok(()) }
    }
}

fn pack(top: &Path, part: &Path, format: Format, entries: &[Entry]) -> Result<(), Failure> {
    let failed = |error| Failure::io(part.display(), &error);
    let file = BufWriter::new(File::create(part).map_err(failed)?);
    match format {
        Format::Tar => pack_tar(top, file, entries)?.flush(),
        Format::TarGz => {
            let gzip = GzEncoder::new(file, Compression::default());
            pack_tar(top, gzip, entries)?.finish().and_then(|mut file| file.flush())
        }
        Format::Zip => pack_zip(top, file, entries),
    }
    .map_err(failed)
}

fn pack_tar<W: Write>(top: &Path, out: W, entries: &[Entry]) -> Result<W, Failure> {
    let mut builder = tar::Builder::new(out);
    for entry in entries {
        let failed = |error| Failure::io(&entry.path, &error);
        let mut header = Header::new_gnu();
        header.set_size(entry.bytes);
        header.set_mode(if entry.kind == Kind::Dir { 0o755 } else { 0o644 });
        match entry.kind {
            Kind::Dir => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, format!("{}/", entry.path), io::empty())
            }
            Kind::Link => {
                header.set_entry_type(EntryType::Symlink);
                let target = entry.target.as_deref().unwrap_or_default();
                builder.append_link(&mut header, &entry.path, target)
            }
            _ => {
                let file = File::open(top.join(&entry.path)).map_err(failed)?;
                builder.append_data(&mut header, &entry.path, Exact::new(file, entry.bytes))
            }
        }
        .map_err(failed)?;
    }
    builder.into_inner().map_err(|error| Failure::io("the archive", &error))
}

fn pack_zip(top: &Path, out: BufWriter<File>, entries: &[Entry]) -> io::Result<()> {
    let mut writer = zip::ZipWriter::new(out);
    let options = SimpleFileOptions::default().unix_permissions(0o644);
    for entry in entries {
        match entry.kind {
            Kind::Dir => writer.add_directory(&entry.path, options.unix_permissions(0o755))?,
            Kind::Link => {
                let target = entry.target.as_deref().unwrap_or_default();
                writer.add_symlink(&entry.path, target, options)?;
            }
            _ => {
                writer.start_file(&entry.path, options.large_file(entry.bytes >= 1 << 32))?;
                let file = File::open(top.join(&entry.path))?;
                io::copy(&mut Exact::new(file, entry.bytes), &mut writer)?;
            }
        }
    }
    writer.finish()?.flush()
}

/// A file that must have the size it had when it was listed: the header is already written.
struct Exact {
    file: io::Take<File>,
    left: u64,
}

impl Exact {
    fn new(file: File, bytes: u64) -> Self {
        Self { file: io::Read::take(file, bytes), left: bytes }
    }
}

impl io::Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.left -= read as u64;
        if read == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other("the file became shorter while it was packed"));
        }
        Ok(read)
    }
}
