//! Providers of models, as far as an agent can tell: on loopback, under their own names, with what they say
//! written down in the tests.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use crate::support::{Finished, World, read_request};

pub(super) const HOSTS: [&str; 3] =
    ["api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com"];
pub(super) const CANARY: &str = "sk-canary-5f3b1c9d-never-to-be-seen";

pub(super) type Tls = rustls::StreamOwned<rustls::ServerConnection, TcpStream>;

/// Answers one request, and gives what was asked.
pub(super) type Serve = fn(Tls) -> Option<String>;

pub(super) struct Provider {
    address: Ipv4Addr,
    authority: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// Nothing where this user may not listen on port 443.
    pub(super) fn start(test: &str, serve: Serve) -> Option<Provider> {
        let number = std::process::id();
        let [_, _, high, low] = number.to_be_bytes();
        // An address of its own for each process of the tests.
        let address = Ipv4Addr::new(127, 77, high, low.max(1));
        let Ok(listener) = TcpListener::bind(SocketAddr::from((address, 443))) else {
            eprintln!("{test}: not tested here: port 443 is only for root");
            return None;
        };
        let names = HOSTS.map(str::to_owned).to_vec();
        let issued = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let key =
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .expect("a key that fits");
        let (config, asked) = (Arc::new(config), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
                thread::spawn(move || {
                    let session = rustls::ServerConnection::new(config).expect("a session");
                    let text = serve(rustls::StreamOwned::new(session, stream));
                    seen.lock().expect("whole").extend(text);
                });
            }
        });
        Some(Provider { address, authority: issued.cert.pem(), asked })
    }

    /// A world whose gateways find it.
    pub(super) fn world(&self) -> World {
        let world = World::new();
        let zone: serde_json::Map<_, _> =
            HOSTS.map(|host| (host.to_owned(), json!([self.address]))).into_iter().collect();
        let exempt = HOSTS.map(|host| format!("{host}:443={}", self.address));
        let settings = json!({"names": {"zone": zone}, "exempt": exempt,
            "roots": [self.authority]});
        std::fs::write(world.home().join("gateway.json"), settings.to_string()).expect("a file");
        world
    }

    pub(super) fn seen(&self) -> String {
        self.asked.lock().expect("whole").join("\n")
    }
}

/// Answers one request with what `script` makes of its path and body: a kind of content and a text.
pub(super) fn serve(
    stream: Tls,
    script: fn(&str, &Value) -> Option<(&'static str, String)>,
) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (head, body) = read_request(&mut reader)?;
    let path = head.split(' ').nth(1)?;
    let asked = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (status, (kind, text)) = match script(path, &asked) {
        Some(said) => ("200 OK", said),
        None => ("404 Not Found", ("application/json", "{}".to_owned())),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let stream = reader.get_mut();
    stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).ok()?;
    Some(format!("{head}\n{asked}"))
}

/// `ringwall`, with a key in its environment.
pub(super) fn finished(mut command: Command, variable: &str) -> Finished {
    command.env(variable, CANARY);
    let output = command.output().expect("ringwall can be started");
    Finished::new(format!("{command:?}"), output)
}

/// The value of the key is nowhere in Ringwall's home.
pub(super) fn key_is_not_kept(world: &World) {
    let kept = Command::new("grep").args(["-r", CANARY]).arg(world.home()).output().expect("grep");
    assert!(kept.stdout.is_empty(), "{}", String::from_utf8_lossy(&kept.stdout));
}
