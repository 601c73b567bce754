//! As little of HTTP/1.1 as a client needs, on a connection that is kept.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// One connection.
pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    token: Option<String>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

impl Client {
    pub fn unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path).expect("the daemon listens");
        stream.set_read_timeout(PATIENCE).expect("a timeout");
        Client { stream: BufReader::new(Box::new(stream)), token: None }
    }

    pub fn tcp(address: SocketAddr, token: Option<&str>) -> Client {
        let stream = TcpStream::connect(address).expect("the daemon listens");
        stream.set_read_timeout(PATIENCE).expect("a timeout");
        stream.set_nodelay(true).expect("a setting");
        Client { stream: BufReader::new(Box::new(stream)), token: token.map(str::to_owned) }
    }

    /// Over TLS, to a server that this certificate belongs to.
    pub fn tls(address: SocketAddr, certificate: &[u8], token: &str) -> Client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.to_vec().into()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let session = rustls::ClientConnection::new(Arc::new(config), name).expect("a session");
        let socket = TcpStream::connect(address).expect("the daemon listens");
        socket.set_read_timeout(PATIENCE).expect("a timeout");
        let stream = rustls::StreamOwned::new(session, socket);
        let token = Some(token.to_owned());
        Client { stream: BufReader::new(Box::new(stream)), token }
    }

    pub fn with_token(mut self, token: &str) -> Client {
        self.token = Some(token.to_owned());
        self
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn delete(&mut self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Answer {
        let kind = ("content-type", "application/json");
        self.send("POST", path, &[kind], body.to_string().as_bytes())
    }

    pub fn post_once(&mut self, path: &str, key: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send("POST", path, &headers, body.to_string().as_bytes())
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.try_send(method, path, headers, body).expect("an answer")
    }

    /// For a daemon that may be gone.
    pub fn try_send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        self.write(method, path, headers, body)?;
        let (status, headers) = self.read_head()?;
        let mut content = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|how| how == "chunked") {
            while self.read_chunk(&mut content)? {}
        } else {
            let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap_or(0));
            content.resize(length, 0);
            self.stream.read_exact(&mut content)?;
        }
        Ok(Answer { status, headers, body: content })
    }

    fn write(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<()> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(token) = &self.token {
            text.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        text.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        let stream = self.stream.get_mut();
        stream.write_all(&[text.as_bytes(), body].concat())?;
        stream.flush()
    }

    fn read_head(&mut self) -> std::io::Result<(u16, BTreeMap<String, String>)> {
        let broken = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status = status.ok_or_else(broken)?;
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(broken());
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        Ok((status, headers))
    }

    /// False at the last one.
    fn read_chunk(&mut self, into: &mut Vec<u8>) -> std::io::Result<bool> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::UnexpectedEof))?;
        let begun = into.len();
        into.resize(begun + length, 0);
        self.stream.read_exact(&mut into[begun..])?;
        let mut end = [0; 2];
        self.stream.read_exact(&mut end)?;
        Ok(length > 0)
    }

    /// Follows a stream of events until `done` says so. Gives number, kind and data of each.
    pub fn follow(
        mut self,
        path: &str,
        last: Option<&str>,
        mut done: impl FnMut(&(String, String, Value)) -> bool,
    ) -> Vec<(String, String, Value)> {
        let headers: Vec<(&str, &str)> = last.map(|id| ("last-event-id", id)).into_iter().collect();
        self.write("GET", path, &headers, b"").expect("a request");
        let (status, _) = self.read_head().expect("a head");
        assert_eq!(status, 200);
        let (mut events, mut text) = (Vec::new(), Vec::new());
        loop {
            while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                let rest = text.split_off(end + 2);
                let block = String::from_utf8(std::mem::replace(&mut text, rest)).expect("text");
                let field = |name: &str| {
                    let found = block.lines().find_map(|line| line.strip_prefix(name));
                    found.unwrap_or_default().trim_start().to_owned()
                };
                // A comment keeps the connection alive.
                if block.starts_with(':') {
                    continue;
                }
                let data = serde_json::from_str(&field("data:")).expect("JSON");
                let event = (field("id:"), field("event:"), data);
                let last = done(&event);
                events.push(event);
                if last {
                    return events;
                }
            }
            match self.read_chunk(&mut text) {
                Ok(true) => {}
                _ => return events,
            }
        }
    }
}

impl Answer {
    #[track_caller]
    pub fn is(&self, status: u16) -> &Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// A problem with this code, in the right form.
    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) -> &Answer {
        self.is(status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("urn:ringwall:problem:{code}"));
        assert!(!problem["detail"].as_str().expect("words").is_empty());
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        self.json()[name].as_str().unwrap_or_else(|| panic!("{name}: {}", self.text())).to_owned()
    }
}
