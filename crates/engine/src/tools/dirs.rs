//! Directories that a call is granted.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringwall_ring_wasm::{GrantedDir, MAX_GRANTS};
use ringwall_spec::DirAccess;
use ringwall_wire::GuestDir;
use ringwall_workspace::HideRules;

use super::ToolError;
use crate::config::Engine;
use crate::place::PlaceError;

/// A directory, and where a tool finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    /// On the host; for a call inside a sandbox, in the ring round its tools. There it may be
    /// relative to the directory in which commands start.
    pub host: PathBuf,
    /// Absolute, `/work`.
    pub guest: String,
    pub access: DirAccess,
}

/// Everything that a warden can reach: calls with the same class can share one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GrantClass {
    pub(super) dirs: Vec<GrantedDir>,
    /// Device and inode of each: a directory that was replaced is another one.
    identities: Vec<(u64, u64)>,
    /// The number of the one call that it is for; none for calls that can share a warden.
    pub(super) only_call: Option<u64>,
}

impl GrantClass {
    pub(super) fn has_writable(&self) -> bool {
        self.dirs.iter().any(|dir| dir.access == DirAccess::Write)
    }
}

/// A directory as it was found, with its device and inode.
pub(super) type Found = (GrantedDir, (u64, u64));

/// Looks at the directories; nothing is opened for the tool here.
pub(super) fn resolve(
    grants: &[DirGrant],
    look: impl Fn(&DirGrant) -> Result<Found, ToolError>,
) -> Result<(GrantClass, Vec<GuestDir>), ToolError> {
    if grants.len() > MAX_GRANTS {
        let reason = format!("at most {MAX_GRANTS} directories can be granted to one call");
        return Err(ToolError::Refused(reason));
    }
    let mut found = Vec::with_capacity(grants.len());
    for grant in grants {
        refuse_odd_guest(grant)?;
        found.push((look(grant)?, grant));
    }
    // The same set in another order is the same class.
    found.sort_by(|((a, _), _), ((b, _), _)| (&a.path, a.access).cmp(&(&b.path, b.access)));
    let mut class = GrantClass::default();
    let mut guests = Vec::with_capacity(grants.len());
    for ((dir, identity), grant) in found {
        if class.dirs.last() != Some(&dir) {
            class.dirs.push(dir);
            class.identities.push(identity);
        }
        let number = u16::try_from(class.dirs.len() - 1).unwrap_or(u16::MAX);
        guests.push(GuestDir { number, guest: grant.guest.clone(), access: grant.access });
    }
    Ok((class, guests))
}

fn refuse_odd_guest(grant: &DirGrant) -> Result<(), ToolError> {
    let guest = Path::new(&grant.guest);
    let plain = grant.guest.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    if !guest.is_absolute() || !plain || grant.guest.contains('\0') {
        let reason = format!("{:?} is no plain absolute path; write for example /work", guest);
        return Err(ToolError::Dir { path: grant.host.clone(), reason });
    }
    Ok(())
}

/// A directory of the host.
pub(super) fn look(engine: &Engine, grant: &DirGrant) -> Result<Found, ToolError> {
    let refused = |reason: String| ToolError::Dir { path: grant.host.clone(), reason };
    let unusable = |error: std::io::Error| refused(error.to_string());
    let path = std::fs::canonicalize(&grant.host).map_err(unusable)?;
    let stat = File::open(&path).and_then(|dir| dir.metadata()).map_err(unusable)?;
    if !stat.is_dir() {
        return Err(refused("it is no directory".to_owned()));
    }
    engine.refuse_own_state(&path).map_err(|error| refused(error.to_string()))?;
    if grant.access == DirAccess::Write && stat.uid() == 0 && rustix::process::geteuid().is_root() {
        let reason = "it belongs to root, and what breaks out of a tool could leave a setuid \
                      program of root's there; grant it read-only, or give a directory of an \
                      ordinary user";
        return Err(refused(reason.to_owned()));
    }
    let identity = (stat.dev(), stat.ino());
    let owner = (stat.uid(), stat.gid());
    Ok((GrantedDir { path, access: grant.access, owner, hidden: Vec::new() }, identity))
}

/// The directories of a class with what is in them that no tool may see: secrets and keys, by the
/// rules for workspaces. Looked for when a warden is raised, not at every call: it takes a walk
/// through all of them.
pub(super) fn with_hidden(class: &GrantClass) -> Result<Vec<GrantedDir>, PlaceError> {
    let rules = HideRules::default();
    let look = |dir: &GrantedDir| {
        let wrong = |source| PlaceError::HostPath { path: dir.path.clone(), source };
        let opened = File::open(&dir.path).map_err(wrong)?;
        let hidden = ringwall_workspace::find_hidden(opened.as_fd(), &rules)?;
        Ok(GrantedDir { hidden, ..dir.clone() })
    };
    class.dirs.iter().map(look).collect()
}
