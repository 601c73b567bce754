//! The rate of the host's time stamp counter, which is the guest's where the processor is emulated.

use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ringwall_linux::tsc;

/// Long enough that the uncertainty at both ends is some hundred-thousandths of it.
const MEASURED_FOR: Duration = Duration::from_millis(5);

/// Of so many attempts the least disturbed one counts.
const ATTEMPTS: usize = 20;

/// In kHz, measured once. None where the counter does not run at one rate.
pub fn host_tsc_khz() -> Option<u64> {
    static RATE: OnceLock<Option<u64>> = OnceLock::new();
    *RATE.get_or_init(|| runs_evenly().then(measure).flatten())
}

fn runs_evenly() -> bool {
    let Ok(text) = fs::read_to_string("/proc/cpuinfo") else {
        return false;
    };
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "constant_tsc")
}

fn measure() -> Option<u64> {
    let (start, start_ticks) = at_once();
    std::thread::sleep(MEASURED_FOR);
    let (end, end_ticks) = at_once();
    let nanoseconds = (end - start).as_nanos();
    let ticks = u128::from(end_ticks.checked_sub(start_ticks)?);
    let khz = (ticks * 1_000_000).checked_div(nanoseconds)?;
    // Anything else is no counter of this machine's.
    u64::try_from(khz).ok().filter(|khz| (100_000..=10_000_000).contains(khz))
}

/// The clock and the counter at one moment: the clock read between two counts that are close.
fn at_once() -> (Instant, u64) {
    let mut best = sample();
    for _ in 1..ATTEMPTS {
        let next = sample();
        if next.2 < best.2 {
            best = next;
        }
    }
    (best.0, best.1)
}

fn sample() -> (Instant, u64, u64) {
    let before = tsc::read();
    let now = Instant::now();
    let after = tsc::read();
    let width = after.saturating_sub(before);
    (now, before + width / 2, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_measurements_agree() {
        if !runs_evenly() {
            return;
        }
        let (Some(first), Some(second)) = (measure(), measure()) else {
            panic!("the counter could not be measured");
        };
        // A thousandth: the guest's clock would be off by a second in a quarter of an hour.
        assert!(first.abs_diff(second) < first / 1000, "{first} and {second} kHz");
        assert!(host_tsc_khz().is_some_and(|rate| rate.abs_diff(first) < first / 1000));
    }
}
