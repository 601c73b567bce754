//! `ringwall apply`: writes a sandbox's changes back to the workspace.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use ringwall_desk::{Action, Apply, Desk};
use ringwall_engine::{Engine, RecordState};
use ringwall_workspace::{Applied, ApplyOptions, RankedList, RelPath, Wanted, apply, quoted};
use serde::Serialize;

use super::open_engine;
use crate::args::ApplyArgs;
use crate::granted::Asking;
use crate::report;

/// What `-o json` prints. Names that are not UTF-8 are escaped.
#[derive(Serialize)]
struct Document<'a> {
    applied: &'a [RelPath],
    already: &'a [RelPath],
    /// The applied paths that are not plain, with their nature.
    ranked: Vec<RankedPath<'a>>,
}

#[derive(Serialize)]
struct RankedPath<'a> {
    path: &'a RelPath,
    nature: &'static str,
}

/// The written paths, and those of them that are not plain.
pub(super) struct Taken {
    done: Applied,
    ranked: RankedList,
}

pub(super) fn run(args: &ApplyArgs) -> anyhow::Result<()> {
    let Taken { done, ranked } = take_over(&open_engine()?, args)?;
    if args.output.json() {
        let by_path = ranked
            .0
            .iter()
            .map(|ranked| RankedPath { path: &ranked.path, nature: ranked.nature.words() });
        let ranked = by_path.collect();
        report::json(&Document { applied: &done.applied, already: &done.already, ranked })?;
    } else {
        list(&done)?;
        if !ranked.is_empty() {
            report::note(&format!("not plain: {ranked}"));
        }
    }
    Ok(())
}

/// Writes the changes back, if policy allows it, and says so in the log.
pub(super) fn take_over(engine: &Engine, args: &ApplyArgs) -> anyhow::Result<Taken> {
    let record = engine.find(&args.sandbox)?;
    anyhow::ensure!(
        record.state != RecordState::Running,
        "sandbox {id} is still running and may change more; stop it first: ringwall stop {id}",
        id = record.id
    );
    let changes = engine.changes(&record)?;
    let options = ApplyOptions {
        allow_protected: args.allow_protected.clone(),
        force: args.force,
        strict: args.strict,
    };
    let wanted = Wanted { only: args.paths.clone(), except: args.except.clone() };
    let selection = changes.select(&wanted)?;
    let texts = |paths: &[PathBuf]| -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    };
    let (paths, except) = (texts(&args.paths), texts(&args.except));
    let protected = texts(&args.allow_protected);
    let asked = Apply {
        selection: &selection,
        paths: &paths,
        except: &except,
        allow_protected: &protected,
        force: args.force,
    };
    let asking = Asking::by(None)?;
    let search = Desk::policy_of(&record);
    asking.desk(engine).enter(&asking.caller, (&record, &search), Action::Apply(&asked))?;
    let done = apply(&selection, &options)?;
    engine.record_applied(&record, selection.summary(), (protected, args.force))?;
    let applied =
        changes.entries().iter().filter(|change| done.applied.binary_search(&change.path).is_ok());
    let ranked = changes.ranked(applied);
    Ok(Taken { done, ranked })
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
