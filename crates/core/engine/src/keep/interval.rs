//! How often a shim checks its ring.

use std::ffi::OsStr;
use std::time::Duration;

/// How often a shim looks whether the ring is still as it was raised, while no request comes in.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// Sets a shorter interval, in seconds.
pub(super) const CHECK_SECONDS: &str = "RINGWALL_CHECK_SECONDS";

/// The interval by the value of [`CHECK_SECONDS`]. A longer one than usual does not count: no environment
/// can have a ring checked less often.
pub(super) fn check_interval(asked: Option<&OsStr>) -> Duration {
    let seconds = asked.and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    let interval = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    interval.map_or(CHECK_EVERY, |interval| interval.min(CHECK_EVERY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_can_be_shorter_and_never_longer() {
        let asked = |text: &str| check_interval(Some(OsStr::new(text))).as_secs();
        assert_eq!((asked("1"), asked("59"), asked("60")), (1, 59, 60));
        for text in ["61", "18446744073709551615", "18446744073709551616", "0", "-1", "", "x"] {
            assert_eq!(asked(text), 60, "{text}");
        }
        assert_eq!(check_interval(None), CHECK_EVERY);
    }
}
