//! The command line gives the same with a daemon as without one: output, errors, exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::support::{Daemon, eventually};

/// What a command told, with what differs from one time to the next taken out.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: Option<i32>,
    out: String,
    err: String,
}

fn tell(daemon: &Daemon, line: &[&str], input: &[u8]) -> Told {
    told_by(daemon.world.command(line), input)
}

/// The same by a command line that is to do without the daemon.
fn tell_alone(daemon: &Daemon, line: &[&str]) -> Told {
    let mut command = daemon.world.command(line);
    command.env("RINGWALL_DAEMON", "off");
    told_by(command, b"")
}

fn told_by(mut command: Command, input: &[u8]) -> Told {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A command that does not want it closes it.
    let fed = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ends");
    let _ = fed.join();
    let text = |bytes: &[u8]| without_ids(&String::from_utf8_lossy(bytes));
    Told { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Ids are 12 small letters and digits.
fn without_ids(text: &str) -> String {
    let id = |word: &str| {
        word.len() == 12 && word.chars().all(|it| it.is_ascii_digit() || it.is_ascii_lowercase())
    };
    // In a list: 3s, 2m.
    let age = |word: &str| {
        let number = word.strip_suffix(['s', 'm']);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let mut clean = String::new();
    let mut word = String::new();
    for next in text.chars().chain(['\n']) {
        if next.is_ascii_alphanumeric() {
            word.push(next);
            continue;
        }
        clean.push_str(if id(&word) || age(&word) { "ID" } else { &word });
        word.clear();
        clean.push(next);
    }
    clean
}

fn calls(daemon: &Daemon, kind: &str) -> usize {
    let calls = daemon.client().get("/v1/calls?limit=100").is(200).json();
    let items = calls["items"].as_array().expect("a list").clone();
    items.iter().filter(|call| call["kind"] == kind).count()
}

#[test]
fn a_run_tells_the_same() {
    let mut daemon = Daemon::start();
    let flood = "head -c 3000000 /dev/zero; wc -c; echo last >&2";
    let lines: &[(&[&str], usize)] = &[
        (&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"], 0),
        (
            &[
                "run",
                "--wall",
                "process",
                "-e",
                "A=b",
                "-w",
                "/tmp",
                "--",
                "sh",
                "-c",
                "echo $A; pwd",
            ],
            0,
        ),
        (&["run", "--", "no-such-program"], 0),
        (&["run", "--", "/etc/passwd"], 0),
        (&["run", "--timeout", "300ms", "--", "sleep", "30"], 0),
        (&["run", "--output-limit", "10k", "--", "head", "-c", "100000", "/dev/zero"], 0),
        (&["run", "--", "sh", "-c", "kill -9 $$"], 0),
        (&["run", "-i", "--", "cat"], 100_000),
        // Neither side may wait for the other.
        (&["run", "-i", "--", "sh", "-c", flood], 5_000_000),
        (&["run", "-i", "--", "true"], 1_000_000),
        (&["run", "--", "cat"], 10),
        (&["run", "-t", "--", "sh", "-c", "tty; stty size"], 0),
        (&["run", "--image", "localhost:1/absent", "--", "true"], 0),
        (&["run", "--wall", "container", "--", "true"], 0),
        (&["run", "--workspace", "/no/such/directory", "--", "true"], 0),
        (&["run", "--workspace", ".", "--", "sh", "-c", "echo new > new-file"], 0),
        (&["run", "--kind", "build", "--", "true"], 0),
        (&["run", "--net", "open", "--", "true"], 0),
        (&["run", "--trust", "low", "--", "true"], 0),
        (&["run", "--memory", "1", "--", "true"], 0),
    ];
    let input = |size: usize| vec![b'x'; size];
    let served: Vec<_> =
        lines.iter().map(|(line, size)| tell(&daemon, line, &input(*size))).collect();
    // Not those that could not be asked for, or were refused before they were calls.
    let counted = calls(&daemon, "run");
    assert!(counted >= 13, "{counted}");
    let off = daemon.world.command(["run", "--", "true"]).env("RINGWALL_DAEMON", "off").status();
    assert!(off.expect("it can be started").success());
    assert_eq!(calls(&daemon, "run"), counted);
    daemon.end();
    for ((line, size), served) in lines.iter().zip(served) {
        assert_eq!(served, tell(&daemon, line, &input(*size)), "{line:?}");
    }
}

#[test]
fn documents_and_evidence_have_the_same_form() {
    let mut daemon = Daemon::start();
    let shape = |daemon: &Daemon| {
        let line = ["run", "-o", "json", "--", "sh", "-c", "echo out; exit 4"];
        let told = daemon.world.ringwall(line);
        let document = told.exits(4).json();
        let mut keys: Vec<_> = document.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        let evidence = tell(daemon, &["run", "--evidence", "--", "true"], b"").err;
        let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
        let layers: Vec<_> = evidence.lines().map(first).collect();
        (keys, document["stdout"].clone(), layers)
    };
    let served = shape(&daemon);
    daemon.end();
    assert_eq!(served, shape(&daemon));
}

#[test]
fn signals_reach_the_command_and_end_it() {
    let mut daemon = Daemon::start();
    let script = "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let signalled = |daemon: &Daemon, signal: Signal| {
        let mut command = daemon.world.command(["run", "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut text = String::new();
        out.read_line(&mut text).expect("a line");
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a number");
        rustix::process::kill_process(pid, signal).expect("it can be told");
        out.read_to_string(&mut text).expect("the rest");
        (child.wait().expect("it ends").code(), text)
    };
    let all = |daemon: &Daemon| [signalled(daemon, Signal::INT), signalled(daemon, Signal::TERM)];
    let served = all(&daemon);
    assert_eq!(served[0], (Some(5), "ready\ngot\n".to_owned()));
    assert!(calls(&daemon, "run") >= 2);
    // A command line that is killed takes its command with it.
    let mut killed = daemon.world.command(["run", "--", "sleep", "60"]).spawn().expect("it starts");
    eventually("the run is there", || (daemon.world.sandboxes().len() == 1).then_some(()));
    killed.kill().expect("it can be killed");
    killed.wait().expect("it ends");
    eventually("the run is gone", || daemon.world.sandboxes().is_empty().then_some(()));
    daemon.end();
    assert_eq!(served, all(&daemon));
}

#[test]
fn sandboxes_that_live_on_are_used_in_the_same_way() {
    let mut daemon = Daemon::start();
    std::fs::write(daemon.world.project().join("here"), "content").expect("a file");
    let story = |daemon: &Daemon| {
        let tell = |line: &[&str]| tell(daemon, line, b"input");
        let made = daemon.world.ringwall([
            "create",
            "--name",
            "web",
            "--wall",
            "process",
            "--",
            "sh",
            "-c",
            "echo logged; sleep 60",
        ]);
        let id = made.exits(0).word();
        eventually("its log", || {
            let log = daemon.world.ringwall(["logs", "web"]);
            log.out().contains("logged").then_some(())
        });
        let beginning = &id[..8];
        let mut told = vec![
            tell(&["create", "--name", "web", "--wall", "process"]),
            tell(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]),
            tell(&["exec", beginning, "--", "echo", "by the beginning of its id"]),
            tell(&["exec", "-i", "web", "--", "cat"]),
            tell(&["exec", "web", "--", "no-such-program"]),
            tell(&["exec", "--timeout", "200ms", "web", "--", "sleep", "30"]),
            tell(&["exec", "absent", "--", "true"]),
            tell(&["logs", "web"]),
            tell(&["cp", "here", "web:/tmp/there"]),
            tell(&["exec", "web", "--", "cat", "/tmp/there"]),
            tell(&["cp", "web:/tmp/there", "back"]),
            tell(&["rm", "web"]),
            tell(&["stop", "web"]),
            tell(&["exec", "web", "--", "true"]),
            tell(&["stop", "web"]),
        ];
        std::fs::remove_file(daemon.world.project().join("back")).expect("it was copied");
        let listed = daemon.world.ringwall(["ps", "-a", "-o", "json"]).exits(0).json();
        told.push(Told {
            code: None,
            out: listed[0]["state"].to_string(),
            err: listed[0]["name"].to_string(),
        });
        told.extend([tell(&["rm", "web"]), tell(&["rm", "web"]), tell(&["ps", "-a"])]);
        let made = daemon.world.ringwall(["create", "--wall", "process"]).exits(0).word();
        told.push(tell(&["rm", "--force", &made]));
        told
    };
    let served = story(&daemon);
    assert!(calls(&daemon, "exec") >= 5);
    daemon.end();
    assert_eq!(served, story(&daemon));
}

#[test]
fn a_run_of_the_daemon_is_stopped_alone() {
    let daemon = Daemon::start();
    let mut run = daemon.world.command(["run", "--", "sleep", "60"]).spawn().expect("it starts");
    let id = eventually("the run is there", || {
        daemon.world.sandboxes().first().map(|it| it["id"].as_str().expect("an id").to_owned())
    });
    daemon.world.ringwall(["stop", &id]).exits(0);
    assert_eq!(run.wait().expect("it ends").code(), Some(137));
    daemon.client().get("/v1/health").is(200);
}

/// A sandbox that has ended, with what it changed in its workspace.
fn changed(daemon: &Daemon, script: &str) -> String {
    let line = ["create", "--wall", "process", "--workspace", ".", "--", "echo", "logged"];
    let id = daemon.world.ringwall(line).exits(0).word();
    daemon.world.ringwall(["exec", &id, "--", "sh", "-c", script]).exits(0);
    daemon.world.ringwall(["stop", &id]).exits(0);
    id
}

/// What these verbs look at is in the home, the same files for everybody; the daemon shows the same.
#[test]
fn what_is_looked_at_is_the_same_with_a_daemon_beside_it_and_over_the_api() {
    let daemon = Daemon::start();
    daemon.world.write("here", "content\n");
    let id = changed(&daemon, "echo new > new-file; echo more >> here");
    let lives = daemon.world.ringwall(["create", "--name", "lives", "--wall", "process"]);
    let lives = lives.exits(0).word();
    let lines: [&[&str]; 10] = [
        &["ps"],
        &["ps", "-a"],
        &["ps", "-a", "-o", "json"],
        &["logs", &id],
        &["logs", "lives"],
        &["diff", &id],
        &["diff", "--stat", &id],
        &["diff", "--name-only", &id],
        &["image", "ls"],
        &["diff", "absent"],
    ];
    for line in lines {
        let told = tell(&daemon, line, b"");
        assert!(!told.out.is_empty() || !told.err.is_empty(), "{line:?}");
        assert_eq!(told, tell_alone(&daemon, line), "{line:?}");
    }
    let mut client = daemon.client();
    let diff = client.get(&format!("/v1/sandboxes/{id}/diff")).is(200).text();
    assert_eq!(diff, daemon.world.ringwall(["diff", &id]).exits(0).out());
    let ids = |list: &serde_json::Value| -> Vec<String> {
        let mut ids: Vec<_> =
            list.as_array().expect("a list").iter().map(|it| it["id"].to_string()).collect();
        ids.sort();
        ids
    };
    let listed = ids(&client.get("/v1/sandboxes").is(200).json()["items"]);
    assert_eq!(listed, ids(&daemon.world.sandboxes().into()));
    // Into a living one and out of it again, by every way.
    for (name, alone) in [("a", false), ("b", true)] {
        let there = format!("lives:/tmp/{name}");
        let copy = |line: &[&str]| match alone {
            true => tell_alone(&daemon, line),
            false => tell(&daemon, line, b""),
        };
        assert_eq!(copy(&["cp", "here", &there]).code, Some(0));
        let read = client.get(&format!("/v1/sandboxes/{lives}/files?path=/tmp/{name}"));
        assert_eq!(read.is(200).text(), "content\n");
        assert_eq!(copy(&["cp", &there, name]).code, Some(0));
        assert_eq!(daemon.world.read(name), "content\n");
    }
}

#[test]
fn changes_are_applied_in_the_same_way_by_everybody() {
    let daemon = Daemon::start();
    let make = |name: &str| changed(&daemon, &format!("echo made > {name}"));
    let [a, b, c] = ["a", "b", "c"].map(make);
    let first = tell(&daemon, &["apply", &a], b"");
    let second = tell_alone(&daemon, &["apply", &b]);
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{first:?} {second:?}");
    assert_eq!(first.out.replace('a', "b"), second.out.replace('a', "b"));
    let mut client = daemon.client();
    let third = client.post(&format!("/v1/sandboxes/{c}/apply"), &serde_json::json!({}));
    let applied = third.is(200).json()["applied"].clone();
    let lines: Vec<String> = first.out.trim().lines().map(|line| line.replace('a', "c")).collect();
    assert_eq!(applied, serde_json::json!(lines));
    for name in ["a", "b", "c"] {
        assert_eq!(daemon.world.read(name), "made\n");
    }
    // All have taken note of it in one log, and nobody finds anything left to do.
    let noted = client.get("/v1/audit?kind=workspace-applied").is(200).json();
    assert_eq!(noted.as_array().expect("a list").len(), 3, "{noted}");
    let again = [tell(&daemon, &["apply", &c], b""), tell_alone(&daemon, &["apply", &c])];
    assert_eq!(again[0], again[1]);
    assert!(again[0].err.contains("nothing to do"), "{again:?}");
}
