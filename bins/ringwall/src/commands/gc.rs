//! `ringwall gc`: removes what crashed runs left behind, and compiled code of tools that are gone.

use serde::Serialize;

use super::{open_engine, tool};
use crate::report;

#[derive(Serialize)]
struct Removed {
    #[serde(flatten)]
    left_behind: ringwall_engine::GcReport,
    /// Tools that are gone, whose compiled code was still there.
    compiled_tools: u64,
}

pub(super) fn run(json: bool) -> anyhow::Result<()> {
    let left_behind = open_engine()?.gc()?;
    let removed = Removed { left_behind, compiled_tools: tool::forget_gone()? };
    if json {
        report::json(&removed)?;
        return Ok(());
    }
    report::text(format!(
        "removed {} sandboxes, {} control groups, {} leftovers of images, {} guest templates, {} unfinished snapshots, {} compiled tools\n",
        left_behind.sandboxes,
        left_behind.cgroups,
        left_behind.image_leftovers,
        left_behind.templates,
        left_behind.snapshots,
        removed.compiled_tools
    ))?;
    Ok(())
}
