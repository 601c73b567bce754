//! What decides about a sandbox: policy, grants, approvals, keys, records, the audit log. Files are opened
//! and not changed, but for those that were laid out to be.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::{any_of, read, succeeded_if};
use crate::{Scene, Tried};

fn open_to_write<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Tried {
    any_of(paths, |path| {
        OpenOptions::new().append(true).open(path)?;
        Ok(format!("{} can be written", path.display()))
    })
}

/// These paths as another process or another root would show them.
fn by_detours(paths: &[PathBuf]) -> Vec<PathBuf> {
    let below =
        |path: &PathBuf, root: &str| Path::new(root).join(path.strip_prefix("/").unwrap_or(path));
    let doors = ["/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../.."];
    paths.iter().flat_map(|path| doors.iter().map(|door| below(path, door))).collect()
}

pub(crate) fn edit_policy(scene: &Scene) -> Tried {
    open_to_write(&scene.policies)
}

pub(crate) fn edit_policy_by_detours(scene: &Scene) -> Tried {
    open_to_write(&by_detours(&scene.policies))
}

/// A file beside one that was laid out.
fn add_beside(path: Option<&PathBuf>, name: &str) -> Tried {
    any_of(path, |path| {
        let path = path.with_file_name(name);
        OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(format!("{} was made", path.display()))
    })
}

/// A policy that was not there yet.
pub(crate) fn add_policy(scene: &Scene) -> Tried {
    add_beside(scene.policies.first(), "ringwall.cedar")
}

/// A decision in the place where decisions are looked for.
pub(crate) fn approve_itself(scene: &Scene) -> Tried {
    add_beside(scene.approvals.first(), "decision.json")
}

pub(crate) fn edit_approvals(scene: &Scene) -> Tried {
    open_to_write(&scene.approvals)
}

/// Over the sockets by which the owner approves, runs and removes.
pub(crate) fn ask_the_engine(scene: &Scene) -> Tried {
    any_of(&scene.engine_sockets, |path| {
        UnixStream::connect(path)?;
        Ok(format!("{} was reached", path.display()))
    })
}

pub(crate) fn read_keys(scene: &Scene) -> Tried {
    any_of(scene.keys.iter().chain(&by_detours(&scene.keys)), |path| read(path))
}

pub(crate) fn read_approvals(scene: &Scene) -> Tried {
    any_of(scene.approvals.iter().chain(&by_detours(&scene.approvals)), |path| read(path))
}

/// Limits and rights of a living sandbox stand in its record.
pub(crate) fn edit_records(scene: &Scene) -> Tried {
    open_to_write(&scene.records)
}

/// A program that is told where the engine's state is, or holds a token, was told too much.
pub(crate) fn told_by_environment(_: &Scene) -> Tried {
    let telling = |name: &str| name.starts_with("RINGWALL_") && name != "RINGWALL_SANDBOX";
    let told: Vec<String> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| telling(name))
        .collect();
    succeeded_if(!told.is_empty(), format!("it is told {}", told.join(", ")), "it is told nothing")
}

pub(crate) fn append_to_log(scene: &Scene) -> Tried {
    open_to_write(scene.logs.iter().chain(&by_detours(&scene.logs)))
}

/// Empties the log that was laid out for it.
pub(crate) fn empty_log(scene: &Scene) -> Tried {
    any_of(scene.logs.first(), |path| {
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
        Ok(format!("{} was emptied", path.display()))
    })
}

pub(crate) fn replace_log(scene: &Scene) -> Tried {
    any_of(scene.logs.first(), |path| {
        let other = path.with_extension("other");
        fs::write(&other, "forged\n")?;
        fs::rename(&other, path)?;
        Ok(format!("{} was replaced", path.display()))
    })
}

pub(crate) fn remove_log(scene: &Scene) -> Tried {
    any_of(scene.logs.first(), |path| {
        fs::remove_file(path)?;
        Ok(format!("{} was removed", path.display()))
    })
}

pub(crate) fn read_log(scene: &Scene) -> Tried {
    any_of(scene.logs.iter().chain(&by_detours(&scene.logs)), |path| read(path))
}

/// Names and output that would be lines of their own, if a program recorded them unescaped.
pub(crate) fn forge_lines(scene: &Scene) -> Tried {
    let forged = format!("{{\"forged\":\"{}\"}}", scene.mark);
    let said = io::Write::write_all(&mut io::stderr(), format!("\n{forged}\n").as_bytes());
    let made = scene.workspace.as_ref().map(|workspace| {
        let name = format!("a\n{}\n", forged.replace('/', "."));
        fs::write(workspace.join(name), &forged)
    });
    match made.unwrap_or(Ok(())).and(said) {
        Ok(()) => Tried::Succeeded("it was written".to_owned()),
        Err(error) => Tried::Failed(error.to_string()),
    }
}
