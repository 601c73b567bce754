//! `ringwall apply`: writes a sandbox's changes back to the workspace.

use std::io::{self, BufWriter, Write};

use ringwall_engine::RecordState;
use ringwall_workspace::{Applied, ApplyOptions, RelPath, apply, quoted};
use serde::Serialize;

use super::open_engine;
use crate::args::ApplyArgs;
use crate::report;

/// What `-o json` prints. Names that are not UTF-8 are escaped.
#[derive(Serialize)]
struct Document<'a> {
    applied: &'a [RelPath],
    already: &'a [RelPath],
}

pub(super) fn run(args: &ApplyArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    anyhow::ensure!(
        record.state != RecordState::Running,
        "sandbox {id} is still running and may change more; stop it first: ringwall stop {id}",
        id = record.id
    );
    let changes = engine.changes(&record)?;
    let options = ApplyOptions {
        allow_protected: args.allow_protected.clone(),
        except: args.except.clone(),
        force: args.force,
    };
    let done = apply(&changes, &changes.workspace(), &args.paths, &options)?;
    if args.output.json() {
        report::json(&Document { applied: &done.applied, already: &done.already })?;
    } else {
        list(&done)?;
    }
    Ok(())
}

fn list(done: &Applied) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for path in &done.applied {
        writeln!(out, "{}", quoted(path.as_path()))?;
    }
    out.flush()?;
    if done.applied.is_empty() {
        report::note("nothing to do: the workspace already has all of it");
    }
    Ok(())
}
