//! A web server for tests: HTTP/1 and HTTP/2 over TLS, or plain; it remembers what it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::world::TestAuthority;

#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) version: Version,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) connections: Arc<std::sync::atomic::AtomicUsize>,
}

type Out = UnsyncBoxBody<Bytes, Infallible>;

impl Origin {
    pub(crate) async fn tls(authority: &TestAuthority, names: &[&str]) -> Self {
        Self::start(Some(TlsAcceptor::from(authority.server(names, true)))).await
    }

    /// Speaks HTTP/1 only.
    pub(crate) async fn tls_http1(authority: &TestAuthority, names: &[&str]) -> Self {
        Self::start(Some(TlsAcceptor::from(authority.server(names, false)))).await
    }

    pub(crate) async fn plain() -> Self {
        Self::start(None).await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(std::sync::atomic::Ordering::SeqCst)
    }

    async fn start(acceptor: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let serving = origin.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let (acceptor, origin) = (acceptor.clone(), serving.clone());
                tokio::spawn(async move {
                    match acceptor {
                        None => origin.serve(stream, false).await,
                        Some(acceptor) => {
                            if let Ok(tls) = acceptor.accept(stream).await {
                                let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                                origin.serve(tls, http2).await;
                            }
                        }
                    }
                });
            }
        });
        origin
    }

    async fn serve(&self, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, http2: bool) {
        let origin = self.clone();
        let service = service_fn(move |request| {
            let origin = origin.clone();
            async move { Ok::<_, Infallible>(origin.answer(request).await) }
        });
        let io = TokioIo::new(io);
        if http2 {
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(io, service).await;
        } else {
            let builder = hyper::server::conn::http1::Builder::new();
            let _ = builder.serve_connection(io, service).with_upgrades().await;
        }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Out> {
        let upgrade = hyper::upgrade::on(&mut request);
        let (head, body) = request.into_parts();
        let headers: Vec<(String, String)> = head
            .headers
            .iter()
            .map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into())
            })
            .collect();
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
        let seen = Seen {
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            version: head.version,
            headers,
            body,
        };
        self.seen.lock().unwrap().push(seen.clone());
        match head.uri.path() {
            "/events" => events(),
            "/big" => pieces(vec![Bytes::from(vec![b'x'; 64 * 1024]); 64], Duration::ZERO),
            "/auth" => echo_of_the_key(&seen),
            "/gzip" => {
                let mut response = text("not really compressed");
                response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
                response
            }
            "/redirect" => {
                let mut response = text("");
                *response.status_mut() = StatusCode::FOUND;
                response
                    .headers_mut()
                    .insert("location", "https://evil.example.net/".parse().unwrap());
                response.headers_mut().insert("alt-svc", "h3=\":443\"".parse().unwrap());
                response
            }
            "/token" => text("{\"access_token\":\"access-token-1\",\"expires_in\":3600}"),
            "/token-for-ever" => {
                text("{\"access_token\":\"access-token-1\",\"expires_in\":18446744073709551615}")
            }
            "/base/v1/messages" => text("{\"usage\":{\"input_tokens\":6,\"output_tokens\":7}}"),
            "/base/v1/chat/completions" => {
                let usage = "data: {\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":9}}\n\n";
                let mut response = pieces(
                    vec![Bytes::from_static(b"data: {}\n\n"), Bytes::from(usage)],
                    Duration::from_millis(1),
                );
                response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
                response
            }
            "/never" | "/base/v1/responses" => std::future::pending().await,
            "/socket" => {
                tokio::spawn(async move {
                    let mut io = TokioIo::new(upgrade.await.unwrap());
                    let mut buffer = [0; 1024];
                    while let Ok(size @ 1..) = io.read(&mut buffer).await {
                        io.write_all(&buffer[..size]).await.unwrap();
                    }
                });
                let mut response = text("");
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().insert("upgrade", "websocket".parse().unwrap());
                response.headers_mut().insert("connection", "upgrade".parse().unwrap());
                response
            }
            _ => text(&format!("{} {} {:?}", seen.method, seen.uri, seen.version)),
        }
    }
}

/// The key that came, in the forms in which servers echo things, cut where it hurts.
fn echo_of_the_key(seen: &Seen) -> Response<Out> {
    use base64::Engine;
    let value = seen.header("authorization").unwrap_or("none").to_owned();
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("x{value}y"));
    let whole = format!("plain={value}; base64={encoded}; end");
    let pieces_of_it = whole.as_bytes().chunks(7).map(Bytes::copy_from_slice).collect();
    let mut response = pieces(pieces_of_it, Duration::from_millis(1));
    response.headers_mut().insert("x-echo", value.parse().unwrap());
    response
}

fn text(text: &str) -> Response<Out> {
    Response::new(Full::new(Bytes::from(text.to_owned())).boxed_unsync())
}

fn events() -> Response<Out> {
    let all = (0..1000).map(|count| Bytes::from(format!("data: {count}\n\n"))).collect();
    let mut response = pieces(all, Duration::from_millis(50));
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

fn pieces(pieces: Vec<Bytes>, pause: Duration) -> Response<Out> {
    let stream = futures_util::stream::unfold(pieces.into_iter(), move |mut rest| async move {
        let piece = rest.next()?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Some((Ok(Frame::data(piece)), rest))
    });
    Response::new(StreamBody::new(stream).boxed_unsync())
}
