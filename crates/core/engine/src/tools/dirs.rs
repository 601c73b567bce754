//! Directories that a call is granted.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringwall_linux::step::FileId;
use ringwall_ring_wasm::{GrantedDir, MAX_GRANTS};
use ringwall_safekeeping::beneath::open_without_links;
use ringwall_spec::DirAccess;
use ringwall_wire::GuestDir;
use ringwall_workspace::{HiddenWatch, HideRules, without_links};
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;

use super::ToolError;
use crate::config::Engine;
use crate::place::PlaceError;

/// A directory, and where a tool finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirGrant {
    /// On the host, without links: the path that was decided about. For a call inside a sandbox, in the ring round its tools. There it may be
    /// relative to the directory in which commands start.
    pub host: PathBuf,
    /// Absolute, `/work`.
    pub guest: String,
    pub access: DirAccess,
}

/// Everything that a warden can reach: calls with the same class can share one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GrantClass {
    /// A directory that was replaced is another one.
    pub(super) dirs: Vec<GrantedDir>,
    /// The number of the one call that it is for; none for calls that can share a warden.
    pub(super) only_call: Option<u64>,
}

impl GrantClass {
    pub(super) fn has_writable(&self) -> bool {
        self.dirs.iter().any(|dir| dir.access == DirAccess::Write)
    }
}

/// Looks at the directories; nothing is opened for the tool here.
pub(super) fn resolve(
    grants: &[DirGrant],
    look: impl Fn(&DirGrant) -> Result<GrantedDir, ToolError>,
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
    // Sorted, because one set in another order is the same class.
    found.sort_by(|(a, _), (b, _)| (&a.path, a.access).cmp(&(&b.path, b.access)));
    let mut class = GrantClass::default();
    let mut guests = Vec::with_capacity(grants.len());
    for (dir, grant) in found {
        if class.dirs.last() != Some(&dir) {
            class.dirs.push(dir);
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
pub(super) fn look(engine: &Engine, grant: &DirGrant) -> Result<GrantedDir, ToolError> {
    let refused = |reason: String| ToolError::Dir { path: grant.host.clone(), reason };
    let unusable = |error: std::io::Error| refused(error.to_string());
    let path = grant.host.clone();
    let stat = open(&path).and_then(|dir| Ok(fstat(dir)?)).map_err(unusable)?;
    if HideRules::of_directory(&path).hides_base() {
        let reason = "it is, or lies in, a directory of keys, which is hidden from tools";
        return Err(refused(reason.to_owned()));
    }
    engine.refuse_own_state(&path).map_err(|error| refused(error.to_string()))?;
    if grant.access == DirAccess::Write && stat.st_uid == 0 && rustix::process::geteuid().is_root()
    {
        let reason = "it belongs to root, and what breaks out of a tool could leave a setuid \
                      program of root's there; grant it read-only, or give a directory of an \
                      ordinary user";
        return Err(refused(reason.to_owned()));
    }
    let id = Some(FileId { device: stat.st_dev, inode: stat.st_ino });
    let owner = (stat.st_uid, stat.st_gid);
    Ok(GrantedDir { path, id, access: grant.access, owner, hidden: Vec::new() })
}

/// Opens a directory at a path that was decided about. It has no links: policy did not decide about the
/// target of a new one.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_without_links(path, flags).map_err(|error| match error {
        Errno::LOOP => io::Error::other(
            "a part of its path is a link now, so it may lead elsewhere than was checked; give the \
             path that you mean again",
        ),
        Errno::NOTDIR => io::Error::other("it is no directory"),
        error => error.into(),
    })
}

/// The directories of a class, held open, with what comes to be hidden in them.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) dirs: Vec<GrantedDir>,
    watches: Vec<HiddenWatch>,
}

impl Held {
    /// Whether something has to be hidden that was not when a warden got these directories, or is
    /// another file now.
    pub(super) fn is_stale(&mut self) -> bool {
        let known = self.dirs.iter().map(|dir| &dir.hidden);
        self.watches.iter_mut().zip(known).any(|(watch, known)| match watch.look() {
            // Without events to tell which files are new, all of them are found each time.
            Ok(found) if watch.events().is_none() => {
                without_links(watch.directory(), &found) != *known
            }
            found => found.map_or(true, |new| !new.is_empty()),
        })
    }
}

/// The directories of a class with the files in them that no tool may see: secrets and keys, by the
/// rules for workspaces. Searched when a warden is raised, and watched from then on.
pub(super) fn with_hidden(class: &GrantClass) -> Result<Held, PlaceError> {
    let look = |dir: &GrantedDir| {
        let wrong = |source| PlaceError::HostPath { path: dir.path.clone(), source };
        let opened = open(&dir.path).map_err(wrong)?;
        if dir.id != Some(FileId::of(&opened).map_err(wrong)?) {
            return Err(PlaceError::Replaced(dir.path.clone()));
        }
        let rules = HideRules::of_directory(&dir.path);
        let mut watch = HiddenWatch::new(opened.as_fd(), rules).map_err(wrong)?;
        let hidden = without_links(opened.as_fd(), &watch.look()?);
        Ok((GrantedDir { hidden, ..dir.clone() }, watch))
    };
    let looked: Vec<_> = class.dirs.iter().map(look).collect::<Result<_, _>>()?;
    let (dirs, watches) = looked.into_iter().unzip();
    Ok(Held { dirs, watches })
}
