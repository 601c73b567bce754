//! Decides whether an archive may be unpacked, before anything of it is written.
//!
//! One bad entry refuses the whole archive: whoever put it there did not make the rest with care.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringwall_tool_sdk::{Failure, files};
use serde::Deserialize;

use crate::read::{Entry, Kind, Source};

/// How much may come out of an archive.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub(crate) max_bytes: u64,
    pub(crate) max_files: usize,
    /// Unpacked bytes for each byte of the archive.
    pub(crate) max_ratio: u64,
}

/// Below this size no ratio is suspicious.
const RATIO_COUNTS_FROM: u64 = 10 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 256 << 20, max_files: 20_000, max_ratio: 200 }
    }
}

/// All entries below one of `only` (all, if that is empty), once the whole archive is known to be
/// harmless. Paths come back without `.` and trailing slashes.
pub(crate) fn check(source: &Source<'_>, only: &[PathBuf]) -> Result<Vec<Entry>, Failure> {
    let mut seen: BTreeMap<PathBuf, Kind> = BTreeMap::new();
    let mut wanted = Vec::new();
    let mut total = 0u64;
    source.visit(&mut |mut entry, _| {
        let refuse = |why: &str| Err(source.refused(&entry.path, why));
        if Path::new(&entry.path).is_absolute() || entry.path.contains('\\') {
            return refuse("absolute paths and backslashes may leave the directory");
        }
        let Ok(path) = files::relative(&entry.path) else {
            return refuse("its path leaves the directory");
        };
        if path.as_os_str().is_empty() {
            // `./`, with which tar files of a folder begin.
            return if entry.kind == Kind::Dir { Ok(()) } else { refuse("it has no name") };
        }
        total = total.saturating_add(entry.bytes);
        check_size(source, total, seen.len() + 1)?;
        for above in path.ancestors().skip(1) {
            if seen.get(above).is_some_and(|kind| *kind != Kind::Dir) {
                return refuse("a part of its path is a link or a file in the same archive");
            }
        }
        match entry.kind {
            Kind::Special => return refuse("devices and pipes are never unpacked"),
            Kind::Link if !stays_inside(&path, entry.target.as_deref().unwrap_or_default()) => {
                return refuse("the link points out of the directory");
            }
            Kind::HardLink => {
                let target = entry.target.as_deref().map(files::relative);
                let Some(Ok(target)) = target else {
                    return refuse("the hard link points out of the directory");
                };
                if seen.get(&target) != Some(&Kind::File) {
                    return refuse("a hard link must point to an earlier file of the archive");
                }
                entry.target = Some(target.to_string_lossy().into_owned());
            }
            _ => {}
        }
        match seen.insert(path.clone(), entry.kind) {
            Some(Kind::Dir) if entry.kind == Kind::Dir => return Ok(()),
            None => {}
            Some(_) => return refuse("it occurs twice"),
        }
        entry.path = path.to_string_lossy().into_owned();
        if only.is_empty() || only.iter().any(|only| path.starts_with(only)) {
            wanted.push(entry);
        }
        Ok(())
    })?;
    // A file after something below it would replace a folder.
    for path in seen.keys() {
        let above = path
            .ancestors()
            .skip(1)
            .find(|above| seen.get(*above).is_some_and(|kind| *kind != Kind::Dir));
        if above.is_some() {
            let why = "a part of its path is a link or a file in the same archive";
            return Err(source.refused(&path.to_string_lossy(), why));
        }
    }
    Ok(wanted)
}

fn check_size(source: &Source<'_>, total: u64, count: usize) -> Result<(), Failure> {
    let Limits { max_bytes, max_files, max_ratio } = source.limits;
    if total > max_bytes {
        return Err(Failure::limit(format_args!(
            "it unpacks to more than {max_bytes} bytes (limits.max_bytes)"
        )));
    }
    if count > max_files {
        return Err(Failure::limit(format_args!(
            "it has more than {max_files} entries (limits.max_files)"
        )));
    }
    if total > RATIO_COUNTS_FROM && total / source.archive_bytes.max(1) > max_ratio {
        return Err(Failure::limit(format_args!(
            "it unpacks to more than {max_ratio} times its size (limits.max_ratio); is it a bomb?"
        )));
    }
    Ok(())
}

/// Whether a link at `path` with this target ends inside, wherever other such links lead.
///
/// `..` may only stand at the front: there it climbs from the folder that holds the link, which is
/// a real one. After a name it would climb from wherever that name, perhaps a link, leads.
fn stays_inside(path: &Path, target: &str) -> bool {
    let depth = path.components().count() - 1;
    let climbs = Path::new(target).components().take_while(|part| part.as_os_str() == "..").count();
    let rest: PathBuf = Path::new(target).components().skip(climbs).collect();
    climbs <= depth
        && !target.is_empty()
        && !target.contains('\\')
        && !Path::new(target).is_absolute()
        && files::relative(&rest.to_string_lossy()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_may_climb_only_to_the_top() {
        for (path, target) in [("a", "b"), ("d/a", "../b"), ("d/e/a", "../../x/y"), ("d/a", ".")] {
            assert!(stays_inside(Path::new(path), target), "{path} -> {target}");
        }
        for (path, target) in [
            ("a", "../b"),
            ("d/a", "../../b"),
            ("d/a", "x/../../../b"),
            ("d/a", "x/../b"),
            ("a", "/etc/passwd"),
            ("a", ""),
            ("a", "..\\b"),
        ] {
            assert!(!stays_inside(Path::new(path), target), "{path} -> {target}");
        }
    }
}
