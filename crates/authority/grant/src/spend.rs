//! What was spent under grants and by tenants, so that a budget is for all calls together: those of the
//! command line, of agents and of the daemon.
//!
//! Whoever goes ahead reserves the most that it could spend, and gives back what it did not. What is
//! killed before gives nothing back.

mod accounts;
mod amounts;
mod held;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{
    Content, Directory, FileError, Hold, Lock, Trust, is_leftover, lock, replace,
};
use serde::{Deserialize, Serialize};

use crate::rights::Budget;
use crate::token::GrantId;
use crate::verify::Inspected;

pub use accounts::Account;
use accounts::Tenants;
pub use amounts::{Cost, Left};
use held::forget_old;
pub use held::{Held, Reserved};

/// An account is a file of this length at least: it is written over in place.
const ROOM_BYTES: usize = 2048;
const MOST_BYTES: u64 = 4096;

#[derive(Debug, thiserror::Error)]
pub enum SpendError {
    #[error("the {whose}'s budget of {part} is spent: {left} left, and {wanted} would be needed")]
    Spent { whose: &'static str, part: &'static str, left: u64, wanted: u64 },
    #[error("what was spent cannot be read from {0:?}; until it can, nothing is")]
    Unreadable(PathBuf),
    #[error(
        "the budgets of tenants in {path:?} cannot be used: {why}; write {{\"every\": {{\"calls\": N}}, \"tenants\": {{\"NAME\": {{\"tokens\": N}}}}}}"
    )]
    Tenants { path: PathBuf, why: String },
    #[error(transparent)]
    File(#[from] FileError),
}

/// Everything that was spent below an engine's home.
#[derive(Debug)]
pub struct Spending {
    home: PathBuf,
    grants: PathBuf,
    tenants: PathBuf,
}

/// What an account has spent, and what is reserved beside it, by what is under way or was killed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    pub spent: Cost,
    pub reserved: Cost,
}

/// An account as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    account: Account,
    spent: Cost,
    reserved: Cost,
}

impl Spending {
    pub fn open(home: &Path) -> Result<Spending, SpendError> {
        let grants = home.join("grants").join("spent");
        let tenants = home.join("grants").join("tenants");
        Directory::make(&grants, Trust::Secret)?;
        Directory::make(&tenants, Trust::Secret)?;
        Ok(Spending { home: home.to_owned(), grants, tenants })
    }

    /// Everybody who pays for what is done under a grant: it, those that it was narrowed from, and its
    /// tenant, each if it has a budget.
    pub fn accounts(&self, grant: &Inspected) -> Result<Vec<(Account, Budget)>, SpendError> {
        let tenant = &grant.standing.tenant;
        let budget = Tenants::read(&self.home)?.budget(tenant);
        let grants = grant.budgets.iter().map(|(id, budget)| (Account::Grant(*id), *budget));
        let tenant = budget.map(|budget| (Account::Tenant(tenant.clone()), budget));
        Ok(grants.chain(tenant).collect())
    }

    /// All tenants that have a budget by name, or have spent something of one.
    pub fn tenants(&self) -> Result<Vec<(Account, Budget)>, SpendError> {
        let known = Tenants::read(&self.home)?;
        let _lock = self.lock()?;
        let mut names: Vec<String> = known.names().cloned().collect();
        let list = std::fs::read_dir(&self.tenants);
        for entry in list.into_iter().flatten().flatten() {
            if is_leftover(&entry.file_name().to_string_lossy()) {
                continue;
            }
            if let Some(Kept { account: Account::Tenant(name), .. }) = read(&entry.path())? {
                names.push(name);
            }
        }
        names.sort();
        names.dedup();
        let with_budget = |name: String| {
            let budget = known.budget(&name).unwrap_or_default();
            (Account::Tenant(name), budget)
        };
        Ok(names.into_iter().map(with_budget).collect())
    }

    /// What all of these together leave.
    pub fn left(&self, accounts: &[(Account, Budget)]) -> Result<Left, SpendError> {
        if accounts.is_empty() {
            return Ok(Left::default());
        }
        let _lock = self.lock()?;
        Ok(least(accounts, &self.taken_by(accounts)?))
    }

    /// Takes `cost` from each of these, or from none.
    pub fn reserve(&self, accounts: &[(Account, Budget)], cost: Cost) -> Result<(), SpendError> {
        self.reserve_of(accounts, |_| cost).map(drop)
    }

    /// The same for a cost that depends on what is left. Nobody else takes anything meanwhile.
    pub fn reserve_of(
        &self,
        accounts: &[(Account, Budget)],
        cost: impl FnOnce(Left) -> Cost,
    ) -> Result<Cost, SpendError> {
        if accounts.is_empty() {
            return Ok(cost(Left::default()));
        }
        let _lock = self.lock()?;
        let taken = self.taken_by(accounts)?;
        let cost = cost(least(accounts, &taken));
        for ((account, budget), taken) in accounts.iter().zip(&taken) {
            Left::of(*budget, *taken).holds(cost, account)?;
        }
        for ((account, _), Spent { spent, reserved }) in accounts.iter().zip(taken) {
            self.write(account, Spent { spent, reserved: reserved.and(cost) })?;
        }
        Ok(cost)
    }

    /// Gives back what of `reserved` was not `used`.
    pub fn settle(
        &self,
        accounts: &[(Account, Budget)],
        reserved: Cost,
        used: Cost,
    ) -> Result<(), SpendError> {
        if accounts.is_empty() {
            return Ok(());
        }
        let _lock = self.lock()?;
        for (account, _) in accounts {
            let before = self.spent_by(account)?;
            let after = Spent {
                spent: before.spent.and(used),
                reserved: before.reserved.without(reserved),
            };
            self.write(account, after)?;
        }
        Ok(())
    }

    /// Charges usage without a reservation. Returns the amounts that running processes may still use.
    /// Reservations of others do not count, as much of them may come back.
    pub fn charge(&self, accounts: &[(Account, Budget)], used: Cost) -> Result<Left, SpendError> {
        let _lock = self.lock()?;
        let mut left = Left::default();
        for (account, budget) in accounts {
            let before = self.spent_by(account)?;
            let after = Spent { spent: before.spent.and(used), ..before };
            self.write(account, after)?;
            left = left.least(Left::of(*budget, Spent { reserved: Cost::default(), ..after }));
        }
        Ok(left)
    }

    pub fn spent(&self, account: &Account) -> Result<Spent, SpendError> {
        let _lock = self.lock()?;
        self.spent_by(account)
    }

    fn taken_by(&self, accounts: &[(Account, Budget)]) -> Result<Vec<Spent>, SpendError> {
        accounts.iter().map(|(account, _)| self.spent_by(account)).collect()
    }

    fn spent_by(&self, account: &Account) -> Result<Spent, SpendError> {
        let path = self.path(account);
        match read(&path)? {
            None => Ok(Spent::default()),
            Some(kept) if kept.account == *account => {
                Ok(Spent { spent: kept.spent, reserved: kept.reserved })
            }
            Some(_) => Err(SpendError::Unreadable(path)),
        }
    }

    /// In place, so that nobody waits for the disk: what was written is the kernel's, as all that the
    /// daemon answers, and outlives this process. The lock keeps others from seeing a half of it.
    fn write(&self, account: &Account, Spent { spent, reserved }: Spent) -> Result<(), SpendError> {
        let path = self.path(account);
        let kept = Kept { account: account.clone(), spent, reserved };
        let mut text = serde_json::to_vec(&kept).unwrap_or_default();
        text.resize(text.len().max(ROOM_BYTES), b' ');
        match File::options().write(true).open(&path) {
            Ok(file) => {
                let written = file.write_all_at(&text, 0);
                Ok(written.map_err(|source| FileError::Use { path, source })?)
            }
            Err(_) => {
                forget_old(&self.grants);
                Ok(replace(&path, Content::durable(&text))?)
            }
        }
    }

    fn path(&self, account: &Account) -> PathBuf {
        match account {
            Account::Grant(id) => self.grants.join(id.to_string()),
            // A name can be longer than a file's.
            Account::Tenant(name) => self.tenants.join(GrantId::of(name.as_bytes()).to_string()),
        }
    }

    fn lock(&self) -> Result<Lock, SpendError> {
        Ok(lock(&self.grants.join("lock"), Hold::Alone)?)
    }
}

/// What accounts of which so much is taken leave together.
fn least(accounts: &[(Account, Budget)], taken: &[Spent]) -> Left {
    let each = accounts.iter().zip(taken).map(|((_, budget), taken)| Left::of(*budget, *taken));
    each.fold(Left::default(), Left::least)
}

/// An account, if there is one. Before there were tenants, a file held the cost alone.
fn read(path: &Path) -> Result<Option<Kept>, SpendError> {
    let text = match ringwall_safekeeping::read(path, Trust::Secret, MOST_BYTES) {
        Ok(text) => text,
        Err(FileError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let unreadable = || SpendError::Unreadable(path.to_owned());
    if let Ok(kept) = serde_json::from_slice(&text) {
        return Ok(Some(kept));
    }
    let spent = serde_json::from_slice(&text).map_err(|_| unreadable())?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unreadable)?;
    let account = Account::try_from(name.to_owned()).map_err(|_| unreadable())?;
    Ok(Some(Kept { account, spent, reserved: Cost::default() }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn place() -> (tempfile::TempDir, Spending) {
        let home = tempfile::tempdir().unwrap();
        Directory::make(&home.path().join("grants"), Trust::Secret).unwrap();
        let spending = Spending::open(home.path()).unwrap();
        (home, spending)
    }

    fn id(byte: u8) -> Account {
        Account::Grant(GrantId::of(&[byte]))
    }

    fn acme() -> Account {
        Account::Tenant("acme".to_owned())
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
    fn what_nobody_reserved_is_charged_all_the_same() {
        let (_home, spending) = place();
        let grants =
            [(id(1), Budget { wall_seconds: Some(1), ..Budget::default() }), (id(2), calls(1))];
        spending.reserve(&grants, ONE).unwrap();
        let used = Cost { wall_ms: 400, ..Cost::default() };
        let left = |used| spending.charge(&grants, used).unwrap();
        assert_eq!((left(used).wall_ms, left(used).calls), (Some(600), Some(1)));
        assert_eq!(left(used).wall_ms, Some(0), "more than there was is no less than nothing");
        spending.settle(&grants, ONE, Cost::default()).unwrap();
        assert_eq!(spending.left(&grants).unwrap().wall_ms, Some(0));
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
        replace(&spending.path(&id(1)), Content::durable(before)).unwrap();
        let grants = [(id(1), calls(3))];
        assert_eq!(spending.left(&grants).unwrap().calls, Some(1));
        spending.reserve(&grants, ONE).unwrap();
        assert_eq!(spending.left(&grants).unwrap().calls, Some(0));
    }

    #[test]
    fn a_tenants_budget_is_for_all_its_grants_and_names_itself_when_it_is_spent() {
        let (_home, spending) = place();
        let under = |byte| [(id(byte), calls(2)), (acme(), calls(3))];
        spending.reserve(&under(1), ONE).unwrap();
        spending.reserve(&under(2), ONE).unwrap();
        spending.reserve(&under(3), ONE).unwrap();
        let refused = spending.reserve(&under(4), ONE).unwrap_err().to_string();
        assert!(refused.contains("the tenant's budget of calls"), "{refused}");
        assert_eq!(spending.spent(&id(4)).unwrap(), Spent::default(), "nothing was taken of it");
        spending.settle(&under(1), ONE, Cost::default()).unwrap();
        spending.reserve(&under(4), ONE).unwrap();
    }

    #[test]
    fn the_tenants_that_are_listed_are_those_with_a_budget_and_those_that_spent() {
        let (home, spending) = place();
        let other = Account::Tenant("other".to_owned());
        spending.reserve(&[(other.clone(), calls(3))], ONE).unwrap();
        let text = r#"{"every": {"fuel": 5}, "tenants": {"acme": {"tokens": 7}}}"#;
        std::fs::write(home.path().join("tenants.json"), text).unwrap();
        let fuel = Budget::of("fuel", 5).unwrap();
        let both = Budget { tokens: Some(7), ..fuel };
        assert_eq!(spending.tenants().unwrap(), [(acme(), both), (other, fuel)]);
    }

    #[test]
    fn what_is_reserved_may_depend_on_what_is_left() {
        let (_home, spending) = place();
        let grants = [(id(1), Budget::of("tokens", 10).unwrap())];
        let some = |left: Left| Cost { tokens: left.tokens.unwrap().min(7), ..Cost::default() };
        let reserve = || spending.reserve_of(&grants, some).unwrap().tokens;
        assert_eq!([reserve(), reserve(), reserve()], [7, 3, 0]);
        let Spent { spent, reserved } = spending.spent(&id(1)).unwrap();
        assert_eq!((spent.tokens, reserved.tokens), (0, 10));
        let used = Cost { tokens: 2, ..Cost::default() };
        spending.settle(&grants, Cost { tokens: 7, ..Cost::default() }, used).unwrap();
        assert_eq!(spending.left(&grants).unwrap().tokens, Some(5));
    }

    #[test]
    fn the_time_that_is_left_depends_on_processors_and_memory() {
        let left = Left { cpu_ms: Some(10_000), memory_mib_ms: Some(1_000_000), ..Left::default() };
        assert_eq!(left.time(2000, 100), Some((Duration::from_secs(5), "cpu_seconds")));
        assert_eq!(left.time(1000, 1000), Some((Duration::from_secs(1), "memory_mib_seconds")));
        assert_eq!(Left::default().time(1000, 100), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let (_home, spending) = place();
        let grants = [(id(1), calls(3))];
        spending.reserve(&grants, ONE).unwrap();
        replace(&spending.path(&id(1)), Content::durable(b"{}")).unwrap();
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
