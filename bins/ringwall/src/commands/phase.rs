//! `ringwall phase`: the phase that a living sandbox is in.

use ringwall_desk::{Action, Desk};

use super::open_engine;
use crate::args::PhaseArgs;
use crate::granted::Asking;
use crate::report;

pub(super) fn run(args: &PhaseArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    let Some(to) = &args.phase else {
        let phase = engine.phase(&record);
        return Ok(report::text(format!("{}\n", phase.as_deref().unwrap_or("none")))?);
    };
    let asking = Asking::by(args.grant.as_deref())?;
    let search = Desk::policy_of(&record);
    asking.desk(&engine).enter(&asking.caller, (&record, &search), Action::Phase(to))?;
    Ok(())
}

/// Who asks, for the record.
pub(super) fn user() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}
