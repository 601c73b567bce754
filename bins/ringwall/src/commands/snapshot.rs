//! `ringwall snapshot`, `restore` and `fork`: living microVMs with their memory.

use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_engine::Record;

use super::{for_each, open_engine};
use crate::args::{ForkArgs, RestoreArgs, SnapshotArgs, SnapshotVerb};
use crate::report::{self, Table, age};

pub(super) fn run(args: &SnapshotArgs) -> anyhow::Result<()> {
    match &args.verb {
        Some(SnapshotVerb::Ls(output)) => list(output.json()),
        Some(SnapshotVerb::Rm { snapshots }) => {
            let engine = open_engine()?;
            for_each(snapshots, |snapshot| Ok(engine.remove_snapshot(snapshot)?))
        }
        None => take(args),
    }
}

fn take(args: &SnapshotArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(args.sandbox.as_deref().unwrap_or_default())?;
    let snapshot = engine.snapshot(&record, args.name.as_ref())?;
    if args.output.json() {
        report::json(&snapshot)?;
    } else {
        report::text(format!("{}\n", snapshot.id))?;
    }
    Ok(())
}

fn list(json: bool) -> anyhow::Result<()> {
    let mut snapshots = open_engine()?.snapshots()?;
    snapshots.reverse();
    if json {
        report::json(&snapshots)?;
        return Ok(());
    }
    let mut table = Table::new(["ID", "NAME", "OF", "IMAGE", "AGE"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    for snapshot in &snapshots {
        table.row([
            snapshot.id.as_str(),
            snapshot.name.as_ref().map_or("-", |name| name.as_str()),
            snapshot.of.as_str(),
            snapshot.spec.image.as_deref().unwrap_or("-"),
            &age(now.saturating_sub(snapshot.created_unix_ms)),
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

pub(super) fn restore(args: RestoreArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let snapshot = engine.find_snapshot(&args.snapshot)?;
    show(&[ringwall_desk::restore(&engine, &snapshot, args.name)?], args.output.json())
}

pub(super) fn fork(args: &ForkArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    show(&ringwall_desk::fork(&engine, &record, args.count)?, args.output.json())
}

fn show(made: &[Record], json: bool) -> anyhow::Result<()> {
    if json {
        report::json(&made)?;
    } else {
        let lines: String = made.iter().map(|record| format!("{}\n", record.id)).collect();
        report::text(lines)?;
    }
    Ok(())
}
