//! `make bench-net`: what the gateway costs, beside no proxy, squid and tinyproxy, in one run: latency
//! per request, throughput, connections, memory of idle ones.
//!
//! Client and server are in this process, proxies are processes of their own, all on loopback, and all
//! take turns. Everybody is asked for the same TLS. The gateway opens it, decides about each request and
//! writes each down; the others pass it on closed. One that is not installed is named and left out.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "it reports to whoever runs it, and fails by panicking"
)]

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ringwall_egress::{Control, Settings, TaskSpec};
use ringwall_linux::fdpass;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

mod rivals;

const HOST: &str = "api.example.com";
const ROUNDS: usize = 10;
const REQUESTS: usize = 500;
const FRESH: usize = 100;
const IDLE: usize = 1000;
const BIG: usize = 64 * 1024 * 1024;

struct Sender {
    requests: SendRequest<Empty<Bytes>>,
    authority: String,
}

/// One way to the server.
struct Way {
    name: &'static str,
    /// None: straight there.
    proxy: Option<SocketAddr>,
    /// What the proxy is told to connect to.
    target: String,
    /// Whose certificates its client sees.
    trusted: String,
    process: Option<u32>,
    latencies: Vec<Duration>,
    mib_per_second: Vec<f64>,
    fresh_per_second: Vec<f64>,
    idle_kib: Option<usize>,
}

#[tokio::main]
async fn main() {
    allow_many_descriptors();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let origin = serve(&issuer).await;
    let (mut gateway, control, proxy, trusted) = start_gateway(&issuer.pem(), origin.port());
    let way = |name, proxy, target: String, trusted: &str, process| Way {
        name,
        proxy,
        target,
        trusted: trusted.to_owned(),
        process,
        latencies: Vec::new(),
        mib_per_second: Vec::new(),
        fresh_per_second: Vec::new(),
        idle_kib: None,
    };
    let (named, numbered) = (format!("{HOST}:{}", origin.port()), origin.to_string());
    let mut ways = vec![
        way("no proxy", None, String::new(), &issuer.pem(), None),
        way("ringwall-gateway", Some(proxy), named, &trusted, Some(gateway.id())),
    ];
    let rivals = [rivals::squid(), rivals::tinyproxy()];
    for rival in rivals.iter() {
        match rival {
            Ok(rival) => {
                let (name, process) = (rival.name, Some(rival.process()));
                let target = numbered.clone();
                ways.push(way(name, Some(rival.address), target, &issuer.pem(), process));
            }
            Err(reason) => println!("not measured: {reason}"),
        }
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.turn(origin).await;
        }
    }
    for way in &mut ways {
        way.idle(origin).await;
    }
    report(&ways);
    drop(control);
    gateway.wait().unwrap();
}

impl Way {
    async fn connect(&self, origin: SocketAddr) -> Sender {
        let stream = match self.proxy {
            None => TcpStream::connect(origin).await.unwrap(),
            Some(proxy) => tunnel(proxy, &self.target).await,
        };
        client(stream, &self.trusted, origin.port()).await
    }

    async fn turn(&mut self, origin: SocketAddr) {
        let mut sender = self.connect(origin).await;
        for _ in 0..REQUESTS / 10 {
            get(&mut sender, "/").await;
        }
        for _ in 0..REQUESTS {
            let begun = Instant::now();
            get(&mut sender, "/").await;
            self.latencies.push(begun.elapsed());
        }
        let begun = Instant::now();
        let size = get(&mut sender, "/big").await;
        self.mib_per_second.push(size as f64 / 1048576.0 / begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        for _ in 0..FRESH {
            let mut fresh = self.connect(origin).await;
            get(&mut fresh, "/").await;
        }
        self.fresh_per_second.push(FRESH as f64 / begun.elapsed().as_secs_f64());
    }

    async fn idle(&mut self, origin: SocketAddr) {
        let Some(process) = self.process else { return };
        let before = resident(process);
        let mut idle = Vec::new();
        for _ in 0..IDLE {
            let mut one = self.connect(origin).await;
            get(&mut one, "/").await;
            idle.push(one);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        // They are all there yet.
        for one in &mut idle {
            get(one, "/").await;
        }
        self.idle_kib = Some(resident(process).saturating_sub(before) / IDLE);
    }

    fn median(&self) -> Duration {
        let mut all = self.latencies.clone();
        all.sort();
        all[all.len() / 2]
    }

    fn p99(&self) -> Duration {
        let mut all = self.latencies.clone();
        all.sort();
        all[all.len() * 99 / 100]
    }
}

fn middle(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn report(ways: &[Way]) {
    println!(
        "{:<18} {:>10} {:>10} {:>10} {:>8} {:>12} {:>14}",
        "", "p50", "p99", "added p50", "MiB/s", "connections/s", "KiB idle conn."
    );
    let direct = ways[0].median();
    for way in ways {
        let added = way.median().saturating_sub(direct);
        println!(
            "{:<18} {:>10.1?} {:>10.1?} {:>10.1?} {:>8.0} {:>12.0} {:>14}",
            way.name,
            way.median(),
            way.p99(),
            added,
            middle(&way.mib_per_second),
            middle(&way.fresh_per_second),
            way.idle_kib.map_or("-".to_owned(), |kib| kib.to_string()),
        );
    }
    let ours = &ways[1];
    let added = ours.median().saturating_sub(direct);
    let verdict = |kept: bool| if kept { "kept" } else { "MISSED" };
    println!(
        "promised: at most 150 us added to a kept request: {}",
        verdict(added.as_micros() <= 150)
    );
    let idle = ours.idle_kib.unwrap_or(usize::MAX);
    println!(
        "promised: less than 64 KiB for each of {IDLE} idle connections: {}",
        verdict(idle < 64)
    );
}

/// A connection has two ends here.
fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

async fn serve(issuer: &CertifiedIssuer<'static, KeyPair>) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![HOST.into()]).unwrap().signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let tls = acceptor.accept(stream).await.unwrap();
                let service = service_fn(|request: Request<_>| async move {
                    let size = if request.uri().path() == "/big" { BIG } else { 1024 };
                    let body = Full::new(Bytes::from(vec![b'x'; size]));
                    Ok::<_, Infallible>(hyper::Response::new(body))
                });
                let server = hyper::server::conn::http1::Builder::new();
                let _ = server.serve_connection(TokioIo::new(tls), service).await;
            });
        }
    });
    address
}

fn start_gateway(root: &str, port: u16) -> (Child, Control, SocketAddr, String) {
    let (ours, theirs) = fdpass::pair().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_ringwall-gateway"))
        .stdin(Stdio::from(theirs))
        .spawn()
        .unwrap();
    let settings: Settings = serde_json::from_value(serde_json::json!({
        "names": {"zone": {HOST: ["127.0.0.1"]}}, "exempt": [format!("{HOST}:{port}=127.0.0.1")], "roots": [root],
    }))
    .unwrap();
    let events = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let control = Control::new(ours);
    control.start(settings, events.as_fd()).unwrap();
    let spec: TaskSpec = serde_json::from_value(serde_json::json!({
        "id": "bench", "rules": {"allow": [{"host": HOST, "port": port}]},
        "limits": {"open_connections": 5000, "requests_per_minute": 10_000_000,
            "head_bytes": 1_000_000_000, "connections": 1_000_000},
    }))
    .unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let info = control.add(spec, &[]).unwrap();
    control.listen("bench", &[proxy.as_fd()]).unwrap();
    (child, control, proxy.local_addr().unwrap(), info.authority.certificate)
}

async fn tunnel(proxy: SocketAddr, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let order = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(order.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.0 200"));
    stream
}

async fn client(stream: TcpStream, trusted: &str, port: u16) -> Sender {
    stream.set_nodelay(true).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(HOST).unwrap();
    let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (requests, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.unwrap();
    tokio::spawn(connection);
    Sender { requests, authority: format!("{HOST}:{port}") }
}

async fn get(sender: &mut Sender, path: &str) -> usize {
    sender.requests.ready().await.unwrap();
    let request = Request::get(path).header("host", &sender.authority).body(Empty::new()).unwrap();
    let mut response = sender.requests.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut size = 0;
    while let Some(frame) = response.body_mut().frame().await {
        size += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    size
}

/// Resident memory in KiB.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
