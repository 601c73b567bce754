//! What was spent under grants, so that a budget is for all calls together.
//!
//! Whoever goes ahead reserves the most that it could spend, and gives back what it did not. What is
//! killed before gives nothing back.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::authority::MAX_LIFETIME;
use crate::files::{self, FileError};
use crate::rights::Budget;
use crate::token::GrantId;

const MOST_BYTES: u64 = 4096;
/// A chain of grants has a budget each.
const MOST_HELD_BYTES: u64 = 64 << 10;
const MILLIS: u64 = 1000;

#[derive(Debug, thiserror::Error)]
pub enum SpendError {
    #[error("the grant's budget of {part} is spent: {left} left, and {wanted} would be needed")]
    Spent { part: &'static str, left: u64, wanted: u64 },
    #[error("what was spent under a grant cannot be read from {0:?}; until it can, nothing is")]
    Unreadable(PathBuf),
    #[error(transparent)]
    File(#[from] FileError),
}

/// What a sandbox, a call or a turn of a model costs, or the most that it can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    pub calls: u64,
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub memory_mib_ms: u64,
    #[serde(default)]
    pub fuel: u64,
    /// What leaves through the gateway.
    #[serde(default)]
    pub egress_bytes: u64,
    /// Input and output together.
    #[serde(default)]
    pub tokens: u64,
    #[serde(default)]
    pub money_micros: u64,
}

/// What is left under a grant. `None`: as much as one likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Left {
    pub calls: Option<u64>,
    pub wall_ms: Option<u64>,
    pub cpu_ms: Option<u64>,
    pub memory_mib_ms: Option<u64>,
    pub fuel: Option<u64>,
    pub egress_bytes: Option<u64>,
    pub tokens: Option<u64>,
    pub money_micros: Option<u64>,
}

/// What was spent under each grant, below an engine's home.
#[derive(Debug)]
pub struct Spending {
    directory: PathBuf,
}

impl Spending {
    pub fn open(home: &Path) -> Result<Spending, SpendError> {
        let directory = home.join("grants").join("spent");
        files::private_directory(&directory)?;
        Ok(Spending { directory })
    }

    /// What all of these grants together leave.
    pub fn left(&self, budgets: &[(GrantId, Budget)]) -> Result<Left, SpendError> {
        let _lock = self.lock()?;
        self.left_of(budgets)
    }

    /// Takes `cost` from each of these grants, or from none.
    pub fn reserve(&self, budgets: &[(GrantId, Budget)], cost: Cost) -> Result<(), SpendError> {
        let _lock = self.lock()?;
        self.left_of(budgets)?.holds(cost)?;
        for (id, _) in budgets {
            let spent = self.spent(id)?;
            self.write(id, spent.and(cost))?;
        }
        forget_old(&self.directory);
        Ok(())
    }

    /// Gives back what of `reserved` was not `used`.
    pub fn settle(
        &self,
        budgets: &[(GrantId, Budget)],
        reserved: Cost,
        used: Cost,
    ) -> Result<(), SpendError> {
        let _lock = self.lock()?;
        for (id, _) in budgets {
            let spent = self.spent(id)?;
            self.write(id, spent.without(reserved).and(used))?;
        }
        Ok(())
    }

    fn left_of(&self, budgets: &[(GrantId, Budget)]) -> Result<Left, SpendError> {
        let mut left = Left::default();
        for (id, budget) in budgets {
            left = left.least(Left::of(*budget, self.spent(id)?));
        }
        Ok(left)
    }

    fn spent(&self, id: &GrantId) -> Result<Cost, SpendError> {
        let path = self.path(id);
        match files::read_secret(&path, MOST_BYTES) {
            Ok(text) => serde_json::from_slice(&text).map_err(|_| SpendError::Unreadable(path)),
            Err(FileError::Missing(_)) => Ok(Cost::default()),
            Err(error) => Err(error.into()),
        }
    }

    fn write(&self, id: &GrantId, spent: Cost) -> Result<(), SpendError> {
        let text = serde_json::to_vec(&spent).unwrap_or_default();
        Ok(files::replace(&self.path(id), &text)?)
    }

    fn path(&self, id: &GrantId) -> PathBuf {
        self.directory.join(id.to_string())
    }

    fn lock(&self) -> Result<files::Lock, SpendError> {
        Ok(files::lock(&self.directory.join("lock"))?)
    }
}

/// What sandboxes that live on hold of their grants, until they end: words of whoever holds them.
#[derive(Debug)]
pub struct Held {
    directory: PathBuf,
}

impl Held {
    pub fn open(home: &Path) -> Result<Held, SpendError> {
        let directory = home.join("grants").join("held");
        files::private_directory(&directory)?;
        Ok(Held { directory })
    }

    pub fn put(&self, sandbox: &str, words: &[u8]) -> Result<(), SpendError> {
        forget_old(&self.directory);
        Ok(files::replace(&self.directory.join(sandbox), words)?)
    }

    /// To be settled by the caller, once.
    pub fn take(&self, sandbox: &str) -> Result<Option<Vec<u8>>, SpendError> {
        let path = self.directory.join(sandbox);
        let words = match files::read_secret(&path, MOST_HELD_BYTES) {
            Ok(words) => words,
            Err(FileError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Whoever removes it settles it.
        Ok(std::fs::remove_file(&path).is_ok().then(|| words.to_vec()))
    }
}

/// No grant lives so long that these could count. What cannot be removed stays.
fn forget_old(directory: &Path) {
    let Ok(list) = std::fs::read_dir(directory) else { return };
    let old = |entry: &std::fs::DirEntry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        age.is_ok_and(|age| age > MAX_LIFETIME + Duration::from_secs(3600))
    };
    for entry in list.flatten().filter(|entry| entry.file_name() != "lock").filter(old) {
        let _ = std::fs::remove_file(entry.path());
    }
}

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

impl Cost {
    fn parts(self) -> [u64; 8] {
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

    fn of(parts: [u64; 8]) -> Cost {
        let [calls, wall_ms, cpu_ms, memory_mib_ms, fuel, egress_bytes, tokens, money_micros] =
            parts;
        Cost { calls, wall_ms, cpu_ms, memory_mib_ms, fuel, egress_bytes, tokens, money_micros }
    }

    fn with(self, other: Cost, each: impl Fn(u64, u64) -> u64) -> Cost {
        let (mut parts, others) = (self.parts(), other.parts());
        for (part, other) in parts.iter_mut().zip(others) {
            *part = each(*part, other);
        }
        Cost::of(parts)
    }

    fn and(self, other: Cost) -> Cost {
        self.with(other, u64::saturating_add)
    }

    fn without(self, other: Cost) -> Cost {
        self.with(other, u64::saturating_sub)
    }
}

impl Left {
    fn parts(self) -> [Option<u64>; 8] {
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

    fn of(budget: Budget, spent: Cost) -> Left {
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

    fn least(self, other: Left) -> Left {
        let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Left {
            calls: least(self.calls, other.calls),
            wall_ms: least(self.wall_ms, other.wall_ms),
            cpu_ms: least(self.cpu_ms, other.cpu_ms),
            memory_mib_ms: least(self.memory_mib_ms, other.memory_mib_ms),
            fuel: least(self.fuel, other.fuel),
            egress_bytes: least(self.egress_bytes, other.egress_bytes),
            tokens: least(self.tokens, other.tokens),
            money_micros: least(self.money_micros, other.money_micros),
        }
    }

    /// Refuses a cost that is more.
    pub fn holds(self, cost: Cost) -> Result<(), SpendError> {
        for ((part, left), wanted) in PARTS.into_iter().zip(self.parts()).zip(cost.parts()) {
            if let Some(left) = left.filter(|left| *left < wanted) {
                let unit = if part.ends_with("_seconds") { MILLIS } else { 1 };
                let (left, wanted) = (left / unit, wanted.div_ceil(unit));
                return Err(SpendError::Spent { part, left, wanted });
            }
        }
        Ok(())
    }

    /// For how long something can run that takes this share of processors and memory.
    pub fn time(self, cpu_milli: u64, memory_mib: u64) -> Option<Duration> {
        let by_cpu = self.cpu_ms.map(|left| left.saturating_mul(MILLIS) / cpu_milli.max(1));
        let by_memory = self.memory_mib_ms.map(|left| left / memory_mib.max(1));
        let times = [self.wall_ms, by_cpu, by_memory];
        times.into_iter().flatten().min().map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Spending) {
        let home = tempfile::tempdir().unwrap();
        files::private_directory(&home.path().join("grants")).unwrap();
        let spending = Spending::open(home.path()).unwrap();
        (home, spending)
    }

    fn id(byte: u8) -> GrantId {
        GrantId::of(&[byte])
    }

    fn calls(most: u64) -> Budget {
        Budget { calls: Some(most), ..Budget::default() }
    }

    const ONE: Cost = Cost {
        calls: 1,
        wall_ms: 500,
        cpu_ms: 250,
        memory_mib_ms: 64_000,
        fuel: 10,
        egress_bytes: 20,
        tokens: 30,
        money_micros: 40,
    };

    #[test]
    fn a_budget_is_for_all_that_is_done_under_a_grant_and_those_narrowed_from_it() {
        let (_home, spending) = place();
        let (parent, child) = ([(id(1), calls(3))], [(id(1), calls(3)), (id(2), calls(2))]);
        spending.reserve(&child, ONE).unwrap();
        spending.reserve(&child, ONE).unwrap();
        assert!(matches!(spending.reserve(&child, ONE), Err(SpendError::Spent { .. })));
        spending.reserve(&parent, ONE).unwrap();
        assert!(spending.reserve(&parent, ONE).is_err());
        let other = [(id(1), calls(3)), (id(3), calls(2))];
        assert!(spending.reserve(&other, ONE).is_err(), "a new narrowing brings nothing back");
    }

    #[test]
    fn what_was_not_used_comes_back_and_nothing_else() {
        let (_home, spending) = place();
        let budget = Budget { wall_seconds: Some(1), ..Budget::default() };
        let grants = [(id(1), budget)];
        spending.reserve(&grants, ONE).unwrap();
        let used = Cost { wall_ms: 100, ..ONE };
        spending.settle(&grants, ONE, used).unwrap();
        assert_eq!(spending.left(&grants).unwrap().wall_ms, Some(900));
        assert_eq!(spending.left(&grants).unwrap().calls, None);
    }

    #[test]
    fn every_part_of_a_budget_is_an_end_of_its_own() {
        for part in Budget::NAMES {
            let (_home, spending) = place();
            // Two of `ONE` fit, and not a third.
            let most = match part {
                "calls" => 2,
                "wall_seconds" => 1,
                "cpu_seconds" | "memory_mib_seconds" => 129,
                "fuel" => 29,
                "egress_bytes" => 59,
                "tokens" => 89,
                _ => 119,
            };
            let cost = match part {
                "cpu_seconds" => Cost { cpu_ms: 64_000, ..ONE },
                _ => ONE,
            };
            let grants = [(id(1), Budget::of(part, most).unwrap())];
            spending.reserve(&grants, cost).unwrap();
            spending.reserve(&grants, cost).unwrap();
            match spending.reserve(&grants, cost) {
                Err(SpendError::Spent { part: named, .. }) => assert_eq!(named, part),
                other => panic!("{part}: {other:?}"),
            }
            spending.settle(&grants, cost, Cost::default()).unwrap();
            spending.reserve(&grants, cost).unwrap();
        }
    }

    #[test]
    fn what_was_written_down_before_there_were_more_parts_still_counts() {
        let (_home, spending) = place();
        let before = br#"{"calls":2,"wall_ms":1,"cpu_ms":1,"memory_mib_ms":1}"#;
        files::replace(&spending.path(&id(1)), before).unwrap();
        assert_eq!(spending.left(&[(id(1), calls(3))]).unwrap().calls, Some(1));
    }

    #[test]
    fn the_time_that_is_left_depends_on_processors_and_memory() {
        let left = Left { cpu_ms: Some(10_000), memory_mib_ms: Some(1_000_000), ..Left::default() };
        assert_eq!(left.time(2000, 100), Some(Duration::from_secs(5)));
        assert_eq!(left.time(1000, 1000), Some(Duration::from_secs(1)));
        assert_eq!(Left::default().time(1000, 100), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let (_home, spending) = place();
        let grants = [(id(1), calls(3))];
        spending.reserve(&grants, ONE).unwrap();
        files::replace(&spending.path(&id(1)), b"{}").unwrap();
        assert!(matches!(spending.left(&grants), Err(SpendError::Unreadable(_))));
    }

    #[test]
    fn of_many_at_once_as_many_go_ahead_as_the_budget_says() {
        let (home, _) = place();
        let grants = [(id(1), calls(5))];
        let went = std::thread::scope(|scope| {
            let ahead = || Spending::open(home.path()).unwrap().reserve(&grants, ONE).is_ok();
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(ahead)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).filter(|it| *it).count()
        });
        assert_eq!(went, 5);
    }
}
