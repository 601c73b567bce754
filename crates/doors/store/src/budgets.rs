//! What may be spent: reserved before a call, settled after it.
//!
//! A reservation counts as spent until it is settled, so calls that run at the same time cannot
//! spend the same rest twice, and a crash never gives anything back.

use crate::database::{Columns, Tx, Value};
use crate::{Store, StoreError};

/// What is counted. Time is counted in milliseconds, also where its name has seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    Calls,
    WallSeconds,
    CpuSeconds,
    Fuel,
    MemoryMibSeconds,
    EgressBytes,
    Tokens,
    MoneyMicros,
}

impl Dimension {
    pub const ALL: [Dimension; 8] = [
        Dimension::Calls,
        Dimension::WallSeconds,
        Dimension::CpuSeconds,
        Dimension::Fuel,
        Dimension::MemoryMibSeconds,
        Dimension::EgressBytes,
        Dimension::Tokens,
        Dimension::MoneyMicros,
    ];

    /// As grants name it.
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Calls => "calls",
            Dimension::WallSeconds => "wall_seconds",
            Dimension::CpuSeconds => "cpu_seconds",
            Dimension::Fuel => "fuel",
            Dimension::MemoryMibSeconds => "memory_mib_seconds",
            Dimension::EgressBytes => "egress_bytes",
            Dimension::Tokens => "tokens",
            Dimension::MoneyMicros => "money_micros",
        }
    }

    /// How many of what is counted are one of what grants and people say.
    pub fn unit(self) -> u64 {
        if self.name().ends_with("_seconds") { 1000 } else { 1 }
    }

    fn place(self) -> usize {
        Dimension::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }
}

/// So much of each dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts([u64; 8]);

impl Amounts {
    pub fn with(mut self, dimension: Dimension, amount: u64) -> Amounts {
        if let Some(place) = self.0.get_mut(dimension.place()) {
            *place = amount;
        }
        self
    }

    pub fn get(&self, dimension: Dimension) -> u64 {
        self.0.get(dimension.place()).copied().unwrap_or(0)
    }
}

/// Somebody who may spend so much: a grant, or a tenant. A dimension that is not named has no limit
/// here, and is counted all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// `grant:...` or `tenant:...`.
    pub key: String,
    pub limits: Vec<(Dimension, u64)>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    #[error(
        "the budget is used up: {} of {}, with {} spent or reserved",
        .dimension.name(), in_units(.dimension, .limit), in_units(.dimension, .spent)
    )]
    Exhausted { dimension: Dimension, limit: u64, spent: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a scope has spent of a dimension, and what is reserved beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    pub dimension: Dimension,
    pub spent: u64,
    pub reserved: u64,
}

/// As people say it.
fn in_units(dimension: &Dimension, amount: &u64) -> u64 {
    amount.div_ceil(dimension.unit())
}

impl Store {
    /// Reserves for all of these scopes or for none.
    pub fn reserve(&self, id: &str, scopes: &[Scope], cost: &Amounts) -> Result<(), ReserveError> {
        let mut refused = None;
        self.write(|tx| {
            refused = too_much(tx, scopes, cost)?;
            if refused.is_some() {
                return Ok(());
            }
            for scope in scopes {
                for dimension in Dimension::ALL {
                    let amount = cost.get(dimension);
                    if amount > 0 {
                        self.hold(tx, id, &scope.key, dimension, amount)?;
                    }
                }
            }
            Ok(())
        })?;
        refused.map_or(Ok(()), Err)
    }

    fn hold(
        &self,
        tx: &mut dyn Tx,
        id: &str,
        scope: &str,
        dimension: Dimension,
        amount: u64,
    ) -> Result<(), StoreError> {
        tx.execute(
            "INSERT INTO reserved (reservation, scope, dimension, amount, engine)
             VALUES ($1, $2, $3, $4, $5)",
            &[
                id.into(),
                scope.into(),
                dimension.name().into(),
                amount.into(),
                self.engine.as_str().into(),
            ],
        )?;
        Ok(())
    }

    /// Gives back what was not used. Where it is not known what was used, all of it was.
    pub fn settle(&self, id: &str, used: Option<&Amounts>) -> Result<(), StoreError> {
        self.write(|tx| {
            let rows = tx.query(
                "SELECT scope, dimension, amount FROM reserved WHERE reservation = $1",
                &[id.into()],
            )?;
            for row in rows {
                let mut row = Columns::of(row);
                let (scope, name, amount) = (row.text()?, row.text()?, row.number()?);
                let known = Dimension::ALL.into_iter().find(|it| it.name() == name);
                let used = used.zip(known).map_or(amount, |(used, known)| used.get(known));
                spend(tx, &scope, &name, used)?;
            }
            tx.execute("DELETE FROM reserved WHERE reservation = $1", &[id.into()])?;
            Ok(())
        })
    }

    pub fn spent(&self, scope: &str) -> Result<Vec<Spent>, StoreError> {
        self.read(|tx| {
            Dimension::ALL
                .into_iter()
                .map(|dimension| {
                    let (spent, reserved) = totals(tx, scope, dimension)?;
                    Ok(Spent { dimension, spent, reserved })
                })
                .collect()
        })
    }
}

/// A name for what a sandbox that lives on holds: it is still held when the engine has ended.
pub fn sandbox_reservation(sandbox: &str) -> String {
    format!("{OF_SANDBOX}{sandbox}")
}

const OF_SANDBOX: &str = "sandbox:";

/// What a scope has too little of, if it is anything.
fn too_much(
    tx: &mut dyn Tx,
    scopes: &[Scope],
    cost: &Amounts,
) -> Result<Option<ReserveError>, StoreError> {
    for scope in scopes {
        for (dimension, limit) in &scope.limits {
            let (spent, reserved) = totals(tx, &scope.key, *dimension)?;
            let spent = spent.saturating_add(reserved);
            if limit.saturating_sub(spent) < cost.get(*dimension) {
                let (dimension, limit) = (*dimension, *limit);
                return Ok(Some(ReserveError::Exhausted { dimension, limit, spent }));
            }
        }
    }
    Ok(None)
}

fn totals(tx: &mut dyn Tx, scope: &str, dimension: Dimension) -> Result<(u64, u64), StoreError> {
    let parameters: [Value; 2] = [scope.into(), dimension.name().into()];
    let mut sum = |table: &str| -> Result<u64, StoreError> {
        let rows = tx.query(
            &format!("SELECT amount FROM {table} WHERE scope = $1 AND dimension = $2"),
            &parameters,
        )?;
        let mut sum = 0u64;
        for row in rows {
            sum = sum.saturating_add(Columns::of(row).number()?);
        }
        Ok(sum)
    };
    Ok((sum("spent")?, sum("reserved")?))
}

fn spend(tx: &mut dyn Tx, scope: &str, dimension: &str, amount: u64) -> Result<(), StoreError> {
    if amount == 0 {
        return Ok(());
    }
    tx.execute(
        "INSERT INTO spent (scope, dimension, amount) VALUES ($1, $2, $3)
         ON CONFLICT (scope, dimension) DO UPDATE SET amount = spent.amount + $3",
        &[scope.into(), dimension.into(), amount.into()],
    )?;
    Ok(())
}

/// What an engine had reserved when it ended counts as spent, but for what sandboxes hold: they live on.
pub(crate) fn spend_all(tx: &mut dyn Tx, engine: &str) -> Result<(), StoreError> {
    let held = format!("{OF_SANDBOX}%");
    let whose: [Value; 2] = [engine.into(), held.as_str().into()];
    let rows = tx.query(
        "SELECT scope, dimension, amount FROM reserved WHERE engine = $1 AND reservation NOT LIKE $2",
        &whose,
    )?;
    for row in rows {
        let mut row = Columns::of(row);
        let (scope, dimension, amount) = (row.text()?, row.text()?, row.number()?);
        spend(tx, &scope, &dimension, amount)?;
    }
    let gone = "DELETE FROM reserved WHERE engine = $1 AND reservation NOT LIKE $2";
    tx.execute(gone, &whose)?;
    Ok(())
}
