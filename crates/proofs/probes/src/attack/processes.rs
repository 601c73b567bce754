//! Processes of the host: see them, stop them, look into them; and one that stays behind.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

use super::{any_of, read};
use crate::{Scene, Tried};

fn victim(scene: &Scene) -> io::Result<Pid> {
    Pid::from_raw(scene.victim).ok_or_else(|| io::Error::other("no victim"))
}

/// A process with the victim's number may be one of our own.
fn is_there(scene: &Scene) -> io::Result<()> {
    let line = fs::read(format!("/proc/{}/cmdline", scene.victim))?;
    match String::from_utf8_lossy(&line).contains(&scene.mark) {
        true => Ok(()),
        false => Err(io::Error::other("that number is another process's here")),
    }
}

pub(crate) fn see(scene: &Scene) -> Tried {
    any_of([()], |()| is_there(scene).map(|()| "the process is seen".to_owned()))
}

pub(crate) fn signal(scene: &Scene) -> Tried {
    any_of([Signal::TERM, Signal::KILL], |signal| {
        rustix::process::kill_process(victim(scene)?, signal)?;
        Ok("a signal was sent".to_owned())
    })
}

pub(crate) fn signal_by_descriptor(scene: &Scene) -> Tried {
    any_of([()], |()| {
        let process = rustix::process::pidfd_open(victim(scene)?, PidfdFlags::empty())?;
        rustix::process::pidfd_send_signal(&process, Signal::TERM)?;
        Ok("a signal was sent".to_owned())
    })
}

pub(crate) fn limit(scene: &Scene) -> Tried {
    any_of([()], |()| {
        is_there(scene)?;
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::prlimit(Some(victim(scene)?), Resource::Core, none)?;
        Ok("another limit was set".to_owned())
    })
}

pub(crate) fn memory(scene: &Scene) -> Tried {
    any_of(["mem", "maps", "auxv"], |file| {
        is_there(scene)?;
        fs::File::open(format!("/proc/{}/{file}", scene.victim))?;
        Ok(format!("its {file} can be read"))
    })
}

pub(crate) fn files(scene: &Scene) -> Tried {
    any_of(["fd", "root", "cwd"], |part| {
        is_there(scene)?;
        fs::read_dir(format!("/proc/{}/{part}", scene.victim))?;
        Ok(format!("its {part} can be read"))
    })
}

/// The environments of all that can be seen.
pub(crate) fn environments(_: &Scene) -> Tried {
    match every_process("environ").as_slice() {
        [] => Tried::Failed("no process is seen".to_owned()),
        all => any_of(all, |path| read(path)),
    }
}

/// The arguments of all that can be seen.
pub(crate) fn arguments(_: &Scene) -> Tried {
    let texts: Vec<String> =
        every_process("cmdline").into_iter().filter_map(|path| read(&path).ok()).collect();
    Tried::Succeeded(texts.join(" | "))
}

fn every_process(file: &str) -> Vec<PathBuf> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|pid| PathBuf::from(format!("/proc/{pid}/{file}")))
        .collect()
}

/// A process in a session of its own that would outlive the sandbox.
pub(crate) fn outlive(scene: &Scene) -> Tried {
    any_of([()], |()| {
        let program = std::env::args_os().next().ok_or(io::ErrorKind::NotFound)?;
        let mut command = Command::new(program);
        command.args(["--linger", &scene.mark]).process_group(0);
        // Nothing is opened for it, for that may be denied; nor does it hold what we are read by.
        command.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        Ok("a process was started that does not end".to_owned())
    })
}
