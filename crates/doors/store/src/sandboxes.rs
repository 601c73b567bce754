//! Sandboxes that were made for somebody: whose they are, and how they ended.

use crate::database::{Columns, Row, Tx};
use crate::events::{self, About};
use crate::{OwnTask, Store, StoreError, now_ms};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxState {
    Running,
    Ended,
}

impl SandboxState {
    pub fn word(self) -> &'static str {
        match self {
            SandboxState::Running => "running",
            SandboxState::Ended => "ended",
        }
    }
}

/// A sandbox that has just been made.
#[derive(Debug, Clone, Copy)]
pub struct NewSandbox<'a> {
    pub id: &'a str,
    pub tenant: &'a str,
    pub task: &'a str,
    /// The tenant's own name for it; taken until the sandbox has ended.
    pub name: Option<&'a str>,
    /// JSON.
    pub spec: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRow {
    /// Grows with every sandbox; where the next page begins.
    pub number: u64,
    pub id: String,
    pub tenant: String,
    pub task: String,
    pub name: Option<String>,
    pub state: SandboxState,
    pub spec: String,
    pub created_ms: u64,
    pub ended_ms: Option<u64>,
    /// JSON.
    pub outcome: Option<String>,
}

const COLUMNS: &str = "number, id, tenant, task, name, state, spec, created_ms, ended_ms, outcome";

fn sandbox(row: Row) -> Result<SandboxRow, StoreError> {
    let mut row = Columns::of(row);
    Ok(SandboxRow {
        number: row.number()?,
        id: row.text()?,
        tenant: row.text()?,
        task: row.text()?,
        name: row.optional_text()?,
        state: match row.text()?.as_str() {
            "running" => SandboxState::Running,
            _ => SandboxState::Ended,
        },
        spec: row.text()?,
        created_ms: row.number()?,
        ended_ms: row.optional_number()?,
        outcome: row.optional_text()?,
    })
}

impl Store {
    pub fn add_sandbox(&self, new: &NewSandbox<'_>) -> Result<(), StoreError> {
        self.write(|tx| {
            let added = tx.execute(
                "INSERT INTO sandboxes (id, tenant, task, name, engine, state, spec, created_ms)
                 VALUES ($1, $2, $3, $4, $5, 'running', $6, $7) ON CONFLICT DO NOTHING",
                &[
                    new.id.into(),
                    new.tenant.into(),
                    new.task.into(),
                    new.name.into(),
                    self.engine.as_str().into(),
                    new.spec.into(),
                    now_ms().into(),
                ],
            )?;
            if added == 0 {
                return Err(StoreError::NameTaken(new.name.unwrap_or(new.id).to_owned()));
            }
            let about = About { tenant: new.tenant, sandbox: Some(new.id), call: None };
            events::append(tx, "sandbox.created", &about, new.spec)
        })
    }

    /// False if it had ended before, or is not known.
    pub fn end_sandbox(&self, id: &str, outcome: &str) -> Result<bool, StoreError> {
        self.write(|tx| {
            let Some(row) = find(tx, id)? else { return Ok(false) };
            let ended = tx.execute(
                "UPDATE sandboxes SET state = 'ended', ended_ms = $2, outcome = $3
                 WHERE id = $1 AND ended_ms IS NULL",
                &[id.into(), now_ms().into(), outcome.into()],
            )?;
            if ended == 0 {
                return Ok(false);
            }
            let about = About { tenant: &row.tenant, sandbox: Some(id), call: None };
            events::append(tx, "sandbox.ended", &about, outcome)?;
            Ok(true)
        })
    }

    /// By its whole id, whoever has it; for the engine itself.
    pub fn any_sandbox(&self, id: &str) -> Result<Option<SandboxRow>, StoreError> {
        self.read(|tx| find(tx, id))
    }

    /// By a tenant's whole id of it, or else by the tenant's name for it while it runs. What is named by one
    /// tenant is not found by another, whoever asks.
    pub fn sandbox(&self, tenant: &str, id: &str) -> Result<Option<SandboxRow>, StoreError> {
        let rows = self.read(|tx| {
            tx.query(
                &format!(
                    "SELECT {COLUMNS} FROM sandboxes
                     WHERE tenant = $1 AND (id = $2 OR (name = $2 AND ended_ms IS NULL))
                     ORDER BY CASE WHEN id = $2 THEN 0 ELSE 1 END, number DESC LIMIT 1"
                ),
                &[tenant.into(), id.into()],
            )
        })?;
        rows.into_iter().next().map(sandbox).transpose()
    }

    /// A page of those of a task, or of all, the newest first: those made before number `before`.
    pub fn sandboxes(
        &self,
        whose: Option<OwnTask<'_>>,
        state: Option<SandboxState>,
        before: Option<u64>,
        most: u32,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let before = before.map_or(i64::MAX, crate::signed);
        let state = state.map_or("", SandboxState::word);
        let (condition, [tenant, task]) = crate::condition(whose);
        let rows = self.read(|tx| {
            tx.query(
                &format!(
                    "SELECT {COLUMNS} FROM sandboxes
                     WHERE {condition} AND number < $3 AND ($4 = '' OR state = $4)
                     ORDER BY number DESC LIMIT $5"
                ),
                &[tenant, task, before.into(), state.into(), i64::from(most).into()],
            )
        })?;
        rows.into_iter().map(sandbox).collect()
    }

    /// This engine's sandboxes that have not ended as far as is known.
    pub fn living(&self) -> Result<Vec<SandboxRow>, StoreError> {
        let rows = self.read(|tx| {
            tx.query(
                &format!(
                    "SELECT {COLUMNS} FROM sandboxes WHERE engine = $1 AND ended_ms IS NULL
                     ORDER BY number"
                ),
                &[self.engine.as_str().into()],
            )
        })?;
        rows.into_iter().map(sandbox).collect()
    }

    /// The ids of all that a task ever had here, as far as is remembered.
    pub fn ids_of_task(&self, whose: OwnTask<'_>) -> Result<Vec<String>, StoreError> {
        let (condition, [tenant, task]) = crate::condition(Some(whose));
        let query = format!("SELECT id FROM sandboxes WHERE {condition}");
        let rows = self.read(|tx| tx.query(&query, &[tenant, task]))?;
        rows.into_iter().map(|row| Columns::of(row).text()).collect()
    }
}

fn find(tx: &mut dyn Tx, id: &str) -> Result<Option<SandboxRow>, StoreError> {
    let rows = tx.query(&format!("SELECT {COLUMNS} FROM sandboxes WHERE id = $1"), &[id.into()])?;
    rows.into_iter().next().map(sandbox).transpose()
}
