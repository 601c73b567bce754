//! What a sandbox uses while a command is under way in it, and what it uses besides: commands leave processes
//! behind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringwall_linux::cgroup::Group;

/// Measures the control group of one sandbox.
#[derive(Debug)]
pub(crate) struct Meter {
    group: Option<Arc<Group>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many commands are under way.
    commands: usize,
    /// When this was brought up to date, and the CPU time of the group by then.
    at: Instant,
    cpu_micros: Option<u64>,
    unattended: Unattended,
}

/// Usage while no command was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unattended {
    pub time: Duration,
    /// None where it was not measured.
    pub cpu: Option<Duration>,
}

/// A command that is under way.
#[derive(Debug)]
pub(crate) struct Command<'a> {
    meter: &'a Meter,
    cpu_micros: Option<u64>,
}

impl Unattended {
    pub const NOTHING: Unattended = Unattended { time: Duration::ZERO, cpu: Some(Duration::ZERO) };

    #[must_use]
    pub fn and(self, more: Unattended) -> Unattended {
        let cpu = self.cpu.zip(more.cpu).map(|(one, other)| one.saturating_add(other));
        Unattended { time: self.time.saturating_add(more.time), cpu }
    }
}

impl Meter {
    pub(crate) fn new(group: Option<Arc<Group>>) -> Meter {
        let (at, unattended) = (Instant::now(), Unattended::NOTHING);
        let state = State { commands: 0, at, cpu_micros: None, unattended };
        let meter = Meter { group, state: Mutex::new(state) };
        meter.lock().cpu_micros = meter.measured();
        meter
    }

    pub(crate) fn begin_command(&self) -> Command<'_> {
        let mut state = self.up_to_date();
        state.commands += 1;
        Command { meter: self, cpu_micros: state.cpu_micros }
    }

    /// Usage since the last time, while no command was under way.
    pub(crate) fn take_unattended(&self) -> Unattended {
        std::mem::replace(&mut self.up_to_date().unattended, Unattended::NOTHING)
    }

    fn up_to_date(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let (now, cpu_micros) = (Instant::now(), self.measured());
        if state.commands == 0 {
            let cpu = since(state.cpu_micros, cpu_micros).map(Duration::from_micros);
            let more = Unattended { time: now.saturating_duration_since(state.at), cpu };
            state.unattended = state.unattended.and(more);
        }
        (state.at, state.cpu_micros) = (now, cpu_micros);
        state
    }

    fn measured(&self) -> Option<u64> {
        self.group.as_ref()?.usage().ok()?.cpu_micros
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Command<'_> {
    /// The CPU time of the sandbox since the command began.
    pub(crate) fn cpu_micros(&self) -> Option<u64> {
        since(self.cpu_micros, self.meter.measured())
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        self.meter.up_to_date().commands -= 1;
    }
}

fn since(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    before.zip(now).map(|(before, now)| now.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_while_no_command_is_under_way() {
        let meter = Meter::new(None);
        let pause = || std::thread::sleep(Duration::from_millis(5));
        pause();
        let first = meter.take_unattended();
        assert!(first.time >= Duration::from_millis(5) && first.cpu.is_none(), "{first:?}");
        let (one, other) = (meter.begin_command(), meter.begin_command());
        meter.take_unattended();
        pause();
        drop(one);
        assert_eq!(meter.take_unattended().time, Duration::ZERO, "another is under way");
        assert_eq!(other.cpu_micros(), None, "there is no group that measures");
        drop(other);
        pause();
        assert!(meter.take_unattended().time >= Duration::from_millis(5));
    }

    #[test]
    fn what_was_not_measured_once_is_not_known_at_all() {
        let second = Duration::from_secs(1);
        let measured = Unattended { time: second, cpu: Some(second) };
        assert_eq!(measured.and(measured).cpu, Some(2 * second));
        assert_eq!(measured.and(Unattended { cpu: None, ..measured }).cpu, None);
    }
}
