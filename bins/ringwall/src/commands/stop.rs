//! `ringwall stop`: ends living sandboxes.

use std::time::{Duration, Instant};

use ringwall_engine::{EngineConfig, Record, RecordKind, RecordState};

use super::{for_each, open_engine};
use crate::args::StopArgs;
use crate::daemon::{self, Asked};

/// The daemon gives no more.
const LONGEST_GRACE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn run(args: &StopArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    for_each(&args.sandboxes, |sandbox| {
        let record = engine.find(sandbox)?;
        if record.state == RecordState::Running && ended_by_daemon(&record, args.grace, true)? {
            return Ok(());
        }
        Ok(engine.stop(&record, args.grace)?)
    })
}

/// Has the daemon end the sandbox, if one is there and knows it: it hears of it at once then, and only
/// the daemon can end a sandbox in its own process.
pub(super) fn ended_by_daemon(
    record: &Record,
    grace: Duration,
    keep: bool,
) -> anyhow::Result<bool> {
    let home = EngineConfig::from_environment()?.home;
    if grace > LONGEST_GRACE && record.kind == RecordKind::Living {
        return Ok(false);
    }
    let grace = grace.min(LONGEST_GRACE);
    let until = Instant::now() + grace + PATIENCE;
    let mut ended = false;
    // A run is told to end, and does so in its own time.
    while record.is_held() && Instant::now() < until {
        if !ended {
            match daemon::end(&home, (record.id.as_str(), record.owner_pid), grace, keep)? {
                Asked::Ended => ended = true,
                Asked::NotYet => {}
                Asked::Unknown => return Ok(false),
            }
        }
        std::thread::sleep(PAUSE);
    }
    anyhow::ensure!(!record.is_held(), "sandbox {} is the daemon's and does not end", record.id);
    Ok(true)
}
