//! What a task has used of the network, and where that ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use ringwall_egress::{Limits, Usage};
use serde::Serialize;
use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    #[error("the task has sent all the bytes that it may")]
    BytesUp,
    #[error("the task has received all the bytes that it may")]
    BytesDown,
    #[error("the task's request lines and headers have reached their limit")]
    HeadBytes,
    #[error("the task has as many open connections as it may")]
    OpenConnections,
    #[error("the task has made as many connections as it may")]
    Connections,
    #[error("the task has made as many requests as it may in this minute")]
    Rate,
    #[error("the task has asked for as many names as it may")]
    DnsQueries,
    #[error("the request's body is longer than allowed")]
    RequestBody,
    #[error("the response's body is longer than allowed")]
    ResponseBody,
    #[error("bodies that wait for a judgement take all the memory that they may; try again later")]
    Held,
    #[error("the connection has lived as long as it may")]
    Duration,
    #[error("the task has used all the tokens that it may")]
    Tokens,
}

#[derive(Debug, Default)]
struct Counters {
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    head_bytes: AtomicU64,
    open_connections: AtomicU64,
    connections: AtomicU64,
    requests: AtomicU64,
    dns_queries: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
}

#[derive(Debug)]
pub struct Meter {
    pub limits: Limits,
    counters: Counters,
    requests: Minute,
    refusals: Minute,
}

/// Counts within each minute.
#[derive(Debug)]
struct Minute(Mutex<(Instant, u64)>);

impl Minute {
    fn new() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }

    /// How many there were before this one.
    fn next(&self) -> u64 {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if minute.0.elapsed() >= Duration::from_secs(60) {
            *minute = (Instant::now(), 0);
        }
        minute.1 += 1;
        minute.1 - 1
    }
}

/// Counts a connection as open for as long as it lives.
#[derive(Debug)]
pub struct OpenConnection(Arc<Meter>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.counters.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What no call costs.
const MOST_RESERVED: u64 = 1 << 40;

/// Tokens of one call, which count as they are unless it turns out how many they were.
#[derive(Debug)]
pub(crate) struct Reserved {
    meter: Arc<Meter>,
    input: u64,
    output: u64,
}

impl Reserved {
    /// The call has cost this much.
    pub(crate) fn settle(self, input: u64, output: u64) {
        let counters = &self.meter.counters;
        correct(&counters.input_tokens, self.input, input);
        correct(&counters.output_tokens, self.output, output);
    }

    /// The call has cost what was set aside, or more.
    pub(crate) fn settle_at_least(self, input: u64, output: u64) {
        let (input, output) = (self.input.max(input), self.output.max(output));
        self.settle(input, output);
    }
}

fn correct(counter: &AtomicU64, counted: u64, real: u64) {
    if real >= counted {
        counter.fetch_add(real - counted, Ordering::Relaxed);
    } else {
        counter.fetch_sub(counted - real, Ordering::Relaxed);
    }
}

impl Meter {
    pub fn new(limits: Limits) -> Self {
        let (requests, refusals) = (Minute::new(), Minute::new());
        Self { limits, counters: Counters::default(), requests, refusals }
    }

    pub fn connection(self: &Arc<Self>) -> Result<OpenConnection, Exhausted> {
        let open = self.counters.open_connections.fetch_add(1, Ordering::Relaxed);
        let guard = OpenConnection(Arc::clone(self));
        if open >= self.limits.open_connections {
            return Err(Exhausted::OpenConnections);
        }
        add(&self.counters.connections, 1, self.limits.connections, Exhausted::Connections)?;
        Ok(guard)
    }

    pub fn request(&self, head_bytes: u64) -> Result<(), Exhausted> {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        self.in_this_minute()?;
        add(&self.counters.head_bytes, head_bytes, self.limits.head_bytes, Exhausted::HeadBytes)
    }

    pub fn dns_query(&self) -> Result<(), Exhausted> {
        self.in_this_minute()?;
        add(&self.counters.dns_queries, 1, self.limits.dns_queries, Exhausted::DnsQueries)
    }

    pub fn up(&self, bytes: u64) -> Result<(), Exhausted> {
        add(&self.counters.bytes_up, bytes, self.limits.bytes_up, Exhausted::BytesUp)
    }

    pub fn down(&self, bytes: u64) -> Result<(), Exhausted> {
        add(&self.counters.bytes_down, bytes, self.limits.bytes_down, Exhausted::BytesDown)
    }

    /// Sets aside what a call of a model can cost. Tokens are known only afterwards, and a call that is
    /// given up costs them all the same.
    pub(crate) fn reserve_tokens(
        self: &Arc<Self>,
        input: u64,
        output: u64,
    ) -> Result<Reserved, Exhausted> {
        // Above every limit; sums of some of them do not overflow.
        let (input, output) = (input.min(MOST_RESERVED), output.min(MOST_RESERVED));
        let before = self.counters.input_tokens.fetch_add(input, Ordering::Relaxed);
        let and = self.counters.output_tokens.fetch_add(output, Ordering::Relaxed);
        let reserved = Reserved { meter: Arc::clone(self), input, output };
        if before.saturating_add(and) < self.limits.tokens {
            return Ok(reserved);
        }
        reserved.settle(0, 0);
        Err(Exhausted::Tokens)
    }

    pub fn usage(&self) -> Usage {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Usage {
            bytes_up: get(&self.counters.bytes_up),
            bytes_down: get(&self.counters.bytes_down),
            head_bytes: get(&self.counters.head_bytes),
            open_connections: get(&self.counters.open_connections),
            connections: get(&self.counters.connections),
            requests: get(&self.counters.requests),
            dns_queries: get(&self.counters.dns_queries),
            input_tokens: get(&self.counters.input_tokens),
            output_tokens: get(&self.counters.output_tokens),
        }
    }

    /// How many refusals there were in this minute.
    pub(crate) fn refusal(&self) -> u64 {
        self.refusals.next()
    }

    fn in_this_minute(&self) -> Result<(), Exhausted> {
        let before = self.requests.next();
        if before >= self.limits.requests_per_minute { Err(Exhausted::Rate) } else { Ok(()) }
    }
}

fn add(counter: &AtomicU64, more: u64, most: u64, reason: Exhausted) -> Result<(), Exhausted> {
    let before = counter.fetch_add(more, Ordering::Relaxed);
    if before.saturating_add(more) > most { Err(reason) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_ends_what_it_counts() {
        let limits = Limits {
            bytes_up: 10,
            bytes_down: 10,
            head_bytes: 100,
            open_connections: 2,
            connections: 3,
            requests_per_minute: 4,
            tokens: 5,
            ..Limits::default()
        };
        let meter = Arc::new(Meter::new(limits));
        assert!(meter.up(10).is_ok());
        assert_eq!(meter.up(1), Err(Exhausted::BytesUp));
        assert!(meter.down(9).is_ok());
        assert_eq!(meter.down(2), Err(Exhausted::BytesDown));
        let first = meter.connection().unwrap();
        let second = meter.connection().unwrap();
        assert_eq!(meter.connection().unwrap_err(), Exhausted::OpenConnections);
        drop((first, second));
        assert_eq!(meter.usage().open_connections, 0);
        let _third = meter.connection().unwrap();
        assert_eq!(meter.connection().unwrap_err(), Exhausted::Connections);
        assert!(meter.request(60).is_ok());
        assert_eq!(meter.request(60), Err(Exhausted::HeadBytes));
        assert!(meter.dns_query().is_ok());
        assert!(meter.dns_query().is_ok());
        assert_eq!(meter.dns_query(), Err(Exhausted::Rate));
        let call = meter.reserve_tokens(1, 1000).unwrap();
        // While it is made, no other is.
        assert_eq!(meter.reserve_tokens(1, 1).unwrap_err(), Exhausted::Tokens);
        call.settle(3, 1);
        assert_eq!((meter.usage().input_tokens, meter.usage().output_tokens), (3, 1));
        let given_up = meter.reserve_tokens(1, u64::MAX).unwrap();
        drop(given_up);
        assert_eq!(meter.reserve_tokens(0, 0).unwrap_err(), Exhausted::Tokens);
    }
}
