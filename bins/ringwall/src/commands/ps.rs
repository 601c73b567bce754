//! `ringwall ps`: the sandboxes there are.

use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_engine::{Record, RecordState};
use serde::Serialize;

use super::open_engine;
use crate::args::PsArgs;
use crate::report::{self, Table, age};

/// A record as `-o json` shows it: the state is found out anew each time, so records on disk do
/// not carry it.
#[derive(Serialize)]
struct Listed<'a> {
    state: &'static str,
    #[serde(flatten)]
    record: &'a Record,
}

pub(super) fn run(args: &PsArgs) -> anyhow::Result<()> {
    let mut records = open_engine()?.records()?;
    records.retain(|record| args.all || record.state == RecordState::Running);
    records.sort_by_key(|record| std::cmp::Reverse(record.created_unix_ms));
    if args.output.json() {
        let listed: Vec<_> =
            records.iter().map(|record| Listed { state: state(record), record }).collect();
        report::json(&listed)?;
        return Ok(());
    }
    let mut table = Table::new(["ID", "NAME", "WALL", "IMAGE", "STATE", "AGE", "COMMAND"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    for record in &records {
        table.row([
            record.id.as_str(),
            record.name.as_ref().map_or("-", |name| name.as_str()),
            &record.wall.to_string(),
            record.image.as_deref().unwrap_or("-"),
            state(record),
            &age(now.saturating_sub(record.created_unix_ms)),
            &shorten(&record.command.join(" ")),
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

fn state(record: &Record) -> &'static str {
    match record.state {
        RecordState::Running => "running",
        RecordState::Finished => "finished",
        RecordState::Abandoned => "abandoned",
    }
}

/// Commands can be as long as a script; a list shows how they begin.
fn shorten(command: &str) -> String {
    const MOST: usize = 60;
    match command.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &command[..end]),
        None if command.is_empty() => "-".to_owned(),
        None => command.to_owned(),
    }
}
