//! What a person did with grants and approvals, written into the audit log. These wait for the disk.

use ringwall_audit::{AuditLog, AuditPaths, Event, Id, Ids, Record};
use ringwall_engine::EngineConfig;

pub(crate) fn record(ids: Ids, event: Event) -> anyhow::Result<()> {
    write((ids, event))
}

pub(crate) fn write((ids, event): Record) -> anyhow::Result<()> {
    let home = EngineConfig::from_environment()?.home;
    AuditLog::open(AuditPaths::in_home(&home))?.append(ids, event)?;
    Ok(())
}

/// The ids of a grant, with its task where that is known.
pub(crate) fn grant_ids(grant: &impl ToString, task: &str) -> Ids {
    let ids = Ids::default().grant(Id::new(grant.to_string()));
    if task.is_empty() { ids } else { ids.task(Id::new(task)) }
}
