//! Figures for Prometheus. None carries a tenant, a task or an id.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper ends of the histogram's buckets, in microseconds.
const BUCKETS: [u64; 12] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 500_000, 1_000_000, 5_000_000,
    30_000_000,
];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By method, route and status.
    requests: BTreeMap<(String, String, u16), u64>,
    /// By route.
    times: BTreeMap<String, Histogram>,
    /// By kind and result.
    calls: BTreeMap<(&'static str, &'static str), u64>,
    /// By the part of the budget.
    spent: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Default, Clone)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    micros: u64,
}

impl Metrics {
    /// `route` is the pattern that matched, so there are few of them.
    pub(crate) fn request(&self, method: &str, route: &str, status: u16, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (method.to_owned(), route.to_owned(), status);
        *state.requests.entry(key).or_default() += 1;
        let times = state.times.entry(route.to_owned()).or_default();
        for (bucket, most) in times.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(micros <= most);
        }
        times.count += 1;
        times.micros = times.micros.saturating_add(micros);
    }

    pub(crate) fn call(&self, kind: &'static str, result: &'static str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.calls.entry((kind, result)).or_default() += 1;
    }

    /// Somebody was refused because this part of a budget is spent.
    pub(crate) fn spent(&self, part: &'static str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state.spent.entry(part).or_default() += 1;
    }

    /// In the text format; `gauges` are added as they are.
    pub(crate) fn text(&self, gauges: &[(&str, &str, u64)]) -> String {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = state.write(&mut text);
        for (name, help, value) in gauges {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
        }
        text
    }
}

impl State {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "# HELP ringwall_requests_total Requests that were answered")?;
        writeln!(text, "# TYPE ringwall_requests_total counter")?;
        for ((method, route, status), count) in &self.requests {
            writeln!(
                text,
                "ringwall_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}} {count}"
            )?;
        }
        writeln!(text, "# HELP ringwall_request_seconds Time until a request was answered")?;
        writeln!(text, "# TYPE ringwall_request_seconds histogram")?;
        for (route, times) in &self.times {
            for (count, most) in times.buckets.iter().zip(BUCKETS) {
                let most = seconds(most);
                writeln!(
                    text,
                    "ringwall_request_seconds_bucket{{route=\"{route}\",le=\"{most}\"}} {count}"
                )?;
            }
            let (count, sum) = (times.count, seconds(times.micros));
            writeln!(
                text,
                "ringwall_request_seconds_bucket{{route=\"{route}\",le=\"+Inf\"}} {count}"
            )?;
            writeln!(text, "ringwall_request_seconds_sum{{route=\"{route}\"}} {sum}")?;
            writeln!(text, "ringwall_request_seconds_count{{route=\"{route}\"}} {count}")?;
        }
        writeln!(text, "# HELP ringwall_calls_total Commands and tools that were run")?;
        writeln!(text, "# TYPE ringwall_calls_total counter")?;
        for ((kind, result), count) in &self.calls {
            writeln!(text, "ringwall_calls_total{{kind=\"{kind}\",result=\"{result}\"}} {count}")?;
        }
        let help = "Calls that were refused because a budget is spent";
        writeln!(text, "# HELP ringwall_budget_refusals_total {help}")?;
        writeln!(text, "# TYPE ringwall_budget_refusals_total counter")?;
        for (part, count) in &self.spent {
            writeln!(text, "ringwall_budget_refusals_total{{part=\"{part}\"}} {count}")?;
        }
        Ok(())
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_all_that_is_below_them() {
        let metrics = Metrics::default();
        metrics.request("GET", "/v1/health", 200, Duration::from_micros(300));
        metrics.request("GET", "/v1/health", 200, Duration::from_secs(60));
        metrics.call("exec", "ok");
        metrics.spent("calls");
        let text = metrics.text(&[("ringwall_jobs", "Jobs", 3)]);
        let has = |line: &str| assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        has("ringwall_requests_total{method=\"GET\",route=\"/v1/health\",status=\"200\"} 2");
        has("ringwall_request_seconds_bucket{route=\"/v1/health\",le=\"0.000250\"} 0");
        has("ringwall_request_seconds_bucket{route=\"/v1/health\",le=\"0.000500\"} 1");
        has("ringwall_request_seconds_bucket{route=\"/v1/health\",le=\"+Inf\"} 2");
        has("ringwall_calls_total{kind=\"exec\",result=\"ok\"} 1");
        has("ringwall_budget_refusals_total{part=\"calls\"} 1");
        has("ringwall_jobs 3");
    }
}
