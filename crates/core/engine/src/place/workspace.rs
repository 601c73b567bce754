//! What a plan needs to know of a workspace.

use std::os::fd::AsFd;

use ringwall_linux::step::FileId;
use ringwall_ring::WorkspaceInput;
use ringwall_spec::{Limits, WorkspaceMode};
use ringwall_workspace::{
    CheckedWorkspace, HideRules, Searched, find_hidden, find_hidden_and_foreign, fits,
    hidden_parents, quoted,
};
use rustix::io::Errno;

use super::PlaceError;

/// The part of a sandbox's disk limit that a copy of its workspace can have. The job needs the rest.
const COPIED_PART: u64 = 2;

/// Reads a workspace, and what a person should know of it. `user` is the one user and group of the ring, if an
/// overlay lies over the workspace.
pub(super) fn read(
    mode: WorkspaceMode,
    checked: &CheckedWorkspace,
    user: Option<(u32, u32)>,
    limits: &Limits,
) -> Result<(WorkspaceInput, Option<String>), PlaceError> {
    let path = checked.path().to_owned();
    let wrong = |error: Errno| PlaceError::HostPath { path: path.clone(), source: error.into() };
    let stat = rustix::fs::fstat(checked).map_err(wrong)?;
    if mode == WorkspaceMode::ReadWrite && stat.st_uid == 0 {
        return Err(PlaceError::RootsWorkspace(path));
    }
    let (opened, rules) = (checked.as_fd(), HideRules::of_directory(&path));
    // All of another's directory is copied anyway.
    let owned = user.filter(|user| *user == (stat.st_uid, stat.st_gid));
    let Searched { hidden, foreign } = match owned {
        Some(owner) => find_hidden_and_foreign(opened, &rules, owner)?,
        None => Searched { hidden: find_hidden(opened, &rules)?, foreign: None },
    };
    let (bytes, inodes) = (limits.disk_bytes / COPIED_PART, limits.disk_inodes / COPIED_PART);
    let copied = foreign.is_some() && fits(opened, inodes, bytes);
    let caution = foreign.filter(|_| !copied).map(|foreign| {
        format!(
            "{} in the workspace belongs to another user or group, so commands in the sandbox cannot change \
             it (EOVERFLOW); give it to your user and group, or raise --disk and --inodes to twice the size \
             of the workspace, so that it is copied",
            quoted(&foreign)
        )
    });
    let hidden_parents = hidden_parents(opened, &hidden)?;
    let input = WorkspaceInput {
        mode,
        id: Some(FileId { device: stat.st_dev, inode: stat.st_ino }),
        owner_uid: stat.st_uid,
        owner_gid: stat.st_gid,
        copied,
        hidden,
        hidden_parents,
        inside: path.clone(),
        path,
    };
    Ok((input, caution))
}
