//! `find`: lists files, folders and links by name, type, size and time.

use std::path::Path;
use std::time::SystemTime;

use ringwall_tool_sdk::{Failure, files};
use ringwall_tool_walk::{Scope, Unreadable, note};
use serde::{Deserialize, Serialize};

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// Entries that are kept in memory to be sorted.
const MAX_ENTRIES: usize = 200_000;

/// The schema refuses unknown fields; serde cannot beside a flattened part.
#[derive(Debug, Deserialize)]
pub struct Input {
    #[serde(flatten)]
    scope: Scope,
    #[serde(default)]
    kinds: Vec<Kind>,
    min_bytes: Option<u64>,
    max_bytes: Option<u64>,
    modified_after: Option<String>,
    modified_before: Option<String>,
    #[serde(default)]
    sort: Sort,
    #[serde(default = "default_limit")]
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    File,
    Dir,
    Link,
    Other,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    #[default]
    Path,
    /// Largest first.
    Size,
    /// Newest first.
    Modified,
}

#[derive(Debug, Serialize)]
pub struct Output {
    entries: Vec<Entry>,
    /// All that was found, shown or not.
    total: usize,
    total_bytes: u64,
    unreadable: Vec<Unreadable>,
    truncated: bool,
}

#[derive(Debug, Serialize)]
pub struct Entry {
    path: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    modified: Option<SystemTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

fn default_limit() -> usize {
    500
}

/// Seconds are enough, and file systems differ in what is finer.
fn as_text<S: serde::Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(&humantime::format_rfc3339_seconds(*time)),
        None => serializer.serialize_none(),
    }
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), &input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: &Input) -> Result<Output, Failure> {
    let after = time("modified_after", input.modified_after.as_deref())?;
    let before = time("modified_before", input.modified_before.as_deref())?;
    let mut entries = Vec::new();
    let mut unreadable = Vec::new();
    let mut overflow = false;
    let mut skipped = input.scope.walk(root, |found, path| {
        if found.depth() == 0 && found.file_type().is_some_and(|kind| kind.is_dir()) {
            return Ok(true);
        }
        let entry = match entry(found, path) {
            Ok(entry) => entry,
            Err(error) => {
                note(&mut unreadable, path, &error);
                return Ok(true);
            }
        };
        let wanted = (input.kinds.is_empty() || input.kinds.contains(&entry.kind))
            && input.min_bytes.is_none_or(|min| entry.bytes.is_some_and(|bytes| bytes >= min))
            && input.max_bytes.is_none_or(|max| entry.bytes.is_some_and(|bytes| bytes <= max))
            && after.is_none_or(|after| entry.modified.is_some_and(|time| time > after))
            && before.is_none_or(|before| entry.modified.is_some_and(|time| time < before));
        if wanted {
            overflow = entries.len() == MAX_ENTRIES;
            if !overflow {
                entries.push(entry);
            }
        }
        Ok(!overflow)
    })?;
    unreadable.append(&mut skipped);

    match input.sort {
        Sort::Path => entries.sort_by(|a, b| a.path.cmp(&b.path)),
        Sort::Size => entries.sort_by(|a, b| (b.bytes, &a.path).cmp(&(a.bytes, &b.path))),
        Sort::Modified => entries.sort_by(|a, b| (b.modified, &a.path).cmp(&(a.modified, &b.path))),
    }
    let total = entries.len();
    let total_bytes = entries.iter().filter_map(|entry| entry.bytes).sum();
    entries.truncate(input.limit);
    let truncated = overflow || entries.len() < total;
    Ok(Output { entries, total, total_bytes, unreadable, truncated })
}

fn time(field: &str, text: Option<&str>) -> Result<Option<SystemTime>, Failure> {
    let parse = |text| {
        humantime::parse_rfc3339_weak(text).map_err(|error| {
            Failure::bad_input(format_args!(
                "{field} {text:?} is no time such as 2030-01-31T12:00:00Z: {error}"
            ))
        })
    };
    text.map(parse).transpose()
}

fn entry(found: &ignore::DirEntry, path: &str) -> Result<Entry, ignore::Error> {
    let about = found.metadata()?;
    let kind = match about.file_type() {
        kind if kind.is_file() => Kind::File,
        kind if kind.is_dir() => Kind::Dir,
        kind if kind.is_symlink() => Kind::Link,
        _ => Kind::Other,
    };
    let target = match kind {
        Kind::Link => std::fs::read_link(found.path()).ok(),
        _ => None,
    };
    Ok(Entry {
        path: path.to_owned(),
        kind,
        bytes: (kind == Kind::File).then_some(about.len()),
        modified: about.modified().ok(),
        target: target.map(|target| target.to_string_lossy().into_owned()),
    })
}
