//! `ringwall rights`: where a living sandbox may write in its workspace.

use std::io::{self, Write};
use std::path::Path;

use ringwall_spec::WriteRights;
use ringwall_workspace::quoted;

use super::open_engine;
use crate::args::ChangeRightsArgs;
use crate::report;

pub(super) fn run(args: &ChangeRightsArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    let asked = match (args.everywhere, args.nowhere) {
        (true, _) => Some(WriteRights::everywhere()),
        (_, true) => Some(WriteRights::nowhere()),
        _ => args.rights.asked(),
    };
    if let Some(rights) = asked {
        return Ok(engine.change_rights(&record, &rights)?);
    }
    let rights = engine.rights(&record)?;
    if args.output.json() {
        return Ok(report::json(&rights)?);
    }
    let mut out = io::stdout().lock();
    for (word, paths) in [("writable", &rights.writable), ("read-only", &rights.read_only)] {
        for path in paths {
            let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            writeln!(out, "{word}\t{}", quoted(path))?;
        }
    }
    if rights.writable.is_empty() {
        writeln!(out, "nothing can be written")?;
    }
    Ok(())
}
