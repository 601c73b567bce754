//! `ringwall run --preset`: a whole agent behind a wall. Its provider is played on loopback, under the
//! provider's own name; only the gateways of the test find it there.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};

use crate::clients::codex::answer;
use crate::support::{Finished, Others, World};

const HOST: &str = "api.openai.com";
const CANARY: &str = "sk-canary-5f3b1c9d-never-to-be-seen";

type Script = fn(&Value) -> Value;

/// The provider, as far as an agent can tell.
struct Provider {
    address: Ipv4Addr,
    authority: String,
    /// The heads of all requests.
    heads: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    /// Nothing where this user may not listen on port 443.
    fn start(test: &str, script: Script) -> Option<Provider> {
        let number = std::process::id();
        let [_, _, high, low] = number.to_be_bytes();
        // An address of its own for each process of the tests.
        let address = Ipv4Addr::new(127, 77, high, low.max(1));
        let Ok(listener) = TcpListener::bind(SocketAddr::from((address, 443))) else {
            eprintln!("{test}: not tested here: port 443 is only for root");
            return None;
        };
        let issued =
            rcgen::generate_simple_self_signed(vec![HOST.to_owned()]).expect("a certificate");
        let key =
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![issued.cert.der().clone()], key)
            .expect("a key that fits");
        let (config, heads) = (Arc::new(config), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, seen) = (Arc::clone(&config), Arc::clone(&seen));
                thread::spawn(move || {
                    let session = rustls::ServerConnection::new(config).expect("a session");
                    let stream = rustls::StreamOwned::new(session, stream);
                    let head = answer(stream, &Mutex::default(), &script);
                    seen.lock().expect("whole").extend(head);
                });
            }
        });
        Some(Provider { address, authority: issued.cert.pem(), heads })
    }

    /// A world whose gateways find it.
    fn world(&self) -> World {
        let world = World::new();
        let settings = json!({"names": {"zone": {HOST: [self.address]}}, "exempt": [self.address],
            "roots": [self.authority]});
        std::fs::write(world.home().join("gateway.json"), settings.to_string()).expect("a file");
        let config = world.path("nobody-home/.codex");
        std::fs::create_dir_all(&config).expect("a directory");
        std::fs::write(config.join("config.toml"), "# settings\nmodel = \"scripted\"\n")
            .expect("a file");
        std::fs::write(config.join("auth.json"), CANARY).expect("a file");
        world
    }

    fn seen(&self) -> String {
        self.heads.lock().expect("whole").join("\n")
    }
}

fn finished(mut command: Command) -> Finished {
    command.env("OPENAI_API_KEY", CANARY);
    let output = command.output().expect("ringwall can be started");
    Finished::new(format!("{command:?}"), output)
}

fn last_word(_: &Value) -> Value {
    json!({"type": "message", "role": "assistant", "id": "m",
        "content": [{"type": "output_text", "text": "hello"}]})
}

#[test]
fn an_agent_reaches_its_model_with_a_key_that_it_never_holds() {
    let name = "an_agent_reaches_its_model_with_a_key_that_it_never_holds";
    let Some(provider) = Provider::start(name, last_word) else { return };
    let world = provider.world();
    world.write("code.txt", "old\n");
    let script = format!(
        "env; cat $HOME/.codex/config.toml; ls $HOME/.codex; echo new > code.txt; \
         curl -sS -d '{{}}' -H \"Authorization: Bearer $CODEX_API_KEY\" https://{HOST}/v1/responses; \
         curl -sS -o /dev/null -w 'elsewhere %{{http_code}}' https://example.com/ || true"
    );
    let done = finished(world.command(["run", "--preset", "codex", "--", "sh", "-c", &script]));
    done.exits(0);
    let told = format!("{}{}", done.out(), done.err());
    assert!(!told.contains(CANARY), "{told}");
    assert!(told.contains("CODEX_API_KEY=sk-"), "{told}");
    assert!(told.contains("# settings") && !told.contains("auth.json"), "{told}");
    assert!(told.contains("response.completed"), "{told}");
    assert!(provider.seen().contains(&format!("Bearer {CANARY}")), "{}", provider.seen());
    assert!(!told.contains("elsewhere 200"), "{told}");
    // What it changed waits for a person.
    assert_eq!(world.read("code.txt"), "old\n");
    let id = world.sandboxes()[0]["id"].as_str().expect("changes are kept").to_owned();
    world.ringwall(["apply", &id]).exits(0);
    assert_eq!(world.read("code.txt"), "new\n");
    // The value of the key is nowhere in Ringwall's home.
    let kept = Command::new("grep").args(["-r", CANARY]).arg(world.home()).output().expect("grep");
    assert!(kept.stdout.is_empty(), "{}", String::from_utf8_lossy(&kept.stdout));
}

#[test]
fn without_a_key_or_with_a_wrong_name_it_says_what_to_do() {
    let world = World::new();
    let done = world.ringwall(["run", "--preset", "claude-code", "--", "true"]);
    done.is_refused().says(&["ANTHROPIC_API_KEY", "ringwall secret add anthropic-api-key"]);
    let done = world.ringwall(["run", "--preset", "other", "--", "true"]);
    done.says(&["claude-code", "codex", "gemini", "aider"]);
}

/// The model has the agent run a command of its own, then is done.
fn works(request: &Value) -> Value {
    let items = request["input"].as_array().cloned().unwrap_or_default();
    if items.iter().any(|item| item["type"] == "function_call_output") {
        return last_word(request);
    }
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    let line = "echo by codex > made.txt; cat code.txt";
    let (name, arguments) = if has("exec_command") {
        ("exec_command", json!({"cmd": line}))
    } else if has("shell_command") {
        ("shell_command", json!({"command": line}))
    } else {
        ("shell", json!({"command": ["sh", "-c", line]}))
    };
    json!({"type": "function_call", "id": "f", "call_id": "c", "name": name,
        "arguments": arguments.to_string()})
}

#[test]
fn codex_itself_works_behind_a_wall_and_its_changes_are_applied() {
    let name = "codex_itself_works_behind_a_wall_and_its_changes_are_applied";
    let Some(others) = Others::found(name) else { return };
    let Some(provider) = Provider::start(name, works) else { return };
    let world = provider.world();
    world.write("code.txt", "code\n");
    let place = others.place().to_str().expect("a path").to_owned();
    let node = others.node().to_str().expect("a path").to_owned();
    let codex = format!("{place}/node_modules/@openai/codex/bin/codex.js");
    let line = [
        "run",
        "--preset",
        "codex",
        "--apply",
        "--ro",
        &place,
        "--",
        &node,
        &codex,
        "exec",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "do it",
    ];
    let done = finished(world.command(line));
    let told = format!("{}{}", done.out(), done.err());
    assert!(told.contains("hello"), "{told}\n{}", provider.seen());
    assert!(world.project().join("made.txt").exists(), "{told}\n{}", provider.seen());
    assert_eq!(world.read("made.txt"), "by codex\n");
    assert!(!told.contains(CANARY), "{told}");
    assert!(provider.seen().contains(&format!("Bearer {CANARY}")), "{}", provider.seen());
}
