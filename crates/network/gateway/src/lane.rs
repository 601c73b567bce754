//! A lane: one client's way to one destination, with addresses pinned and connections kept.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ringwall_rules::{Ask, Destination, Permit};
use ringwall_spec::{Host, Scheme};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::survivors;
use crate::body::Body;
use crate::dial::{DialError, Speak, dial};
use crate::event::Verdict;
use crate::gateway::Shared;
use crate::problem::Problem;
use crate::task::{Stream, Task};

/// Connections of one lane to a server that speaks HTTP/1 only.
const MOST_KEPT: usize = 16;
const LONGEST_TOKEN_ANSWER: usize = 64 * 1024;
const TOKEN_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Error)]
pub(crate) enum LaneError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the server broke the conversation off: {0}")]
    Http(#[from] hyper::Error),
    #[error("the server did not answer in time")]
    Slow,
}

pub(crate) struct Lane {
    shared: Arc<Shared>,
    /// Host, port and scheme; no request.
    pub(crate) ask: Ask,
    pinned: Vec<IpAddr>,
    kept: Mutex<Kept>,
    /// The client sends one request after the other (HTTP/1).
    one_by_one: bool,
}

#[derive(Default)]
struct Kept {
    http1: Vec<(http1::SendRequest<Body>, IpAddr)>,
    http2: Option<(http2::SendRequest<Body>, IpAddr)>,
}

pub(crate) enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Lane {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        ask: Ask,
        pinned: Vec<IpAddr>,
        one_by_one: bool,
    ) -> Arc<Self> {
        let shared = Arc::clone(shared);
        Arc::new(Self { shared, ask, pinned, kept: Mutex::default(), one_by_one })
    }

    /// A connection that is ready for a request.
    pub(crate) async fn sender(&self) -> Result<(Sender, IpAddr), LaneError> {
        while let Some(kept) = self.take_kept() {
            match kept {
                (Sender::Http2(sender), address) => return Ok((Sender::Http2(sender), address)),
                (Sender::Http1(mut sender), address) => {
                    // Its last answer may not have been read to the end yet.
                    if sender.ready().await.is_ok() {
                        return Ok((Sender::Http1(sender), address));
                    }
                }
            }
        }
        self.connect(Speak::Any).await
    }

    fn take_kept(&self) -> Option<(Sender, IpAddr)> {
        let mut kept = self.lock();
        if let Some((sender, address)) = &kept.http2
            && !sender.is_closed()
        {
            return Some((Sender::Http2(sender.clone()), *address));
        }
        kept.http2 = None;
        kept.http1.retain(|(sender, _)| !sender.is_closed());
        let ready = kept.http1.iter().position(|(sender, _)| self.one_by_one || sender.is_ready());
        ready.map(|at| kept.http1.swap_remove(at)).map(|(one, from)| (Sender::Http1(one), from))
    }

    /// For the next request; a connection that is still busy is asked again then.
    pub(crate) fn keep(&self, sender: Sender, address: IpAddr) {
        let mut kept = self.lock();
        match sender {
            Sender::Http1(sender) if kept.http1.len() < MOST_KEPT => {
                kept.http1.push((sender, address));
            }
            Sender::Http1(_) => {}
            Sender::Http2(sender) => kept.http2 = Some((sender, address)),
        }
    }

    pub(crate) async fn connect(&self, speak: Speak) -> Result<(Sender, IpAddr), LaneError> {
        let (stream, address) = self.dial().await?;
        if self.ask.scheme == Scheme::Http {
            return Ok((http1_over(stream).await?, address));
        }
        // On the heap: it is handed on, and each who does so would have room for all of it.
        let secured = self.shared.trust.secure(stream, &self.ask.host, speak).await?;
        let stream = Box::new(secured);
        let chosen = stream.get_ref().1.alpn_protocol();
        let sender = if chosen == Some(b"h2") {
            http2_over(stream).await?
        } else {
            http1_over(stream).await?
        };
        Ok((sender, address))
    }

    /// A bare connection, for tunnels that are not opened.
    pub(crate) async fn dial(&self) -> Result<(tokio::net::TcpStream, IpAddr), DialError> {
        dial(&self.ask.host, &self.pinned, self.ask.port).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Sends a request; one that was not sent at all comes back with the error.
    pub(crate) async fn send(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<Body>>)> {
        let sent = match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }
}

async fn http1_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Sender, hyper::Error> {
    let (sender, connection) =
        http1::Builder::new().max_buf_size(64 * 1024).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    Ok(Sender::Http1(sender))
}

async fn http2_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Sender, hyper::Error> {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(64 * 1024)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(connection);
    Ok(Sender::Http2(sender))
}

/// A form for a server that the gateway itself talks to.
pub(crate) struct Form<'a> {
    pub(crate) host: &'a Host,
    pub(crate) port: u16,
    /// With the query.
    pub(crate) path: &'a str,
    pub(crate) body: Bytes,
}

/// Posts a form over TLS; anything but a good answer is an error. What is done is recorded before it is.
pub(crate) async fn post(
    task: &Arc<Task>,
    form: Form<'_>,
    stream: &mut Stream,
) -> Result<Bytes, Problem> {
    let shared = &task.shared;
    let Form { host, port, path, body } = form;
    let work = async {
        let answers = shared.resolver.addresses(host).await?;
        let to = Destination { host, port: Some(port) };
        let pinned = survivors(to, &answers, &Permit::default(), &shared.exempt)?;
        stream.event.address = pinned.first().copied();
        stream.event.bytes_up = body.len() as u64;
        stream.record(Verdict::Allowed, None)?;
        let (stream_to, address) = dial(host, &pinned, port).await.map_err(LaneError::from)?;
        stream.event.address = Some(address);
        let secured = shared.trust.secure(stream_to, host, Speak::Http1);
        let secured = secured.await.map_err(LaneError::from)?;
        let mut sender = http1_over(secured).await.map_err(LaneError::from)?;
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let request = Request::post(path)
            .header(header::HOST, host.authority(port, 443))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(body)
            .map_err(|_| Problem::Broken)?;
        let sent = sender.send(request).await;
        let response = sent.map_err(|(error, _)| LaneError::Http(error))?;
        stream.event.status = Some(response.status().as_u16());
        if !response.status().is_success() {
            return Err(Problem::Broken);
        }
        let body = Limited::new(response.into_body(), LONGEST_TOKEN_ANSWER);
        let answer = body.collect().await.map_err(|_| Problem::Broken)?.to_bytes();
        stream.event.bytes_down = answer.len() as u64;
        Ok(answer)
    };
    tokio::time::timeout(TOKEN_PATIENCE, work).await.unwrap_or(Err(LaneError::Slow.into()))
}
