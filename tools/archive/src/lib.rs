//! `archive`: lists, extracts and creates tar, tar.gz and zip files without trusting any of them.

mod check;
mod create;
mod extract;
mod read;

use std::path::Path;

use ringwall_tool_sdk::budget::Budget;
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

pub use check::Limits;
pub use read::{Entry, Format, Kind};

ringwall_tool_sdk::tool! { manifest: "tool.json", call: call }

/// Bytes of names that a listing holds.
const MAX_LISTED_BYTES: usize = 4 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    action: Action,
    archive: String,
    format: Option<Format>,
    #[serde(default)]
    dir: String,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    overwrite: bool,
    #[serde(default)]
    limits: Limits,
    #[serde(default = "default_max_entries")]
    max_entries: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    List,
    Extract,
    Create,
}

#[derive(Debug, Serialize)]
pub struct Output {
    format: Format,
    /// Of the archive file itself.
    archive_bytes: u64,
    /// All entries that were listed, extracted or added, shown or not.
    count: usize,
    bytes: u64,
    entries: Vec<Entry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
    truncated: bool,
}

fn default_max_entries() -> usize {
    500
}

pub fn call(input: Input) -> Result<Output, Failure> {
    call_in(Path::new(files::WORK), &input)
}

/// The same below another directory than the granted one.
pub fn call_in(root: &Path, input: &Input) -> Result<Output, Failure> {
    files::granted(root)?;
    let path = files::resolve(root, &input.archive)?;
    let dir = files::relative(&input.dir)?;
    let only =
        input.only.iter().map(|path| files::relative(path)).collect::<Result<Vec<_>, _>>()?;
    let format = match input.format {
        Some(format) => format,
        None => Format::of_name(&input.archive)?,
    };
    let mut skipped = Vec::new();
    let entries = match input.action {
        Action::Create => {
            if path.exists() && !input.overwrite {
                return Err(exists(&input.archive));
            }
            create::create(root, &path, format, &dir, &only, input.limits, &mut skipped)?
        }
        action => {
            let source = read::Source::new(&path, &input.archive, format, input.limits)?;
            let entries = check::check(&source, &only)?;
            if action == Action::Extract {
                extract::extract(&source, &root.join(&dir), &entries, input.overwrite)?;
            }
            entries
        }
    };

    let about = path.metadata().map_err(|error| Failure::io(&input.archive, &error))?;
    let mut budget = Budget::new(input.max_entries, MAX_LISTED_BYTES);
    let (count, bytes) = (entries.len(), entries.iter().map(|entry| entry.bytes).sum());
    let entries = entries.into_iter().take_while(|entry| budget.take(entry.path.len())).collect();
    let truncated = budget.exhausted();
    let archive_bytes = about.len();
    Ok(Output { format, archive_bytes, count, bytes, entries, skipped, truncated })
}

fn exists(path: &str) -> Failure {
    Failure::conflict(format_args!("{path:?} exists; set overwrite to replace it"))
}
