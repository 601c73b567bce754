//! Sockets and connections: who may connect, how many, how long, and how it all ends.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ringwall_engine::EngineConfig;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::SocketAddr as Place;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_rustls::TlsAcceptor;

use crate::caller::Via;
use crate::options::{Options, Tls};
use crate::service::{OpenServiceError, Service};
use crate::{body, lanes, routes};

/// Connections at once, of all holders together, and of the owner.
const MOST_CONNECTIONS: usize = 1024;
const MOST_OWNERS_CONNECTIONS: usize = 1024;
/// For the headers of a request, and for a TLS handshake.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_HEADER_BYTES: usize = 64 << 10;
/// How often what lives is compared with what is written down.
const LOOK_ROUND: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Open(#[from] OpenServiceError),
    #[error(
        "{0} is not loopback, and grants would cross the network in the clear; give a certificate and a key, or listen on 127.0.0.1"
    )]
    NoTls(SocketAddr),
    #[error(
        "the socket {0} is not in Ringwall's home; jobs run as you, and only there no ring shows it to them"
    )]
    Visible(String),
    #[error("{place} cannot be listened on")]
    Listen { place: String, source: io::Error },
    #[error("the certificate {0} cannot be used")]
    Certificate(String, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no threads can be started")]
    Runtime(#[source] io::Error),
}

/// Serves until `end` says so. `ready` is called once, when clients can connect.
pub fn serve(
    config: EngineConfig,
    options: &Options,
    end: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let tls = acceptor(options)?;
    // Rings of root's have ids that cannot open the socket; others' have its owner's.
    if !rustix::process::geteuid().is_root() && !options.socket.starts_with(&config.home) {
        return Err(ServeError::Visible(options.socket.display().to_string()));
    }
    let service = Arc::new(Service::open(config, options)?);
    let socket = bind_socket(&options.socket)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(lanes::threads(options.jobs.max(1)))
        .enable_io()
        .enable_time()
        .build()
        .map_err(ServeError::Runtime)?;
    let served = runtime.block_on(run(Arc::clone(&service), options, (socket, tls), end, ready));
    // Whoever still waits for a job does so in vain.
    runtime.shutdown_timeout(Duration::from_millis(500));
    let _ = std::fs::remove_file(&options.socket);
    served
}

async fn run(
    service: Arc<Service>,
    options: &Options,
    (socket, tls): (std::os::unix::net::UnixListener, Option<TlsAcceptor>),
    end: oneshot::Receiver<()>,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let failed = |place: String| move |source| ServeError::Listen { place, source };
    let place = options.socket.display().to_string();
    let unix = UnixListener::from_std(socket).map_err(failed(place))?;
    let tcp = match options.listen {
        None => None,
        Some(address) => {
            Some(TcpListener::bind(address).await.map_err(failed(address.to_string()))?)
        }
    };
    let router = routes::router(Arc::clone(&service));
    let bounded = axum::middleware::from_fn_with_state(Arc::clone(&service), body::bounded);
    let agents = ringwall_mcp::router(router.clone(), options.listen).route_layer(bounded);
    let router = router.merge(agents);
    let router = router.merge(crate::page::router(Arc::clone(&service)));
    let connections = Connections::new(router);
    let looking = tokio::spawn(look_round(Arc::clone(&service)));
    let warming = tokio::spawn(keep_warm(service));
    ready();
    let mut end = pin!(end);
    loop {
        tokio::select! {
            _ = &mut end => break,
            () = connections.idle(options.idle_ms) => break,
            (room, accepted) = connections.accept_owner(&unix) => match accepted {
                Ok((stream, _)) if is_owner(&stream) => {
                    connections.serve(Via::OwnersSocket, stream, room);
                }
                Ok(_) => {}
                Err(_) => pause().await,
            },
            (room, accepted) = connections.accept_holder(tcp.as_ref()) => match accepted {
                Ok((stream, _)) => {
                    // Answers are small and wanted at once.
                    let _ = stream.set_nodelay(true);
                    match &tls {
                        Some(tls) => connections.serve_tls(tls.clone(), stream, room),
                        None => connections.serve(Via::Tcp, stream, room),
                    }
                }
                Err(_) => pause().await,
            },
        }
    }
    looking.abort();
    warming.abort();
    drop((unix, tcp));
    let grace = Duration::from_millis(options.grace_ms);
    connections.ending.send_replace(true);
    let all = |most: usize| u32::try_from(most).unwrap_or(u32::MAX);
    let over = async {
        let _ = connections.room.acquire_many(all(MOST_CONNECTIONS)).await;
        let _ = connections.owners_room.acquire_many(all(MOST_OWNERS_CONNECTIONS)).await;
    };
    let _ = tokio::time::timeout(grace, over).await;
    Ok(())
}

/// No descriptor is left, most likely: others end soon.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn look_round(service: Arc<Service>) {
    let mut first = true;
    loop {
        let cleaned = service.housekeep(move |service| {
            if first {
                // What a daemon that was killed had under way runs on without anybody.
                let _ = service.engine.gc();
            }
            service.look_round()
        });
        // What could not be looked at now is looked at next time.
        let _ = cleaned.await;
        first = false;
        tokio::time::sleep(LOOK_ROUND).await;
    }
}

/// Makes what is to be kept ready, one after the other, whenever something was taken.
async fn keep_warm(service: Arc<Service>) {
    loop {
        // What cannot be made now is tried again; whoever asks meanwhile is told why.
        while let Ok(true) = service.housekeep(|service| service.warm.refill(service)).await {}
        let _ = tokio::time::timeout(LOOK_ROUND, service.warm.wanted.notified()).await;
    }
}

/// A connection's place among those that may be open at once.
type Room = Option<OwnedSemaphorePermit>;

struct Connections {
    owners: Router,
    holders: Router,
    room: Arc<Semaphore>,
    /// Apart from that of holders: callers without a token must not keep the owner out.
    owners_room: Arc<Semaphore>,
    /// True once the daemon is about to end.
    ending: watch::Sender<bool>,
}

impl Connections {
    fn new(router: Router) -> Connections {
        Connections {
            owners: router.clone().layer(Extension(Via::OwnersSocket)),
            holders: router.layer(Extension(Via::Tcp)),
            room: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            owners_room: Arc::new(Semaphore::new(MOST_OWNERS_CONNECTIONS)),
            ending: watch::Sender::new(false),
        }
    }

    /// Ready when nobody was connected for so long; never, if that is not to be the end.
    async fn idle(&self, most_ms: Option<u64>) {
        let Some(most) = most_ms else { return std::future::pending().await };
        let mut since = Instant::now();
        while since.elapsed() < Duration::from_millis(most) {
            tokio::time::sleep(Duration::from_millis(most.clamp(10, 1000))).await;
            let connected = self.room.available_permits() < MOST_CONNECTIONS
                || self.owners_room.available_permits() < MOST_OWNERS_CONNECTIONS;
            if connected {
                since = Instant::now();
            }
        }
    }

    /// The owner's next connection. Those beyond the bound wait in the kernel's queue.
    async fn accept_owner(&self, unix: &UnixListener) -> (Room, io::Result<(UnixStream, Place)>) {
        drop(self.owners_room.acquire().await);
        let accepted = unix.accept().await;
        // Nobody else takes any: what was there before is there now.
        (Arc::clone(&self.owners_room).try_acquire_owned().ok(), accepted)
    }

    /// A holder's next connection. Only other holders wait for the room that it needs.
    async fn accept_holder(
        &self,
        tcp: Option<&TcpListener>,
    ) -> (Room, io::Result<(TcpStream, SocketAddr)>) {
        let Some(tcp) = tcp else { return std::future::pending().await };
        drop(self.room.acquire().await);
        let accepted = tcp.accept().await;
        (Arc::clone(&self.room).try_acquire_owned().ok(), accepted)
    }

    fn serve<S>(&self, via: Via, stream: S, room: Room)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let router = if via == Via::OwnersSocket { &self.owners } else { &self.holders };
        let (router, ending) = (router.clone(), self.ending.subscribe());
        tokio::spawn(async move {
            let _room = room;
            speak(router, ending, stream).await;
        });
    }

    fn serve_tls(&self, tls: TlsAcceptor, stream: TcpStream, room: Room) {
        let (router, ending) = (self.holders.clone(), self.ending.subscribe());
        tokio::spawn(async move {
            let _room = room;
            let shaken = tokio::time::timeout(PATIENCE, tls.accept(stream)).await;
            if let Ok(Ok(stream)) = shaken {
                speak(router, ending, stream).await;
            }
        });
    }
}

async fn speak<S>(router: Router, mut ending: watch::Receiver<bool>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut told = false;
    loop {
        tokio::select! {
            // A client that breaks off is no news.
            _ = connection.as_mut() => return,
            _ = ending.changed(), if !told => {
                told = true;
                // The request under way is answered, and no other is taken.
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The file can be opened by its owner only; this is for a directory that somebody opened up.
fn is_owner(stream: &tokio::net::UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

/// Binds the socket so that nobody but its owner could ever connect.
fn bind_socket(path: &Path) -> Result<std::os::unix::net::UnixListener, ServeError> {
    let bind = || -> io::Result<std::os::unix::net::UnixListener> {
        if let Some(directory) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // The lock of the home is ours: what is there was left by a daemon that was killed. Only a
        // socket is removed, and only one that nobody answers.
        if let Ok(found) = std::fs::symlink_metadata(path) {
            let is_socket = std::os::unix::fs::FileTypeExt::is_socket(&found.file_type());
            if !is_socket || std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            std::fs::remove_file(path)?;
        }
        // No other thread exists yet that could make a file meanwhile.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = std::os::unix::net::UnixListener::bind(path);
        rustix::process::umask(before);
        let bound = bound?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        bound.set_nonblocking(true)?;
        Ok(bound)
    };
    bind().map_err(|source| ServeError::Listen { place: path.display().to_string(), source })
}

fn acceptor(options: &Options) -> Result<Option<TlsAcceptor>, ServeError> {
    match (options.listen, &options.tls) {
        (Some(address), None) if !address.ip().is_loopback() => Err(ServeError::NoTls(address)),
        (_, None) => Ok(None),
        (_, Some(tls)) => Ok(Some(TlsAcceptor::from(Arc::new(tls_config(tls)?)))),
    }
}

fn tls_config(tls: &Tls) -> Result<ServerConfig, ServeError> {
    let wrong = |path: &Path| {
        let path = path.display().to_string();
        move |source: Box<dyn std::error::Error + Send + Sync>| {
            ServeError::Certificate(path, source)
        }
    };
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(&tls.certificate)(error.into()))?;
    let key =
        PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| wrong(&tls.key)(error.into()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| wrong(&tls.certificate)(error.into()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong(&tls.certificate)(error.into()))?;
    Ok(config)
}
