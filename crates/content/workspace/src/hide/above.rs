//! Links with hidden names in the directories above a workspace, which lead into it.
//!
//! With `~/.aws` a link to `dotfiles/aws`, that directory holds keys, whichever of the two paths is
//! the workspace's. Only the entries of the directories above are looked at, not all that is below them.

use std::fs;
use std::path::{Path, PathBuf};

use super::HideRules;
use crate::owners::Owners;
use crate::pattern::Folded;

/// Directories above a workspace.
const MAX_LEVELS_ABOVE: usize = 16;
/// Entries of one of them, such as a temporary directory that all users share.
const MAX_ENTRIES_ABOVE: usize = 4096;

/// Another path of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OtherName {
    /// In the directory that the rules are for. Empty for the directory itself.
    pub(super) end: PathBuf,
    pub(super) named: Folded,
}

/// What links of the caller's or root's that are above `directory` lead to in it.
pub(super) fn other_names(rules: &HideRules, directory: &Path) -> Vec<OtherName> {
    let owners = Owners::of(directory);
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut found = Vec::new();
    let above = directory.ancestors().skip(1).filter(|above| above.parent().is_some());
    for above in above.take(MAX_LEVELS_ABOVE) {
        let Ok(entries) = fs::read_dir(above) else { continue };
        for entry in entries.take(MAX_ENTRIES_ABOVE).flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            let link = entry.path();
            let named = Folded::new(&link);
            let by_rule = |directory| !rules.meaning(&named, directory).is_empty();
            let matters = by_rule(false) || by_rule(true) || rules.leading_end(&named).is_some();
            if matters && owners.own(&link) {
                found.extend(name_of(directory, &link, named));
            }
        }
        if home.as_deref() == Some(above) {
            break;
        }
    }
    found
}

fn name_of(directory: &Path, link: &Path, named: Folded) -> Option<OtherName> {
    let target = link.canonicalize().ok()?;
    if let Ok(inside) = target.strip_prefix(directory) {
        return Some(OtherName { end: inside.to_owned(), named });
    }
    let below = directory.strip_prefix(&target).ok()?;
    Some(OtherName { end: PathBuf::new(), named: named.join(below) })
}
