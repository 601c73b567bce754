//! The clocks that tools see: coarse ones, or, in a call that must be repeatable, none of this
//! world.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// No clock is finer: what a tool could learn from the time that things take is worth more to it.
const RESOLUTION: Duration = Duration::from_millis(1);

/// A repeatable call always happens at this moment: 2025-01-01.
const FIXED_TIME: Duration = Duration::from_secs(1_735_689_600);

/// Every look at the monotonic clock of a repeatable call takes so long.
const STEP_NANOS: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct CoarseWall;

#[derive(Debug)]
pub(crate) struct CoarseMonotonic(pub(crate) Instant);

#[derive(Debug)]
pub(crate) struct FixedWall;

#[derive(Debug, Default)]
pub(crate) struct Counting(AtomicU64);

impl HostWallClock for CoarseWall {
    fn resolution(&self) -> Duration {
        RESOLUTION
    }

    fn now(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        coarse(now)
    }
}

impl HostMonotonicClock for CoarseMonotonic {
    fn resolution(&self) -> u64 {
        nanos(RESOLUTION)
    }

    fn now(&self) -> u64 {
        nanos(coarse(self.0.elapsed()))
    }
}

impl HostWallClock for FixedWall {
    fn resolution(&self) -> Duration {
        RESOLUTION
    }

    fn now(&self) -> Duration {
        FIXED_TIME
    }
}

impl HostMonotonicClock for Counting {
    fn resolution(&self) -> u64 {
        STEP_NANOS
    }

    fn now(&self) -> u64 {
        self.0.fetch_add(STEP_NANOS, Ordering::Relaxed)
    }
}

fn coarse(time: Duration) -> Duration {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
