//! PostgreSQL: a server that several engines share.
//!
//! Only over a socket of this machine or loopback: the connection is not encrypted.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use postgres::config::Host;
use postgres::types::ToSql;
use postgres::{Client, Config, IsolationLevel, NoTls, Statement};

use crate::StoreError;
use crate::database::{Database, Row, Tx, Value, Work};

/// Connections that wait for the next transaction.
const MOST_IDLE: usize = 8;
/// What all writers wait for, so that events are numbered in the order in which they are seen.
const WRITER_LOCK: i64 = 0x7269_6e67;

#[derive(Debug)]
pub(crate) struct Postgresql {
    config: Config,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    client: Client,
    /// What was prepared on it, by its text.
    prepared: Vec<(String, Statement)>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Postgresql {
    pub(crate) fn open(settings: &str) -> Result<Postgresql, StoreError> {
        let wrong = |source: postgres::Error| StoreError::Open {
            // The settings may hold a password.
            place: "PostgreSQL".to_owned(),
            source: source.into(),
        };
        let mut config: Config = settings.parse().map_err(wrong)?;
        for host in config.get_hosts() {
            if let Host::Tcp(name) = host
                && !is_loopback(name)
            {
                return Err(StoreError::NotLocal(name.clone()));
            }
        }
        if config.get_hostaddrs().iter().any(|address| !address.is_loopback()) {
            return Err(StoreError::NotLocal("hostaddr".to_owned()));
        }
        config.application_name("ringwall");
        let client = config.connect(NoTls).map_err(wrong)?;
        let first = Connection { client, prepared: Vec::new() };
        Ok(Postgresql { config, idle: Mutex::new(vec![first]) })
    }

    fn run(&self, level: IsolationLevel, work: &mut Work<'_>) -> Result<(), StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle.filter(|connection| !connection.client.is_closed()) {
            Some(connection) => connection,
            None => {
                let client = self.config.connect(NoTls).map_err(used)?;
                Connection { client, prepared: Vec::new() }
            }
        };
        let Connection { client, prepared } = &mut connection;
        let writes = matches!(level, IsolationLevel::ReadCommitted);
        let builder = client.build_transaction().isolation_level(level);
        let mut transaction = builder.start().map_err(used)?;
        if writes {
            transaction
                .execute("SELECT pg_advisory_xact_lock($1)", &[&WRITER_LOCK])
                .map_err(used)?;
        }
        work(&mut PostgresqlTx { transaction: &mut transaction, prepared })?;
        transaction.commit().map_err(used)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
        Ok(())
    }
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Database for Postgresql {
    fn write(&self, work: &mut Work<'_>) -> Result<(), StoreError> {
        self.run(IsolationLevel::ReadCommitted, work)
    }

    fn read(&self, work: &mut Work<'_>) -> Result<(), StoreError> {
        self.run(IsolationLevel::RepeatableRead, work)
    }

    fn numbering(&self) -> &'static str {
        "BIGSERIAL PRIMARY KEY"
    }

    fn place(&self) -> String {
        "PostgreSQL".to_owned()
    }
}

struct PostgresqlTx<'a, 'b> {
    transaction: &'a mut postgres::Transaction<'b>,
    prepared: &'a mut Vec<(String, Statement)>,
}

impl PostgresqlTx<'_, '_> {
    fn statement(&mut self, text: &str) -> Result<Statement, StoreError> {
        if let Some((_, statement)) = self.prepared.iter().find(|(known, _)| known == text) {
            return Ok(statement.clone());
        }
        let statement = self.transaction.prepare(text).map_err(used)?;
        self.prepared.push((text.to_owned(), statement.clone()));
        Ok(statement)
    }
}

impl Tx for PostgresqlTx<'_, '_> {
    fn execute(&mut self, statement: &str, parameters: &[Value]) -> Result<u64, StoreError> {
        let statement = self.statement(statement)?;
        let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|it| it as _).collect();
        self.transaction.execute(&statement, &parameters).map_err(used)
    }

    fn query(&mut self, statement: &str, parameters: &[Value]) -> Result<Vec<Row>, StoreError> {
        let statement = self.statement(statement)?;
        let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|it| it as _).collect();
        let rows = self.transaction.query(&statement, &parameters).map_err(used)?;
        rows.iter().map(values).collect()
    }
}

fn values(row: &postgres::Row) -> Result<Row, StoreError> {
    let columns = row.columns().iter().enumerate();
    columns
        .map(|(index, column)| match column.type_().name() {
            "int8" => {
                let number: Option<i64> = row.try_get(index).map_err(used)?;
                Ok(number.map_or(Value::Null, Value::Number))
            }
            "text" => {
                let text: Option<String> = row.try_get(index).map_err(used)?;
                Ok(text.map_or(Value::Null, Value::Text))
            }
            _ => Err(StoreError::Damaged("a column of another type")),
        })
        .collect()
}

fn used(error: postgres::Error) -> StoreError {
    StoreError::Use(error.into())
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &postgres::types::Type,
        out: &mut postgres::types::private::BytesMut,
    ) -> Result<postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(postgres::types::IsNull::Yes),
            Value::Number(number) => number.to_sql(kind, out),
            Value::Text(text) => text.to_sql(kind, out),
        }
    }

    fn accepts(kind: &postgres::types::Type) -> bool {
        <i64 as ToSql>::accepts(kind) || <String as ToSql>::accepts(kind)
    }

    postgres::types::to_sql_checked!();
}
