//! `ringwall logs`: what the command of a sandbox has written.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use anyhow::Context;
use ringwall_engine::RecordState;

use super::open_engine;
use crate::args::LogsArgs;
use crate::report;

const POLL: Duration = Duration::from_millis(100);

pub(super) fn run(args: &LogsArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let mut record = engine.find(&args.sandbox)?;
    let path = record.log_path();
    let mut log = match File::open(&path) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => anyhow::bail!(
            "sandbox {} has no log: it was made without a command; give one to `ringwall create`",
            record.id
        ),
        Err(error) => return Err(error).context("the log cannot be opened"),
    };
    loop {
        // The state is read first: then all output from before the end is copied for sure.
        let ended = record.state != RecordState::Running;
        copy_rest(&mut log)?;
        if !args.follow || ended {
            return Ok(());
        }
        std::thread::sleep(POLL);
        match engine.find(record.id.as_str()) {
            Ok(now) => record = now,
            // Removed while we watched: that is an end, too.
            Err(_) => record.state = RecordState::Finished,
        }
    }
}

fn copy_rest(log: &mut File) -> anyhow::Result<()> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        match log.read(&mut chunk).context("the log cannot be read")? {
            0 => return Ok(()),
            length => report::text(&chunk[..length])?,
        }
    }
}
