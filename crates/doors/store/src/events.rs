//! What happened, numbered, for those who follow it.

use crate::database::{Columns, Tx};
use crate::{OwnTask, Store, StoreError, now_ms};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Grows with every event; where a follower goes on from.
    pub number: u64,
    pub tenant: String,
    pub time_ms: u64,
    /// `sandbox.created`, `call.ended` and so on.
    pub kind: String,
    pub sandbox: Option<String>,
    pub call: Option<String>,
    /// JSON.
    pub detail: String,
}

/// What an event is about.
pub(crate) struct About<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) sandbox: Option<&'a str>,
    pub(crate) call: Option<&'a str>,
}

pub(crate) fn append(
    tx: &mut dyn Tx,
    kind: &str,
    about: &About<'_>,
    detail: &str,
) -> Result<(), StoreError> {
    tx.execute(
        "INSERT INTO events (tenant, time_ms, kind, sandbox, call, detail)
         VALUES ($1, $2, $3, $4, $5, $6)",
        &[
            about.tenant.into(),
            now_ms().into(),
            kind.into(),
            about.sandbox.into(),
            about.call.into(),
            detail.into(),
        ],
    )?;
    Ok(())
}

const COLUMNS: &str = "number, tenant, time_ms, kind, sandbox, call, detail";

/// The task of an event is that of its call, or of its sandbox where it is about no call.
const TASK: &str = "COALESCE((SELECT task FROM calls WHERE calls.id = events.call),
                             (SELECT task FROM sandboxes WHERE sandboxes.id = events.sandbox))";

impl Store {
    /// What came after `number`, oldest first. Of one task, or of all.
    pub fn events_after(
        &self,
        whose: Option<OwnTask<'_>>,
        number: u64,
        most: u32,
    ) -> Result<Vec<EventRow>, StoreError> {
        let rows = self.read(|tx| match whose {
            Some(OwnTask { tenant, task }) => tx.query(
                &format!(
                    "SELECT {COLUMNS} FROM events WHERE tenant = $1 AND {TASK} = $2 AND number > $3
                     ORDER BY number LIMIT $4"
                ),
                &[tenant.into(), task.into(), number.into(), i64::from(most).into()],
            ),
            None => tx.query(
                &format!("SELECT {COLUMNS} FROM events WHERE number > $1 ORDER BY number LIMIT $2"),
                &[number.into(), i64::from(most).into()],
            ),
        })?;
        rows.into_iter()
            .map(|row| {
                let mut row = Columns::of(row);
                Ok(EventRow {
                    number: row.number()?,
                    tenant: row.text()?,
                    time_ms: row.number()?,
                    kind: row.text()?,
                    sandbox: row.optional_text()?,
                    call: row.optional_text()?,
                    detail: row.text()?,
                })
            })
            .collect()
    }

    /// The number of the last event there is.
    pub fn last_event(&self) -> Result<u64, StoreError> {
        let rows = self.read(|tx| tx.query("SELECT COALESCE(MAX(number), 0) FROM events", &[]))?;
        rows.into_iter().next().map_or(Ok(0), |row| Columns::of(row).number())
    }
}
