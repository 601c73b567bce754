//! Text from untrusted places made fit to be looked at.

use std::borrow::Cow;
use std::fmt::Write;

use ringwall_spec::{is_deceptive, push_shown};

/// Replaces what a terminal would obey: control characters, and characters that reorder or hide
/// text.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            other => push_shown(&mut clean, other),
        }
    }
    Cow::Owned(clean)
}

/// Makes names printable that need not be UTF-8: foreign bytes are shown as `\xff`.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    let mut clean = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        clean.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(clean, "\\x{byte:02x}");
        }
    }
    clean
}

/// How long ago, in one or two units: `42s`, `3m`, `5h`, `2d`.
pub(crate) fn age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7199 => format!("{}m", seconds / 60),
        seconds @ 7200..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A moment as RFC 3339 writes it: `2026-11-15T18:37:05.123Z`.
pub(crate) fn utc(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // Years that begin in March have their leap day at the end: every month then starts at a fixed
    // day of the year. 719468 days lie between 0000-03-01 and 1970-01-01.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_orders_from_a_name() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("safe\u{202e}txt.exe"), "safe\\u{202e}txt.exe");
        assert_eq!(printable("plain größe"), "plain größe");
        assert_eq!(printable("x\u{e0041}\u{61c}"), "x\\u{e0041}\\u{61c}");
    }

    #[test]
    fn names_that_are_not_utf8_stay_recognisable() {
        assert_eq!(printable_bytes(b"a\xffb\x07"), "a\\xffb\\u{7}");
    }

    #[test]
    fn moments_are_written_as_calendars_do() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(utc(1_794_767_825_123), "2026-11-15T18:37:05.123Z");
        assert_eq!(utc(4_107_542_399_999), "2100-02-28T23:59:59.999Z");
    }

    #[test]
    fn ages_are_short() {
        assert_eq!(age(1_500), "1s");
        assert_eq!(age(180_000), "3m");
        assert_eq!(age(3 * 3_600_000), "3h");
        assert_eq!(age(3 * 86_400_000), "3d");
    }
}
