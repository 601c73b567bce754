//! What can be done to a table, one step after the other.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use ringwall_tool_sdk::Failure;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::source::{Source, unique};
use crate::{Table, group, value};

/// The most rows that a join may give.
const MAX_JOINED_ROWS: usize = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    Select(Vec<String>),
    Drop(Vec<String>),
    Rename(Map<String, Value>),
    Filter(Filter),
    Sort(Vec<SortBy>),
    Group(group::Group),
    Join(Box<Join>),
    Distinct(Vec<String>),
    Skip(usize),
    Limit(usize),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    column: String,
    op: Operator,
    #[serde(default)]
    value: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operator {
    #[serde(rename = "=")]
    Equal,
    #[serde(rename = "!=")]
    NotEqual,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    AtLeast,
    Contains,
    StartsWith,
    EndsWith,
    In,
    Empty,
    NotEmpty,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SortBy {
    column: String,
    #[serde(default)]
    descending: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Join {
    with: Source,
    on: Vec<String>,
    /// The other table's names for `on`, where they differ.
    #[serde(default)]
    other_on: Vec<String>,
    #[serde(default)]
    kind: JoinKind,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JoinKind {
    #[default]
    Inner,
    /// Keeps rows without a partner.
    Left,
    /// Keeps only rows without a partner.
    Anti,
}

impl Step {
    pub(crate) fn apply(self, mut table: Table, root: &Path) -> Result<Table, Failure> {
        match self {
            Self::Select(names) => {
                unique(&names)?;
                let indexes = table.columns(&names)?;
                for row in &mut table.rows {
                    *row = indexes.iter().map(|index| row[*index].take()).collect();
                }
                table.columns = names;
            }
            Self::Drop(names) => {
                table.columns(&names)?;
                let rest = table.columns.iter().filter(|column| !names.contains(column));
                let rest = rest.cloned().collect();
                return Self::Select(rest).apply(table, root);
            }
            Self::Rename(names) => {
                for (old, new) in names {
                    let index = table.column(&old)?;
                    let Value::String(new) = new else {
                        return Err(Failure::bad_input("a new name must be a text"));
                    };
                    table.columns[index] = new;
                }
                unique(&table.columns)?;
            }
            Self::Filter(filter) => {
                let index = table.column(&filter.column)?;
                filter.check()?;
                table.rows.retain(|row| filter.keeps(&row[index]));
            }
            Self::Sort(order) => sort(&mut table, &order)?,
            Self::Group(group) => return group.apply(&table),
            Self::Join(join) => return join.apply(table, root),
            Self::Distinct(names) => {
                let names = if names.is_empty() { table.columns.clone() } else { names };
                let indexes = table.columns(&names)?;
                let mut seen = HashSet::new();
                table.rows.retain(|row| seen.insert(value::key(cells(row, &indexes))));
            }
            Self::Skip(count) => {
                table.rows.drain(..count.min(table.rows.len()));
            }
            Self::Limit(count) => table.rows.truncate(count),
        }
        Ok(table)
    }
}

/// The cells of a row at these places.
pub(crate) fn cells(row: &[Value], indexes: &[usize]) -> impl Iterator<Item = Value> {
    indexes.iter().map(|index| row[*index].clone())
}

fn sort(table: &mut Table, order: &[SortBy]) -> Result<(), Failure> {
    let mut by = Vec::new();
    for SortBy { column, descending } in order {
        by.push((table.column(column)?, *descending));
    }
    table.rows.sort_by(|a, b| {
        let each = by.iter().map(|(index, descending)| {
            let order = value::compare(&a[*index], &b[*index]);
            if *descending { order.reverse() } else { order }
        });
        each.fold(Ordering::Equal, Ordering::then)
    });
    Ok(())
}

impl Filter {
    fn check(&self) -> Result<(), Failure> {
        if self.op == Operator::In && !self.value.is_array() {
            return Err(Failure::bad_input("`in` needs a list in value"));
        }
        Ok(())
    }

    /// Numbers compare as numbers even where one of the two is written as a text.
    fn keeps(&self, cell: &Value) -> bool {
        let order = |wanted: &Value| match (value::to_number(cell), value::to_number(wanted)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => value::compare(cell, wanted),
        };
        // An empty cell is neither less nor greater than anything.
        let ordered = || !value::is_empty(cell);
        let (text, wanted) = (|| value::to_text(cell), || value::to_text(&self.value));
        match self.op {
            Operator::Equal => order(&self.value).is_eq(),
            Operator::NotEqual => order(&self.value).is_ne(),
            Operator::Less => ordered() && order(&self.value).is_lt(),
            Operator::AtMost => ordered() && order(&self.value).is_le(),
            Operator::Greater => ordered() && order(&self.value).is_gt(),
            Operator::AtLeast => ordered() && order(&self.value).is_ge(),
            Operator::Contains => text().contains(&wanted()),
            Operator::StartsWith => text().starts_with(&wanted()),
            Operator::EndsWith => text().ends_with(&wanted()),
            Operator::In => {
                let mut list = self.value.as_array().into_iter().flatten();
                list.any(|wanted| order(wanted).is_eq())
            }
            Operator::Empty => value::is_empty(cell),
            Operator::NotEmpty => !value::is_empty(cell),
        }
    }
}

impl Join {
    fn apply(self, table: Table, root: &Path) -> Result<Table, Failure> {
        let other = self.with.read(root)?;
        let other_on = if self.other_on.is_empty() { &self.on } else { &self.other_on };
        if self.on.is_empty() || self.on.len() != other_on.len() {
            return Err(Failure::bad_input("on and other_on must name equally many columns"));
        }
        let here = table.columns(&self.on)?;
        let there = other.columns(other_on)?;
        let mut partners: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, row) in other.rows.iter().enumerate() {
            partners.entry(value::key(cells(row, &there))).or_default().push(index);
        }
        // The other table's key columns would only repeat what is there.
        let added: Vec<usize> =
            (0..other.columns.len()).filter(|index| !there.contains(index)).collect();
        let mut columns = table.columns.clone();
        if self.kind != JoinKind::Anti {
            columns.extend(added.iter().map(|index| other.columns[*index].clone()));
        }
        unique(&columns)?;

        let mut rows = Vec::new();
        for row in table.rows {
            let found = partners.get(&value::key(cells(&row, &here)));
            match (self.kind, found) {
                (JoinKind::Anti, None) => rows.push(row),
                (JoinKind::Anti, Some(_)) | (JoinKind::Inner, None) => {}
                (JoinKind::Left, None) => {
                    let padding = std::iter::repeat_n(Value::Null, added.len());
                    rows.push(row.into_iter().chain(padding).collect());
                }
                (JoinKind::Inner | JoinKind::Left, Some(found)) => {
                    for index in found {
                        let more = cells(&other.rows[*index], &added);
                        rows.push(row.iter().cloned().chain(more).collect());
                    }
                }
            }
            if rows.len() > MAX_JOINED_ROWS {
                return Err(Failure::limit(format_args!(
                    "the join gives more than {MAX_JOINED_ROWS} rows"
                )));
            }
        }
        Ok(Table { columns, rows })
    }
}
