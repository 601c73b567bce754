//! What was taken from budgets for something that is under way.

use std::sync::Arc;
use std::time::Duration;

use ringwall_grant::{Cost, Left, Reserved};

use crate::books::{Books, Desk, tenant_of};
use crate::caller::{Caller, Holder};
use crate::price::{Share, Used};
use crate::refused::Refused;

/// Settles on every way out: one that is dropped charges all of it. The owner's costs nothing.
#[derive(Debug)]
pub struct Reservation {
    books: Arc<Books>,
    /// In the ledger that several hosts share.
    pub(crate) name: String,
    pub(crate) reserved: Option<Reserved>,
    share: Share,
    bound_by: Option<&'static str>,
    open: bool,
    /// Whether the sandbox pays for processes that run between its commands.
    pub(crate) between: bool,
}

impl Reservation {
    /// The most that it may use: less than was asked for, where a budget says so.
    pub fn share(&self) -> Share {
        self.share
    }

    /// What ended something before its own time, for answers.
    pub fn stopped_by(&self, ran_out: bool) -> Option<String> {
        let bound = self.bound_by?;
        ran_out.then(|| format!("budget:{bound}"))
    }

    /// Whether all that could be sent was, if there is a budget of it.
    pub fn sent_all(&self, used: Used) -> bool {
        let most = self.reserved.as_ref().map_or(0, |reserved| reserved.cost.egress_bytes);
        most > 0 && used.sent_bytes.is_none_or(|sent| sent >= most)
    }

    /// Gives back what was not used.
    pub fn settle(mut self, used: Used) -> Result<(), Refused> {
        let cost = self.share.cost_of(used);
        self.pay(cost)
    }

    /// It was not begun: all of it is given back.
    pub fn give_back(mut self) -> Result<(), Refused> {
        self.pay(Cost::default())
    }

    /// Somebody else settles it.
    pub(crate) fn leave(mut self) {
        self.open = false;
    }

    fn pay(&mut self, used: Cost) -> Result<(), Refused> {
        self.open = false;
        settle(&self.books, self.reserved.as_ref(), (&self.name, used))
    }
}

pub(crate) fn settle(
    books: &Books,
    reserved: Option<&Reserved>,
    (name, used): (&str, Cost),
) -> Result<(), Refused> {
    let Some(reserved) = reserved else { return Ok(()) };
    reserved.settle(books.spending()?, used)?;
    match (books.shared(), tenant_of(&reserved.accounts)) {
        (Some(shared), Some(_)) => shared.settle(name, Some(used)),
        _ => Ok(()),
    }
}

/// What an answer of a model costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// Input and output together.
    pub tokens: u64,
    pub money_micros: u64,
}

/// What was taken for an answer of a model. Dropped, all of it is charged.
#[derive(Debug)]
pub struct TurnReservation(Reservation);

impl TurnReservation {
    pub fn settle(mut self, used: Turn) -> Result<(), Refused> {
        let Turn { tokens, money_micros } = used;
        self.0.pay(Cost { tokens, money_micros, ..Cost::default() })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.open {
            // What cannot be settled now stays reserved, which is as good as spent.
            let _ = self.pay(self.reserved.as_ref().map_or(Cost::default(), |it| it.cost));
        }
    }
}

impl Desk<'_> {
    /// Takes the most that this can cost, of exactly this length. `name` is unique, such as a call's.
    pub(crate) fn reserve(
        &self,
        caller: &Caller,
        (name, share): (&str, Share),
        bound_by: Option<&'static str>,
    ) -> Result<Reservation, Refused> {
        self.reserve_as(caller, name, share, |_| (share, bound_by))
    }

    /// Takes what there is for something that can be shorter.
    pub fn reserve_within(
        &self,
        caller: &Caller,
        (name, share): (&str, Share),
    ) -> Result<Reservation, Refused> {
        self.reserve_as(caller, name, share, |left| share.within(left))
    }

    fn reserve_as(
        &self,
        caller: &Caller,
        name: &str,
        share: Share,
        fit: impl FnOnce(Left) -> (Share, Option<&'static str>),
    ) -> Result<Reservation, Refused> {
        let mut taken = self.nothing(name, share);
        let Caller::Holder(holder) = caller else { return Ok(taken) };
        taken.reserved = Some(self.take(holder, name, |left| {
            (taken.share, taken.bound_by) = fit(left);
            taken.share.cost()
        })?);
        taken.open = true;
        Ok(taken)
    }

    /// Takes what `cost` makes of what is left from all budgets, or from none.
    fn take(
        &self,
        holder: &Holder,
        name: &str,
        cost: impl FnOnce(Left) -> Cost,
    ) -> Result<Reserved, Refused> {
        let accounts = self.books.accounts(holder)?;
        let elsewhere = match (self.books.shared(), tenant_of(&accounts)) {
            (Some(shared), Some(tenant)) => Some((shared, tenant.clone())),
            _ => None,
        };
        let least = match &elsewhere {
            Some((shared, tenant)) => Some(shared.least(tenant, Default::default())?),
            None => None,
        };
        let reserved = self.books.spending()?.reserve_of(&accounts, |left| {
            let left = least.map_or(left, |least| lesser(left, least));
            cost(left)
        });
        let cost = match reserved {
            Ok(cost) => cost,
            Err(error) => return self.refuse(holder, ("reserve", name), error.into()),
        };
        let reserved = Reserved { accounts, cost };
        if let Some((shared, tenant)) = elsewhere
            && let Err(refused) = shared.reserve(name, &tenant, cost)
        {
            reserved.settle(self.books.spending()?, Cost::default())?;
            return self.refuse(holder, ("reserve", name), refused);
        }
        Ok(reserved)
    }

    /// Before anything was taken, and for what costs nothing.
    pub(crate) fn nothing(&self, name: &str, share: Share) -> Reservation {
        let (books, name) = (Arc::clone(self.books), name.to_owned());
        let (reserved, bound_by, open, between) = (None, None, false, false);
        Reservation { books, name, reserved, share, bound_by, open, between }
    }

    /// Takes nothing. What runs in the sandbox between commands is charged as it is used.
    pub(crate) fn pay_between(
        &self,
        holder: &Holder,
        share: Share,
    ) -> Result<Reservation, Refused> {
        let reserved = Reserved { accounts: self.books.accounts(holder)?, cost: Cost::default() };
        let mut nothing = self.nothing("", share);
        (nothing.reserved, nothing.between) = (Some(reserved), true);
        Ok(nothing)
    }

    /// Takes what an answer of a model may cost, as far as there are budgets of that. What the question costs
    /// is known only afterwards.
    pub fn reserve_turn(
        &self,
        caller: &Caller,
        (name, most): (&str, Turn),
    ) -> Result<TurnReservation, Refused> {
        let mut reservation = self.nothing(name, Share::of_command());
        if let Caller::Holder(holder) = caller {
            let cost = |left: Left| Cost {
                tokens: left.tokens.map_or(0, |left| left.clamp(1, most.tokens.max(1))),
                money_micros: left.money_micros.map_or(0, |it| it.max(1).min(most.money_micros)),
                ..Cost::default()
            };
            reservation.reserved = Some(self.take(holder, name, cost)?);
            reservation.open = true;
        }
        Ok(TurnReservation(reservation))
    }

    /// A command under no reservation but its own: the call and nothing else.
    pub fn pay_call(&self, caller: &Caller, name: &str) -> Result<(), Refused> {
        self.reserve(caller, (name, Share::of_command()), None)?.settle(Used::default())
    }

    /// How long the budgets let something of this share run, and which part of them ends it then.
    pub(crate) fn time_left(
        &self,
        holder: &Holder,
        share: Share,
    ) -> Result<(Duration, Option<&'static str>), Refused> {
        let left = self.books.left(&self.books.accounts(holder)?)?;
        let (share, bound_by) = share.for_ever().within(left);
        Ok((share.time, bound_by))
    }
}

/// The least of both, part by part.
fn lesser(one: Left, other: Left) -> Left {
    let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Left {
        calls: least(one.calls, other.calls),
        wall_ms: least(one.wall_ms, other.wall_ms),
        cpu_ms: least(one.cpu_ms, other.cpu_ms),
        memory_mib_ms: least(one.memory_mib_ms, other.memory_mib_ms),
        fuel: least(one.fuel, other.fuel),
        egress_bytes: least(one.egress_bytes, other.egress_bytes),
        tokens: least(one.tokens, other.tokens),
        money_micros: least(one.money_micros, other.money_micros),
    }
}
