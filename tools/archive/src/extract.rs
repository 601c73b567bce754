//! Writes the entries of an archive that has been checked; on failure it takes back what it wrote.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ringwall_tool_sdk::{Failure, files};

use crate::exists;
use crate::read::{Entry, Kind, Source};

pub(crate) fn extract(
    source: &Source<'_>,
    dir: &Path,
    entries: &[Entry],
    overwrite: bool,
) -> Result<(), Failure> {
    let mut writer = Writer { dir, overwrite, made: Vec::new(), real: BTreeSet::new() };
    for entry in entries {
        writer.check_place(entry)?;
    }
    let mut wanted = entries.iter().peekable();
    let written = source.visit(&mut |found, content| {
        // The same order as before; an archive that changed in between gives a mismatch.
        let Some(entry) = wanted.peek() else { return Ok(()) };
        let path = files::relative(&found.path);
        if path.is_ok_and(|path| path == Path::new(&entry.path)) {
            writer.write(entry, content)?;
            wanted.next();
        }
        Ok(())
    });
    let written = written.and_then(|()| match wanted.peek() {
        None => Ok(()),
        Some(entry) => Err(source.refused(&entry.path, "the archive changed while it was read")),
    });
    if written.is_err() {
        writer.undo();
    }
    written
}

struct Writer<'a> {
    dir: &'a Path,
    overwrite: bool,
    /// What was not there before, in the order of making.
    made: Vec<PathBuf>,
    /// Folders known to be folders, not links.
    real: BTreeSet<PathBuf>,
}

impl Writer<'_> {
    /// Whether the entry's place is free, before anything is written.
    fn check_place(&mut self, entry: &Entry) -> Result<(), Failure> {
        for above in Path::new(&entry.path).ancestors().skip(1) {
            if self.real.contains(above) {
                break;
            }
            match fs::symlink_metadata(self.dir.join(above)) {
                Ok(found) if !found.is_dir() => {
                    return Err(Failure::conflict(format_args!(
                        "{:?} is in the way of {:?}: it is no folder",
                        above.display(),
                        entry.path
                    )));
                }
                _ => self.real.insert(above.to_owned()),
            };
        }
        match fs::symlink_metadata(self.dir.join(&entry.path)) {
            Ok(found) if found.is_dir() && entry.kind == Kind::Dir => Ok(()),
            Ok(found) if found.is_dir() => Err(Failure::conflict(format_args!(
                "{:?} is a folder here and a file in the archive",
                entry.path
            ))),
            Ok(_) if !self.overwrite => Err(exists(&entry.path)),
            _ => Ok(()),
        }
    }

    fn write(&mut self, entry: &Entry, content: &mut dyn Read) -> Result<(), Failure> {
        let path = self.dir.join(&entry.path);
        let failed = |error| Failure::io(&entry.path, &error);
        if entry.kind == Kind::Dir {
            return self.make_dirs(&path).map_err(failed);
        }
        self.make_dirs(path.parent().unwrap_or(self.dir)).map_err(failed)?;
        if self.overwrite {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        match entry.kind {
            Kind::Link => {
                link(entry.target.as_deref().unwrap_or_default(), &path).map_err(failed)?;
                self.made.push(path);
            }
            Kind::HardLink => {
                let target = self.dir.join(entry.target.as_deref().unwrap_or_default());
                // A copy: a file that changes with another surprises whoever edits it.
                fs::copy(target, &path).map_err(failed)?;
                self.made.push(path);
            }
            _ => {
                let mut file = File::create_new(&path).map_err(failed)?;
                self.made.push(path);
                // One byte more than said, to notice an archive that lies about its sizes.
                let copied = io::copy(&mut content.take(entry.bytes + 1), &mut file);
                if copied.map_err(failed)? != entry.bytes {
                    let path = &entry.path;
                    let bytes = entry.bytes;
                    return Err(Failure::new(
                        "refused",
                        format_args!("{path:?} does not have the {bytes} bytes that it claims"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.make_dirs(parent)?;
        }
        fs::create_dir(path)?;
        self.made.push(path.to_owned());
        Ok(())
    }

    fn undo(&self) {
        for path in self.made.iter().rev() {
            // Best effort: the failure that is returned says what went wrong first.
            let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
        }
    }
}

#[allow(deprecated, reason = "the one way to make a link that every platform of std offers")]
fn link(target: &str, path: &Path) -> io::Result<()> {
    fs::soft_link(target, path)
}
