//! What things cost, and what is left for them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Account, SpendError, Spent};
use crate::rights::Budget;

const MILLIS: u64 = 1000;

/// One figure for each part of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parts<T> {
    pub calls: T,
    pub wall_ms: T,
    pub cpu_ms: T,
    pub memory_mib_ms: T,
    #[serde(default)]
    pub fuel: T,
    /// What leaves through the gateway.
    #[serde(default)]
    pub egress_bytes: T,
    /// Input and output together.
    #[serde(default)]
    pub tokens: T,
    #[serde(default)]
    pub money_micros: T,
}

/// What a sandbox, a call or a turn of a model costs, or the most that it can.
pub type Cost = Parts<u64>;

/// What is left under a grant. `None`: as much as one likes.
pub type Left = Parts<Option<u64>>;

/// The parts of a cost and of what is left, in the same order.
const PARTS: [&str; 8] = [
    "calls",
    "wall_seconds",
    "cpu_seconds",
    "memory_mib_seconds",
    "fuel",
    "egress_bytes",
    "tokens",
    "money_micros",
];

impl<T> Parts<T> {
    fn list(self) -> [T; 8] {
        [
            self.calls,
            self.wall_ms,
            self.cpu_ms,
            self.memory_mib_ms,
            self.fuel,
            self.egress_bytes,
            self.tokens,
            self.money_micros,
        ]
    }

    fn with(self, other: Parts<T>, each: impl Fn(T, T) -> T) -> Parts<T> {
        Parts {
            calls: each(self.calls, other.calls),
            wall_ms: each(self.wall_ms, other.wall_ms),
            cpu_ms: each(self.cpu_ms, other.cpu_ms),
            memory_mib_ms: each(self.memory_mib_ms, other.memory_mib_ms),
            fuel: each(self.fuel, other.fuel),
            egress_bytes: each(self.egress_bytes, other.egress_bytes),
            tokens: each(self.tokens, other.tokens),
            money_micros: each(self.money_micros, other.money_micros),
        }
    }
}

impl Cost {
    /// Of something that has this share of processors and memory for so long.
    pub fn running(wall_ms: u64, cpu_milli: u64, memory_mib: u64) -> Cost {
        Cost {
            wall_ms,
            cpu_ms: wall_ms.saturating_mul(cpu_milli) / MILLIS,
            memory_mib_ms: wall_ms.saturating_mul(memory_mib),
            ..Cost::default()
        }
    }

    pub(super) fn and(self, other: Cost) -> Cost {
        self.with(other, u64::saturating_add)
    }

    pub(super) fn without(self, other: Cost) -> Cost {
        self.with(other, u64::saturating_sub)
    }
}

impl Spent {
    /// Each part of a budget: its name, how much of it is taken, reserved included, and all of it.
    pub fn of_budget(self, budget: Budget) -> Vec<(&'static str, u64, u64)> {
        let taken = self.spent.and(self.reserved).list();
        let taken_of = |name| PARTS.into_iter().zip(taken).find(|(part, _)| *part == name);
        let parts = budget.parts().filter_map(|(name, all)| {
            let (_, taken) = taken_of(name)?;
            Some((name, taken.div_ceil(unit(name)), all))
        });
        parts.collect()
    }
}

/// How many of what is counted are one of what people say.
fn unit(part: &str) -> u64 {
    if part.ends_with("_seconds") { MILLIS } else { 1 }
}

impl Left {
    pub(super) fn of(budget: Budget, taken: Spent) -> Left {
        let spent = taken.spent.and(taken.reserved);
        let left = |most: Option<u64>, spent: u64| most.map(|most| most.saturating_sub(spent));
        let of_seconds = |most: Option<u64>, spent| {
            left(most.map(|seconds| seconds.saturating_mul(MILLIS)), spent)
        };
        Left {
            calls: left(budget.calls, spent.calls),
            wall_ms: of_seconds(budget.wall_seconds, spent.wall_ms),
            cpu_ms: of_seconds(budget.cpu_seconds, spent.cpu_ms),
            memory_mib_ms: of_seconds(budget.memory_mib_seconds, spent.memory_mib_ms),
            fuel: left(budget.fuel, spent.fuel),
            egress_bytes: left(budget.egress_bytes, spent.egress_bytes),
            tokens: left(budget.tokens, spent.tokens),
            money_micros: left(budget.money_micros, spent.money_micros),
        }
    }

    pub(super) fn least(self, other: Left) -> Left {
        self.with(other, |one, other| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        })
    }

    /// Refuses a cost that is more than this account has left.
    pub(super) fn holds(self, cost: Cost, account: &Account) -> Result<(), SpendError> {
        let whose = match account {
            Account::Grant(_) => "grant",
            Account::Tenant(_) => "tenant",
        };
        for ((part, left), wanted) in PARTS.into_iter().zip(self.list()).zip(cost.list()) {
            if let Some(left) = left.filter(|left| *left < wanted) {
                let (left, wanted) = (left / unit(part), wanted.div_ceil(unit(part)));
                return Err(SpendError::Spent { whose, part, left, wanted });
            }
        }
        Ok(())
    }

    /// For how long something can run that takes this share of processors and memory, and what of the
    /// budget ends it then.
    pub fn time(self, cpu_milli: u64, memory_mib: u64) -> Option<(Duration, &'static str)> {
        let by_cpu = self.cpu_ms.map(|left| left.saturating_mul(MILLIS) / cpu_milli.max(1));
        let by_memory = self.memory_mib_ms.map(|left| left / memory_mib.max(1));
        let times = [
            (self.wall_ms, "wall_seconds"),
            (by_cpu, "cpu_seconds"),
            (by_memory, "memory_mib_seconds"),
        ];
        let times = times.into_iter().filter_map(|(time, part)| Some((time?, part)));
        times.min_by_key(|(time, _)| *time).map(|(time, part)| (Duration::from_millis(time), part))
    }
}
