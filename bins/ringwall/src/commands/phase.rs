//! `ringwall phase`: the phase that a living sandbox is in.

use ringwall_engine::PolicySearch;

use super::open_engine;
use crate::args::PhaseArgs;
use crate::granted::{self, Presented};
use crate::report;

pub(super) fn run(args: &PhaseArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    let Some(to) = &args.phase else {
        let phase = engine.phase(&record);
        return Ok(report::text(format!("{}\n", phase.as_deref().unwrap_or("none")))?);
    };
    let workspace = record.workspace.as_ref().map(|workspace| workspace.path.clone());
    let search = PolicySearch::from_environment(workspace);
    match &args.grant {
        Some(file) => {
            let grant = Presented::open(file, "phase")?;
            granted::change_phase(&engine, (&grant, &record), to, &search)
        }
        None => Ok(engine.change_phase(&record, (to, &user()), (&search, None))?),
    }
}

/// Who asks, for the record.
pub(super) fn user() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}
