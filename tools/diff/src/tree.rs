//! Which files to compare: one pair, or all that two folders hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ringwall_tool_sdk::{Failure, files};

/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// The most files that one call compares.
const MAX_FILES: usize = 10_000;

/// One of the two things to compare.
#[derive(Debug)]
pub(crate) enum Side {
    Text(String),
    Path(String),
}

impl Side {
    pub(crate) fn new(
        which: &str,
        text: Option<String>,
        path: Option<String>,
    ) -> Result<Self, Failure> {
        match (text, path) {
            (Some(text), None) => Ok(Self::Text(text)),
            (None, Some(path)) => Ok(Self::Path(path)),
            _ => Err(Failure::bad_input(format_args!("give either {which} or {which}_path"))),
        }
    }
}

/// Where the content of one side of a pair comes from.
#[derive(Debug)]
enum Source {
    Nothing,
    Text(String),
    File(String),
}

#[derive(Debug)]
pub(crate) struct Pair {
    path: String,
    old: Source,
    new: Source,
}

/// A pair with its contents; `None` where a side has no such file.
#[derive(Debug)]
pub(crate) struct LoadedPair {
    pub(crate) path: String,
    pub(crate) old: Option<Vec<u8>>,
    pub(crate) new: Option<Vec<u8>>,
}

impl Pair {
    pub(crate) fn load(self, root: &Path) -> Result<LoadedPair, Failure> {
        let load = |source| match source {
            Source::Nothing => Ok(None),
            Source::Text(text) => Ok(Some(text.into_bytes())),
            Source::File(path) => files::read(root, &path, MAX_FILE_BYTES).map(Some),
        };
        Ok(LoadedPair { old: load(self.old)?, new: load(self.new)?, path: self.path })
    }
}

/// What to compare, in the order of paths, and what was passed over.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) skipped: Vec<String>,
}

pub(crate) fn pairs(root: &Path, name: &str, old: Side, new: Side) -> Result<Pairs, Failure> {
    let is_dir = |side: &Side| match side {
        Side::Text(_) => Ok(false),
        Side::Path(path) => Ok(files::resolve(root, path)?.is_dir()),
    };
    let shown = match (&old, &new) {
        (_, Side::Path(path)) | (Side::Path(path), _) => {
            files::relative(path)?.display().to_string()
        }
        _ => name.to_owned(),
    };
    match (is_dir(&old)?, is_dir(&new)?) {
        (true, true) => {}
        (false, false) => {
            let source = |side| match side {
                Side::Text(text) => Source::Text(text),
                Side::Path(path) => Source::File(path),
            };
            let pair = Pair { path: shown, old: source(old), new: source(new) };
            return Ok(Pairs { pairs: vec![pair], skipped: Vec::new() });
        }
        _ => return Err(Failure::bad_input("a folder can only be compared with a folder")),
    }

    let mut found: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    let mut skipped = Vec::new();
    for (index, side) in [old, new].into_iter().enumerate() {
        if let Side::Path(top) = side {
            let top = files::relative(&top)?.display().to_string();
            walk(root, &top, "", &mut skipped, &mut |path, full| {
                found.entry(path).or_default()[index] = Some(full);
                found.len() <= MAX_FILES
            })?;
        }
    }
    let source = |path: Option<String>| path.map_or(Source::Nothing, Source::File);
    let pairs = found
        .into_iter()
        .map(|(path, [old, new])| Pair { path, old: source(old), new: source(new) })
        .collect();
    skipped.sort();
    skipped.dedup();
    Ok(Pairs { pairs, skipped })
}

fn walk(
    root: &Path,
    top: &str,
    below: &str,
    skipped: &mut Vec<String>,
    found: &mut impl FnMut(String, String) -> bool,
) -> Result<(), Failure> {
    let join = |a: &str, b: &str| if a.is_empty() { b.to_owned() } else { format!("{a}/{b}") };
    let directory = root.join(join(top, below));
    let failed = |error| Failure::io(join(top, below), &error);
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = join(below, &entry.file_name().to_string_lossy());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            walk(root, top, &path, skipped, found)?;
        } else if !kind.is_file() {
            skipped.push(path);
        } else {
            let full = join(top, &path);
            if !found(path, full) {
                return Err(Failure::limit(format_args!(
                    "more than {MAX_FILES} files; compare smaller folders"
                )));
            }
        }
    }
    Ok(())
}
