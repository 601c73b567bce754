//! `ringwall rm`: removes what ended sandboxes have left: record, log and kept changes.

use std::time::Duration;

use ringwall_engine::RecordState;

use super::stop::ended_by_daemon;
use super::{for_each, open_engine};
use crate::args::RmArgs;

/// With `--force` the command does not wait for processes that do not end.
const GRACE: Duration = Duration::ZERO;

pub(super) fn run(args: &RmArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    for_each(&args.sandboxes, |sandbox| {
        let mut record = engine.find(sandbox)?;
        if record.state == RecordState::Running {
            anyhow::ensure!(
                args.force,
                "sandbox {} is running; stop it first or use rm --force",
                record.id
            );
            if !ended_by_daemon(&record, GRACE, true)? {
                engine.stop(&record, GRACE)?;
            }
            // A sandbox without anything to keep is gone once it has stopped.
            match engine.find(record.id.as_str()) {
                Ok(stopped) => record = stopped,
                Err(_) => return Ok(()),
            }
        }
        Ok(engine.remove(&record)?)
    })
}
