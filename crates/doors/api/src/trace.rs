//! What a request was spent on, for whoever collects that: spans as OpenTelemetry has them.
//!
//! A request has a context only where `OTEL_*` asks for traces. Without one, nothing here does more than
//! look that up.

mod export;
mod settings;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::HeaderMap;
use ringwall_safekeeping::hex;
use serde_json::{Value, json};

use export::Exporter;
pub(crate) use settings::TraceError;
use settings::{Sampler, Settings};

/// Makes traces, where they are wanted.
#[derive(Debug)]
pub(crate) struct Tracer {
    exporter: Exporter,
    sampler: Sampler,
}

/// Where in which trace something happens.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    tracer: Arc<Tracer>,
    trace: [u8; 16],
    span: [u8; 8],
}

/// Something that takes time; it is over when this is dropped.
#[derive(Debug)]
pub(crate) struct Span(Option<Box<Open>>);

#[derive(Debug)]
struct Open {
    own: Context,
    parent: Option<[u8; 8]>,
    name: String,
    kind: u8,
    begun: u64,
    attributes: Vec<Value>,
    failed: Option<String>,
}

/// As the protocol numbers them.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;

tokio::task_local! {
    /// Of the request that is being answered.
    static REQUEST: Context;
}

thread_local! {
    /// Of what this thread does for a request.
    static THREAD: RefCell<Vec<Context>> = const { RefCell::new(Vec::new()) };
}

impl Tracer {
    /// As the environment says; none if it does not ask for traces.
    pub(crate) fn from_environment() -> Result<Option<Arc<Tracer>>, TraceError> {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(settings) = Settings::read(&read)? else { return Ok(None) };
        let sampler = settings.sampler;
        Ok(Some(Arc::new(Tracer { exporter: Exporter::start(settings)?, sampler })))
    }

    /// The span of a whole request, in the trace that its sender is in.
    pub(crate) fn request(self: &Arc<Self>, name: String, headers: &HeaderMap) -> Span {
        let sent = headers.get("traceparent").and_then(|value| parent(value.to_str().ok()?));
        let trace = sent.map_or_else(random, |(trace, _, _)| trace);
        if !self.sampler.takes(trace, sent.map(|(_, _, sampled)| sampled)) {
            return Span(None);
        }
        let own = Context { tracer: Arc::clone(self), trace, span: random() };
        let parent = sent.map(|(_, span, _)| span);
        Span::open(own, parent, name, SERVER)
    }
}

impl Context {
    /// Does what blocks, as a part of this.
    pub(crate) fn within<T>(context: Option<Context>, work: impl FnOnce() -> T) -> T {
        let Some(context) = context else { return work() };
        THREAD.with_borrow_mut(|stack| stack.push(context));
        let done = work();
        THREAD.with_borrow_mut(Vec::pop);
        done
    }

    /// Answers a request, as a part of this.
    pub(crate) async fn around<T>(context: Option<Context>, work: impl Future<Output = T>) -> T {
        match context {
            Some(context) => REQUEST.scope(context, work).await,
            None => work.await,
        }
    }
}

/// What is done right now is a part of this.
pub(crate) fn current() -> Option<Context> {
    let here = THREAD.with_borrow(|stack| stack.last().cloned());
    here.or_else(|| REQUEST.try_with(Context::clone).ok())
}

/// Begins a part of what is done right now.
pub(crate) fn span(name: &'static str) -> Span {
    match current() {
        None => Span(None),
        Some(within) => {
            let own = Context { span: random(), ..within.clone() };
            Span::open(own, Some(within.span), name.to_owned(), INTERNAL)
        }
    }
}

/// Does what blocks as a part of its own.
pub(crate) fn part<T, E: ToString>(
    name: &'static str,
    work: impl FnOnce(&mut Span) -> Result<T, E>,
) -> Result<T, E> {
    let mut span = span(name);
    let done = Context::within(span.context(), || work(&mut span));
    if let Err(error) = &done {
        span.fail(error);
    }
    done
}

impl Span {
    fn open(own: Context, parent: Option<[u8; 8]>, name: String, kind: u8) -> Span {
        let (attributes, failed) = (Vec::new(), None);
        Span(Some(Box::new(Open { own, parent, name, kind, begun: now(), attributes, failed })))
    }

    pub(crate) fn context(&self) -> Option<Context> {
        self.0.as_ref().map(|open| open.own.clone())
    }

    pub(crate) fn note(&mut self, name: &'static str, value: impl Into<Value>) {
        let Some(open) = &mut self.0 else { return };
        let value = match value.into() {
            // The protocol has 64-bit numbers as text.
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            Value::Bool(flag) => json!({ "boolValue": flag }),
            Value::String(text) => json!({ "stringValue": text }),
            // Nobody knows.
            Value::Null => return,
            other => json!({ "stringValue": other.to_string() }),
        };
        open.attributes.push(json!({ "key": name, "value": value }));
    }

    pub(crate) fn fail(&mut self, why: &impl ToString) {
        if let Some(open) = &mut self.0 {
            open.failed = Some(why.to_string());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(open) = self.0.take() else { return };
        let Open { own, parent, name, kind, begun, attributes, failed } = *open;
        let status = match failed {
            Some(message) => json!({ "code": 2, "message": message }),
            None => json!({}),
        };
        own.tracer.exporter.send(json!({
            "traceId": hex::encode(&own.trace),
            "spanId": hex::encode(&own.span),
            "parentSpanId": parent.map(|span| hex::encode(&span)).unwrap_or_default(),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": begun.to_string(),
            "endTimeUnixNano": now().max(begun).to_string(),
            "attributes": attributes,
            "status": status,
        }));
    }
}

/// `00-TRACE-SPAN-FLAGS` as the W3C has it: all hexadecimal, and neither id nothing but zeros.
fn parent(text: &str) -> Option<([u8; 16], [u8; 8], bool)> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // Later versions may have more to say behind it.
    if version.len() != 2 || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let trace: [u8; 16] = bytes(trace)?;
    let span: [u8; 8] = bytes(span)?;
    let [flags]: [u8; 1] = bytes(flags)?;
    (trace != [0; 16] && span != [0; 8]).then_some((trace, span, flags & 1 == 1))
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex::decode_array(text)
}

fn random<const N: usize>() -> [u8; N] {
    // The kernel's pool is ready long before a daemon starts.
    ringwall_safekeeping::random_array().unwrap_or([0; N])
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_may_name_its_trace_in_one_form_only() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (trace, span, sampled) = parent(good).unwrap();
        assert_eq!(
            (hex::encode(&trace).as_str(), sampled),
            ("0af7651916cd43dd8448eb211c80319c", true)
        );
        assert_eq!(hex::encode(&span), "b7ad6b7169203331");
        assert!(parent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more").is_some());
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert!(parent(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn without_a_trace_there_is_no_span() {
        assert!(current().is_none());
        let mut none = span("part");
        none.note("key", 1);
        assert!(none.context().is_none());
        let done: Result<u8, String> = part("part", |_| Ok(7));
        assert_eq!(done, Ok(7));
    }
}
