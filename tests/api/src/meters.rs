//! Every part of a budget ends what it pays for, and says so: under a grant and under a tenant's budget.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::sandboxes::{files, sh};
use crate::support::tool::{Does, component, manifest};
use crate::support::{Client, Daemon, eventually};

const NAME: &str = "sink.example.com";

fn run(script: &str, limits: &Value) -> Value {
    json!({ "wall": "process", "kind": "files", "limits": limits, "command": sh(script) })
}

#[test]
fn processors_and_memory_end_a_run_when_they_are_spent() {
    let daemon = Daemon::for_tenants(&[]);
    let limits = json!({ "timeout_ms": 20_000, "cpu_milli": 1000, "memory_bytes": 64 << 20 });
    for (part, most) in [("cpu_seconds", 1), ("memory_mib_seconds", 64)] {
        let token = daemon.grant("acme", &json!({ "budget": { part: most } }));
        let mut client = daemon.holder(&token);
        let busy = client.post("/v1/runs", &run("while :; do :; done", &limits)).is(200).json();
        assert_eq!(
            (&busy["ending"], &busy["stopped_by"]),
            (&json!("timeout"), &json!(format!("budget:{part}")))
        );
        let over = client.post("/v1/runs", &run("true", &limits));
        over.is_problem(403, "budget-exhausted");
        assert!(over.text().contains(part), "{}", over.text());
    }
}

#[test]
fn fuel_ends_a_tool_when_it_is_spent() {
    let daemon = Daemon::for_tenants(&[]);
    let path = daemon.world.path("yes.wasm");
    std::fs::write(&path, component(&manifest("yes"), &Does::Loops)).expect("a file");
    daemon.world.ringwall(["tool", "add", path.to_str().expect("a path")]).exits(0);
    let token = daemon.grant("acme", &json!({ "tools": ["yes"], "budget": { "fuel": 100_000 } }));
    let mut client = daemon.holder(&token);
    let ended = client.post("/v1/tools/yes/call", &json!({})).is(200).json();
    assert_eq!(ended["stopped_by"], "budget:fuel", "{ended}");
    let over = client.post("/v1/tools/yes/call", &json!({}));
    over.is_problem(403, "budget-exhausted");
    assert!(over.text().contains("fuel"), "{}", over.text());
}

/// A server that takes what it is sent and answers, and the certificate by which it is known.
struct Sink {
    port: u16,
    certificate: String,
}

impl Sink {
    fn start() -> Sink {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a configuration");
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let session =
                    rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
                std::thread::spawn(move || answer(rustls::StreamOwned::new(session, stream)));
            }
        });
        Sink { port, certificate: made.cert.pem() }
    }

    /// A daemon whose policy lets everybody reach it, by a name that no name server knows.
    fn daemon(&self) -> Daemon {
        let daemon = Daemon::for_tenants(&[]);
        let settings = json!({
            "names": { "zone": { NAME: ["127.0.0.1"] } }, "exempt": [format!("{NAME}:{}=127.0.0.1", self.port)],
            "roots": [self.certificate],
        });
        let path = daemon.world.home().join("gateway.json");
        std::fs::write(&path, settings.to_string()).expect("a file");
        let policy = daemon.world.path("nobody-home/.config/ringwall/ringwall.toml");
        let text = std::fs::read_to_string(&policy).expect("a policy");
        let rule = format!("[[network.allow]]\nhost = \"{NAME}\"\nport = {}\n", self.port);
        let text = text.replace("[network]\npresets = [\"none\"]\n", &format!("[network]\n{rule}"));
        assert!(text.contains(NAME), "{text}");
        std::fs::write(&policy, text).expect("a policy");
        daemon
    }

    /// What sends so much.
    fn post(&self, bytes: u64) -> String {
        let port = self.port;
        format!("head -c {bytes} /dev/zero | curl -sSf --data-binary @- https://{NAME}:{port}/")
    }

    fn rights(&self) -> Value {
        json!({ "endpoints": [format!("{NAME}:{}", self.port)] })
    }
}

fn answer(mut stream: impl Read + Write) -> Option<()> {
    let mut got = Vec::new();
    let mut chunk = [0; 4096];
    let end = loop {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        got.extend_from_slice(&chunk[..read]);
        if let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8_lossy(&got[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |text| text.trim().parse().unwrap_or(0));
    while got.len() < end + length {
        let read = stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
        got.extend_from_slice(&chunk[..read]);
    }
    let said = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    stream.write_all(said).and_then(|()| stream.flush()).ok()
}

fn sent(client: &mut Client, scope: &str) -> (u64, u64) {
    let budgets = client.get("/v1/budgets").is(200).json();
    let of = budgets.as_array().expect("a list").iter();
    let of = of.filter(|it| it["scope"].as_str().is_some_and(|name| name.starts_with(scope)));
    let all = of.flat_map(|it| it["spent"].as_array().expect("a list"));
    let bytes = all.into_iter().find(|it| it["dimension"] == "egress_bytes").expect("a part");
    (bytes["spent"].as_u64().expect("a number"), bytes["reserved"].as_u64().expect("a number"))
}

#[test]
fn what_is_sent_is_paid_for_and_ends_where_the_budget_does() {
    let sink = Sink::start();
    let daemon = sink.daemon();
    let mut rights = sink.rights();
    rights["budget"] = json!({ "egress_bytes": 50_000 });
    let token = daemon.grant("acme", &rights);
    let mut client = daemon.holder(&token);
    let limits = json!({ "timeout_ms": 20_000 });
    let small = client.post("/v1/runs", &run(&sink.post(10_000), &limits)).is(200).json();
    assert_eq!((&small["exit_code"], &small["stdout"]), (&json!(0), &json!("hello")), "{small}");
    assert_eq!(small["stopped_by"], Value::Null);
    let (spent, reserved) = sent(&mut client, "grant:");
    assert!((10_000..12_000).contains(&spent) && reserved == 0, "{spent} {reserved}");
    // A sandbox that lives on holds all that is left, until it ends.
    let made = json!({ "wall": "process", "kind": "files" });
    let id = client.post("/v1/sandboxes", &made).is(201).field("id");
    let (_, reserved) = sent(&mut client, "grant:");
    assert_eq!(spent + reserved, 50_000);
    client.post("/v1/runs", &run("true", &limits)).is_problem(403, "budget-exhausted");
    let exec = format!("/v1/sandboxes/{id}/exec");
    let more = client.post(&exec, &files(&sink.post(10_000))).is(200).json();
    assert_eq!(more["stdout"], "hello", "{more}");
    client.delete(&format!("/v1/sandboxes/{id}")).is(204);
    let (spent, reserved) = sent(&mut client, "grant:");
    assert!((20_000..24_000).contains(&spent) && reserved == 0, "{spent} {reserved}");
    // More than is left does not get out, and that is said.
    let large = client.post("/v1/runs", &run(&sink.post(100_000), &limits)).is(200).json();
    assert_ne!(large["exit_code"], 0, "{large}");
    assert_eq!(large["stopped_by"], "budget:egress_bytes", "{large}");
    client.post("/v1/runs", &run("true", &limits)).is_problem(403, "budget-exhausted");
    assert_eq!(sent(&mut client, "grant:"), (50_000, 0));
    // Without a network nothing of it is needed.
    let offline = daemon.grant("acme", &json!({ "budget": { "egress_bytes": 1 } }));
    daemon.holder(&offline).post("/v1/runs", &run("true", &limits)).is(200);
}

#[test]
fn what_a_tenant_may_send_counts_over_all_its_grants_and_over_restarts() {
    let sink = Sink::start();
    let mut daemon = sink.daemon();
    daemon.tenants_may_spend(&json!({ "tenants": { "acme": { "egress_bytes": 30_000 } } }));
    let rights = sink.rights();
    let (one, two) = (daemon.grant("acme", &rights), daemon.grant("acme", &rights));
    let limits = json!({ "timeout_ms": 20_000 });
    let script = run(&sink.post(20_000), &limits);
    assert_eq!(daemon.holder(&one).post("/v1/runs", &script).is(200).json()["exit_code"], 0);
    let made = json!({ "wall": "process", "kind": "files" });
    let id = daemon.holder(&two).post("/v1/sandboxes", &made).is(201).field("id");
    let held = sent(&mut daemon.holder(&one), "tenant:acme");
    assert_eq!(held.0 + held.1, 30_000);
    daemon.kill();
    daemon.start_again();
    // It lives on, and so does what it holds.
    assert_eq!(sent(&mut daemon.holder(&one), "tenant:acme"), held);
    daemon.holder(&two).post("/v1/runs", &script).is_problem(403, "budget-exhausted");
    daemon.world.ringwall(["stop", &id]).exits(0);
    eventually("what it did not send is given back", || {
        daemon.client().get("/v1/sandboxes").is(200);
        (sent(&mut daemon.holder(&one), "tenant:acme") == (held.0, 0)).then_some(())
    });
    let other = daemon.grant("other", &rights);
    assert_eq!(daemon.holder(&other).post("/v1/runs", &script).is(200).json()["exit_code"], 0);
}
