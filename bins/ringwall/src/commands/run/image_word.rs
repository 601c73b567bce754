//! `ringwall run IMAGE CMD` where IMAGE is one plain word, and images that say themselves what to run.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, bail};
use ringwall_desk::Permit;
use ringwall_engine::Engine;

use super::super::open_engine;
use crate::args::RunArgs;

/// Where programs of this machine are looked for, as behind the wall.
const PROGRAMS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Decides about a plain first word that does not stand after `--`: it is a program of this machine, or
/// else an image that is here. Nothing is pulled for a word that may be a slip.
pub(super) fn settle(args: &mut RunArgs) -> anyhow::Result<()> {
    let plain = args.may_begin_with_image && args.sandbox.image.is_none();
    let Some(word) = args.command.first().filter(|_| plain).and_then(|word| word.to_str()) else {
        return Ok(());
    };
    if word.contains('/') || args.sandbox.read_only.iter().any(|path| path.ends_with(word)) {
        return Ok(());
    }
    let known = PROGRAMS.iter().any(|directory| is_program(OsStr::new(directory), word));
    if known || word.parse::<ringwall_image::Reference>().is_err() {
        return Ok(());
    }
    if open_engine()?.has_image(word)? {
        args.sandbox.image = Some(word.to_owned());
        args.command.remove(0);
        return Ok(());
    }
    bail!(
        "{word:?} is neither a program of this machine nor an image that is here; for a command write `ringwall run -- {word}`, for an image `ringwall run {word}:latest CMD`"
    )
}

fn is_program(directory: &OsStr, name: &str) -> bool {
    let found = std::path::Path::new(directory).join(name).metadata();
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What the image itself wants to run.
pub(super) fn own_command(engine: &Engine, permit: &Permit) -> anyhow::Result<Vec<OsString>> {
    let name = permit.spec().image.as_ref();
    let name = name.context("no command was given; put it after --, for example -- ls /")?;
    let config = engine.images()?.resolve(name)?.config;
    let command = [config.entrypoint, config.cmd].concat();
    if command.is_empty() {
        bail!("the image {name} does not say what to run; write `ringwall run {name} CMD`");
    }
    Ok(command.into_iter().map(OsString::from).collect())
}
