//! Sizes, durations and CPU counts as people write them.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("{0:?} is not a size; write bytes or use K, M, G or T, for example 512M")]
    Size(String),
    #[error("{0:?} is not a duration; use ms, s, m or h, for example 30s")]
    Duration(String),
    #[error("{0:?} is not a number of CPUs; write for example 1, 0.5 or 2.25")]
    Cpus(String),
}

/// Reads `1024`, `64K`, `512M`, `1.5G`; units are powers of 1024. An optional `B` or `iB` may follow.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let wrong = || UnitError::Size(text.to_owned());
    let (number, unit) = split_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let thousandths = parse_thousandths(number).ok_or_else(wrong)?;
    let bytes = (u128::from(thousandths) << shift) / 1000;
    u64::try_from(bytes).map_err(|_| wrong())
}

/// Reads `500ms`, `30s`, `5m`, `2h`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let wrong = || UnitError::Duration(text.to_owned());
    let (number, unit) = split_unit(text);
    let micros_per_thousandth: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let thousandths = parse_thousandths(number).ok_or_else(wrong)?;
    thousandths.checked_mul(micros_per_thousandth).map(Duration::from_micros).ok_or_else(wrong)
}

/// Reads a count of CPUs into thousandths: `0.5` is 500.
pub fn parse_cpus(text: &str) -> Result<u32, UnitError> {
    parse_thousandths(text)
        .and_then(|milli| u32::try_from(milli).ok())
        .ok_or_else(|| UnitError::Cpus(text.to_owned()))
}

pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    for (unit, shift) in UNITS {
        if bytes >= 1 << shift {
            let tenths = u128::from(bytes) * 10 / (1u128 << shift);
            let (whole, rest) = (tenths / 10, tenths % 10);
            return if rest == 0 {
                format!("{whole}{unit}")
            } else {
                format!("{whole}.{rest}{unit}")
            };
        }
    }
    format!("{bytes}B")
}

pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0..1_000 => format!("{millis}ms"),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{:.1}s", duration.as_secs_f64()),
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.split_at(end)
}

/// Parses a non-negative decimal with at most three places into thousandths, without floats.
fn parse_thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 3 {
        return None;
    }
    if text.ends_with('.') {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_powers_of_1024() {
        assert_eq!(parse_bytes("1024"), Ok(1024));
        assert_eq!(parse_bytes("64K"), Ok(64 << 10));
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("0"), Ok(0));
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for bad in ["", "M", "-1M", "1X", "1..5G", "1.", "99999999999999T", "1e3", " 1"] {
            assert!(parse_bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_take_the_common_units() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        assert!(parse_duration("soon").is_err());
    }

    #[test]
    fn cpus_are_thousandths() {
        assert_eq!(parse_cpus("1"), Ok(1000));
        assert_eq!(parse_cpus("0.25"), Ok(250));
        assert!(parse_cpus("0.0001").is_err());
    }

    #[test]
    fn shown_sizes_and_durations_are_short() {
        assert_eq!(show_bytes(512 << 20), "512M");
        assert_eq!(show_bytes(3 << 29), "1.5G");
        assert_eq!(show_bytes(17), "17B");
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::from_millis(1500)), "1.5s");
    }
}
