//! The tables, and how older ones become these.

use crate::StoreError;
use crate::database::{Columns, Database, Tx};

/// Each entry turns the version of its place into the next. Never changed once released.
const VERSIONS: [&[&str]; 2] = [FIRST, IN_MILLISECONDS];

/// Time was counted in seconds before, rounded up for each call.
const IN_MILLISECONDS: &[&str] = &[
    "UPDATE spent SET amount = amount * 1000 WHERE dimension LIKE '%seconds'",
    "UPDATE reserved SET amount = amount * 1000 WHERE dimension LIKE '%seconds'",
];

const FIRST: &[&str] = &[
    "CREATE TABLE sandboxes (
        number {numbering},
        id TEXT NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        task TEXT NOT NULL,
        name TEXT,
        engine TEXT NOT NULL,
        state TEXT NOT NULL,
        spec TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        ended_ms BIGINT,
        outcome TEXT
    )",
    "CREATE UNIQUE INDEX sandbox_names ON sandboxes (tenant, name) WHERE ended_ms IS NULL",
    "CREATE INDEX sandboxes_of_tenant ON sandboxes (tenant, number)",
    "CREATE INDEX sandboxes_alive ON sandboxes (engine) WHERE ended_ms IS NULL",
    "CREATE TABLE calls (
        number {numbering},
        id TEXT NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        task TEXT NOT NULL,
        sandbox TEXT,
        kind TEXT NOT NULL,
        what TEXT NOT NULL,
        engine TEXT NOT NULL,
        state TEXT NOT NULL,
        started_ms BIGINT NOT NULL,
        ended_ms BIGINT,
        result TEXT
    )",
    "CREATE INDEX calls_of_tenant ON calls (tenant, number)",
    "CREATE INDEX calls_under_way ON calls (engine) WHERE ended_ms IS NULL",
    "CREATE INDEX calls_by_end ON calls (ended_ms)",
    "CREATE TABLE events (
        number {numbering},
        tenant TEXT NOT NULL,
        time_ms BIGINT NOT NULL,
        kind TEXT NOT NULL,
        sandbox TEXT,
        call TEXT,
        detail TEXT NOT NULL
    )",
    "CREATE INDEX events_of_tenant ON events (tenant, number)",
    "CREATE TABLE replies (
        tenant TEXT NOT NULL,
        key TEXT NOT NULL,
        request TEXT NOT NULL,
        engine TEXT NOT NULL,
        state TEXT NOT NULL,
        made_ms BIGINT NOT NULL,
        status BIGINT,
        body TEXT,
        PRIMARY KEY (tenant, key)
    )",
    "CREATE TABLE spent (
        scope TEXT NOT NULL,
        dimension TEXT NOT NULL,
        amount BIGINT NOT NULL,
        PRIMARY KEY (scope, dimension)
    )",
    "CREATE TABLE reserved (
        reservation TEXT NOT NULL,
        scope TEXT NOT NULL,
        dimension TEXT NOT NULL,
        amount BIGINT NOT NULL,
        engine TEXT NOT NULL,
        PRIMARY KEY (reservation, scope, dimension)
    )",
    "CREATE INDEX reserved_of_scope ON reserved (scope, dimension)",
];

pub(crate) fn bring_up_to_date(database: &dyn Database) -> Result<(), StoreError> {
    let known = i64::try_from(VERSIONS.len()).unwrap_or(i64::MAX);
    database.write(&mut |tx| {
        tx.execute("CREATE TABLE IF NOT EXISTS version (number BIGINT NOT NULL)", &[])?;
        let found = version(tx)?;
        if found > known {
            return Err(StoreError::Newer { place: database.place(), found, known });
        }
        let missing = VERSIONS.iter().skip(usize::try_from(found).unwrap_or(0));
        for statement in missing.flat_map(|version| version.iter()) {
            tx.execute(&statement.replace("{numbering}", database.numbering()), &[])?;
        }
        if found < known {
            tx.execute("DELETE FROM version", &[])?;
            tx.execute("INSERT INTO version VALUES ($1)", &[known.into()])?;
        }
        Ok(())
    })
}

fn version(tx: &mut dyn Tx) -> Result<i64, StoreError> {
    let rows = tx.query("SELECT number FROM version", &[])?;
    let Some(row) = rows.into_iter().next() else {
        return Ok(0);
    };
    Ok(crate::signed(Columns::of(row).number()?))
}
