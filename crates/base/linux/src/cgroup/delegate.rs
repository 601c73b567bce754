//! Version 2 delegation: where in the tree this process may make groups, and how controllers get
//! there under the kernel's rule that only groups without processes hand them down.

use std::path::Path;

use rustix::fs::{Access, Mode, access};
use rustix::io::Errno;

use super::files::{self, inside};
use super::reap::read_members;
use super::v2::{Residents, V2};
use super::{CgroupError, Controllers, PARENT};

/// The leaf into which the processes of the caller's own group are moved.
const CALLERS: &str = "ringwall-callers";

/// Deeper groups than this are not searched: no service manager nests so far.
const DEEPEST: usize = 16;

/// Rounds of moving processes aside; each catches what was forked during the one before.
const MOVE_ROUNDS: usize = 20;

/// Finds the best place under `mount` for our parent group. `own` is the caller's own group.
///
/// Preferred in this order: the true root (exempt from the no-process rule); the nearest group
/// above the caller that hands down the most controllers, because nothing has to move; the
/// caller's own group, with everything in it moved into a leaf.
pub(super) fn choose(mount: &Path, own: &Path) -> Result<V2, Errno> {
    let denied = match may_use(mount) {
        Ok(()) if is_true_root(mount) => return Ok(root(mount)),
        Ok(()) => None,
        Err(why) => Some(why),
    };
    let mut best: Option<V2> = None;
    let mut offer = |candidate: V2| {
        let better =
            best.as_ref().is_none_or(|b| candidate.controllers.count() > b.controllers.count());
        if better && !candidate.controllers.is_empty() {
            best = Some(candidate);
        }
    };
    let own = if own.ends_with(CALLERS) { own.parent().unwrap_or(own) } else { own };
    let above = own.ancestors().take(DEEPEST).take_while(|dir| dir.starts_with(mount));
    for directory in above {
        // Whoever may not write here may not write further up either.
        if may_use(directory).is_err() {
            break;
        }
        offer(without_moving(directory));
    }
    if may_use(own).is_ok() && own.starts_with(mount) {
        let controllers = listed(own, "cgroup.controllers");
        offer(V2 { base: own.to_owned(), controllers, residents: Residents::MoveAside });
    }
    best.ok_or(denied.unwrap_or(Errno::ACCESS))
}

fn root(mount: &Path) -> V2 {
    let controllers = listed(mount, "cgroup.controllers");
    V2 { base: mount.to_owned(), controllers, residents: Residents::Stay }
}

fn without_moving(directory: &Path) -> V2 {
    let list = inside(directory, "cgroup.procs");
    let empty = read_members(&list).is_ok_and(|members| members.is_empty());
    let file = if empty { "cgroup.controllers" } else { "cgroup.subtree_control" };
    let controllers = listed(directory, file);
    V2 { base: directory.to_owned(), controllers, residents: Residents::Stay }
}

fn listed(directory: &Path, file: &str) -> Controllers {
    files::read(&inside(directory, file)).map(|text| Controllers::parse(&text)).unwrap_or_default()
}

/// The root of the whole tree has no type; the root that a cgroup namespace shows has one.
fn is_true_root(mount: &Path) -> bool {
    access(inside(mount, "cgroup.type"), Access::EXISTS) == Err(Errno::NOENT)
}

fn may_use(directory: &Path) -> Result<(), Errno> {
    access(directory, Access::WRITE_OK)?;
    access(inside(directory, "cgroup.procs"), Access::WRITE_OK)?;
    access(inside(directory, "cgroup.subtree_control"), Access::WRITE_OK)
}

/// Makes our parent group in `base` and has both hand `controllers` down. Leaves no parent behind
/// when that fails and it was not there before.
pub(super) fn hand_down(
    base: &Path,
    residents: Residents,
    controllers: &[&str],
) -> Result<(), CgroupError> {
    let parent = inside(base, PARENT);
    let made = match rustix::fs::mkdir(&parent, Mode::from_raw_mode(0o755)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(why) => return Err(CgroupError::io("create", &parent, why)),
    };
    let outcome =
        enable_in_base(base, residents, controllers).and_then(|()| enable(&parent, controllers));
    if outcome.is_err() && made {
        let _ = rustix::fs::rmdir(&parent);
    }
    outcome
}

fn enable_in_base(base: &Path, residents: Residents, wanted: &[&str]) -> Result<(), CgroupError> {
    let first = enable(base, wanted);
    let busy = matches!(&first, Err(CgroupError::Io { source, .. })
        if source.raw_os_error() == Some(Errno::BUSY.raw_os_error()));
    if !busy || residents == Residents::Stay {
        return first;
    }
    move_aside(base)?;
    enable(base, wanted)
}

fn enable(directory: &Path, wanted: &[&str]) -> Result<(), CgroupError> {
    let control = inside(directory, "cgroup.subtree_control");
    let enabled = files::read(&control)?;
    let missing: Vec<String> = wanted
        .iter()
        .filter(|name| !enabled.split_whitespace().any(|word| word == **name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { files::write(&control, &missing.join(" ")) }
}

/// Moves every process that lives directly in `base` into a leaf of its own.
fn move_aside(base: &Path) -> Result<(), CgroupError> {
    let leaf = inside(base, CALLERS);
    match rustix::fs::mkdir(&leaf, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(why) => return Err(CgroupError::io("create", &leaf, why)),
    }
    let (from, to) = (inside(base, "cgroup.procs"), inside(&leaf, "cgroup.procs"));
    for _ in 0..MOVE_ROUNDS {
        let members = read_members(&from)?;
        if members.is_empty() {
            return Ok(());
        }
        for pid in members {
            move_one(pid.as_raw_nonzero().get(), &to)?;
        }
    }
    // Still forking faster than we move; enabling will say that the group is busy.
    Ok(())
}

fn move_one(pid: i32, to: &Path) -> Result<(), CgroupError> {
    match files::write(to, &pid.to_string()) {
        // It ended before it could be moved.
        Err(CgroupError::Io { source, .. })
            if source.raw_os_error() == Some(Errno::SRCH.raw_os_error()) =>
        {
            Ok(())
        }
        other => other,
    }
}
