//! Medians and higher percentiles of measured times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one contender did, in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) name: String,
    pub(crate) runs: usize,
    pub(crate) min_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Summary {
    /// `None` when nothing was measured.
    pub(crate) fn of(name: &str, times: &[Duration]) -> Option<Summary> {
        let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            name: name.to_owned(),
            runs: sorted.len(),
            min_ms: *sorted.first()?,
            median_ms: quantile(&sorted, 0.5)?,
            p95_ms: quantile(&sorted, 0.95)?,
            p99_ms: quantile(&sorted, 0.99)?,
            max_ms: *sorted.last()?,
        })
    }
}

/// By linear interpolation between the two nearest values.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = last as f64 * share;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let (low, high) = (sorted.get(below)?, sorted.get(above)?);
    Some(low + (high - low) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_between_the_middle_values_and_high_percentiles_near_the_end() {
        let times: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        let summary = Summary::of("x", &times).unwrap();
        assert_eq!((summary.min_ms, summary.median_ms), (1.0, 50.5));
        assert!((summary.p95_ms - 95.05).abs() < 1e-9);
        assert!((summary.p99_ms - 99.01).abs() < 1e-9);
        assert_eq!(summary.max_ms, 100.0);
    }

    #[test]
    fn nothing_measured_is_nothing_claimed() {
        assert!(Summary::of("x", &[]).is_none());
    }
}
