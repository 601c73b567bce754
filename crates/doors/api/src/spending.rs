//! What tenants spend where several daemons share a database: a second ledger beside the home's own.

use std::sync::Arc;

use ringwall_desk::{Kind, Refused, SharedBudget};
use ringwall_grant::{Account, Budget, Cost, Left};
use ringwall_store::{Amounts, Dimension, ReserveError, Scope, Store};

use crate::problem::{Problem, with_causes};
use crate::service::Service;

/// The database's ledger.
#[derive(Debug)]
pub(crate) struct SharedStore(pub(crate) Arc<Store>);

impl SharedBudget for SharedStore {
    fn least(&self, tenant: &(Account, Budget), left: Left) -> Result<Left, Refused> {
        let scope = scope(tenant);
        let taken = self.0.spent(&scope.key).map_err(|error| failed(&error))?;
        let of = |dimension: Dimension, here: Option<u64>| {
            let limit = scope.limits.iter().find(|(it, _)| *it == dimension);
            let Some((_, limit)) = limit else { return here };
            let all = taken.iter().filter(|it| it.dimension == dimension);
            let all = all.map(|it| it.spent.saturating_add(it.reserved)).sum::<u64>();
            let there = limit.saturating_sub(all);
            Some(here.map_or(there, |here| here.min(there)))
        };
        Ok(Left {
            calls: of(Dimension::Calls, left.calls),
            wall_ms: of(Dimension::WallSeconds, left.wall_ms),
            cpu_ms: of(Dimension::CpuSeconds, left.cpu_ms),
            memory_mib_ms: of(Dimension::MemoryMibSeconds, left.memory_mib_ms),
            fuel: of(Dimension::Fuel, left.fuel),
            egress_bytes: of(Dimension::EgressBytes, left.egress_bytes),
            tokens: of(Dimension::Tokens, left.tokens),
            money_micros: of(Dimension::MoneyMicros, left.money_micros),
        })
    }

    fn reserve(&self, name: &str, tenant: &(Account, Budget), cost: Cost) -> Result<(), Refused> {
        match self.0.reserve(name, &[scope(tenant)], &amounts(cost)) {
            Ok(()) => Ok(()),
            Err(error @ ReserveError::Store(_)) => Err(failed(&error)),
            Err(error @ ReserveError::Exhausted { dimension, .. }) => {
                let refused = Refused::new(Kind::BudgetExhausted, with_causes(&error));
                Err(Refused { part: Some(dimension.name()), ..refused })
            }
        }
    }

    fn settle(&self, name: &str, used: Option<Cost>) -> Result<(), Refused> {
        let used = used.map(amounts);
        self.0.settle(name, used.as_ref()).map_err(|error| failed(&error))
    }
}

fn failed(error: &dyn std::error::Error) -> Refused {
    Refused::new(Kind::Internal, with_causes(error))
}

/// A tenant, as all daemons on one database know it.
fn scope((account, budget): &(Account, Budget)) -> Scope {
    let named = |(name, most): (&str, u64)| {
        let dimension = Dimension::ALL.into_iter().find(|it| it.name() == name)?;
        Some((dimension, most.saturating_mul(dimension.unit())))
    };
    Scope { key: account.to_string(), limits: budget.parts().filter_map(named).collect() }
}

/// One part of an account, for people to look at.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) part: &'static str,
    pub(crate) spent: u64,
    pub(crate) reserved: u64,
    pub(crate) limit: Option<u64>,
}

/// All parts of an account.
pub(crate) fn figures(
    service: &Service,
    (account, budget): &(Account, Budget),
) -> Result<Vec<Figure>, Problem> {
    let here = service.books.spending()?.spent(account)?;
    let (spent, reserved) = (amounts(here.spent), amounts(here.reserved));
    let shared = match account {
        Account::Tenant(_) if service.shared => service.store.spent(&account.to_string())?,
        _ => Vec::new(),
    };
    let part = |dimension: Dimension| {
        let part = dimension.name();
        let limit = budget.parts().find(|(name, _)| *name == part).map(|(_, most)| most);
        let (mut spent, mut reserved) = (spent.get(dimension), reserved.get(dimension));
        // Others may have spent more of it.
        if let Some(all) = shared.iter().find(|it| it.dimension == dimension)
            && all.spent.saturating_add(all.reserved) > spent.saturating_add(reserved)
        {
            (spent, reserved) = (all.spent, all.reserved);
        }
        let unit = dimension.unit();
        Figure { part, spent: spent.div_ceil(unit), reserved: reserved.div_ceil(unit), limit }
    };
    Ok(Dimension::ALL.into_iter().map(part).collect())
}

/// As the store counts: in milliseconds, like the ledger of the home.
fn amounts(cost: Cost) -> Amounts {
    Amounts::default()
        .with(Dimension::Calls, cost.calls)
        .with(Dimension::WallSeconds, cost.wall_ms)
        .with(Dimension::CpuSeconds, cost.cpu_ms)
        .with(Dimension::MemoryMibSeconds, cost.memory_mib_ms)
        .with(Dimension::Fuel, cost.fuel)
        .with(Dimension::EgressBytes, cost.egress_bytes)
        .with(Dimension::Tokens, cost.tokens)
        .with(Dimension::MoneyMicros, cost.money_micros)
}
