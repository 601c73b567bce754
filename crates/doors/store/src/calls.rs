//! Commands and tools that were run: what began, and how it ended.

use crate::database::{Columns, Row, Tx};
use crate::events::{self, About};
use crate::{OwnTask, Store, StoreError, now_ms};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    Running,
    Ended,
    /// The daemon that had it under way is gone, and how it ended is not known.
    Lost,
}

impl CallState {
    pub fn word(self) -> &'static str {
        match self {
            CallState::Running => "running",
            CallState::Ended => "ended",
            CallState::Lost => "lost",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewCall<'a> {
    pub id: &'a str,
    pub tenant: &'a str,
    pub task: &'a str,
    pub sandbox: Option<&'a str>,
    /// `exec`, `run` or `tool`.
    pub kind: &'a str,
    /// For people: the words of a command, or the name of a tool.
    pub what: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRow {
    pub number: u64,
    pub id: String,
    pub tenant: String,
    pub task: String,
    pub sandbox: Option<String>,
    pub kind: String,
    pub what: String,
    pub state: CallState,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    /// JSON.
    pub result: Option<String>,
}

const COLUMNS: &str =
    "number, id, tenant, task, sandbox, kind, what, state, started_ms, ended_ms, result";

fn call(row: Row) -> Result<CallRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(CallRow {
        number: row.number()?,
        id: row.text()?,
        tenant: row.text()?,
        task: row.text()?,
        sandbox: row.optional_text()?,
        kind: row.text()?,
        what: row.text()?,
        state: match row.text()?.as_str() {
            "running" => CallState::Running,
            "ended" => CallState::Ended,
            _ => CallState::Lost,
        },
        started_ms: row.number()?,
        ended_ms: row.optional_number()?,
        result: row.optional_text()?,
    })
}

impl Store {
    pub fn begin_call(&self, new: &NewCall<'_>) -> Result<(), StoreError> {
        self.write(|tx| {
            tx.execute(
                "INSERT INTO calls
                 (id, tenant, task, sandbox, kind, what, engine, state, started_ms)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, 'running', $8)",
                &[
                    new.id.into(),
                    new.tenant.into(),
                    new.task.into(),
                    new.sandbox.into(),
                    new.kind.into(),
                    new.what.into(),
                    self.engine.as_str().into(),
                    now_ms().into(),
                ],
            )?;
            let about = About { tenant: new.tenant, sandbox: new.sandbox, call: Some(new.id) };
            events::append(tx, "call.started", &about, "{}")
        })
    }

    pub fn end_call(&self, new: &NewCall<'_>, result: &str) -> Result<(), StoreError> {
        self.write(|tx| {
            let ended = tx.execute(
                "UPDATE calls SET state = 'ended', ended_ms = $2, result = $3
                 WHERE id = $1 AND ended_ms IS NULL",
                &[new.id.into(), now_ms().into(), result.into()],
            )?;
            if ended == 0 {
                return Ok(());
            }
            let about = About { tenant: new.tenant, sandbox: new.sandbox, call: Some(new.id) };
            events::append(tx, "call.ended", &about, result)
        })
    }

    pub fn call(
        &self,
        whose: Option<OwnTask<'_>>,
        id: &str,
    ) -> Result<Option<CallRow>, StoreError> {
        let (condition, [tenant, task]) = crate::condition(whose);
        let rows = self.read(|tx| {
            tx.query(
                &format!("SELECT {COLUMNS} FROM calls WHERE {condition} AND id = $3"),
                &[tenant, task, id.into()],
            )
        })?;
        rows.into_iter().next().map(call).transpose()
    }

    /// A page of them, the newest first: those begun before number `before`. In one sandbox, or all.
    pub fn calls(
        &self,
        whose: Option<OwnTask<'_>>,
        sandbox: Option<&str>,
        before: Option<u64>,
        most: u32,
    ) -> Result<Vec<CallRow>, StoreError> {
        let before = before.map_or(i64::MAX, crate::signed);
        let (condition, [tenant, task]) = crate::condition(whose);
        let rows = self.read(|tx| {
            tx.query(
                &format!(
                    "SELECT {COLUMNS} FROM calls
                     WHERE {condition} AND number < $3 AND ($4 = '' OR sandbox = $4)
                     ORDER BY number DESC LIMIT $5"
                ),
                &[
                    tenant,
                    task,
                    before.into(),
                    sandbox.unwrap_or_default().into(),
                    i64::from(most).into(),
                ],
            )
        })?;
        rows.into_iter().map(call).collect()
    }
}

pub(crate) fn lose_all(tx: &mut dyn Tx, engine: &str) -> Result<(), StoreError> {
    let rows = tx.query(
        &format!("SELECT {COLUMNS} FROM calls WHERE engine = $1 AND ended_ms IS NULL"),
        &[engine.into()],
    )?;
    for row in rows {
        let row = call(row)?;
        tx.execute(
            "UPDATE calls SET state = 'lost', ended_ms = $2 WHERE id = $1",
            &[row.id.as_str().into(), now_ms().into()],
        )?;
        let about =
            About { tenant: &row.tenant, sandbox: row.sandbox.as_deref(), call: Some(&row.id) };
        events::append(tx, "call.lost", &about, "{}")?;
    }
    Ok(())
}
