//! Attacks of a tool that was given one host: it goes for all the others. The tool is the built-in `fetch`,
//! which asks for whatever it is told to; a server at the one address shows that requests do get through.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringwall_engine::{
    AskedCall, PolicySearch, ToolCall, ToolError, ToolGate, ToolHost, ToolInput, ToolNetwork,
    with_causes,
};
use ringwall_probes::Class;
use ringwall_spec::{ToolLimits, ToolStatus, Wall};
use serde_json::{Value, json};

use super::{Came, TIME};
use crate::judge::{Finding, Verdict, short};
use crate::run::Workshop;
use crate::stage::Stage;

/// The one server that the tool may reach, and where it is: on this machine, but at an address of its own.
const GIVEN: &str = "given.example.com";
const GIVEN_ADDRESS: &str = "127.0.0.2";
/// A name that the tool may use, and that leads to an address that no tool may reach.
const ASTRAY: &str = "astray.example.com";
/// What that server answers.
const WELCOME: &str = "welcome";
const SERVER_PAUSE: Duration = Duration::from_millis(5);
const SERVER_PATIENCE: Duration = Duration::from_millis(500);
const MOST_OF_A_REQUEST: usize = 4096;

/// A row: name, what it stands for, the request.
type Row = (&'static str, &'static str, fn(&Targets) -> Value);

/// Where requests are sent.
struct Targets {
    given: String,
    /// Listeners of the stage.
    loopback: String,
    loopback6: String,
    port: String,
    greeting: String,
}

impl Targets {
    /// A request that a listener of the stage would hear.
    fn at(&self, authority: &str) -> Value {
        json!({"url": format!("http://{authority}/{}", self.greeting)})
    }

    fn at_port_of(&self, host: &str) -> Value {
        self.at(&format!("{host}:{}", self.port))
    }
}

const ATTACKS: [Row; 15] = [
    ("tool-reach-loopback", "a service of this machine", |to| to.at(&to.loopback)),
    ("tool-reach-loopback6", "the same by IPv6", |to| to.at(&to.loopback6)),
    ("tool-reach-mapped", "the same by a mapped address", |to| to.at_port_of("[::ffff:127.0.0.1]")),
    ("tool-reach-localhost", "the same by name", |to| to.at_port_of("localhost")),
    ("tool-reach-number", "the same as one number", |to| to.at_port_of("2130706433")),
    ("tool-reach-octal", "the same in octal", |to| to.at_port_of("0177.0.0.1")),
    ("tool-reach-zero", "the same as any address", |to| to.at_port_of("0.0.0.0")),
    ("tool-reach-rebinding", "an allowed name that leads to this machine", |to| {
        to.at_port_of(ASTRAY)
    }),
    (
        "tool-reach-metadata",
        "credentials of a cloud's metadata service",
        |_| json!({"url": "http://169.254.169.254/latest/meta-data/"}),
    ),
    ("tool-reach-port", "another port of the host that was given", |to| to.at_port_of(GIVEN)),
    ("tool-reach-user", "a host that hides behind a user's name", |to| {
        to.at(&format!("{}@{}", to.given, to.loopback))
    }),
    ("tool-reach-redirect", "a server that was given sends on to another", |to| {
        let to_go = format!("http://{}/{}", to.loopback, to.greeting);
        json!({"url": format!("http://{}/away", to.given), "headers": {"x-away": to_go}})
    }),
    (
        "tool-reach-host-header",
        "another host in the head of an allowed request",
        |to| json!({"url": format!("http://{}/seen", to.given), "headers": {"host": to.loopback}}),
    ),
    ("tool-reach-header-smuggling", "a second request in a header", |to| {
        let smuggled = format!("a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {}", to.given);
        json!({"url": format!("http://{}/seen", to.given), "headers": {"x-a": smuggled}})
    }),
    ("tool-reach-method-smuggling", "a second request in the method", |to| {
        let method = format!("GET /smuggled HTTP/1.1\r\nHost: {}\r\n\r\nGET", to.given);
        json!({"url": format!("http://{}/seen", to.given), "method": method})
    }),
];

impl Workshop<'_> {
    /// All of them. In a sandbox tools reach nothing, whatever they were given.
    pub(super) fn attack_hosts(
        &self,
        wall: &Wall,
        (compiler, calls): (&ToolHost, &ToolHost),
        stage: &Stage,
    ) -> Vec<Finding> {
        let finding = |(probe, stands_for, _): &Row, (verdict, detail): (Verdict, String)| {
            let detail = short(&detail);
            Finding { probe, class: Class::Gateway, stands_for, verdict, detail }
        };
        let made = || -> Result<Vec<Finding>, String> {
            let scene = &stage.scene;
            let address = |six: bool| scene.tcp.iter().find(|to| to.starts_with('[') == six);
            let loopback = address(false).ok_or("there is no loopback device")?.clone();
            let port = loopback.rsplit(':').next().unwrap_or_default().to_owned();
            let reaching = Reaching::new(self, wall, (compiler, calls), &port)?;
            let targets = Targets {
                given: reaching.server.name(),
                loopback6: address(true).unwrap_or(&loopback).clone(),
                port,
                loopback,
                greeting: scene.greeting.clone(),
            };
            reaching.show_that_it_can(wall)?;
            Ok(ATTACKS
                .iter()
                .map(|row| finding(row, reaching.make(row, &targets, stage)))
                .collect())
        };
        made().unwrap_or_else(|reason| {
            ATTACKS.iter().map(|row| finding(row, (Verdict::NotTested, reason.clone()))).collect()
        })
    }
}

/// A tool that was given one host.
struct Reaching<'a> {
    calls: &'a ToolHost,
    server: Server,
    call: ToolCall,
    settings: PathBuf,
}

impl Drop for Reaching<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.settings);
    }
}

impl<'a> Reaching<'a> {
    fn new(
        workshop: &Workshop<'_>,
        wall: &Wall,
        (compiler, calls): (&ToolHost, &'a ToolHost),
        port: &str,
    ) -> Result<Reaching<'a>, String> {
        let fetch = workshop.fetch.as_ref().ok_or("the built-in tool `fetch` is not installed")?;
        let wasm = fs::read(fetch).map_err(|error| format!("{}: {error}", fetch.display()))?;
        let compiled = compiler.compile(&wasm).map_err(|error| with_causes(&error))?;
        let server =
            Server::start().map_err(|error| format!("no server at {GIVEN_ADDRESS}: {error}"))?;
        // No tool reaches loopback, but for the exceptions of the home's owner.
        let settings = workshop.home.join("gateway.json");
        let zone = json!({GIVEN: [GIVEN_ADDRESS], ASTRAY: ["127.0.0.1"]});
        let given = format!("{GIVEN}:{}={GIVEN_ADDRESS}", server.address.port());
        let exempt = json!({"exempt": [given], "names": {"zone": zone}}).to_string();
        fs::write(&settings, exempt).map_err(|error| with_causes(&error))?;
        let port: u16 = port.parse().unwrap_or_default();
        let rules = [(GIVEN, server.address.port()), (ASTRAY, port)];
        let rules = rules.map(|(host, port)| json!({"host": host, "port": port, "scheme": "http"}));
        let egress = serde_json::from_value(json!({"layers": [{"allow": rules}]}))
            .map_err(|error| with_causes(&error))?;
        let gate = ToolGate::open(&PolicySearch::default()).map_err(|error| with_causes(&error))?;
        let asked = AskedCall {
            tool: "fetch",
            kind: "compute",
            dirs: &[],
            wall,
            sandbox: None,
            strict: false,
            elevated: None,
            task: None,
        };
        let entry =
            workshop.engine.begin_tool(asked, &gate).map_err(|error| with_causes(&error))?;
        let call = ToolCall {
            limits: ToolLimits { time: TIME, ..ToolLimits::default() },
            wants_http: true,
            network: Some(ToolNetwork { egress, variables: Vec::new(), entry }),
            ..ToolCall::component(compiled.digest, Vec::new())
        };
        Ok(Reaching { calls, server, call, settings })
    }

    /// Without a request that gets through, one that does not shows nothing.
    fn show_that_it_can(&self, wall: &Wall) -> Result<(), String> {
        if wall.has_tools_inside() {
            return Ok(());
        }
        let url = format!("http://{}/", self.server.name());
        match self.ask(&json!({"url": url})) {
            Came::Through(said) if said.contains(WELCOME) => Ok(()),
            Came::Through(why) | Came::Nowhere(why) | Came::NotMade(why) => {
                Err(format!("the tool does not reach what it was given: {why}"))
            }
        }
    }

    fn make(&self, (_, _, request): &Row, to: &Targets, stage: &Stage) -> (Verdict, String) {
        let heard = stage.heard_so_far();
        self.server.forget();
        let came = self.ask(&request(to));
        if stage.heard_so_far() > heard {
            return (Verdict::Breach, "a listener of this machine was reached".to_owned());
        }
        if let Some(head) = self.server.foreign_head() {
            return (Verdict::Breach, format!("the server got {head:?}"));
        }
        match came {
            // A request for the granted server may arrive there.
            Came::Through(said) if said.contains(WELCOME) => {
                (Verdict::Blocked, "only the host that was given got the request".to_owned())
            }
            Came::Through(said) => (Verdict::Breach, format!("it was answered: {said}")),
            Came::Nowhere(why) => (Verdict::Blocked, why),
            Came::NotMade(why) => (Verdict::NotTested, why),
        }
    }

    fn ask(&self, request: &Value) -> Came {
        let json = request.to_string().into_bytes();
        let call = ToolCall { input: ToolInput::Component { json }, ..self.call.clone() };
        match self.calls.call(&call) {
            Ok(outcome) => match outcome.status {
                ToolStatus::Returned => {
                    Came::Through(String::from_utf8_lossy(&outcome.output).into_owned())
                }
                ToolStatus::Failed { message, .. } => Came::Nowhere(message),
                ToolStatus::Denied { what } => Came::Nowhere(what),
                status => Came::NotMade(format!("{status:?}")),
            },
            // A refusal of the engine is one, too.
            Err(ToolError::Refused(why)) => Came::Nowhere(why),
            Err(error) => Came::NotMade(with_causes(&error)),
        }
    }
}

/// The one server that the tool was given. It ends when it is dropped.
struct Server {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> io::Result<Server> {
        let listener = TcpListener::bind((GIVEN_ADDRESS, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (heads, over): (Arc<Mutex<Vec<String>>>, Arc<AtomicBool>) = Default::default();
        let (kept, ended) = (Arc::clone(&heads), Arc::clone(&over));
        let serve = move || {
            while !ended.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let head = answer(stream).unwrap_or_default();
                        kept.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                    }
                    Err(_) => std::thread::sleep(SERVER_PAUSE),
                }
            }
        };
        let thread = std::thread::Builder::new().name("given".to_owned()).spawn(serve)?;
        Ok(Server { address, heads, over, thread: Some(thread) })
    }

    /// As the tool names it.
    fn name(&self) -> String {
        format!("{GIVEN}:{}", self.address.port())
    }

    fn forget(&self) {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The head of a request that speaks of another host, or was smuggled in.
    fn foreign_head(&self) -> Option<String> {
        let heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        let own = format!("host: {}", self.name());
        let foreign = |head: &&String| {
            let mut lines = head.lines().map(str::to_ascii_lowercase);
            head.contains("/smuggled") || !(head.is_empty() || lines.any(|line| line == own))
        };
        heads.iter().find(foreign).cloned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request and gives its head: a welcome, or a way to where its `x-away` leads.
fn answer(mut stream: TcpStream) -> io::Result<String> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(SERVER_PATIENCE))?;
    stream.set_write_timeout(Some(SERVER_PATIENCE))?;
    let mut got = Vec::new();
    let mut buffer = [0; 1024];
    while !got.windows(4).any(|end| end == b"\r\n\r\n") && got.len() < MOST_OF_A_REQUEST {
        match stream.read(&mut buffer)? {
            0 => break,
            count => got.extend_from_slice(&buffer[..count]),
        }
    }
    let head = String::from_utf8_lossy(&got).into_owned();
    let away = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("x-away").then(|| value.trim().to_owned())
    });
    let (status, more) = match away {
        Some(to) => ("302 Found", format!("location: {to}\r\n")),
        None => ("200 OK", String::new()),
    };
    let length = WELCOME.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{more}content-length: {length}\r\nconnection: close\r\n\r\n{WELCOME}"
    )?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(to: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Heads are kept after the answer was sent.
    fn wait_for_head(server: &Server) {
        while server.heads.lock().unwrap().is_empty() {
            std::thread::sleep(SERVER_PAUSE);
        }
    }

    #[test]
    fn a_request_for_another_host_or_a_smuggled_one_is_noticed() {
        let server = Server::start().unwrap();
        let (to, name) = (server.address, server.name());
        for (request, foreign) in [
            (format!("GET / HTTP/1.1\r\nHost: {name}\r\n\r\n"), false),
            ("GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n".to_owned(), true),
            (format!("GET /smuggled HTTP/1.1\r\nHost: {name}\r\n\r\n"), true),
        ] {
            server.forget();
            assert!(send(to, &request).ends_with(WELCOME));
            wait_for_head(&server);
            assert_eq!(server.foreign_head().is_some(), foreign, "{request}");
        }
        let away = format!("GET / HTTP/1.1\r\nHost: {to}\r\nX-Away: http://a.example/\r\n\r\n");
        assert!(send(to, &away).contains("location: http://a.example/"));
    }
}
