//! The user's workspace as a sandbox sees it, and the way back out of it.
//!
//! A sandbox sees the workspace through an overlay: the host directory below, a directory of the
//! sandbox's own above. This crate decides what must not be seen ([`find_hidden`]), reads what
//! came out ([`collect`]), shows it ([`Changes::write_status`], [`Changes::write_diff`]) and writes
//! it back ([`apply`]).
//!
//! Invariants:
//! - Everything read from an upper directory is hostile. Every path is resolved by the kernel
//!   with `openat2` below a directory descriptor, never through a symbolic link.
//! - Nothing is written to a workspace but by [`apply`], and what it began it finishes or undoes.
//! - Names and contents that a sandbox chose reach a terminal only in escaped form.

mod apply;
mod beneath;
mod check;
mod collect;
mod content;
mod diff;
mod follow;
mod hide;
mod identity;
mod manifest;
mod nature;
mod owners;
mod path;
mod pattern;
mod periods;
mod show;
mod whiteout;

pub use apply::{
    Applied, ApplyError, ApplyOptions, RecoverError, Recovered, Selection, Wanted, apply,
    is_protected, recover,
};
pub use check::{
    CheckedWorkspace, WorkspaceError, check_workspace, names_secret, open_workspace, resolve_shown,
};
pub use collect::{Bounds, CollectError, Copied, Upper, collect};
pub use content::Digest;
pub use diff::{Contents, DiffError, DiffOptions, Differ};
pub use hide::{
    HiddenWatch, HideError, HideRules, Searched, ShadowWatch, find_hidden, find_hidden_and_foreign,
    fits, without_links,
};
pub use manifest::{
    After, Before, Change, ChangeKind, Changes, LoadError, Note, NoteKind, Refused, RefusedWhy,
};
pub use nature::{Nature, Ranked, RankedList};
pub use path::{PathError, RelPath};
pub use periods::{Periods, Told, present};
pub use show::{PathList, quoted};
pub use whiteout::{Deed, LiveView, Owner, PlantError, hidden_parents, is_seen, plant_whiteouts};
