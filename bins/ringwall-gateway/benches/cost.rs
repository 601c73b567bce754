//! What the gateway costs: latency per request, throughput, connections, memory of idle ones.
//!
//! Client and server are in this process, the gateway is the built program, all on loopback.
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

const HOST: &str = "api.example.com";
const REQUESTS: usize = 5000;
const IDLE: usize = 1000;
const BIG: usize = 64 * 1024 * 1024;

struct Sender {
    requests: SendRequest<Empty<Bytes>>,
    authority: String,
}

#[tokio::main]
async fn main() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let origin = serve(&issuer).await;
    let (gateway, control, proxy, trusted) = start_gateway(&issuer.pem(), origin.port());

    let mut direct =
        client(TcpStream::connect(origin).await.unwrap(), &issuer.pem(), origin.port()).await;
    let mut through = client(tunnel(proxy, origin.port()).await, &trusted, origin.port()).await;
    for round in 0..2 {
        let (without, with) = (latencies(&mut direct).await, latencies(&mut through).await);
        // The first round warms up.
        if round == 1 {
            let show = |what: &str, all: &[Duration]| {
                println!(
                    "{what}: p50 {:?} p99 {:?}",
                    all[all.len() / 2],
                    all[all.len() * 99 / 100]
                );
            };
            show("direct request ", &without);
            show("through request", &with);
            println!("added p50: {:?}", with[REQUESTS / 2].saturating_sub(without[REQUESTS / 2]));
        }
    }
    for (what, sender) in [("direct", &mut direct), ("through", &mut through)] {
        let begun = Instant::now();
        let size = get(sender, "/big").await;
        println!(
            "{what} throughput: {:.0} MiB/s",
            size as f64 / 1048576.0 / begun.elapsed().as_secs_f64()
        );
    }
    let begun = Instant::now();
    for _ in 0..200 {
        let mut fresh = client(tunnel(proxy, origin.port()).await, &trusted, origin.port()).await;
        get(&mut fresh, "/").await;
    }
    println!(
        "new connections with one request each: {:.0}/s",
        200.0 / begun.elapsed().as_secs_f64()
    );

    let before = resident(&gateway);
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        let mut one = client(tunnel(proxy, origin.port()).await, &trusted, origin.port()).await;
        get(&mut one, "/").await;
        idle.push(one);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let open = control.usage("bench").unwrap().open_connections;
    println!(
        "memory per idle connection: {} KiB ({open} open)",
        (resident(&gateway) - before) / IDLE
    );
    drop(idle);
    drop(control);
    let mut gateway = gateway;
    gateway.wait().unwrap();
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
        "names": {"zone": {HOST: ["127.0.0.1"]}}, "exempt": ["127.0.0.1"], "roots": [root],
    }))
    .unwrap();
    let events = std::fs::File::options().write(true).open("/dev/null").unwrap();
    let control = Control::new(ours);
    control.start(settings, events.as_fd()).unwrap();
    let spec: TaskSpec = serde_json::from_value(serde_json::json!({
        "id": "bench", "rules": {"allow": [{"host": HOST, "port": port}]},
        "limits": {"open_connections": 5000, "requests_per_minute": 10_000_000, "head_bytes": 1_000_000_000},
    }))
    .unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let info = control.add(spec, &[]).unwrap();
    control.listen("bench", &[proxy.as_fd()]).unwrap();
    (child, control, proxy.local_addr().unwrap(), info.authority.certificate)
}

async fn tunnel(proxy: SocketAddr, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(format!("CONNECT {HOST}:{port} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"));
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

async fn latencies(sender: &mut Sender) -> Vec<Duration> {
    let mut all = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        get(sender, "/").await;
        all.push(begun.elapsed());
    }
    all.sort();
    all
}

/// Resident memory in KiB.
fn resident(process: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
