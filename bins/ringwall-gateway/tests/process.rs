//! The built program: orders over its socket, sockets of tasks beside them, events on a pipe.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringwall_egress::{Control, ControlError, Event, Settings, TaskSpec, Verdict};
use ringwall_linux::fdpass;

struct Gateway {
    process: Child,
    control: Option<Control>,
    events: BufReader<std::io::PipeReader>,
}

fn settings(port: u16) -> Settings {
    serde_json::from_value(serde_json::json!({
        "names": {"zone": {"api.example.com": ["127.0.0.1"], "private.example.com": ["10.0.0.1"]}},
        "exempt": [format!("api.example.com:{port}=127.0.0.1")],
    }))
    .unwrap()
}

fn spawn(socket: OwnedFd) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ringwall-gateway"))
        .stdin(Stdio::from(socket))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn start(port: u16) -> Gateway {
    let (ours, theirs) = fdpass::pair().unwrap();
    let (reads, writes) = std::io::pipe().unwrap();
    let process = spawn(theirs);
    let control = Control::new(ours);
    control.start(settings(port), writes.as_fd()).unwrap();
    Gateway { process, control: Some(control), events: BufReader::new(reads) }
}

impl Gateway {
    fn control(&self) -> &Control {
        self.control.as_ref().unwrap()
    }

    fn add(&self, task: serde_json::Value) -> SocketAddr {
        let spec: TaskSpec = serde_json::from_value(task).unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let id = spec.id.clone();
        let info = self.control().add(spec, &[]).unwrap();
        assert!(info.authority.certificate.starts_with("-----BEGIN CERTIFICATE-----"));
        self.control().listen(&id, &[proxy.as_fd(), udp.as_fd(), tcp.as_fd()]).unwrap();
        proxy.local_addr().unwrap()
    }

    fn event(&mut self) -> Event {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.control = None;
        // It ends by itself; if it does not, the test that looks at it says so.
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if self.process.try_wait().unwrap().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        if !std::thread::panicking() {
            panic!("the gateway outlived its socket");
        }
    }
}

/// A server that gives one answer to each connection.
fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    port
}

fn get(proxy: SocketAddr, url: &str) -> String {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let host = url.trim_start_matches("http://").split('/').next().unwrap();
    write!(stream, "GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn task(id: &str, port: u16) -> serde_json::Value {
    serde_json::json!({"id": id, "rules": rules(port)})
}

fn rules(port: u16) -> serde_json::Value {
    serde_json::json!({"allow": [{"host": "api.example.com", "scheme": "http", "port": port}]})
}

#[test]
fn tasks_come_change_and_go() {
    let port = origin();
    let mut gateway = start(port);
    let url = format!("http://api.example.com:{port}/x");
    let first = gateway.add(task("first", port));
    let second = gateway.add(task("second", port + 1));
    assert!(get(first, &url).ends_with("hi"));
    let allowed = gateway.event();
    assert_eq!((allowed.task.as_str(), allowed.verdict), ("first", Verdict::Allowed));
    assert_eq!(gateway.event().verdict, Verdict::Ended);
    assert!(get(second, &url).starts_with("HTTP/1.1 403"), "each task has its own rules");
    let refused = gateway.event();
    assert_eq!((refused.task.as_str(), refused.verdict), ("second", Verdict::Refused));
    let opened = vec![serde_json::from_value(rules(port)).unwrap()];
    gateway.control().reload("second", opened).unwrap();
    assert!(get(second, &url).ends_with("hi"));
    let usage = gateway.control().usage("second").unwrap();
    assert_eq!((usage.requests, usage.connections), (1, 2));
    gateway.control().remove("first").unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(first).is_ok() {
        assert!(Instant::now() < end, "its socket is closed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(get(second, &url).ends_with("hi"));
}

#[test]
fn orders_that_cannot_be_followed_are_refused_and_the_rest_goes_on() {
    let port = origin();
    let gateway = start(port);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let add = |task: serde_json::Value| {
        let spec: TaskSpec = serde_json::from_value(task).unwrap();
        gateway.control().add(spec, &[])
    };
    gateway.add(task("known", port));
    for bad in [
        task("known", port),
        task("", port),
        task("../x", port),
        serde_json::json!({"id": "a", "rules": {"allow": [{"host": "127.0.0.1"}]}}),
        serde_json::json!({"id": "a", "secrets": [{"name": "s", "host": "a.example.com", "from": {"file": "/nowhere"}}]}),
        serde_json::json!({"id": "a", "secrets": [{"name": "s", "host": "a.example.com", "from": {"environment": "NOT_THERE"}}]}),
    ] {
        assert!(matches!(add(bad.clone()), Err(ControlError::Refused(_))), "{bad}");
    }
    assert!(matches!(gateway.control().remove("unknown"), Err(ControlError::Refused(_))));
    assert!(matches!(gateway.control().usage("unknown"), Err(ControlError::Refused(_))));
    add(task("fine", port)).unwrap();
    gateway.control().listen("fine", &[socket.as_fd()]).unwrap();
    assert!(gateway.control().listen("unknown", &[socket.as_fd()]).is_err());
    assert!(gateway.control().listen("fine", &[]).is_err());
    assert!(
        get(socket.local_addr().unwrap(), &format!("http://api.example.com:{port}/"))
            .ends_with("hi")
    );
}

#[test]
fn nothing_is_served_before_start_and_after_the_end() {
    let (ours, theirs) = fdpass::pair().unwrap();
    let mut process = spawn(theirs);
    let mut buffer = vec![0; 1024];
    for order in [r#"{"remove":{"id":"a"}}"#, "not json", r#"{"unknown":1}"#] {
        fdpass::send(ours.as_fd(), order.as_bytes(), &[]).unwrap();
        let (size, _) = fdpass::receive(ours.as_fd(), &mut buffer).unwrap().unwrap();
        assert!(String::from_utf8_lossy(&buffer[..size]).contains("failed"));
    }
    drop(ours);
    assert!(process.wait().unwrap().success());

    let port = origin();
    let mut gateway = start(port);
    let proxy = gateway.add(task("first", port));
    let mut open = TcpStream::connect(proxy).unwrap();
    open.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    gateway.control = None;
    assert_eq!(open.read(&mut [0; 8]).unwrap_or(0), 0, "an open connection ends with the gateway");
    drop(gateway);
    assert!(TcpStream::connect(proxy).is_err());
}

#[test]
fn without_anybody_to_record_nothing_is_allowed() {
    let port = origin();
    let mut gateway = start(port);
    let proxy = gateway.add(task("first", port));
    let url = format!("http://api.example.com:{port}/x");
    assert!(get(proxy, &url).ends_with("hi"));
    // The pipe has a new reader end that nobody holds: the old one is closed.
    let (reads, _writes) = std::io::pipe().unwrap();
    gateway.events = BufReader::new(reads);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = get(proxy, &url);
        if answer.starts_with("HTTP/1.1 503") {
            break;
        }
        assert!(Instant::now() < end, "{answer}");
    }
}

#[test]
fn its_memory_is_closed_to_others() {
    let gateway = start(443);
    let status = std::fs::read_to_string(format!("/proc/{}/limits", gateway.process.id())).unwrap();
    let core = status.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert!(core.split_whitespace().nth(4) == Some("0"), "{core}");
}

/// The kernel bounds its memory, whatever a task makes of what it sends.
#[test]
fn its_memory_is_bounded() {
    let gateway = start(443);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.process.id())).unwrap();
    let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
    let words: Vec<&str> = data.split_whitespace().collect();
    let most = (512 * 1024 * 1024).to_string();
    assert_eq!(words[3..5], [most.as_str(), most.as_str()], "{data}");
}
