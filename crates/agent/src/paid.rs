//! What commands and tools take from the budgets that an agent is on: before, the most that they can
//! use; after, what they did.

use std::time::Duration;

use ringwall_grant::{Cost, Left};
use ringwall_spec::{ToolLimits, ToolMeter};

use crate::gate::{Gate, GateError, Holder};

const MIB: u64 = 1 << 20;
/// A tool runs on one at most.
const ONE_CPU: u64 = 1000;
/// What is next to nothing is asked for all the same, so that the refusal names the budget.
const SHORTEST: Duration = Duration::from_millis(1);

/// The most that something can use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) time: Duration,
    pub(crate) cpu_milli: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) fuel: u64,
}

/// What is paid for ahead.
#[derive(Debug)]
pub(crate) struct Paid {
    /// No more than is left of the budgets.
    pub(crate) work: Share,
    cost: Cost,
}

impl Share {
    pub(crate) fn of_tool(limits: &ToolLimits) -> Share {
        let ToolLimits { time, memory_bytes, fuel, .. } = *limits;
        Share { time, cpu_milli: ONE_CPU, memory_bytes, fuel }
    }

    fn within(self, left: Left) -> Share {
        let time = left.time(self.cpu_milli, self.memory_bytes.div_ceil(MIB));
        let time = time.map_or(self.time, |(most, _)| self.time.min(most));
        let fuel = left.fuel.map_or(self.fuel, |most| self.fuel.min(most.max(1)));
        Share { time: time.max(SHORTEST), fuel, ..self }
    }

    /// A part of a millisecond counts as one: short calls are not free.
    fn cost(self) -> Cost {
        let wall_ms = u64::try_from(self.time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        let memory_mib = self.memory_bytes.div_ceil(MIB);
        Cost { fuel: self.fuel, ..Cost::running(wall_ms, self.cpu_milli, memory_mib) }
    }
}

impl Paid {
    /// Of a command nothing is known but how long it ran.
    pub(crate) fn ran_for(self, time: Duration) -> (Cost, Cost) {
        (self.cost, Share { time, ..self.work }.cost())
    }

    pub(crate) fn metered(self, meter: &ToolMeter) -> (Cost, Cost) {
        let time = Duration::from_micros(meter.wall_us);
        let (memory_bytes, fuel) = (meter.peak_memory_bytes, meter.fuel);
        (self.cost, Share { time, memory_bytes, fuel, ..self.work }.cost())
    }
}

impl Gate<'_> {
    /// Takes the most that this can use from the budgets, or says of which nothing is left.
    pub(crate) fn reserve_work(
        &self,
        holder: &Holder,
        work: Share,
    ) -> Result<Result<Paid, String>, GateError> {
        let mut given = work;
        let cost = |left: Left| {
            given = work.within(left);
            given.cost()
        };
        let reserved = self.reserve_of(holder, cost)?;
        Ok(reserved.map(|cost| Paid { work: given, cost }))
    }
}
