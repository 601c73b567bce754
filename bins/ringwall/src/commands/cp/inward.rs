//! From the host into a sandbox.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use ringwall_wire::{Client, ClientError, ErrorCode, FileKind, Parents, WriteHow};

use super::budget::Budget;
use super::host::{Name, Source, names, open_entry, open_source};
use super::join;
use crate::report::printable_bytes;

/// Copies `from` to `to` and says how many entries were skipped.
pub(super) fn copy(from: &Path, files: &Client, to: &Path) -> anyhow::Result<u64> {
    let shown = || printable_bytes(from.as_os_str().as_bytes());
    let source = open_source(from)?;
    anyhow::ensure!(
        !matches!(source, Source::Other),
        "{} is a link, device, pipe or socket; name the file or directory itself",
        shown()
    );
    let mut to = to.as_os_str().as_bytes().to_vec();
    if is_directory(files, &to)? {
        let name = from.file_name().with_context(|| {
            format!("{} has no name to use in the sandbox; give the new name", shown())
        })?;
        to = join(&to, Name::new(name.as_bytes())?.as_bytes());
    }
    let mut copy = Inward { files, budget: Budget::new(), skipped: 0 };
    copy.entry(source, &to, 0)?;
    Ok(copy.skipped)
}

struct Inward<'a> {
    files: &'a Client,
    budget: Budget,
    skipped: u64,
}

impl Inward<'_> {
    fn entry(&mut self, source: Source, to: &[u8], depth: usize) -> anyhow::Result<()> {
        self.budget.entry(depth)?;
        match source {
            Source::File(file, mode) => {
                let mut source = Counted { file, budget: &mut self.budget };
                self.files
                    .write_file(to, mode, WriteHow::Replace, &mut source)
                    .with_context(|| cannot_write(to))?;
            }
            Source::Directory(directory, mode) => {
                if !is_directory(self.files, to)? {
                    self.files
                        .make_dir(to, mode | 0o700, Parents::MustExist)
                        .with_context(|| cannot_write(to))?;
                }
                for name in names(&directory)? {
                    let entry = open_entry(&directory, &name)?;
                    self.entry(entry, &join(to, name.as_bytes()), depth + 1)?;
                }
            }
            Source::Other => self.skipped += 1,
        }
        Ok(())
    }
}

fn cannot_write(to: &[u8]) -> String {
    format!("{} in the sandbox cannot be written", printable_bytes(to))
}

fn is_directory(files: &Client, path: &[u8]) -> anyhow::Result<bool> {
    match files.stat(path) {
        Ok(stat) => Ok(stat.kind == FileKind::Directory),
        Err(ClientError::Remote(error)) if error.code == ErrorCode::NotFound => Ok(false),
        Err(error) => {
            Err(error).with_context(|| format!("{} cannot be looked at", printable_bytes(path)))
        }
    }
}

/// A file that may grow while it is read.
struct Counted<'a> {
    file: File,
    budget: &'a mut Budget,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.budget.spend(length as u64).map_err(io::Error::other)?;
        Ok(length)
    }
}
