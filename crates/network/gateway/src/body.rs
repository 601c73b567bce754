//! Bodies on their way through: counted, bounded, searched.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::body::{Frame, Incoming, SizeHint};
use thiserror::Error;

use crate::credential::BadCredential;
use crate::event::Verdict;
use crate::meter::{Exhausted, Meter};
use crate::needles::{Needles, Scanner};
use crate::task::{Held, Stream};
use crate::usage::UsageReader;

pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// How much of each request's body is searched for placeholders.
const MOST_SEARCHED: u64 = 1024 * 1024;

#[derive(Debug, Clone, Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    #[error(transparent)]
    Credential(#[from] BadCredential),
    #[error("the stream broke: {0}")]
    Broken(Arc<hyper::Error>),
}

pub(crate) fn text(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn empty() -> Body {
    text(String::new())
}

/// A request's body as it goes up.
pub(crate) struct Upload {
    /// What was read of it before, and counted then.
    front: Option<Bytes>,
    rest: Option<Incoming>,
    meter: Arc<Meter>,
    left: u64,
    search: Option<(Scanner, u64)>,
    fault: Arc<Mutex<Option<BodyError>>>,
    sent: Arc<std::sync::atomic::AtomicU64>,
}

/// What became of an upload, to be asked when the answer comes or fails to.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    fault: Arc<Mutex<Option<BodyError>>>,
    sent: Arc<std::sync::atomic::AtomicU64>,
}

impl Progress {
    pub(crate) fn fault(&self) -> Option<BodyError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Upload {
    pub(crate) fn new(
        front: Option<Bytes>,
        rest: Option<Incoming>,
        meter: &Arc<Meter>,
        placeholders: &Needles,
    ) -> (Self, Progress) {
        let progress = Progress::default();
        let search =
            (!placeholders.is_empty()).then(|| (Scanner::new(placeholders.clone()), MOST_SEARCHED));
        let upload = Self {
            front,
            rest,
            meter: Arc::clone(meter),
            left: meter.limits.request_body,
            search,
            fault: Arc::clone(&progress.fault),
            sent: Arc::clone(&progress.sent),
        };
        (upload, progress)
    }

    fn look_at(&mut self, piece: &Bytes, counted: bool) -> Result<(), BodyError> {
        let size = piece.len() as u64;
        self.left = self.left.checked_sub(size).ok_or(Exhausted::RequestBody)?;
        if !counted {
            self.meter.up(size)?;
        }
        if let Some((scanner, budget)) = &mut self.search {
            if scanner.sees(piece) {
                return Err(BadCredential::InBody.into());
            }
            *budget = budget.saturating_sub(size);
            if *budget == 0 {
                self.search = None;
            }
        }
        self.sent.fetch_add(size, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.front = None;
        self.rest = None;
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        error
    }
}

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let counted = self.front.is_some();
        let piece = if let Some(front) = self.front.take() {
            front
        } else {
            let Some(rest) = &mut self.rest else {
                return Poll::Ready(None);
            };
            loop {
                match ready!(Pin::new(&mut *rest).poll_frame(context)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => {
                        let error = BodyError::Broken(Arc::new(error));
                        return Poll::Ready(Some(Err(self.fail(error))));
                    }
                    // Trailers of requests carry nothing that a server needs; they are dropped.
                    Some(Ok(frame)) => {
                        if let Ok(piece) = frame.into_data() {
                            break piece;
                        }
                    }
                }
            }
        };
        match self.look_at(&piece, counted) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            Err(error) => Poll::Ready(Some(Err(self.fail(error)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.front.is_none() && self.rest.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let front = self.front.as_ref().map_or(0, Bytes::len) as u64;
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(front));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(front));
        }
        hint
    }
}

/// A response's body as it comes down; its end is the end of the stream in the record.
pub(crate) struct Download {
    inner: Incoming,
    meter: Arc<Meter>,
    left: u64,
    scanner: Option<Scanner>,
    needles: Needles,
    usage: Option<UsageReader>,
    record: Record,
    /// They wait until the last bytes are out.
    trailers: Option<HeaderMap>,
    over: bool,
}

/// Writes the `Ended` event when the stream is over, however that comes.
pub(crate) struct Record {
    pub(crate) stream: Stream,
    pub(crate) progress: Progress,
    pub(crate) down: u64,
    pub(crate) fault: Option<BodyError>,
    /// Until then new rules are asked about the stream.
    pub(crate) held: Option<Held>,
    pub(crate) blotted: usize,
}

impl Drop for Record {
    fn drop(&mut self) {
        self.stream.event.bytes_up += self.progress.sent();
        self.stream.event.bytes_down += self.down;
        self.held = None;
        match self.fault.take().or_else(|| self.progress.fault()) {
            Some(error) => self.stream.note(Verdict::Cut, &error),
            None if self.blotted > 0 => {
                self.stream.note(Verdict::Ended, &"a secret in the answer was blotted out");
            }
            None => {
                // The decision was recorded; that its end is not does not undo it.
                let _ = self.stream.record(Verdict::Ended, None);
            }
        }
    }
}

impl Download {
    pub(crate) fn new(
        inner: Incoming,
        meter: &Arc<Meter>,
        needles: Needles,
        usage: Option<UsageReader>,
        record: Record,
    ) -> Self {
        let scanner = (!needles.is_empty()).then(|| Scanner::new(needles.clone()));
        let left = meter.limits.response_body;
        let meter = Arc::clone(meter);
        let (trailers, over) = (None, false);
        Self { inner, meter, left, scanner, needles, usage, record, trailers, over }
    }

    /// The stream has no more bytes: what waited goes out, then the trailers.
    fn finish(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        self.over = true;
        if let Some(usage) = self.usage.take() {
            usage.finish();
        }
        let rest = self.scanner.as_mut().map(Scanner::rest).unwrap_or_default();
        if rest.is_empty() {
            return self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)));
        }
        Some(Ok(Frame::data(rest)))
    }

    fn take(&mut self, piece: Bytes) -> Result<Bytes, BodyError> {
        let size = piece.len() as u64;
        self.left = self.left.checked_sub(size).ok_or(Exhausted::ResponseBody)?;
        self.meter.down(size)?;
        self.record.down += size;
        if let Some(usage) = &mut self.usage {
            usage.read(&piece);
        }
        let Some(scanner) = &mut self.scanner else {
            return Ok(piece);
        };
        let (certain, blotted) = scanner.pass(piece);
        self.record.blotted += blotted;
        Ok(certain)
    }
}

impl hyper::body::Body for Download {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.over {
            return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        loop {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                None => return Poll::Ready(self.finish()),
                Some(Err(error)) => {
                    let error = BodyError::Broken(Arc::new(error));
                    self.record.fault = Some(error.clone());
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(piece) => match self.take(piece) {
                    // All of it may have to wait for the next piece.
                    Ok(certain) if certain.is_empty() => {}
                    Ok(certain) => return Poll::Ready(Some(Ok(Frame::data(certain)))),
                    Err(error) => {
                        self.record.fault = Some(error.clone());
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                Err(frame) => {
                    let Ok(mut trailers) = frame.into_trailers() else {
                        continue;
                    };
                    crate::head::blot_out(&mut trailers, &self.needles);
                    self.trailers = Some(trailers);
                    return Poll::Ready(self.finish());
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        (self.over && self.trailers.is_none())
            || (self.scanner.is_none() && self.usage.is_none() && self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        // Blotting out keeps the length.
        if self.over { SizeHint::with_exact(0) } else { self.inner.size_hint() }
    }
}
