//! From a sandbox to the host. Everything the warden says is checked and counted.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;
use ringwall_wire::{Client, FileKind, FileStat};

use super::budget::Budget;
use super::host::{Name, Target};
use super::join;
use crate::report::printable_bytes;

/// Copies `from` to `to` and says how many entries were skipped.
pub(super) fn copy(files: &Client, from: &Path, to: &Path) -> anyhow::Result<u64> {
    let from_bytes = from.as_os_str().as_bytes();
    let stat = files
        .stat(from_bytes)
        .with_context(|| format!("{} in the sandbox", printable_bytes(from_bytes)))?;
    anyhow::ensure!(
        matches!(stat.kind, FileKind::File | FileKind::Directory),
        "{} is a link, device, pipe or socket; name the file or directory itself",
        printable_bytes(from_bytes)
    );
    let target = Target::at(to, from.file_name())?;
    let mut copy = Outward { files, budget: Budget::new(), skipped: 0 };
    copy.entry(from_bytes, stat, &target, 0)?;
    Ok(copy.skipped)
}

struct Outward<'a> {
    files: &'a Client,
    budget: Budget,
    skipped: u64,
}

impl Outward<'_> {
    fn entry(
        &mut self,
        from: &[u8],
        stat: FileStat,
        target: &Target,
        depth: usize,
    ) -> anyhow::Result<()> {
        self.budget.entry(depth)?;
        match stat.kind {
            FileKind::File => {
                let most = self.budget.bytes_left();
                let mut copied = 0;
                target.write_file(stat.mode, |file| {
                    copied = self.files.read_file(from, file, most).with_context(|| {
                        format!("{} in the sandbox cannot be read", printable_bytes(from))
                    })?;
                    Ok(())
                })?;
                self.budget.spend(copied)
            }
            FileKind::Directory => {
                let directory = target.make_directory(stat.mode)?;
                let entries = self.files.list(from).with_context(|| {
                    format!("{} in the sandbox cannot be listed", printable_bytes(from))
                })?;
                for entry in entries {
                    let name = Name::new(&entry.name)?;
                    let below = Target::inside(&directory, name)?;
                    self.entry(&join(from, &entry.name), entry.stat, &below, depth + 1)?;
                }
                Ok(())
            }
            FileKind::Symlink | FileKind::Other => {
                self.skipped += 1;
                Ok(())
            }
        }
    }
}
