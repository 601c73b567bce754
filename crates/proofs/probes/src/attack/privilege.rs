//! Power that a job must not have, or get back.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Resource, Rlimit};

use super::{any_of, succeeded_if};
use crate::{Scene, Tried};

/// A line of our own status.
fn status(field: &str) -> io::Result<String> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).ok_or_else(|| io::Error::other("no such line"))
}

fn has_any(field: &str) -> Tried {
    match status(field) {
        Ok(value) => {
            let none = value.bytes().all(|byte| byte == b'0');
            succeeded_if(!none, format!("{field} is {value}"), format!("{field} is empty"))
        }
        Err(error) => Tried::Impossible(error.to_string()),
    }
}

fn is_not(field: &str, wanted: &str) -> Tried {
    match status(field) {
        Ok(value) => succeeded_if(
            value != wanted,
            format!("{field} is {value}"),
            format!("{field} is {wanted}"),
        ),
        Err(error) => Tried::Impossible(error.to_string()),
    }
}

pub(crate) fn effective_capabilities(_: &Scene) -> Tried {
    has_any("CapEff")
}

pub(crate) fn permitted_capabilities(_: &Scene) -> Tried {
    has_any("CapPrm")
}

pub(crate) fn bounding_capabilities(_: &Scene) -> Tried {
    has_any("CapBnd")
}

pub(crate) fn ambient_capabilities(_: &Scene) -> Tried {
    has_any("CapAmb")
}

pub(crate) fn new_privileges(_: &Scene) -> Tried {
    is_not("NoNewPrivs", "1")
}

pub(crate) fn unfiltered(_: &Scene) -> Tried {
    is_not("Seccomp", "2")
}

pub(crate) fn make_device(scene: &Scene) -> Tried {
    let kinds = [
        (FileType::CharacterDevice, (1, 1)),
        (FileType::BlockDevice, (8, 0)),
        (FileType::BlockDevice, (254, 0)),
    ];
    any_of(kinds, |(kind, (major, minor))| {
        let path = Path::new("/tmp").join(format!("{}-device", scene.mark));
        rustix::fs::mknodat(
            CWD,
            &path,
            kind,
            Mode::from_raw_mode(0o666),
            rustix::fs::makedev(major, minor),
        )?;
        let opened = fs::File::open(&path).map(|_| format!("device {major}:{minor} was opened"));
        fs::remove_file(&path)?;
        opened
    })
}

/// Device 0:0 needs no right to make devices; in a layer it hides the file of its name.
pub(crate) fn make_whiteout(scene: &Scene) -> Tried {
    let places = [Some(Path::new("/tmp")), Some(Path::new("/dev/shm")), scene.workspace.as_deref()];
    any_of(places.into_iter().flatten(), |place| {
        let path = place.join(format!("{}-whiteout", scene.mark));
        let nothing = rustix::fs::makedev(0, 0);
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, mode, nothing)?;
        let _ = fs::remove_file(&path);
        Ok(format!("{} was made", path.display()))
    })
}

/// The map of a user namespace that is ours already.
pub(crate) fn map_users(_: &Scene) -> Tried {
    any_of(["uid_map", "gid_map"], |file| {
        fs::write(format!("/proc/self/{file}"), "0 0 1\n")?;
        Ok(format!("{file} was written"))
    })
}

pub(crate) fn change_groups(_: &Scene) -> Tried {
    any_of([()], |()| {
        fs::write("/proc/self/setgroups", "allow")?;
        Ok("groups can be changed".to_owned())
    })
}

/// Not to be the one who is killed when memory is short.
pub(crate) fn spared_by_the_killer(_: &Scene) -> Tried {
    any_of([()], |()| {
        fs::write("/proc/self/oom_score_adj", "-1000")?;
        Ok("the process would be spared".to_owned())
    })
}

pub(crate) fn go_first(_: &Scene) -> Tried {
    any_of([()], |()| {
        rustix::process::setpriority_process(None, -20)?;
        Ok("it goes before all others".to_owned())
    })
}

/// A hard limit, once lowered, must stay.
pub(crate) fn raise_limits(_: &Scene) -> Tried {
    let Some(most) = rustix::process::getrlimit(Resource::Nofile).maximum else {
        return Tried::Succeeded("there is no limit".to_owned());
    };
    any_of([()], |()| {
        let more = Some(most.saturating_mul(4));
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: more, maximum: more })?;
        Ok("more files can be open".to_owned())
    })
}

/// With 1 a crash starts nothing; any other limit lets it start the program that takes dumps.
pub(crate) fn allow_core_dumps(_: &Scene) -> Tried {
    let zero = Rlimit { current: Some(0), maximum: Some(0) };
    // The answer does not matter: what holds afterwards does.
    let _ = rustix::process::setrlimit(Resource::Core, zero);
    match rustix::process::getrlimit(Resource::Core).current {
        Some(1) => Tried::Failed("the limit stays at 1".to_owned()),
        other => Tried::Succeeded(format!("the limit is {other:?}")),
    }
}

pub(crate) fn lock_memory(scene: &Scene) -> Tried {
    any_of([()], |()| {
        let all = Some(scene.memory_bytes);
        rustix::process::setrlimit(Resource::Memlock, Rlimit { current: all, maximum: all })?;
        Ok("all memory can be locked".to_owned())
    })
}
