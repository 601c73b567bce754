//! What a ring shows of the host: read-only, and with inodes of its own.
//!
//! Each directory is under one overlay. A directory in which something is mounted cannot be: the
//! kernel lets no user namespace look below a mount. It is put together from its parts instead, each
//! directory in it under an overlay of its own, its files as copies.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ringwall_linux::step::{Place, Step, Workplaces};

use crate::base::{Base, READ_ONLY};
use crate::input::{RingInput, ShownPath};
use crate::run_slots as slot;

/// What copies of files may take, in one directory that is put together from its parts.
const MAX_PARTS_BYTES: u64 = 16 << 20;
/// Names in one such directory.
const MAX_PART_ENTRIES: u64 = 8192;

/// A larger file of such a directory is not shown.
pub const MAX_COPIED_BYTES: u64 = 1 << 20;

/// The directory of the base that overlays are made with.
const EMPTY: &str = "empty";

/// An entry of a directory below which something is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Directory(OsString),
    File(OsString),
    Link {
        name: OsString,
        target: PathBuf,
    },
    /// A file system that no overlay can show: the directory is there, with nothing in it.
    Covered(OsString),
}

/// A directory of the host: where a slot has it, and its path.
#[derive(Debug, Clone)]
struct Source {
    at: Place,
    path: PathBuf,
}

impl Source {
    fn below(&self, name: &OsString) -> Source {
        let at = Place::new(self.at.dir, self.at.path.as_path().join(name));
        Source { at, path: self.path.join(name) }
    }
}

impl Base {
    /// Begins to show directories of the host: what overlays need is on the base.
    pub fn begin_showing(&mut self) {
        self.push(Step::MakeDir { at: Place::new(slot::BASE, EMPTY), mode: 0o755 });
        self.push(Step::OpenHere { path: "/".into(), into: slot::HOST_ROOT });
    }

    /// Shows a directory of the host's root, at the same place of the base.
    pub fn show_top(&mut self, input: &RingInput<'_>, name: &str) {
        let source =
            Source { at: Place::new(slot::HOST_ROOT, name), path: Path::new("/").join(name) };
        let at = Place::new(slot::BASE, name);
        self.push(Step::MakeDir { at: at.clone(), mode: 0o755 });
        self.show(input, &source, &at);
    }

    /// Shows a path of the request, at a place that is there already.
    pub fn show_asked(&mut self, input: &RingInput<'_>, shown: &ShownPath, at: &Place) {
        let path = (&shown.path).into();
        if shown.is_dir {
            self.push(Step::FindChecked { path, id: shown.id, into: slot::FOUND });
            let source = Source { at: Place::root(slot::FOUND), path: shown.path.clone() };
            self.show(input, &source, at);
        } else {
            let (with, into) = (workplaces(), slot::SHOWING);
            self.push(Step::ShowFile { path, id: shown.id, with, into });
            self.push(Step::Attach { tree: into, at: at.clone() });
        }
    }

    fn show(&mut self, input: &RingInput<'_>, source: &Source, at: &Place) {
        if !input.in_parts.contains_key(&source.path) {
            self.show_whole(source, at);
            return;
        }
        let into = slot::PARTS;
        let (bytes, inodes) = (MAX_PARTS_BYTES, MAX_PART_ENTRIES);
        self.push(Step::Tmpfs { bytes, inodes, mode: 0o755, into });
        self.push(Step::Attach { tree: into, at: at.clone() });
        self.show_parts(input, source, at);
        self.push(Step::SetMountFlags { tree: into, flags: READ_ONLY });
    }

    fn show_whole(&mut self, source: &Source, at: &Place) {
        let into = slot::SHOWING;
        self.push(Step::ShowDirectory {
            source: source.at.clone(),
            path: (&source.path).into(),
            with: workplaces(),
            into,
        });
        self.push(Step::Attach { tree: into, at: at.clone() });
    }

    fn show_parts(&mut self, input: &RingInput<'_>, source: &Source, at: &Place) {
        for part in input.in_parts.get(&source.path).into_iter().flatten() {
            let inside = |name| Place::new(at.dir, at.path.as_path().join(name));
            match part {
                Part::Directory(name) => {
                    let (source, at) = (source.below(name), inside(name));
                    self.push(Step::MakeDir { at: at.clone(), mode: 0o755 });
                    match input.in_parts.contains_key(&source.path) {
                        true => self.show_parts(input, &source, &at),
                        false => self.show_whole(&source, &at),
                    }
                }
                Part::File(name) => {
                    let (from, at) = (source.below(name).at, inside(name));
                    self.push(Step::CopyFile { from, at, most: MAX_COPIED_BYTES });
                }
                Part::Link { name, target } => {
                    self.push(Step::MakeSymlink { at: inside(name), target: target.into() });
                }
                Part::Covered(name) => {
                    self.push(Step::MakeDir { at: inside(name), mode: 0o555 });
                }
            }
        }
    }
}

fn workplaces() -> Workplaces {
    let base = |path: &str| Place::new(slot::BASE, path);
    Workplaces { empty: base(EMPTY), place: base(""), proc: base("proc") }
}

#[cfg(test)]
mod tests;
