//! `ringwall apply`: writes a sandbox's changes back to the workspace.

use std::io::{self, BufWriter, Write};
use std::path::{Component, Path, PathBuf};

use ringwall_engine::{Engine, PolicySearch, RecordState};
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
    let done = take_over(&open_engine()?, args)?;
    if args.output.json() {
        report::json(&Document { applied: &done.applied, already: &done.already })?;
    } else {
        list(&done)?;
    }
    Ok(())
}

/// Writes the changes back, if policy allows it, and says so in the log.
pub(super) fn take_over(engine: &Engine, args: &ApplyArgs) -> anyhow::Result<Applied> {
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
    let selected = changes.entries().iter().map(|change| change.path.as_path());
    let selected = selected.filter(|path| is_selected(path, &args.paths));
    let workspace = record.workspace.as_ref().map(|workspace| workspace.path.clone());
    let search = PolicySearch::from_environment(workspace);
    engine.allow_apply(&record, selected, (&search, None))?;
    let done = apply(&changes, &changes.workspace(), &args.paths, &options)?;
    let protected = args.allow_protected.iter().map(|path| path.display().to_string()).collect();
    engine.record_applied(&record, changes.summary(), (protected, args.force))?;
    Ok(done)
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

/// Whether a path is one of those that were named, or below one; without names all are.
fn is_selected(path: &Path, named: &[PathBuf]) -> bool {
    let plain = |named: &PathBuf| -> PathBuf {
        named.components().filter(|part| *part != Component::CurDir).collect()
    };
    named.is_empty() || named.iter().any(|above| path.starts_with(plain(above)))
}
