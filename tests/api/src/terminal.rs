//! A terminal over a WebSocket, with a client written for it.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::sandboxes::create;
use crate::support::Daemon;

pub(crate) struct Socket(UnixStream);

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;

impl Socket {
    fn open(daemon: &Daemon, path: &str) -> Socket {
        Socket::open_as(daemon, path, None)
    }

    /// The same for the holder of a token.
    pub(crate) fn open_as(daemon: &Daemon, path: &str, token: Option<&str>) -> Socket {
        let socket = daemon.world.home().join("api.sock");
        let mut stream = UnixStream::connect(socket).expect("the daemon listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let who = token.map(|token| format!("authorization: Bearer {token}\r\n"));
        let who = who.unwrap_or_default();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\n{who}connection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a request");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        // The answer to the example key of RFC 6455.
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Socket(stream)
    }

    pub(crate) fn send(&mut self, kind: u8, bytes: &[u8]) {
        let length = u8::try_from(bytes.len()).expect("short");
        // A mask of zeros is a mask.
        let head: &[u8] = match length {
            0..126 => &[0x80 | kind, 0x80 | length, 0, 0, 0, 0],
            long => &[0x80 | kind, 0x80 | 126, 0, long, 0, 0, 0, 0],
        };
        self.0.write_all(&[head, bytes].concat()).expect("somebody listens");
    }

    pub(crate) fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).expect("a frame");
        let length = match head[1] {
            126 => {
                let mut long = [0; 2];
                self.0.read_exact(&mut long).expect("a length");
                usize::from(u16::from_be_bytes(long))
            }
            short => usize::from(short),
        };
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes).expect("a frame");
        (head[0] & 0x0f, bytes)
    }

    /// What is shown until this is.
    pub(crate) fn until(&mut self, wanted: &str) {
        let mut shown = String::new();
        while !shown.contains(wanted) {
            let (kind, bytes) = self.receive();
            assert_eq!(kind, BINARY, "{}", String::from_utf8_lossy(&bytes));
            shown.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn a_terminal_is_typed_into_resized_and_ends() {
    let daemon = Daemon::start();
    let id = create(&mut daemon.client());
    let mut socket = Socket::open(&daemon, &format!("/v1/sandboxes/{id}/terminal"));
    let script = "stty size; read word; echo got $word; read go; stty size; exit 5";
    let opening = json!({ "command": { "argv": ["sh", "-c", script] }, "rows": 10, "columns": 40 });
    socket.send(TEXT, opening.to_string().as_bytes());
    socket.until("10 40");
    socket.send(BINARY, b"hello\n");
    socket.until("got hello");
    socket.send(TEXT, br#"{"rows":20,"columns":60}"#);
    socket.send(BINARY, b"go\n");
    socket.until("20 60");
    let (kind, last) = loop {
        let (kind, bytes) = socket.receive();
        if kind != BINARY {
            break (kind, bytes);
        }
    };
    assert_eq!(kind, TEXT);
    let result: Value = serde_json::from_slice(&last).expect("JSON");
    assert_eq!(result["exit_code"], 5);
    assert_eq!(socket.receive().0, CLOSE);
}

#[test]
fn a_terminal_that_is_left_takes_its_command_with_it() {
    let daemon = Daemon::start();
    let mut client = daemon.client();
    let id = create(&mut client);
    let path = format!("/v1/sandboxes/{id}/terminal");
    client.get(&path).is_problem(400, "bad-request");
    client.get("/v1/sandboxes/aaaaaaaaaaaa/terminal").is_problem(404, "not-found");
    let mut socket = Socket::open(&daemon, &path);
    let opening = json!({
        "command": { "argv": ["sh", "-c", "echo here; sleep 1000"] }, "rows": 9, "columns": 9,
    });
    socket.send(TEXT, opening.to_string().as_bytes());
    socket.until("here");
    drop(socket);
    crate::support::eventually("its end", || {
        let calls = client.get("/v1/calls").is(200).json();
        (calls["items"][0]["state"] == "ended").then_some(())
    });
    let mut wrong = Socket::open(&daemon, &path);
    wrong.send(TEXT, b"{}");
    let (kind, said) = wrong.receive();
    assert_eq!(kind, TEXT);
    assert!(String::from_utf8_lossy(&said).contains("bad-request"));
}
