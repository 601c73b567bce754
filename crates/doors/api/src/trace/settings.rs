//! The variables by which OpenTelemetry is set up, as its specification has them.

use std::time::Duration;

use serde_json::{Value, json};

/// Where traces are asked for in a way that cannot be followed, nothing is served: half of them would be
/// worse than none.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error(
        "{name}={value:?} cannot be used: traces are sent as http/json only; leave it out or set it to that"
    )]
    Protocol { name: &'static str, value: String },
    #[error("invalid {name}={value:?}: {fix}")]
    Value { name: &'static str, value: String, fix: &'static str },
    #[error("the thread that sends traces cannot be started")]
    Thread(#[source] std::io::Error),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settings {
    pub(super) endpoint: String,
    pub(super) headers: Vec<(String, String)>,
    /// Attributes of the daemon itself.
    pub(super) resource: Vec<Value>,
    pub(super) timeout: Duration,
    pub(super) delay: Duration,
    pub(super) sampler: Sampler,
}

/// Which traces are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// What the sender of a request says counts first.
    by_parent: bool,
    /// Of all, from 0 to 1.
    share: f64,
}

const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const MOST_HEADERS: usize = 32;

impl Settings {
    /// None if traces are not asked for.
    pub(super) fn read(
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Settings>, TraceError> {
        let off = read("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let exporter = read("OTEL_TRACES_EXPORTER");
        if off || exporter.as_deref() == Some("none") {
            return Ok(None);
        }
        let own = read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let shared = read("OTEL_EXPORTER_OTLP_ENDPOINT");
        let below = |base: String| format!("{}/v1/traces", base.trim_end_matches('/'));
        let Some(endpoint) = own.or_else(|| shared.map(below)) else { return Ok(None) };
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            let fix = "give an address that begins with http:// or https://";
            let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
            return Err(TraceError::Value { name, value: endpoint, fix });
        }
        let protocol = PROTOCOLS.into_iter().find_map(|name| Some((name, read(name)?)));
        if let Some((name, value)) = protocol.filter(|(_, value)| value != "http/json") {
            return Err(TraceError::Protocol { name, value });
        }
        let either = |own, shared| read(own).or_else(|| read(shared));
        let headers = either("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let timeout = either("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
        let delay = read("OTEL_BSP_SCHEDULE_DELAY");
        Ok(Some(Settings {
            endpoint,
            headers: pairs(headers.as_deref().unwrap_or_default()),
            resource: resource(read),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", timeout, 10_000)?,
            delay: millis("OTEL_BSP_SCHEDULE_DELAY", delay, 1_000)?,
            sampler: Sampler::read(read)?,
        }))
    }
}

fn resource(read: &dyn Fn(&str) -> Option<String>) -> Vec<Value> {
    let mut all = pairs(&read("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
    let named = read("OTEL_SERVICE_NAME");
    if named.is_some() || !all.iter().any(|(name, _)| name == "service.name") {
        all.retain(|(name, _)| name != "service.name");
        all.push(("service.name".to_owned(), named.unwrap_or_else(|| "ringwall".to_owned())));
    }
    all.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    let one = |(key, text)| json!({ "key": key, "value": { "stringValue": text } });
    all.into_iter().map(one).collect()
}

fn millis(name: &'static str, value: Option<String>, usual: u64) -> Result<Duration, TraceError> {
    let Some(value) = value else { return Ok(Duration::from_millis(usual)) };
    match value.parse::<u64>() {
        Ok(millis @ 1..=600_000) => Ok(Duration::from_millis(millis)),
        _ => Err(TraceError::Value { name, value, fix: "give milliseconds, 1 to 600000" }),
    }
}

/// `name=value,name=value`; what has no `=` says nothing.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name.trim()), decoded(value.trim())))
    };
    text.split(',').filter_map(pair).take(MOST_HEADERS).collect()
}

/// `%20` and the like.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = more.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Sampler {
    fn read(read: &dyn Fn(&str) -> Option<String>) -> Result<Sampler, TraceError> {
        let name =
            read("OTEL_TRACES_SAMPLER").unwrap_or_else(|| "parentbased_always_on".to_owned());
        let (by_parent, rest) = match name.strip_prefix("parentbased_") {
            Some(rest) => (true, rest),
            None => (false, name.as_str()),
        };
        let share = match rest {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let text = read("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned());
                match text.parse::<f64>() {
                    Ok(share) if (0.0..=1.0).contains(&share) => share,
                    _ => {
                        let fix = "give a number from 0 to 1";
                        let name = "OTEL_TRACES_SAMPLER_ARG";
                        return Err(TraceError::Value { name, value: text, fix });
                    }
                }
            }
            _ => {
                let fix = "it is always_on, always_off or traceidratio, or one of them after parentbased_";
                return Err(TraceError::Value { name: "OTEL_TRACES_SAMPLER", value: name, fix });
            }
        };
        Ok(Sampler { by_parent, share })
    }

    pub(super) fn takes(self, trace: [u8; 16], parent: Option<bool>) -> bool {
        if let Some(sampled) = parent.filter(|_| self.by_parent) {
            return sampled;
        }
        let [.., a, b, c, d] = trace;
        // The last bytes of a trace id are random, so they choose the same everywhere.
        f64::from(u32::from_be_bytes([a, b, c, d])) < self.share * 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<Settings>, TraceError> {
        let find = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&find)
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");

    #[test]
    fn traces_are_sent_where_an_endpoint_is_named_and_nowhere_else() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[BASE, ("OTEL_SDK_DISABLED", "true")]).unwrap(), None);
        assert_eq!(read(&[BASE, ("OTEL_TRACES_EXPORTER", "none")]).unwrap(), None);
        let plain = read(&[BASE]).unwrap().unwrap();
        assert_eq!(plain.endpoint, "http://127.0.0.1:4318/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://o.example/x");
        assert_eq!(read(&[BASE, own]).unwrap().unwrap().endpoint, "https://o.example/x");
        let more = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20k, x-a = b,nothing");
        let headers = read(&[BASE, more]).unwrap().unwrap().headers;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(headers, [pair("authorization", "Bearer k"), pair("x-a", "b")]);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        for wrong in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ] {
            assert!(read(&[BASE, wrong]).is_err(), "{wrong:?}");
        }
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")]).is_err());
    }

    #[test]
    fn a_sampler_takes_its_share_and_heeds_the_sender_if_it_is_to() {
        let sampler = |name, share| {
            let set = [BASE, ("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", share)];
            read(&set).unwrap().unwrap().sampler
        };
        let low = [0; 16];
        let high = [0xff; 16];
        let half = sampler("traceidratio", "0.5");
        assert!(half.takes(low, None) && !half.takes(high, None) && half.takes(low, Some(false)));
        let on = sampler("parentbased_always_on", "1");
        assert!(on.takes(high, None) && !on.takes(high, Some(false)));
        let off = sampler("parentbased_always_off", "1");
        assert!(!off.takes(low, None) && off.takes(low, Some(true)));
    }
}
