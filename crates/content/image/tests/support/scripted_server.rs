//! An HTTP server that misbehaves on purpose, which no real registry can be made to do.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    headers: Vec<String>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Bytes to send back; the connection is closed after them.
pub(crate) type Answer = Vec<u8>;

/// Runs until the test program ends.
pub(crate) struct ScriptedServer {
    pub(crate) address: String,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
}

impl ScriptedServer {
    /// Answers every request with what `script` makes of it.
    pub(crate) fn start(script: impl Fn(&Seen) -> Answer + Send + 'static) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = ScriptedServer { address, seen: Arc::default() };
        let seen = Arc::clone(&server.seen);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let request = read_request(&connection);
                let answer = script(&request);
                seen.lock().unwrap().push(request);
                // The client may hang up in the middle; that is its right.
                let _ = (&connection).write_all(&answer);
            }
        });
        server
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

fn read_request(connection: &TcpStream) -> Seen {
    let mut lines = BufReader::new(connection).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let headers = lines.take_while(|line| !line.is_empty()).collect();
    Seen { path: first.split(' ').nth(1).unwrap_or_default().to_owned(), headers }
}

/// A whole answer with its length.
pub(crate) fn answer(status: &str, headers: &[&str], body: &[u8]) -> Answer {
    answer_claiming(status, headers, body.len() as u64, body)
}

/// An answer that says it has `length` bytes, whatever it really has.
pub(crate) fn answer_claiming(status: &str, headers: &[&str], length: u64, body: &[u8]) -> Answer {
    let mut head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// A small image as a registry would serve it.
pub(crate) struct ServedImage {
    pub(crate) layer: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
}

impl ServedImage {
    pub(crate) fn new(layer: Vec<u8>) -> ServedImage {
        let digest = ringwall_image::Digest::of;
        let config = format!(
            r#"{{"os":"linux","architecture":"{}","rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            digest(&layer)
        );
        let config = config.into_bytes();
        let descriptor = |kind: &str, bytes: &[u8]| {
            let media_type = format!("application/vnd.oci.image.{kind}");
            let (digest, size) = (digest(bytes), bytes.len());
            format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size}}}"#)
        };
        let manifest = format!(
            r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{},"layers":[{}]}}"#,
            descriptor("config.v1+json", &config),
            descriptor("layer.v1.tar", &layer)
        );
        ServedImage { layer, config, manifest: manifest.into_bytes() }
    }

    /// An honest answer.
    pub(crate) fn serve(&self, request: &Seen) -> Answer {
        for content in [&self.layer, &self.config] {
            if request.path.ends_with(ringwall_image::Digest::of(content).hex()) {
                return answer("200 OK", &[], content);
            }
        }
        if request.path.contains("/manifests/") {
            return answer("200 OK", &[], &self.manifest);
        }
        answer("404 Not Found", &[], b"")
    }

    pub(crate) fn is_layer(&self, request: &Seen) -> bool {
        request.path.ends_with(ringwall_image::Digest::of(&self.layer).hex())
    }
}
