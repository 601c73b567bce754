//! Tunnels, by CONNECT or SOCKS: opened and served request by request, or passed through by rule.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ringwall_spec::Scheme;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use crate::ca::CaError;
use crate::event::{NotRecorded, Verdict};
use crate::exchange::{Visit, exchange};
use crate::framing::Framed;
use crate::head;
use crate::hello::{BadHello, Hello, check_name, check_open, read_hello};
use crate::lane::{Lane, LaneError};
use crate::needles::Needles;
use crate::relay::{Relay, relay};
use crate::task::{Cut, Held, Stream, Way};

const PATIENCE: Duration = Duration::from_secs(15);
const MOST_HEADERS: usize = 128;
/// What a client may have sent of a body that nobody has read yet, and of all bodies of a connection.
const MAX_UNREAD_OF_STREAM: u32 = 128 * 1024;
const MAX_UNREAD_OF_CONNECTION: u32 = 256 * 1024;

#[derive(Debug, Error)]
enum TunnelError {
    #[error(transparent)]
    Hello(#[from] BadHello),
    #[error("the client did not greet in time")]
    Slow,
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error("the client broke TLS off: {0}")]
    Tls(std::io::Error),
    #[error(transparent)]
    Lane(#[from] LaneError),
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
}

/// Serves a tunnel that was decided, until its end.
pub(crate) async fn serve<S>(visit: Arc<Visit>, way: Way, held: Held, stream: Stream, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let result = match way.ask.scheme {
        Scheme::Http => {
            let lane = Lane::new(&visit.task.shared, way.ask, way.pinned, true);
            serve_http1(&visit, &lane, io).await;
            drop(held);
            Ok(())
        }
        Scheme::Https => serve_tls(&visit, way, held, &stream, io).await,
    };
    if let Err(error) = result {
        stream.note(Verdict::Failed, &error);
    }
}

async fn serve_tls<S>(
    visit: &Arc<Visit>,
    way: Way,
    held: Held,
    stream: &Stream,
    io: S,
) -> Result<(), TunnelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // What greeting takes is given back before the tunnel is served, which may be for long.
    let tls = match Box::pin(open(visit, &way, io)).await? {
        Opened::Not(unopened) => {
            let (io, hello) = *unopened;
            let lane = Lane::new(&visit.task.shared, way.ask, way.pinned, true);
            let passing = pass_through(visit, &lane, held, stream.clone(), io, hello);
            return Box::pin(passing).await;
        }
        Opened::Tls(tls) => tls,
    };
    let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let lane = Lane::new(&visit.task.shared, way.ask, way.pinned, !http2);
    if http2 {
        Box::pin(serve_http2(visit, &lane, tls)).await;
    } else {
        serve_http1(visit, &lane, tls).await;
    }
    drop(held);
    Ok(())
}

/// A tunnel after its greeting. On the heap: whoever serves it hands it on more than once, and each
/// would have room for all of it.
enum Opened<S> {
    Tls(Box<TlsStream<S>>),
    /// By rule.
    Not(Box<(S, Hello)>),
}

async fn open<S>(visit: &Arc<Visit>, way: &Way, mut io: S) -> Result<Opened<S>, TunnelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let greeting = tokio::time::timeout(PATIENCE, read_hello(&mut io));
    let hello = greeting.await.map_err(|_| TunnelError::Slow)??;
    check_name(&hello, &way.ask.host)?;
    if way.permit.passthrough {
        return Ok(Opened::Not(Box::new((io, hello))));
    }
    let config = visit.task.authority.server(&way.ask.host)?;
    let handshake = StartHandshake::from_parts(hello.accepted, io).into_stream(config);
    let tls = tokio::time::timeout(PATIENCE, handshake)
        .await
        .map_err(|_| TunnelError::Slow)?
        .map_err(TunnelError::Tls)?;
    Ok(Opened::Tls(Box::new(tls)))
}

/// TLS stays closed; its greeting was seen, and named the host that was decided.
async fn pass_through<S>(
    visit: &Visit,
    lane: &Lane,
    held: Held,
    mut stream: Stream,
    io: S,
    hello: Hello,
) -> Result<(), TunnelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    check_open(&hello)?;
    let (mut server, address) = lane.dial().await.map_err(LaneError::Dial)?;
    stream.event.address = Some(address);
    stream.event.bytes_up = hello.bytes.len() as u64;
    stream.record(Verdict::Allowed, Some(&"passed through unopened"))?;
    if visit.task.meter.up(hello.bytes.len() as u64).is_err() {
        stream.note(Verdict::Cut, &crate::meter::Exhausted::BytesUp);
        return Ok(());
    }
    server.write_all(&hello.bytes).await.map_err(TunnelError::Tls)?;
    drop(hello);
    relay(visit, io, server, Relay { held, stream, needles: Needles::default() }).await;
    Ok(())
}

pub(crate) fn http1_server(idle: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_headers(MOST_HEADERS)
        .max_buf_size(64 * 1024)
        .auto_date_header(false);
    builder
}

async fn serve_http1<S>(visit: &Arc<Visit>, lane: &Arc<Lane>, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (visit, lane) = (Arc::clone(visit), Arc::clone(lane));
        let wanted_upgrade = request.headers().contains_key(UPGRADE);
        async move {
            let mut response = exchange(&visit, &lane, request).await;
            if wanted_upgrade {
                head::end_unless_switched(&mut response);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let io = TokioIo::new(Framed::new(io));
    let connection = http1_server(visit.task.meter.limits.idle()).serve_connection(io, service);
    under_leash(visit, lane, connection.with_upgrades()).await;
}

async fn serve_http2<S>(visit: &Arc<Visit>, lane: &Arc<Lane>, io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (visit, lane) = (Arc::clone(visit), Arc::clone(lane));
        async move { Ok::<_, Infallible>(exchange(&visit, &lane, request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(100)
        .initial_stream_window_size(MAX_UNREAD_OF_STREAM)
        .initial_connection_window_size(MAX_UNREAD_OF_CONNECTION)
        .max_header_list_size(64 * 1024)
        .max_send_buf_size(64 * 1024)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(io), service);
    under_leash(visit, lane, connection).await;
}

/// Serves until the client goes or the leash is cut; then everything of the connection is dropped.
async fn under_leash<E>(
    visit: &Visit,
    lane: &Lane,
    connection: impl Future<Output = Result<(), E>>,
) {
    tokio::select! {
        // A client may leave as it likes; each request has had its record.
        _ = connection => {}
        cut = visit.leash.cut() => note_cut(visit, lane, &cut),
    }
}

fn note_cut(visit: &Visit, lane: &Lane, cut: &Cut) {
    let stream = visit.task.stream(visit.door).to(&lane.ask.host, lane.ask.port);
    stream.note(Verdict::Cut, cut);
}
