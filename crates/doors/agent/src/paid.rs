//! What commands and tools take from the budgets that an agent is on: before, the most that they can
//! use; after, what they did. Prices are those of all entrances.

use std::time::Duration;

use ringwall_desk::{Share, Used};
use ringwall_grant::{Cost, Left};
use ringwall_spec::ToolMeter;

use crate::gate::{Gate, GateError, Holder};

/// What is paid for ahead.
#[derive(Debug)]
pub(crate) struct Paid {
    /// No more than is left of the budgets.
    pub(crate) share: Share,
    cost: Cost,
}

impl Paid {
    /// Of a command nothing is known but how long it ran.
    pub(crate) fn ran_for(self, time: Duration) -> (Cost, Cost) {
        (self.cost, without_call(self.share.cost_of(Used::time(time))))
    }

    pub(crate) fn metered(self, meter: &ToolMeter) -> (Cost, Cost) {
        (self.cost, without_call(self.share.cost_of(Used::of_tool(meter))))
    }
}

/// The call was counted when the model asked for it.
fn without_call(cost: Cost) -> Cost {
    Cost { calls: 0, ..cost }
}

impl Gate<'_> {
    /// Takes the most that this can use from the budgets, or says of which nothing is left.
    pub(crate) fn reserve_work(
        &self,
        holder: &Holder,
        work: Share,
    ) -> Result<Result<Paid, String>, GateError> {
        let mut share = work;
        let cost = |left: Left| {
            (share, _) = work.within(left);
            without_call(share.cost())
        };
        let reserved = self.reserve_of(holder, cost)?;
        Ok(reserved.map(|cost| Paid { share, cost }))
    }
}
