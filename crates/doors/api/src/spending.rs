//! What tenants spend where several daemons share a database: a second ledger beside the home's own.

use std::sync::Arc;

use ringwall_desk::{Kind, Refused, SharedBudget};
use ringwall_grant::{Account, Budget, Cost, Left};
use ringwall_store::{Amounts, Dimension, ReserveError, Scope, Store, Wish};

use crate::problem::{Problem, with_causes};
use crate::service::Service;

const MILLIS: u64 = 1000;

/// The database's ledger.
#[derive(Debug)]
pub(crate) struct SharedStore(pub(crate) Arc<Store>);

impl SharedBudget for SharedStore {
    fn least(&self, tenant: &(Account, Budget), left: Left) -> Result<Left, Refused> {
        let scope = scope(tenant);
        let taken = self.0.spent(&scope.key).map_err(|error| failed(&error))?;
        let of = |dimension: Dimension, here: Option<u64>, unit: u64| {
            let limit = scope.limits.iter().find(|(it, _)| *it == dimension);
            let Some((_, limit)) = limit else { return here };
            let all = taken.iter().filter(|it| it.dimension == dimension);
            let all = all.map(|it| it.spent.saturating_add(it.reserved)).sum::<u64>();
            let there = limit.saturating_sub(all).saturating_mul(unit);
            Some(here.map_or(there, |here| here.min(there)))
        };
        Ok(Left {
            calls: of(Dimension::Calls, left.calls, 1),
            wall_ms: of(Dimension::WallSeconds, left.wall_ms, MILLIS),
            cpu_ms: of(Dimension::CpuSeconds, left.cpu_ms, MILLIS),
            memory_mib_ms: of(Dimension::MemoryMibSeconds, left.memory_mib_ms, MILLIS),
            fuel: of(Dimension::Fuel, left.fuel, 1),
            egress_bytes: of(Dimension::EgressBytes, left.egress_bytes, 1),
            tokens: of(Dimension::Tokens, left.tokens, 1),
            money_micros: of(Dimension::MoneyMicros, left.money_micros, 1),
        })
    }

    fn reserve(&self, name: &str, tenant: &(Account, Budget), cost: Cost) -> Result<(), Refused> {
        let wish = Wish { at_once: amounts(cost), fuel: cost.fuel, ..Wish::default() };
        match self.0.reserve(name, &[scope(tenant)], &wish) {
            Ok(_) => Ok(()),
            Err(error @ ReserveError::Store(_)) => Err(failed(&error)),
            Err(error @ ReserveError::Exhausted { dimension, .. }) => {
                let refused = Refused::new(Kind::BudgetExhausted, with_causes(&error));
                Err(Refused { part: Some(dimension.name()), ..refused })
            }
        }
    }

    fn settle(&self, name: &str, used: Option<Cost>) -> Result<(), Refused> {
        let used = used.map(amounts);
        self.0.settle_named(name, used.as_ref()).map_err(|error| failed(&error))
    }
}

fn failed(error: &dyn std::error::Error) -> Refused {
    Refused::new(Kind::Internal, with_causes(error))
}

/// A tenant, as all daemons on one database know it.
fn scope((account, budget): &(Account, Budget)) -> Scope {
    let named = |(name, most)| {
        let dimension = Dimension::ALL.into_iter().find(|it| it.name() == name)?;
        Some((dimension, most))
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
        Figure { part, spent, reserved, limit }
    };
    Ok(Dimension::ALL.into_iter().map(part).collect())
}

/// As the store counts: seconds, rounded up.
fn amounts(cost: Cost) -> Amounts {
    let seconds = |ms: u64| ms.div_ceil(1000);
    Amounts::default()
        .with(Dimension::Calls, cost.calls)
        .with(Dimension::WallSeconds, seconds(cost.wall_ms))
        .with(Dimension::CpuSeconds, seconds(cost.cpu_ms))
        .with(Dimension::MemoryMibSeconds, seconds(cost.memory_mib_ms))
        .with(Dimension::Fuel, cost.fuel)
        .with(Dimension::EgressBytes, cost.egress_bytes)
        .with(Dimension::Tokens, cost.tokens)
        .with(Dimension::MoneyMicros, cost.money_micros)
}
