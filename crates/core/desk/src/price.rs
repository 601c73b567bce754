//! The price list. docs/guides/grants.md has it in words; all entrances charge by it.
//!
//! - Time is counted in whole milliseconds, rounded up.
//! - Memory is charged by the limit and not by the peak: nobody else can have it meanwhile.
//! - Processors are charged as measured, or by the share that could be used where nothing measured them. Each
//!   entrance measures alike: the control group of the sandbox, from the start of the command to its end.
//! - Fuel and bytes are charged as measured; what nobody knows was all used.
//! - Everything that is begun is one call.
//! - A sandbox that pays by the command pays for processes that commands leave running, too. Between commands,
//!   time counts for as long as processors are used, or all of it where nothing measured them.

use std::time::Duration;

use ringwall_engine::Unattended;
use ringwall_grant::{Cost, Left};
use ringwall_spec::{Limits, ToolLimits, ToolMeter, Usage};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;
/// A tool runs on one processor at most.
const ONE_CPU: u64 = 1000;
/// Below these nothing could be done. They are asked for all the same, so that the refusal names the budget.
const SHORTEST_JOB: Duration = Duration::from_secs(1);
const SHORTEST_CALL: Duration = Duration::from_millis(1);

/// Less than this between commands is what the sandbox itself needs, and not charged.
const OWN_USE: Duration = Duration::from_millis(100);

/// The most that something can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub time: Duration,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub fuel: u64,
    pub sent_bytes: u64,
    shortest: Duration,
}

/// What was used of a share. `None`: nobody knows, so all of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub time: Option<Duration>,
    pub cpu: Option<Duration>,
    pub fuel: Option<u64>,
    pub sent_bytes: Option<u64>,
}

impl Share {
    /// A sandbox, for as long as it lives.
    pub fn of_sandbox(limits: &Limits, sent_bytes: Option<u64>) -> Share {
        Share {
            time: limits.timeout,
            cpu_milli: limits.cpu_milli.into(),
            memory_bytes: limits.memory_bytes,
            fuel: 0,
            sent_bytes: sent_bytes.unwrap_or(0),
            shortest: SHORTEST_JOB,
        }
    }

    /// A command in a sandbox that is paid for already: the call and nothing else.
    pub fn of_command() -> Share {
        Share {
            time: Duration::ZERO,
            cpu_milli: 0,
            memory_bytes: 0,
            fuel: 0,
            sent_bytes: 0,
            shortest: Duration::ZERO,
        }
    }

    pub fn of_tool(limits: &ToolLimits) -> Share {
        let ToolLimits { time, memory_bytes, fuel, .. } = *limits;
        let (cpu_milli, shortest) = (ONE_CPU, SHORTEST_CALL);
        Share { time, cpu_milli, memory_bytes, fuel, sent_bytes: 0, shortest }
    }

    /// No more time and fuel than is left, and the part of the budget that made it less.
    pub fn within(self, left: Left) -> (Share, Option<&'static str>) {
        let (mut share, mut bound_by) = (self, None);
        if let Some((time, part)) = left.time(self.cpu_milli, self.memory_mib())
            && time < share.time
        {
            share.time = time.max(self.shortest).min(self.time);
            bound_by = Some(part);
        }
        if let Some(fuel) = left.fuel.filter(|fuel| *fuel < share.fuel) {
            share.fuel = fuel.max(1);
            bound_by = Some("fuel");
        }
        (share, bound_by)
    }

    /// The same for longer than anything lives.
    pub(crate) fn for_ever(self) -> Share {
        Share { time: Duration::from_secs(u32::MAX.into()), ..self }
    }

    /// The most that it can cost.
    pub fn cost(self) -> Cost {
        self.cost_of(Used::default())
    }

    /// What it cost.
    pub fn cost_of(self, used: Used) -> Cost {
        let time = millis(used.time.unwrap_or(self.time));
        let running = Cost::running(time, self.cpu_milli, self.memory_mib());
        Cost {
            calls: 1,
            cpu_ms: used.cpu.map_or(running.cpu_ms, millis),
            fuel: used.fuel.unwrap_or(self.fuel),
            egress_bytes: used.sent_bytes.map_or(self.sent_bytes, |it| it.min(self.sent_bytes)),
            ..running
        }
    }

    /// The cost of processes that commands left running, if it is enough to be charged.
    pub(crate) fn cost_between(self, used: Unattended) -> Option<Cost> {
        let time = used.cpu.map_or(used.time, |cpu| cpu.min(used.time));
        let cost = self.cost_of(Used { cpu: used.cpu, sent_bytes: Some(0), ..Used::time(time) });
        (time >= OWN_USE).then_some(Cost { calls: 0, ..cost })
    }

    /// The part of a budget of which there is too little left for it to continue, if there is one.
    pub(crate) fn spent_part(self, left: Left) -> Option<&'static str> {
        let (time, part) = left.time(self.cpu_milli, self.memory_mib())?;
        time.is_zero().then_some(part)
    }

    fn memory_mib(self) -> u64 {
        self.memory_bytes.div_ceil(MIB)
    }
}

impl Used {
    /// Nothing is known but how long it took.
    pub fn time(time: Duration) -> Used {
        Used { time: Some(time), ..Used::default() }
    }

    pub fn of_sandbox(usage: &Usage) -> Used {
        Used {
            time: Some(Duration::from_millis(usage.wall_ms)),
            cpu: usage.cpu_ms.map(Duration::from_millis),
            fuel: None,
            sent_bytes: usage.sent_bytes,
        }
    }

    pub fn of_tool(meter: &ToolMeter) -> Used {
        let time = Duration::from_micros(meter.wall_us);
        Used { time: Some(time), cpu: Some(time), fuel: Some(meter.fuel), sent_bytes: None }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(memory_bytes: u64) -> Share {
        let timeout = Duration::from_secs(10);
        let limits = Limits { timeout, cpu_milli: 2000, memory_bytes, ..Limits::default() };
        Share::of_sandbox(&limits, Some(500))
    }

    #[test]
    fn a_part_of_a_millisecond_and_of_a_mebibyte_counts_as_one() {
        let used =
            Used { cpu: Some(Duration::from_micros(1)), ..Used::time(Duration::from_micros(1001)) };
        let cost = sandbox((64 << 20) + 1).cost_of(used);
        assert_eq!((cost.calls, cost.wall_ms, cost.cpu_ms), (1, 2, 1));
        assert_eq!(cost.memory_mib_ms, 2 * 65);
    }

    #[test]
    fn what_nobody_measured_was_all_used_and_no_more() {
        let share = sandbox(64 << 20);
        assert_eq!(share.cost_of(Used::default()), share.cost());
        let cost = share.cost_of(Used::time(Duration::from_secs(1)));
        assert_eq!((cost.cpu_ms, cost.egress_bytes), (2000, 500));
        let more = Used { sent_bytes: Some(501), ..Used::default() };
        assert_eq!(share.cost_of(more).egress_bytes, 500);
    }

    #[test]
    fn memory_costs_its_limit_whatever_the_peak_was() {
        let usage = Usage { wall_ms: 1000, peak_memory_bytes: Some(1), ..Usage::default() };
        let cost = sandbox(64 << 20).cost_of(Used::of_sandbox(&usage));
        assert_eq!(cost.memory_mib_ms, 64_000);
    }

    #[test]
    fn what_is_left_running_costs_as_much_time_as_it_uses_processors() {
        let of = |time, cpu: Option<u64>| {
            let (time, cpu) = (Duration::from_millis(time), cpu.map(Duration::from_millis));
            let cost = sandbox(64 << 20).cost_between(Unattended { time, cpu });
            cost.map(|it| (it.calls, it.wall_ms, it.cpu_ms, it.memory_mib_ms, it.egress_bytes))
        };
        assert_eq!(of(5000, Some(300)), Some((0, 300, 300, 300 * 64, 0)));
        assert_eq!(of(1000, Some(2000)), Some((0, 1000, 2000, 64_000, 0)), "on two processors");
        assert_eq!(of(1000, None), Some((0, 1000, 2000, 64_000, 0)), "nobody measured");
        assert_eq!(of(60_000, Some(99)), None, "its warden's own");
    }

    #[test]
    fn less_is_left_in_the_shape_of_what_is_scarce() {
        let left = Left { cpu_ms: Some(4000), ..Left::default() };
        let (share, part) = sandbox(64 << 20).within(left);
        assert_eq!((share.time, part), (Duration::from_secs(2), Some("cpu_seconds")));
        let (share, _) = sandbox(64 << 20).within(Left { wall_ms: Some(0), ..Left::default() });
        assert_eq!(share.time, SHORTEST_JOB, "so that the refusal names the budget");
        assert_eq!(Share::of_command().cost(), Cost { calls: 1, ..Cost::default() });
    }
}
