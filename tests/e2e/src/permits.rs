//! Nothing is raised without a permit: keepers attacked by who can start one, and what the log says.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, SystemTime};

use ringwall_permit::{
    CallerName, Issued, Payer, Permit, Purpose, SealKey, SealedFor, SystemCaller,
};
use ringwall_spec::{RingKind, SandboxId, SandboxSpec, Wall, validate};
use serde_json::{Value, json};

use crate::support::World;
use crate::support::tool::{Does, component, manifest};

/// A keeper that has drawn the id of its sandbox and waits for a permit.
struct Keeper {
    child: Child,
    input: ChildStdin,
    words: BufReader<ChildStdout>,
    id: SandboxId,
}

impl Keeper {
    fn start(world: &World) -> Keeper {
        let mut command = world.command(["keep"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a keeper");
        let input = child.stdin.take().expect("a pipe");
        let mut words = BufReader::new(child.stdout.take().expect("a pipe"));
        let id = hear(&mut words)["waits"]["id"].as_str().expect("an id").parse();
        Keeper { child, input, words, id: id.expect("an id") }
    }

    fn raise(&self) -> SealedFor<'_> {
        SealedFor { sandbox: &self.id, purpose: Purpose::Raise }
    }

    /// What the keeper says to what it is given. One that refused has ended.
    fn say(mut self, given: &[u8]) -> Value {
        self.input.write_all(given).expect("it reads");
        drop(self.input);
        let word = hear(&mut self.words);
        if word["refused"].is_object() {
            assert!(!self.child.wait().expect("its end").success());
        } else {
            // Whoever asked goes on; the keeper stays until its sandbox is removed.
            std::thread::spawn(move || self.child.wait());
        }
        word
    }
}

fn hear(words: &mut impl BufRead) -> Value {
    let mut line = String::new();
    words.read_line(&mut line).expect("a word");
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("no word: {line:?}"))
}

fn permit(until: Option<SystemTime>) -> Permit {
    Permit::issue(Issued {
        spec: validate(SandboxSpec::new(Wall::single(RingKind::Process))).expect("a spec"),
        decided: None,
        caller: CallerName::System(SystemCaller::Test),
        account: Payer::Owner,
        record: None,
        until,
    })
}

/// What a keeper does beside raising: nothing.
fn task() -> Value {
    json!({ "command": null, "restore": null, "ready": false })
}

fn seal(home: &std::path::Path, permit: &Permit, used: SealedFor<'_>) -> Vec<u8> {
    let key = SealKey::open_or_make(home).expect("a key");
    key.seal(permit, used, &task()).expect("a sealed permit")
}

/// What an attacker makes of the permit for a keeper.
type Attack<'a> = &'a dyn Fn(&Keeper) -> Vec<u8>;

#[test]
fn a_keeper_raises_nothing_by_a_permit_that_was_not_sealed_for_it_here_and_now() {
    let (world, other) = (World::new(), World::new());
    let good = |keeper: &Keeper| seal(&world.home(), &permit(None), keeper.raise());
    // The one that is good shows that the others fail for what is wrong with them.
    let keeper = Keeper::start(&world);
    let (id, used) = (keeper.id.to_string(), good(&keeper));
    assert_eq!(keeper.say(&used), "ready");
    world.ringwall(["exec", &id, "--", "true"]).exits(0);
    world.ringwall(["rm", "--force", &id]).exits(0);

    let expired = SystemTime::now() - Duration::from_secs(2);
    let attacks: [(&str, Attack<'_>); 8] = [
        ("was used already", &|_| used.clone()),
        ("changed", &|keeper| {
            let mut sealed = good(keeper);
            let middle = sealed.len() / 2;
            sealed[middle] ^= 1;
            sealed
        }),
        ("changed", &|keeper| {
            let text = String::from_utf8_lossy(&good(keeper)[32..]).replace("process", "wasm");
            [&good(keeper)[..32], text.as_bytes()].concat()
        }),
        ("another home", &|keeper| seal(&other.home(), &permit(None), keeper.raise())),
        ("expired", &|keeper| seal(&world.home(), &permit(Some(expired)), keeper.raise())),
        ("another sandbox", &|keeper| {
            let taken = SealedFor { purpose: Purpose::Take, ..keeper.raise() };
            seal(&world.home(), &permit(None), taken)
        }),
        ("changed", &|_| serde_json::to_vec(&json!({ "spec": permit(None).spec() })).unwrap()),
        ("changed", &|_| Vec::new()),
    ];
    for (number, (why, attack)) in attacks.iter().enumerate() {
        let keeper = Keeper::start(&world);
        let given = attack(&keeper);
        let word = keeper.say(&given);
        let told = word["refused"]["why"].as_str().unwrap_or_default();
        assert!(told.contains(why), "attack {number}: {word}");
        assert!(world.sandboxes().is_empty(), "attack {number} left a sandbox");
    }
}

#[test]
fn a_key_of_permits_that_others_can_read_or_that_is_damaged_raises_no_living_sandbox() {
    let world = World::new();
    let id = world.ringwall(["create"]).exits(0).word();
    world.ringwall(["rm", "--force", &id]).exits(0);
    let key = world.home().join("permit-key");
    assert_eq!(fs::metadata(&key).expect("a key").permissions().mode() & 0o7777, 0o600);
    fs::set_permissions(&key, Permissions::from_mode(0o644)).expect("ours");
    world.ringwall(["create"]).is_refused().says(&["permit-key", "open to others"]);
    let keeper = Keeper::start(&world);
    let word = keeper.say(b"whatever");
    assert!(
        word["refused"]["why"].as_str().unwrap_or_default().contains("open to others"),
        "{word}"
    );
    fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("ours");
    fs::write(&key, b"short").expect("ours");
    world.ringwall(["create"]).is_refused().says(&["permit-key", "32 bytes", "remove"]);
    assert!(world.sandboxes().is_empty(), "nothing is left of a refused sandbox");
    fs::remove_file(&key).expect("ours");
    let id = world.ringwall(["create"]).exits(0).word();
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn the_log_names_who_asked_for_each_sandbox() {
    let world = World::new();
    world.sh(&[], "true").exits(0);
    world.write("t.wasm", component(&manifest("t"), &Does::Returns(r#"{"ok": true}"#)));
    world.ringwall(["tool", "call", "./t.wasm"]).exits(0);
    let log = fs::read_to_string(world.home().join("audit/log")).expect("a log");
    let callers: Vec<String> = log
        .lines()
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            let placed = &line["event"];
            (placed["kind"] == "sandbox-placed").then(|| placed["inputs"]["caller"].to_string())
        })
        .collect();
    // One ring for the run, one for the compiler and one for the warden of the tool.
    assert_eq!(callers, ["\"owner\"", "\"tools\"", "\"tools\""]);
}
