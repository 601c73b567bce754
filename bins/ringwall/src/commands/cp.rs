//! `ringwall cp`: files and directories into or out of a living sandbox.
//!
//! Only regular files and directories are copied. Links, devices, pipes and sockets are skipped
//! and counted, on either side: a link means something else where it arrives.

mod budget;
mod host;
mod inward;
mod outward;

use anyhow::bail;

use super::open_engine;
use crate::args::{CpArgs, SandboxPath};
use crate::report;

pub(super) fn run(args: &CpArgs) -> anyhow::Result<()> {
    let skipped = match (&args.source, &args.destination) {
        (SandboxPath::Host(from), SandboxPath::Sandbox { id, path }) => {
            let engine = open_engine()?;
            let attached = engine.attach(&engine.find(id)?)?;
            inward::copy(from, attached.files(), path)?
        }
        (SandboxPath::Sandbox { id, path }, SandboxPath::Host(to)) => {
            let engine = open_engine()?;
            let attached = engine.attach(&engine.find(id)?)?;
            outward::copy(attached.files(), path, to)?
        }
        (SandboxPath::Host(_), SandboxPath::Host(_)) => {
            bail!("neither side names a sandbox; write ID:PATH for one of them")
        }
        (SandboxPath::Sandbox { .. }, SandboxPath::Sandbox { .. }) => {
            bail!("both sides name a sandbox; copy out to a directory first, then in")
        }
    };
    if skipped > 0 {
        report::note(&format!("{skipped} links, devices, pipes or sockets were not copied"));
    }
    Ok(())
}

/// `directory/name` in bytes.
fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.ends_with(b"/") { b"" } else { b"/" };
    [directory, slash, name].concat()
}
