//! The little that both databases must do: transactions of statements with numbered parameters.

use std::fmt::Debug;

use crate::StoreError;

/// A value of a column or parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Number(i64),
    Text(String),
}

pub(crate) type Row = Vec<Value>;

/// What one transaction asks for; it counts only if that gives no error.
pub(crate) type Work<'a> = dyn FnMut(&mut dyn Tx) -> Result<(), StoreError> + 'a;

pub(crate) trait Database: Debug + Send + Sync {
    /// All or nothing, one at a time, and there for good when this returns.
    fn write(&self, work: &mut Work<'_>) -> Result<(), StoreError>;

    fn read(&self, work: &mut Work<'_>) -> Result<(), StoreError>;

    /// What a column is called that numbers its rows in the order of their transactions.
    fn numbering(&self) -> &'static str;

    /// Where it is, for messages; never with a password.
    fn place(&self) -> String;
}

/// Parameters are `$1`, `$2` and so on.
pub(crate) trait Tx {
    /// How many rows were concerned.
    fn execute(&mut self, statement: &str, parameters: &[Value]) -> Result<u64, StoreError>;

    fn query(&mut self, statement: &str, parameters: &[Value]) -> Result<Vec<Row>, StoreError>;
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(crate::signed(number))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Value {
        text.map_or(Value::Null, Value::from)
    }
}

/// The columns of a row, one after the other.
pub(crate) struct Columns(std::vec::IntoIter<Value>);

impl Columns {
    pub(crate) fn of(row: Row) -> Columns {
        Columns(row.into_iter())
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.optional_text()?.ok_or(StoreError::Damaged("no text where there must be one"))
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            _ => Err(StoreError::Damaged("a column that is no text")),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        self.optional_number()?.ok_or(StoreError::Damaged("no number where there must be one"))
    }

    pub(crate) fn optional_number(&mut self) -> Result<Option<u64>, StoreError> {
        match self.0.next() {
            Some(Value::Number(number)) => Ok(Some(crate::unsigned(number))),
            Some(Value::Null) => Ok(None),
            _ => Err(StoreError::Damaged("a column that is no number")),
        }
    }
}
