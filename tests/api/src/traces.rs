//! Traces, as a collector gets them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::sandboxes::{create, sh};
use crate::support::{Daemon, World, eventually};

/// Takes what it is sent.
struct Collector {
    address: String,
    got: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let got = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&got);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let into = Arc::clone(&into);
                std::thread::spawn(move || while take(&stream, &into).is_some() {});
            }
        });
        Collector { address, got }
    }

    /// All spans of a trace.
    fn spans(&self, trace: &str) -> Vec<Value> {
        let got = self.got.lock().expect("nobody panicked");
        let mut all = Vec::new();
        for (head, message) in got.iter() {
            assert!(head.starts_with("POST /v1/traces "), "{head}");
            assert!(head.contains("x-key: word"), "{head}");
            let resource = &message["resourceSpans"][0];
            let name = json!({ "key": "service.name", "value": { "stringValue": "walls" } });
            let attributes = resource["resource"]["attributes"].as_array().expect("a list");
            assert!(attributes.contains(&name), "{attributes:?}");
            let spans = resource["scopeSpans"][0]["spans"].as_array().expect("a list");
            all.extend(spans.iter().filter(|span| span["traceId"] == trace).cloned());
        }
        all
    }
}

fn take(stream: &TcpStream, into: &Mutex<Vec<(String, Value)>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    loop {
        let begun = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head[begun..].trim_end().is_empty() {
            break;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; length.trim().parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    into.lock().ok()?.push((head, serde_json::from_slice(&body).ok()?));
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").ok()
}

fn named<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {spans:#?}"))
}

#[test]
fn a_request_is_told_to_a_collector_in_the_trace_of_its_sender() {
    let collector = Collector::start();
    let daemon = Daemon::start_with_env(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.address),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=word"),
        ("OTEL_SERVICE_NAME", "walls"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ]);
    let mut client = daemon.client();
    let id = create(&mut client);
    let (trace, sender) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let parent = format!("00-{trace}-{sender}-01");
    let mut ask = |path: &str, body: &Value, parent: &str| {
        let headers = [("content-type", "application/json"), ("traceparent", parent)];
        client.send("POST", path, &headers, body.to_string().as_bytes())
    };
    ask("/v1/runs", &json!({ "wall": "process", "command": sh("exit 3") }), &parent).is(200);
    ask(&format!("/v1/sandboxes/{id}/exec"), &sh("true"), &parent).is(200);
    let unsampled = "00-11111111111111111111111111111111-b7ad6b7169203331-00";
    ask(&format!("/v1/sandboxes/{id}/exec"), &sh("true"), unsampled).is(200);
    let exec = "POST /v1/sandboxes/{id}/exec";
    let spans = eventually("all spans have come", || {
        let spans = collector.spans(trace);
        let done = spans.iter().filter(|span| span["kind"] == 2).count() == 2;
        done.then_some(spans)
    });
    let request = named(&spans, "POST /v1/runs");
    assert_eq!((&request["parentSpanId"], &request["kind"]), (&json!(sender), &json!(2)));
    for part in ["placement", "start"] {
        assert_eq!(named(&spans, part)["parentSpanId"], request["spanId"], "{part}");
    }
    let status = json!({ "key": "http.response.status_code", "value": { "intValue": "200" } });
    assert!(request["attributes"].as_array().expect("a list").contains(&status), "{request}");
    let code = json!({ "key": "ringwall.exit_code", "value": { "intValue": "3" } });
    let of_run =
        |span: &&Value| span["parentSpanId"] == request["spanId"] && span["name"] == "exec";
    let command = spans.iter().find(of_run).expect("the command of the run");
    assert!(command["attributes"].as_array().expect("a list").contains(&code), "{command}");
    let other = named(&spans, exec);
    let parts = spans.iter().filter(|span| span["parentSpanId"] == other["spanId"]);
    let mut parts: Vec<_> = parts.map(|span| span["name"].as_str().expect("a name")).collect();
    parts.sort_unstable();
    assert_eq!(parts, ["admission", "exec"]);
    let number = |span: &Value, name: &str| -> u64 {
        span[name].as_str().expect("text").parse().expect("a number")
    };
    for span in &spans {
        assert!(number(span, "startTimeUnixNano") <= number(span, "endTimeUnixNano"));
    }
    assert!(collector.spans("11111111111111111111111111111111").is_empty());
}

#[test]
fn traces_that_cannot_be_sent_as_asked_for_stop_the_daemon() {
    let world = World::new();
    let mut command = world.command(["serve"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317");
    let told = command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").output().expect("it starts");
    assert_eq!(told.status.code(), Some(125));
    let why = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(why.contains("OTEL_EXPORTER_OTLP_PROTOCOL") && why.contains("http/json"), "{why}");
}
