//! `ringwall stop`: ends living sandboxes.

use super::{for_each, open_engine};
use crate::args::StopArgs;

pub(super) fn run(args: &StopArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    for_each(&args.sandboxes, |sandbox| {
        let record = engine.find(sandbox)?;
        Ok(engine.stop(&record, args.grace)?)
    })
}
