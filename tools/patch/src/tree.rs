//! The files that a patch touches, changed in memory first and written only when all is known.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ringwall_tool_sdk::{Failure, files};

use crate::apply::{self, Conflict, Tolerance};
use crate::parse::FilePatch;
use crate::{Output, PatchedFile};

/// The largest file that is patched.
const MAX_FILE_BYTES: u64 = 8 << 20;

pub(crate) struct Tree<'a> {
    root: &'a Path,
    /// Folder below the root in which the patch's names are looked up.
    top: PathBuf,
    strip: Option<usize>,
    changed: BTreeMap<String, State>,
}

/// A file as it is on disk and as the patch leaves it; `None` where there is none.
struct State {
    before: Option<String>,
    after: Option<String>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: &'a Path, top: PathBuf, strip: Option<usize>) -> Self {
        Self { root, top, strip, changed: BTreeMap::new() }
    }

    /// Applies one file's part of the patch in memory; what does not fit is reported in `output`.
    pub(crate) fn apply(
        &mut self,
        patch: &FilePatch,
        tolerance: Tolerance,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let old = patch.old.as_deref().map(|name| self.path(name, patch)).transpose()?;
        let new = patch.new.as_deref().map(|name| self.path(name, patch)).transpose()?;
        let Some(path) = new.as_ref().or(old.as_ref()).cloned() else {
            return Err(Failure::bad_input("a file of the patch has no name"));
        };
        let mut refuse = |path: &str, reason, message: &str| {
            let first_hunk = patch.hunks.first().map(|hunk| hunk.patch_line);
            output.conflicts.push(Conflict::of_file(path, first_hunk, reason, message));
            Ok(())
        };

        let before = match &old {
            None => String::new(),
            Some(old) => match self.current(old)? {
                Some(text) => text,
                None => {
                    let message = "there is no such file; check dir and strip";
                    return refuse(old, "missing-file", message);
                }
            },
        };
        if let Some(new) = &new
            && old.as_ref() != Some(new)
            && self.current(new)?.is_some()
        {
            let message = "the patch creates this file, but it is there already";
            return refuse(new, "file-exists", message);
        }
        let (after, hunks, conflicts) = apply::apply(&path, &before, &patch.hunks, tolerance);
        let fitted = conflicts.is_empty();
        if new.is_none() && fitted && !after.is_empty() {
            let message = "the patch deletes this file, but it holds more than the patch says";
            return refuse(&path, "file-differs", message);
        }
        output.conflicts.extend(conflicts);

        let renamed = old.is_some() && new.is_some() && old != new;
        let action = match (&old, &new) {
            (None, _) => "created",
            (_, None) => "deleted",
            _ if renamed => "renamed",
            _ => "modified",
        };
        if !fitted && action != "modified" {
            return Ok(());
        }
        if !hunks.is_empty() || fitted {
            if let Some(old) = old.as_ref().filter(|_| action != "modified") {
                self.set(old, None)?;
            }
            if let Some(new) = &new {
                self.set(new, Some(after))?;
            }
            let from = old.filter(|_| renamed);
            output.files.push(PatchedFile { path, action, from, hunks });
        }
        Ok(())
    }

    /// Writes everything. If one file cannot be written, those before it are put back.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        for (done, (path, state)) in self.changed.iter().enumerate() {
            if let Err(failure) = self.put(path, state.after.as_deref()) {
                for (path, state) in self.changed.iter().take(done + 1) {
                    // Best effort: the failure that is returned says what went wrong first.
                    let _ = self.put(path, state.before.as_deref());
                }
                return Err(failure);
            }
        }
        Ok(())
    }

    fn put(&self, path: &str, content: Option<&str>) -> Result<(), Failure> {
        match content {
            Some(text) => files::write(self.root, path, text.as_bytes()),
            None => match fs::remove_file(self.root.join(path)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(Failure::io(path, &error))
                }
                _ => Ok(()),
            },
        }
    }

    /// A name in the patch as a path below the root.
    fn path(&self, name: &str, patch: &FilePatch) -> Result<String, Failure> {
        let strip = self.strip.unwrap_or_else(|| usize::from(has_git_prefixes(patch)));
        let mut rest = name;
        for _ in 0..strip {
            rest = rest.split_once('/').map(|(_, rest)| rest).ok_or_else(|| {
                Failure::bad_input(format_args!("{name:?} has fewer than {strip} folders to strip"))
            })?;
        }
        let below = files::relative(rest)?;
        if below.as_os_str().is_empty() {
            return Err(Failure::bad_input(format_args!("{name:?} names no file")));
        }
        Ok(self.top.join(below).to_string_lossy().into_owned())
    }

    fn current(&self, path: &str) -> Result<Option<String>, Failure> {
        match self.changed.get(path) {
            Some(state) => Ok(state.after.clone()),
            None => self.on_disk(path),
        }
    }

    fn set(&mut self, path: &str, after: Option<String>) -> Result<(), Failure> {
        if let Some(state) = self.changed.get_mut(path) {
            state.after = after;
        } else {
            let before = self.on_disk(path)?;
            self.changed.insert(path.to_owned(), State { before, after });
        }
        Ok(())
    }

    fn on_disk(&self, path: &str) -> Result<Option<String>, Failure> {
        match fs::symlink_metadata(self.root.join(path)) {
            Ok(found) if found.is_symlink() => Err(Failure::bad_input(format_args!(
                "{path:?} is a symbolic link; name the file that it points to"
            ))),
            Ok(_) => files::read_text(self.root, path, MAX_FILE_BYTES).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::io(path, &error)),
        }
    }
}

/// Whether the names begin with git's `a/` and `b/`.
fn has_git_prefixes(patch: &FilePatch) -> bool {
    patch.old.as_ref().is_none_or(|name| name.starts_with("a/") || name.starts_with("b/"))
        && patch.new.as_ref().is_none_or(|name| name.starts_with("b/") || name.starts_with("a/"))
}
