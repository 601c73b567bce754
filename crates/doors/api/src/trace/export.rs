//! Sends spans to a collector: OTLP over HTTP, as JSON, from a thread of its own.
//!
//! Whoever has a span to send never waits: where the collector is slow or gone, spans are dropped, and
//! how many is told with the next ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::{Value, json};
use ureq::Agent;

use super::settings::{Settings, TraceError};

/// Spans that wait to be sent.
const MOST_WAITING: usize = 4096;
/// Of one message.
const MOST_SPANS: usize = 512;

#[derive(Debug)]
pub(super) struct Exporter {
    spans: Option<SyncSender<Value>>,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    pub(super) fn start(settings: Settings) -> Result<Exporter, TraceError> {
        let (spans, waiting) = mpsc::sync_channel(MOST_WAITING);
        let dropped = Arc::new(AtomicU64::new(0));
        let sending = Sending { settings, dropped: Arc::clone(&dropped) };
        let thread = std::thread::Builder::new().name("traces".to_owned());
        let thread = thread.spawn(move || sending.run(&waiting)).map_err(TraceError::Thread)?;
        Ok(Exporter { spans: Some(spans), dropped, thread: Some(thread) })
    }

    pub(super) fn send(&self, span: Value) {
        let sent = self.spans.as_ref().map(|spans| spans.try_send(span));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Exporter {
    /// What waits is sent first, for as long as one message may take.
    fn drop(&mut self) {
        self.spans = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Sending {
    settings: Settings,
    dropped: Arc<AtomicU64>,
}

impl Sending {
    fn run(&self, waiting: &Receiver<Value>) {
        let config = Agent::config_builder()
            .timeout_global(Some(self.settings.timeout))
            .max_redirects(0)
            .http_status_as_error(false);
        let agent = Agent::new_with_config(config.build());
        loop {
            let Ok(first) = waiting.recv() else { return };
            let mut spans = vec![first];
            let until = Instant::now() + self.settings.delay;
            let mut ended = false;
            while spans.len() < MOST_SPANS && !ended {
                match waiting.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => spans.push(span),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => ended = true,
                }
            }
            self.send(&agent, spans);
        }
    }

    /// A collector that does not take them does not get them again: what it lost is what it asked for.
    fn send(&self, agent: &Agent, spans: Vec<Value>) {
        let count = spans.len() as u64;
        let mut resource = self.settings.resource.clone();
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let value = json!({ "intValue": dropped.to_string() });
            resource.push(json!({ "key": "ringwall.spans_dropped_before", "value": value }));
        }
        let message = json!({ "resourceSpans": [{
            "resource": { "attributes": resource },
            "scopeSpans": [{ "scope": { "name": "ringwall" }, "spans": spans }],
        }] });
        let mut request =
            agent.post(&self.settings.endpoint).header("content-type", "application/json");
        for (name, value) in &self.settings.headers {
            request = request.header(name, value);
        }
        let taken = request.send(message.to_string());
        if !taken.is_ok_and(|answer| answer.status().is_success()) {
            self.dropped.fetch_add(count.saturating_add(dropped), Ordering::Relaxed);
        }
    }
}
