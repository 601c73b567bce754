//! Walks folders the way `grep` and `find` both do: in order of path, by globs and ignore files.

use std::path::Path;

use ignore::overrides::OverrideBuilder;
use ignore::types::TypesBuilder;
use ignore::{DirEntry, WalkBuilder};
use ringwall_tool_sdk::{Failure, files};
use serde::{Deserialize, Serialize};

/// The part of an input that says where to look.
#[derive(Debug, Clone, Deserialize)]
pub struct Scope {
    #[serde(default = "everything")]
    pub paths: Vec<String>,
    #[serde(default)]
    pub globs: Vec<String>,
    #[serde(default)]
    pub types: Vec<String>,
    #[serde(default)]
    pub hidden: bool,
    #[serde(default = "yes")]
    pub gitignore: bool,
    pub max_depth: Option<usize>,
}

/// A path that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    pub path: String,
    pub message: String,
}

/// At most this many unreadable paths are reported.
pub const MAX_UNREADABLE: usize = 20;

fn everything() -> Vec<String> {
    vec![".".to_owned()]
}

fn yes() -> bool {
    true
}

impl Scope {
    /// Calls `visit` with every entry and its path below `root` until it returns `false`.
    /// Links are entries, never followed. Entries that cannot be read are returned.
    pub fn walk(
        &self,
        root: &Path,
        mut visit: impl FnMut(&DirEntry, &str) -> Result<bool, Failure>,
    ) -> Result<Vec<Unreadable>, Failure> {
        let mut unreadable = Vec::new();
        for entry in self.builder(root)?.build() {
            match entry {
                Ok(entry) => {
                    let shown = shown(root, entry.path());
                    if !visit(&entry, &shown)? {
                        break;
                    }
                }
                Err(error) => note(&mut unreadable, "", &error),
            }
        }
        Ok(unreadable)
    }

    fn builder(&self, root: &Path) -> Result<WalkBuilder, Failure> {
        files::granted(root)?;
        let mut tops = Vec::new();
        for path in &self.paths {
            let top = files::resolve(root, path)?;
            top.symlink_metadata().map_err(|error| Failure::io(path, &error))?;
            tops.push(top);
        }
        let Some((first, others)) = tops.split_first() else {
            return Err(Failure::bad_input("paths is empty; leave it out to search everything"));
        };
        let mut builder = WalkBuilder::new(first);
        for other in others {
            builder.add(other);
        }
        let mut overrides = OverrideBuilder::new(root);
        for glob in &self.globs {
            overrides.add(glob).map_err(|error| {
                Failure::bad_input(format_args!("glob {glob:?} is malformed: {error}"))
            })?;
        }
        let globs = overrides.build().map_err(Failure::bad_input)?;
        let mut types = TypesBuilder::new();
        if !self.types.is_empty() {
            types.add_defaults();
        }
        for name in &self.types {
            types.select(name);
        }
        let types = types.build().map_err(|error| {
            Failure::bad_input(format_args!("{error}; types are names such as rust, py, js, md"))
        })?;
        let hidden = self.hidden;
        // Globs and types narrow what the ignore files leave. Given to the builder they would
        // bring back ignored and hidden files. `.git` holds no source and would flood results.
        let is_wanted = move |entry: &DirEntry| {
            let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
            let name = entry.file_name().as_encoded_bytes();
            let is_passed_over = name == b".git" || (!hidden && name.starts_with(b"."));
            (entry.depth() == 0 || !is_passed_over)
                && !globs.matched(entry.path(), is_dir).is_ignore()
                && !types.matched(entry.path(), is_dir).is_ignore()
        };
        builder
            .standard_filters(false)
            .ignore(self.gitignore)
            .git_ignore(self.gitignore)
            .git_exclude(self.gitignore)
            .require_git(false)
            .max_depth(self.max_depth)
            .follow_links(false)
            .filter_entry(is_wanted)
            .sort_by_file_name(std::cmp::Ord::cmp);
        Ok(builder)
    }
}

/// A path as outputs show it: below `root`, with forward slashes; `.` for the root itself.
fn shown(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    if below.is_empty() { ".".to_owned() } else { below.into_owned() }
}

/// Remembers an unreadable path, up to the limit.
pub fn note(unreadable: &mut Vec<Unreadable>, path: &str, error: &impl ToString) {
    if unreadable.len() < MAX_UNREADABLE {
        unreadable.push(Unreadable { path: path.to_owned(), message: error.to_string() });
    }
}
