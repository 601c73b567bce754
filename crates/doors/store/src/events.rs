//! What happened, numbered, for those who follow it.

use crate::database::{Columns, Tx};
use crate::{Store, StoreError, now_ms};

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

impl Store {
    /// What came after `number`, oldest first. Of one tenant, or of all.
    pub fn events_after(
        &self,
        tenant: Option<&str>,
        number: u64,
        most: u32,
    ) -> Result<Vec<EventRow>, StoreError> {
        let rows = self.read(|tx| match tenant {
            Some(tenant) => tx.query(
                &format!(
                    "SELECT {COLUMNS} FROM events WHERE tenant = $1 AND number > $2
                     ORDER BY number LIMIT $3"
                ),
                &[tenant.into(), number.into(), i64::from(most).into()],
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
