//! What a sandbox that lives on holds of its grant, until it ends.

use ringwall_approval::ApprovalId;
use ringwall_engine::Unattended;
use ringwall_grant::{Account, Budget, Cost, Held, Reserved};
use ringwall_spec::{SandboxId, Usage};
use serde::{Deserialize, Serialize};

use crate::books::Books;
use crate::place::Placed;
use crate::price::{Share, Used};
use crate::refused::Refused;
use crate::reserve::settle;

/// Who sees to it that a sandbox is settled when it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeper {
    /// The keeper's own process.
    Itself,
    Daemon,
}

/// Words in a file, so that they outlive the process that made the sandbox.
#[derive(Serialize, Deserialize)]
struct Holding {
    reserved: Option<Reserved>,
    share: Share,
    /// In the ledger that several hosts share.
    name: String,
    /// An elevation that it was made by.
    elevation: Option<ApprovalId>,
    /// Commands in it pay for themselves, so it pays for what runs between them and nothing else.
    #[serde(default)]
    between: bool,
}

/// The sandbox of an agent, as long as it runs.
#[derive(Debug)]
pub(crate) struct Between {
    accounts: Vec<(Account, Budget)>,
    share: Share,
}

impl Keeper {
    fn place_of(self, sandbox: &str) -> String {
        match self {
            Keeper::Itself => sandbox.to_owned(),
            Keeper::Daemon => format!("daemon-{sandbox}"),
        }
    }
}

impl Placed {
    /// The sandbox lives on and keeps what was reserved, and the elevation that it was made by.
    pub fn leave_to(self, keeper: Keeper, sandbox: &SandboxId) -> Result<(), Refused> {
        let Placed { reservation, elevated, books, .. } = self;
        let elevation = elevated.as_ref().map(|elevated| elevated.approval().clone());
        let pays = reservation.reserved.as_ref().is_some_and(|it| !it.accounts.is_empty());
        if pays || elevation.is_some() {
            let place = keeper.place_of(sandbox.as_str());
            let (share, name) = (reservation.share(), reservation.name.clone());
            let reserved = reservation.reserved.clone();
            let between = reservation.between;
            let holding = Holding { reserved, share, name, elevation, between };
            let words = serde_json::to_vec(&holding).map_err(|error| Refused::internal(&error))?;
            Held::open(books.home())?.put(&place, &words)?;
        }
        reservation.leave();
        if let Some(elevated) = elevated {
            elevated.keep();
        }
        Ok(())
    }
}

impl Books {
    /// Who pays for what runs between the commands of an agent in this sandbox, once it is written down.
    pub(crate) fn between(&self, sandbox: &str) -> Result<Option<Between>, Refused> {
        let words = Held::open(self.home())?.read(&Keeper::Itself.place_of(sandbox))?;
        let holding = words.and_then(|words| serde_json::from_slice::<Holding>(&words).ok());
        let holding = holding.filter(|holding| holding.between);
        Ok(holding.and_then(|Holding { reserved, share, .. }| {
            reserved.map(|Reserved { accounts, .. }| Between { accounts, share })
        }))
    }

    /// Charges `used` and clears it. Gives the part of the budget that is spent, if there is one.
    pub(crate) fn charge_between(
        &self,
        Between { accounts, share }: &Between,
        used: &mut Unattended,
    ) -> Result<Option<&'static str>, Refused> {
        let Some(cost) = share.cost_between(*used) else { return Ok(None) };
        let left = self.spending()?.charge(accounts, cost)?;
        *used = Unattended::NOTHING;
        Ok(share.spent_part(left))
    }

    /// A sandbox that lived on has ended: what it did not use is given back. Where nobody knows what it
    /// used, it used everything.
    pub fn sandbox_ended(
        &self,
        keeper: Keeper,
        sandbox: &str,
        usage: Option<&Usage>,
    ) -> Result<(), Refused> {
        let Some(words) = Held::open(self.home())?.take(&keeper.place_of(sandbox))? else {
            return Ok(());
        };
        // What cannot be read stays spent.
        let Ok(holding) = serde_json::from_slice::<Holding>(&words) else { return Ok(()) };
        let Holding { reserved, share, name, elevation, between } = holding;
        let cost: Cost = match between {
            // The shim of the sandbox has charged it.
            true => Cost::default(),
            false => share.cost_of(usage.map(Used::of_sandbox).unwrap_or_default()),
        };
        settle(self, reserved.as_ref(), (&name, cost))?;
        match elevation {
            Some(id) => self.use_is_over(&id),
            None => Ok(()),
        }
    }
}
