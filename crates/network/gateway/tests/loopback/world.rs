//! What each test starts from: an authority, a gateway with one task, and clients of its proxy.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ringwall_egress::{Form, Names, Provider, Settings, TaskInfo, TaskSpec};
use ringwall_gateway::event::{Event, Memory, Verdict};
use ringwall_gateway::{Gateway, Listeners, Sources};
use ringwall_spec::RuleSet;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestAuthority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn certificate(&self, names: &[&str]) -> (CertificateDer<'static>, KeyPair) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &self.0).unwrap();
        (leaf.der().clone(), key)
    }

    pub(crate) fn server(&self, names: &[&str], http2: bool) -> Arc<ServerConfig> {
        let (leaf, key) = self.certificate(names);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf], key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        Arc::new(config)
    }
}

/// A gateway that serves one task. Loopback's first address may be reached, all others not.
pub(crate) struct World {
    pub(crate) authority: TestAuthority,
    pub(crate) gateway: Gateway,
    pub(crate) events: Arc<Memory>,
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) info: TaskInfo,
}

pub(crate) const TASK: &str = "task-1";

fn settings(authority: &TestAuthority, names: Names, exempt: Vec<String>) -> Settings {
    Settings { names, roots: vec![authority.pem()], exempt }
}

/// Loopback's first address, for every name and port that the task speaks of.
fn exempt_for(names: &Names, task: &serde_json::Value) -> Vec<String> {
    let (mut hosts, mut ports) = (Vec::new(), vec![443]);
    collect(task, &mut hosts, &mut ports);
    if let Names::Zone(zone) = names {
        hosts.extend(zone.keys().cloned());
    }
    hosts.sort_unstable();
    hosts.dedup();
    let mut exempt = Vec::new();
    for host in &hosts {
        exempt.extend(ports.iter().map(|port| format!("{host}:{port}=127.0.0.1")));
    }
    exempt
}

fn collect(value: &serde_json::Value, hosts: &mut Vec<String>, ports: &mut Vec<u16>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("host", serde_json::Value::String(host)) => hosts.push(host.clone()),
                    ("port", port) => {
                        ports.extend(port.as_u64().and_then(|port| u16::try_from(port).ok()))
                    }
                    ("base_url" | "token_url", serde_json::Value::String(url)) => {
                        let uri: hyper::Uri = url.parse().unwrap();
                        ports.extend(uri.port_u16());
                    }
                    _ => collect(value, hosts, ports),
                }
            }
        }
        serde_json::Value::Array(list) => {
            list.iter().for_each(|value| collect(value, hosts, ports));
        }
        _ => {}
    }
}

pub(crate) fn zone(names: &[(&str, &[&str])]) -> Names {
    let addresses = |texts: &[&str]| -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    };
    let zone: BTreeMap<String, Vec<IpAddr>> =
        names.iter().map(|(name, texts)| ((*name).to_owned(), addresses(texts))).collect();
    Names::Zone(zone)
}

/// The names that most tests use, all on loopback.
pub(crate) fn usual_names() -> Names {
    let here: &[&str] = &["127.0.0.1"];
    zone(&[
        ("api.example.com", here),
        ("other.example.com", here),
        ("evil.example.net", here),
        ("deep.api.example.com", here),
    ])
}

/// Does what the engine does: the gateway gets descriptors.
fn open_sources(spec: &mut TaskSpec) -> Sources {
    let mut opened = Vec::new();
    let mut open = |provider: &mut Provider| {
        opened.push(provider.open().unwrap());
        *provider = Provider::Beside(opened.len() - 1);
    };
    for secret in &mut spec.secrets {
        open(&mut secret.from);
        match &mut secret.form {
            Form::Header(_) => {}
            Form::AwsSigV4(form) => form.session_token.iter_mut().for_each(&mut open),
            Form::OAuth(form) => form.client_secret.iter_mut().for_each(&mut open),
        }
    }
    let inference = spec.inference.iter_mut().flat_map(|inference| &mut inference.providers);
    inference.filter_map(|provider| provider.key.as_mut()).for_each(open);
    Sources::new(opened)
}

pub(crate) fn rules(json: serde_json::Value) -> RuleSet {
    serde_json::from_value(json).unwrap()
}

impl World {
    pub(crate) fn start(authority: TestAuthority, names: Names, task: serde_json::Value) -> Self {
        let events = Arc::new(Memory::default());
        let exempt = exempt_for(&names, &task);
        let settings = settings(&authority, names, exempt);
        let gateway = Gateway::new(&settings, events.clone()).unwrap();
        let mut spec: TaskSpec = serde_json::from_value(task).unwrap();
        spec.id = TASK.into();
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dns_tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dns = dns_tcp.local_addr().unwrap();
        let dns_udp = std::net::UdpSocket::bind(dns).unwrap();
        let address = proxy.local_addr().unwrap();
        let listeners = Listeners::new(proxy, Some(dns_udp), Some(dns_tcp)).unwrap();
        let sources = open_sources(&mut spec);
        let info = gateway.add(&spec, sources).unwrap();
        gateway.listen(TASK, listeners).unwrap();
        Self { authority, gateway, events, proxy: address, dns, info }
    }

    /// A world in which `api.example.com` may be reached on `port`, without bounds.
    pub(crate) fn with_api(authority: TestAuthority, port: u16) -> Self {
        let task =
            serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "port": port}]}});
        Self::start(authority, usual_names(), task)
    }

    pub(crate) fn refusals(&self) -> Vec<Event> {
        let refused = |event: &Event| matches!(event.verdict, Verdict::Refused | Verdict::Failed);
        self.events.events().into_iter().filter(refused).collect()
    }

    /// Says `words` to the proxy, and reads all that it answers until it closes.
    pub(crate) async fn say(&self, words: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        stream.write_all(words).await.unwrap();
        read_all(&mut stream).await
    }

    /// Opens a tunnel; the status and the stream.
    pub(crate) async fn connect(&self, authority: &str) -> (u16, TcpStream) {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        let words = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        stream.write_all(words.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        (status_of(&head), stream)
    }

    /// A tunnel with TLS in it, as a client that trusts the task's authority.
    pub(crate) async fn secure(
        &self,
        host: &str,
        port: u16,
        alpn: &[&[u8]],
    ) -> TlsStream<TcpStream> {
        let (status, stream) = self.connect(&format!("{host}:{port}")).await;
        assert_eq!(status, 200, "{:?}", self.refusals());
        self.secure_over(stream, host, alpn).await.unwrap()
    }

    pub(crate) async fn secure_over<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
        alpn: &[&[u8]],
    ) -> std::io::Result<TlsStream<S>> {
        let config = client_config(&self.info.authority.certificate, alpn);
        let name = ServerName::try_from(host.to_owned()).unwrap();
        tokio_rustls::TlsConnector::from(config).connect(name, stream).await
    }

    /// An HTTP client within a tunnel.
    pub(crate) async fn client(&self, host: &str, port: u16, http2: bool) -> Client {
        let alpn: &[&[u8]] = if http2 { &[b"h2"] } else { &[b"http/1.1"] };
        let tls = self.secure(host, port, alpn).await;
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(alpn[0]));
        Client::over(tls, host, port, http2).await
    }
}

pub(crate) fn client_config(authority: &str, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

type Upload = Full<Bytes>;

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Upload>),
    Http2(hyper::client::conn::http2::SendRequest<Upload>),
}

pub(crate) struct Client {
    sender: Sender,
    authority: String,
}

impl Client {
    pub(crate) async fn over<S>(stream: S, host: &str, port: u16, http2: bool) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        let sender = if http2 {
            let executor = TokioExecutor::new();
            let (sender, connection) =
                hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
            tokio::spawn(connection.with_upgrades());
            Sender::Http1(sender)
        };
        Self { sender, authority: format!("{host}:{port}") }
    }

    /// Sends a request; host and form of the target are filled in unless they are given.
    pub(crate) async fn send(
        &mut self,
        request: hyper::http::request::Builder,
        body: impl Into<Bytes>,
    ) -> hyper::Result<Response<Incoming>> {
        let mut request: Request<Upload> = request.body(Full::new(body.into())).unwrap();
        match &mut self.sender {
            Sender::Http1(sender) => {
                if !request.headers().contains_key("host") {
                    request.headers_mut().insert("host", self.authority.parse().unwrap());
                }
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                if request.uri().authority().is_none() {
                    let uri = format!("https://{}{}", self.authority, request.uri());
                    *request.uri_mut() = uri.parse().unwrap();
                }
                sender.send_request(request).await
            }
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> (u16, String) {
        let response = self.send(Request::get(path), "").await.unwrap();
        whole(response).await
    }
}

pub(crate) async fn whole(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap();
    (status, String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap())
}

pub(crate) async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let work = async {
        while !bytes.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => bytes.push(byte),
                Err(_) => break,
            }
        }
    };
    tokio::time::timeout(PATIENCE, work).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn status_of(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !so() {
        assert!(std::time::Instant::now() < end, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
