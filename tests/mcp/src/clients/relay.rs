//! Adds a token to the requests of a client that knows none.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

pub(super) struct Relay {
    address: SocketAddr,
}

impl Relay {
    /// Serves until the test's process ends.
    pub(super) fn start(to: SocketAddr, token: &str) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let token = token.to_owned();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let token = token.clone();
                thread::spawn(move || pass(stream, to, &token));
            }
        });
        Relay { address }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }
}

/// One request on each connection: whatever comes after its head goes through as it is.
fn pass(client: TcpStream, to: SocketAddr, token: &str) -> Option<()> {
    let mut server = TcpStream::connect(to).ok()?;
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let plain = head.lines().filter(|line| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !line.is_empty() && name != "connection" && name != "keep-alive"
    });
    let mut head: String = plain.map(|line| format!("{line}\r\n")).collect();
    head.push_str(&format!("connection: close\r\nauthorization: Bearer {token}\r\n\r\n"));
    server.write_all(head.as_bytes()).ok()?;
    let mut answers = server.try_clone().ok()?;
    let mut back = client.try_clone().ok()?;
    let answering = thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut reader, &mut server);
    let _ = server.shutdown(Shutdown::Write);
    answering.join().ok()
}
