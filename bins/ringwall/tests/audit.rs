//! `ringwall audit` with a log that was written by the library.

#![allow(clippy::unwrap_used, reason = "all of this file is a test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use ringwall_audit::{AuditLog, AuditPaths, Egress, Event, Ids, SandboxRaised, Verdict};

struct Home(tempfile::TempDir);

impl Home {
    /// Four records: the log's own, a sandbox of a task, what it did, and what it was not allowed to.
    fn new() -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        let log = home.log();
        let ids = || Ids::default().task("task-1").sandbox("abcdefghijkl");
        let raised = SandboxRaised { wall: "vm".into(), image: None, raise_ms: 5 };
        log.append(ids(), Event::SandboxRaised(raised)).unwrap();
        let allowed = Egress {
            verdict: Verdict::Allowed,
            host: "example.com".into(),
            port: 443,
            rule: "allow example.com".into(),
            ..Egress::default()
        };
        let denied = Egress { host: "evil\u{1b}[2J.example".into(), ..Egress::default() };
        log.append(Ids::default().sandbox("abcdefghijkl"), Event::Egress(allowed)).unwrap();
        log.append(Ids::default().sandbox("abcdefghijkl"), Event::Egress(denied)).unwrap();
        home
    }

    fn paths(&self) -> AuditPaths {
        AuditPaths::in_home(self.0.path())
    }

    fn log(&self) -> AuditLog {
        AuditLog::open(self.paths()).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwall"));
        command.arg("audit").args(arguments).env("RINGWALL_HOME", self.0.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command printed that went well.
    #[track_caller]
    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn the_last_records_are_shown_one_a_line() {
    let home = Home::new();
    let text = home.prints(&["tail"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[1].contains("raised vm in 5 ms task=task-1 sandbox=abcdefghijkl"), "{text}");
    assert!(lines[2].contains("allowed example.com:443"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(home.prints(&["tail", "-n", "1", "--kind", "sandbox-raised"]).lines().count(), 1);
    assert_eq!(home.prints(&["tail", "--task", "task-1"]).lines().count(), 1);
    assert_eq!(
        home.prints(&["tail", "--sandbox", "abcdefghijkl", "-o", "json"]).lines().count(),
        3
    );
}

#[test]
fn new_records_are_followed() {
    let home = Home::new();
    let mut tail = home.command(&["tail", "-f", "-n", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let (told, lines) = std::sync::mpsc::channel();
    let output = BufReader::new(tail.stdout.take().unwrap());
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|it| told.send(it))
    });
    let log = home.log();
    // It may not have looked yet at where the log ends: then the next one is seen.
    let found = (0..100).find_map(|_| {
        let event = Event::GrantRevoked { by: "me".into(), reason: "x".into() };
        log.append(Ids::default(), event).unwrap();
        lines.recv_timeout(std::time::Duration::from_millis(300)).ok()
    });
    let found = found.expect("a line");
    assert!(found.contains("grant revoked by me"), "{found}");
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn a_record_is_shown_with_its_proof_and_a_task_with_all_that_belongs_to_it() {
    let home = Home::new();
    let record: serde_json::Value = serde_json::from_str(&home.prints(&["show", "2"])).unwrap();
    assert_eq!(record["event"]["host"], "example.com");
    let text = home.prints(&["show", "2", "--proof"]);
    assert!(text.contains("c2sp.org/tlog-proof@v1\nindex 2\n"), "{text}");
    let json = home.prints(&["show", "2", "--proof", "-o", "json"]);
    let proof: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((proof["index"].as_u64(), proof["size"].as_u64()), (Some(2), Some(4)));
    assert_eq!(proof["hashes"].as_array().unwrap().len(), 2);
    assert_eq!(home.prints(&["show", "--task", "task-1"]).lines().count(), 3);
    assert_eq!(home.run(&["show", "9"]).status.code(), Some(125));
    assert_eq!(home.run(&["show", "--task", "task-2"]).status.code(), Some(125));
}

#[test]
fn records_are_exported_as_they_are_and_as_ocsf() {
    let home = Home::new();
    let log = fs::read_to_string(home.paths().log()).unwrap();
    let exported = home.prints(&["export"]);
    assert_eq!(exported.lines().count(), 4);
    assert!(exported.lines().all(|line| log.contains(line)));
    let ocsf = home.prints(&["export", "--format", "ocsf", "--kind", "egress"]);
    let events: Vec<serde_json::Value> =
        ocsf.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event["class_uid"] == 4001));
}

#[test]
fn a_whole_log_is_told_from_one_that_was_changed_or_cut_back() {
    let home = Home::new();
    let checkpoint = home.0.path().join("kept");
    let kept = checkpoint.to_str().unwrap();
    let text = home.prints(&["verify", "--save-checkpoint", kept]);
    assert!(text.starts_with("the log is whole: 4 records"), "{text}");
    home.log().append(Ids::default(), Event::ApprovalUsed { request: "r".into() }).unwrap();
    home.prints(&["verify", "--checkpoint", kept]);

    let whole = fs::read_to_string(home.paths().log()).unwrap();
    fs::write(home.paths().log(), whole.replace("example.com", "example.org")).unwrap();
    let output = home.run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("record 2 was edited"), "{said}");
    let document = home.run(&["verify", "-o", "json"]).stdout;
    let document: serde_json::Value = serde_json::from_slice(&document).unwrap();
    assert_eq!(document["findings"][0]["seq"], 2);
    assert_eq!(document["findings"][0]["problem"], "edited");

    // A copy that ends behind an older checkpoint is whole by itself, and found out with a newer one.
    let copy = home.0.path().join("copy");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    fs::write(&copy, lines[..4].concat()).unwrap();
    let copy = copy.to_str().unwrap();
    home.prints(&["verify", "--log", copy]);
    let output = home.run(&["verify", "--log", copy, "--checkpoint", kept]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("the log was cut back: it had 4 records"), "{said}");
}

#[test]
fn a_home_without_a_log_is_said_to_have_none() {
    let home = tempfile::tempdir().unwrap();
    let home = Home(home);
    for verb in ["tail", "export"] {
        let output = home.run(&[verb]);
        assert_eq!(output.status.code(), Some(125));
        assert!(String::from_utf8_lossy(&output.stderr).contains("there is no audit log"));
    }
    assert_eq!(fs::read_dir(home.0.path()).unwrap().count(), 0, "reading makes nothing");
}
