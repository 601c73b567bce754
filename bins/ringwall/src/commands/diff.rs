//! `ringwall diff`: what a sandbox changed in its workspace.
//!
//! To a terminal goes a list of what changed, then the contents, escaped and coloured. A pipe gets
//! a plain patch that `git apply` understands.

use std::io::{self, BufWriter, IsTerminal, Write};

use ringwall_workspace::{After, Before, Change, Changes, Contents, DiffOptions, quoted};

use super::open_engine;
use crate::args::DiffArgs;
use crate::report::{self, ColouredDiff, CountedDiff};
use crate::terminal::wants_colour;

pub(super) fn run(args: &DiffArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let changes = engine.changes(&engine.find(&args.sandbox)?)?;
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout.lock());
    if args.name_only {
        write_names(&changes, &mut out)?;
    } else if args.stat {
        write_counts(&changes, &mut out)?;
    } else if is_terminal {
        changes.write_status(&mut out)?;
        writeln!(out)?;
        let options = DiffOptions { contents: Contents::Terminal, ..DiffOptions::default() };
        if wants_colour(&io::stdout()) {
            changes.write_diff(&changes.workspace(), &options, &mut ColouredDiff::new(&mut out))?;
        } else {
            changes.write_diff(&changes.workspace(), &options, &mut out)?;
        }
    } else {
        let options = DiffOptions { contents: Contents::Plain, ..DiffOptions::default() };
        changes.write_diff(&changes.workspace(), &options, &mut out)?;
    }
    out.flush()?;
    if !is_terminal || args.name_only || args.stat {
        say_what_is_missing(&changes);
    }
    Ok(())
}

/// A patch has no place for paths that are never taken over, nor for the nature of a change.
fn say_what_is_missing(changes: &Changes) {
    for refused in changes.refused() {
        let path = quoted(refused.path.as_path());
        report::note(&format!("{path}: {}", refused.why.words()));
    }
    let ranked = changes.ranked(changes.entries());
    if !ranked.is_empty() {
        report::note(&format!("not plain: {ranked}"));
    }
}

fn write_names(changes: &Changes, out: &mut impl Write) -> io::Result<()> {
    for change in changes.entries().iter().filter(|change| !is_directory(change)) {
        writeln!(out, "{}", quoted(change.path.as_path()))?;
    }
    Ok(())
}

fn write_counts(changes: &Changes, out: &mut impl Write) -> anyhow::Result<()> {
    let (mut files, mut added, mut removed) = (0u64, 0u64, 0u64);
    let options = DiffOptions { contents: Contents::Plain, ..DiffOptions::default() };
    let differ = changes.differ(&changes.workspace(), &options)?;
    for change in changes.entries().iter().filter(|change| !is_directory(change)) {
        let mut counted = CountedDiff::default();
        differ.write(change, &mut counted)?;
        let path = quoted(change.path.as_path());
        writeln!(out, "{:>7} {:>7}  {path}", plus(counted.added), minus(counted.removed))?;
        files += 1;
        added += counted.added;
        removed += counted.removed;
    }
    writeln!(out, "{files} files, {added} lines added, {removed} removed")?;
    Ok(())
}

fn plus(count: u64) -> String {
    format!("+{count}")
}

fn minus(count: u64) -> String {
    format!("-{count}")
}

/// Directories show by the files in them.
fn is_directory(change: &Change) -> bool {
    let before = matches!(change.before, None | Some(Before::Directory { .. }));
    let after = matches!(change.after, None | Some(After::Directory { .. }));
    before && after
}
