//! The log and its exports beside programs of others, in Python: `aics-tlog` for the Merkle tree, the
//! checkpoints and the proofs, and the whole OCSF schema of `ocsf-json-schema`.
//!
//! `make setup` installs both; where they are missing, these tests say so and check nothing.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of this file is a test")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringwall_audit::{
    AdmissionDenied, AuditLog, AuditPaths, CallEnded, CallKind, CallStarted, Egress, Event,
    EvidenceChecked, GrantMinted, Ids, LogReader, SandboxRaised, Verdict, WorkspaceApplied,
    consistency, hex, inclusion, ocsf,
};
use serde_json::json;

const VERIFY: &str = r#"
import json, sys
from aics_tlog import (MerkleTree, parse_note, parse_vkey, verify_checkpoint,
                       verify_consistency, verify_leaf_inclusion)
given = json.load(sys.stdin)
leaves, notes = [], []
for line in open(given["log"], "rb").read().split(b"\n")[:-1]:
    if line.startswith(b'{"checkpoint":'):
        notes.append((len(leaves), json.loads(line)["checkpoint"]))
    else:
        leaves.append(line)
key, tree = parse_vkey(given["key"]), MerkleTree(leaves)
for size, note in notes:
    result = verify_checkpoint(parse_note(note), key, [], quorum=0)
    assert result.ok, result
    text = note.split("\n")
    assert int(text[1]) == size
    import base64
    assert base64.b64decode(text[2]) == tree.root(size), size
root = tree.root()
for proof in given["inclusion"]:
    hashes = [bytes.fromhex(h) for h in proof["hashes"]]
    args = (proof["index"], len(leaves), hashes, root)
    assert verify_leaf_inclusion(leaves[proof["index"]], *args)
    assert not verify_leaf_inclusion(b"something else", *args)
for proof in given["consistency"]:
    hashes = [bytes.fromhex(h) for h in proof["hashes"]]
    old = proof["old"]
    assert verify_consistency(old, len(leaves), tree.root(old), root, hashes)
forged = notes[-1][1].replace("\n%d\n" % notes[-1][0], "\n%d\n" % (notes[-1][0] + 1))
assert not verify_checkpoint(parse_note(forged), key, [], quorum=0).ok
print("agreed on", len(leaves), "records and", len(notes), "checkpoints")
"#;

const OCSF: &str = r#"
import json, sys
import jsonschema
from ocsf_json_schema import get_ocsf_schema, OcsfJsonSchemaEmbedded
schemas = OcsfJsonSchemaEmbedded(get_ocsf_schema(version="1.7.0"))
count = 0
for line in sys.stdin:
    event = json.loads(line)
    profiles = event["metadata"].get("profiles", [])
    schema = schemas.get_class_schema(schemas.lookup_class_name_from_uid(event["class_uid"]), profiles)
    jsonschema.Draft202012Validator(schema).validate(event)
    broken = dict(event)
    del broken["severity_id"]
    assert not jsonschema.Draft202012Validator(schema).is_valid(broken)
    count += 1
print("agreed on", count, "events")
"#;

/// An interpreter that has `module`, or why there is none.
fn python(module: &str) -> Result<PathBuf, String> {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/test-python/bin/python");
    let python = std::env::var_os("RINGWALL_TEST_PYTHON").map_or(made, PathBuf::from);
    let has = Command::new(&python)
        .args(["-c", &format!("import {module}")])
        .stderr(Stdio::null())
        .status();
    match has {
        Ok(status) if status.success() => Ok(python),
        Ok(_) => Err(format!("{} has no {module}; run `make setup`", python.display())),
        Err(error) => Err(format!("{}: {error}; run `make setup`", python.display())),
    }
}

/// Runs a script that must agree.
fn agrees(module: &str, script: &str, input: &str) {
    let python = match python(module) {
        Ok(python) => python,
        Err(reason) => {
            println!("not tested here: {reason}");
            return;
        }
    };
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("agreed on"), "{output:?}");
}

fn events() -> Vec<Event> {
    let calls = [CallKind::Exec, CallKind::Tool, CallKind::FileRead, CallKind::FileDelete];
    let started =
        calls.map(|call| CallStarted { call, what: "/bin/ls -l".into(), parameters: None });
    let ended = calls.map(|call| CallEnded { call, what: "/etc/x".into(), ..CallEnded::default() });
    let address = Some("192.0.2.1".into());
    let allowed = Egress {
        verdict: Verdict::Allowed,
        host: "example.com".into(),
        port: 443,
        address,
        rule: "allow".into(),
        ..Egress::default()
    };
    let mut events = vec![
        Event::Egress(allowed),
        Event::Egress(Egress { host: "evil.example".into(), ..Egress::default() }),
        Event::AdmissionDenied(AdmissionDenied::default()),
        Event::EvidenceChecked(EvidenceChecked::default()),
        Event::SandboxRaised(SandboxRaised::default()),
        Event::WorkspaceApplied(WorkspaceApplied {
            workspace: "/a/b".into(),
            ..WorkspaceApplied::default()
        }),
        Event::GrantMinted(GrantMinted { holder: "agent".into(), ..GrantMinted::default() }),
        Event::GrantRevoked { by: "größe\n".into(), reason: "\u{202e}x".into() },
        Event::PhaseChanged { from: None, to: "plan".into(), by: "me".into() },
    ];
    events.extend(started.map(Event::CallStarted));
    events.extend(ended.map(Event::CallEnded));
    events
}

fn log() -> (tempfile::TempDir, AuditPaths, AuditLog) {
    let home = tempfile::tempdir().unwrap();
    let paths = AuditPaths::in_home(home.path());
    let log = AuditLog::open(paths.clone()).unwrap();
    let ids = Ids::default().task("task").call("call").sandbox("abcdefghijkl");
    for (number, event) in events().into_iter().enumerate() {
        let ids = if number % 2 == 0 { ids.clone() } else { Ids::default() };
        let group = (0..=number % 3).map(|_| (ids.clone(), event.clone()));
        log.append_all(group.collect()).unwrap();
    }
    (home, paths, log)
}

#[test]
fn a_verifier_that_is_not_ours_agrees_with_checkpoints_and_proofs() {
    let (_home, paths, log) = log();
    let key = log.verifier_key();
    let size = LogReader::open(&paths.log()).unwrap().count() as u64;
    let inclusion: Vec<_> = (0..size)
        .map(|seq| {
            let proof = inclusion(&paths.log(), key, seq).unwrap();
            json!({ "index": seq, "hashes": proof.hashes.iter().map(|hash| hex(hash)).collect::<Vec<_>>() })
        })
        .collect();
    let consistency: Vec<_> = (1..size)
        .map(|old| {
            let proof = consistency(&paths.log(), key, old).unwrap();
            json!({ "old": old, "hashes": proof.hashes.iter().map(|hash| hex(hash)).collect::<Vec<_>>() })
        })
        .collect();
    let given = json!({
        "log": paths.log(),
        "key": key.to_string(),
        "inclusion": inclusion,
        "consistency": consistency,
    });
    agrees("aics_tlog", VERIFY, &given.to_string());
}

#[test]
fn the_whole_ocsf_schema_agrees_with_the_export() {
    let (_home, paths, _log) = log();
    let lines: String = LogReader::open(&paths.log())
        .unwrap()
        .map(|record| format!("{}\n", ocsf::event(&record.unwrap(), "host.example")))
        .collect();
    agrees("ocsf_json_schema", OCSF, &lines);
}
