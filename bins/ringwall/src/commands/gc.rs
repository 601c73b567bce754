//! `ringwall gc`: removes what crashed runs left behind.

use super::open_engine;
use crate::report;

pub(super) fn run(json: bool) -> anyhow::Result<()> {
    let removed = open_engine()?.gc()?;
    if json {
        report::json(&removed)?;
        return Ok(());
    }
    report::text(format!(
        "removed {} sandboxes, {} control groups, {} leftovers of images\n",
        removed.sandboxes, removed.cgroups, removed.image_leftovers
    ))?;
    Ok(())
}
