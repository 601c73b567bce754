//! Accepts the connections of a task, on sockets that were made inside its sandbox.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::JoinHandle;

use ringwall_egress::Entrance;

use crate::direct;
use crate::dns;
use crate::early::Early;
use crate::event::{Door, Verdict};
use crate::exchange::Visit;
use crate::forward;
use crate::socks;
use crate::task::{Leash, Task};

/// How long a client may be silent before its first byte.
const PATIENCE: Duration = Duration::from_secs(60);
/// After a failed accept, so that a lack of descriptors does not burn a processor.
const PAUSE: Duration = Duration::from_millis(50);

/// The sockets of one task. HTTP, CONNECT and SOCKS5 share one.
#[derive(Debug)]
pub struct Listeners {
    proxy: tokio::net::TcpListener,
    dns_udp: Option<tokio::net::UdpSocket>,
    dns_tcp: Option<tokio::net::TcpListener>,
    direct: Vec<tokio::net::TcpListener>,
}

impl Listeners {
    /// Takes sockets that listen already; must be called within a tokio runtime.
    pub fn new(
        proxy: TcpListener,
        dns_udp: Option<UdpSocket>,
        dns_tcp: Option<TcpListener>,
    ) -> io::Result<Self> {
        let datagrams = |socket: UdpSocket| {
            socket.set_nonblocking(true)?;
            tokio::net::UdpSocket::from_std(socket)
        };
        Ok(Self {
            proxy: listener(proxy)?,
            dns_udp: dns_udp.map(datagrams).transpose()?,
            dns_tcp: dns_tcp.map(listener).transpose()?,
            direct: Vec::new(),
        })
    }

    /// And those that take connections to any address.
    pub fn with_direct(self, direct: Vec<TcpListener>) -> io::Result<Self> {
        let direct = direct.into_iter().map(listener).collect::<io::Result<_>>()?;
        Ok(Self { direct, ..self })
    }
}

fn listener(socket: TcpListener) -> io::Result<tokio::net::TcpListener> {
    socket.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(socket)
}

/// The accepting of one task; dropped, it ends and its sockets are closed.
#[derive(Debug)]
pub(crate) struct Serving(Vec<JoinHandle<()>>);

impl Drop for Serving {
    fn drop(&mut self) {
        for loops in &self.0 {
            loops.abort();
        }
    }
}

pub(crate) fn serve(task: &Arc<Task>, listeners: Listeners) -> Serving {
    let mut loops = vec![tokio::spawn(accept(Arc::clone(task), listeners.proxy, Entrance::Proxy))];
    if let Some(socket) = listeners.dns_udp {
        loops.push(tokio::spawn(dns::serve_udp(Arc::clone(task), socket)));
    }
    if let Some(socket) = listeners.dns_tcp {
        loops.push(tokio::spawn(accept(Arc::clone(task), socket, Entrance::Dns)));
    }
    for socket in listeners.direct {
        loops.push(tokio::spawn(accept(Arc::clone(task), socket, Entrance::Direct)));
    }
    Serving(loops)
}

async fn accept(task: Arc<Task>, listener: tokio::net::TcpListener, to: Entrance) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers go at once; without it only latency is lost.
                let _ = stream.set_nodelay(true);
                let address = stream.local_addr().ok().filter(|_| to == Entrance::Direct);
                admit(&task, stream, (to, address));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves a connection that came by another way than a listening socket.
pub(crate) fn connected<S>(task: &Arc<Task>, stream: S, to: Entrance)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    admit(task, stream, (to, None));
}

/// The address is that of a connection to any; where the socket does not tell, its first bytes do.
fn admit<S>(task: &Arc<Task>, stream: S, (to, address): (Entrance, Option<SocketAddr>))
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let door = match to {
        Entrance::Proxy => Door::Http,
        Entrance::Dns => Door::Dns,
        Entrance::Direct => Door::Direct,
    };
    let open = match task.meter.connection() {
        Ok(open) => Arc::new(open),
        Err(reason) => return task.stream(door).note(Verdict::Refused, &reason),
    };
    let leash = Leash::new(task);
    let visit = Visit { task: Arc::clone(task), door, leash, open };
    tokio::spawn(async move {
        match to {
            Entrance::Dns => dns::serve_tcp(&visit, stream).await,
            Entrance::Proxy => identify(visit, stream).await,
            Entrance::Direct => direct::serve(visit, address, stream).await,
        }
    });
}

/// The first byte of SOCKS5, with which no HTTP begins.
const SOCKS_5: u8 = 5;

async fn identify<S>(mut visit: Visit, mut io: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(Ok(first)) = tokio::time::timeout(PATIENCE, io.read_u8()).await else {
        // Gone or silent: nothing was asked.
        return;
    };
    let stream = Early { front: vec![first], io };
    if first == SOCKS_5 {
        visit.door = Door::Socks;
        socks::serve(Arc::new(visit), stream).await;
    } else {
        forward::serve(Arc::new(visit), stream).await;
    }
}
