//! The first session of README.md, played for real: its output is what README.md shows, and the recording in
//! docs/images is what was typed and printed. `RINGWALL_WRITE_RECORDING=1` writes the recording again.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::support::World;

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const RECORDING: &str = "docs/images/first-run.cast";
/// The home and the sandbox of the session in README.md. Real ones have other names each time.
const HOME: &str = "/home/ann";
const ID: &str = "2fgvg6ck6zpt";
/// How fast the person types and reads, in seconds. Real times differ on each machine.
const KEY_SECONDS: f64 = 0.03;
const ANSWER_SECONDS: f64 = 0.6;
const READING_SECONDS: f64 = 1.2;

/// A command and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    command: String,
    output: String,
}

/// The first block of a document that begins with a command of Ringwall.
fn first_session(document: &str) -> Vec<Turn> {
    let mut blocks =
        document.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.starts_with("$ ringwall "));
    let mut turns: Vec<Turn> = Vec::new();
    for line in block.expect("a block of commands").lines() {
        match (line.strip_prefix("$ "), turns.last_mut()) {
            (Some(command), _) => {
                turns.push(Turn { command: command.to_owned(), output: String::new() });
            }
            (None, Some(turn)) => turn.output.push_str(&format!("{line}\n")),
            (None, None) => panic!("{line:?} comes before any command"),
        }
    }
    turns
}

/// The id of the sandbox of which the output speaks first.
fn sandbox_id(output: &str) -> Option<&str> {
    output.split("ringwall diff ").nth(1)?.split([',', '\n']).next()
}

/// Plays the commands in a project of a fresh home.
fn play(session: &[Turn]) -> Vec<Turn> {
    let world = World::new();
    let home = world.path("nobody-home");
    let project = home.join("code/app");
    fs::create_dir_all(project.join("src")).unwrap();
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id_ed25519"), "a key\n").unwrap();
    fs::write(project.join("Makefile"), "test:\n\techo passed > result\n").unwrap();
    let like = world.command(["run"]);
    let programs = Path::new(like.get_program()).parent().unwrap().display().to_string();
    let home = home.to_str().unwrap();
    let mut played: Vec<Turn> = Vec::new();
    for turn in session {
        let output = Command::new("timeout")
            .args(["-k", "5", "120", "bash", "-c"])
            .arg(format!("exec 2>&1\n{}", turn.command.replace(HOME, home)))
            .current_dir(&project)
            .env_clear()
            .env("PATH", format!("{programs}:/usr/local/bin:/usr/bin:/bin"))
            .env("HOME", home)
            .env("RINGWALL_HOME", format!("{home}/.local/share/ringwall"))
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap().replace(home, HOME);
        played.push(Turn { command: turn.command.clone(), output });
    }
    let id = played.iter().find_map(|turn| sandbox_id(&turn.output)).map(str::to_owned);
    let id = id.expect("a sandbox with changes");
    played.iter_mut().for_each(|turn| turn.output = turn.output.replace(&id, ID));
    played
}

/// The session as asciinema keeps it (version 2), at the speed of a person.
fn cast(session: &[Turn]) -> String {
    let head = json!({ "version": 2, "width": 112, "height": 16, "title": "A first session with Ringwall" });
    let mut text = format!("{head}\n");
    let mut time = 0.0;
    let mut event = |time: f64, shown: &str| {
        let time = (time * 1000.0).round() / 1000.0;
        writeln!(text, "{}", json!([time, "o", shown])).unwrap();
    };
    for turn in session {
        event(time, "$ ");
        time += READING_SECONDS;
        for letter in turn.command.chars() {
            event(time, letter.encode_utf8(&mut [0; 4]));
            time += KEY_SECONDS;
        }
        event(time, "\r\n");
        time += ANSWER_SECONDS;
        event(time, &turn.output.replace('\n', "\r\n"));
        time += READING_SECONDS;
    }
    text
}

#[test]
fn the_session_of_the_readme_is_what_the_commands_print() {
    let readme = fs::read_to_string(Path::new(TOP).join("README.md")).unwrap();
    let shown = first_session(&readme);
    assert!(shown.len() >= 3, "README.md begins with a session: {shown:?}");
    let played = play(&shown);
    let show = |turns: &[Turn]| -> String {
        turns.iter().map(|turn| format!("$ {}\n{}", turn.command, turn.output)).collect()
    };
    assert_eq!(show(&shown), show(&played), "README.md shows on the left what is on the right now");
    let recording = cast(&played);
    let path = Path::new(TOP).join(RECORDING);
    if std::env::var_os("RINGWALL_WRITE_RECORDING").is_some() {
        fs::write(&path, &recording).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, recording, "RINGWALL_WRITE_RECORDING=1 writes {RECORDING} again");
}

#[test]
fn a_session_is_read_and_recorded_line_by_line() {
    let document = "# X\n\n```console\n$ d\n```\n\n```console\n$ ringwall b\none\ntwo\n$ c\n```\n";
    let turns = first_session(document);
    let turn =
        |command: &str, output: &str| Turn { command: command.into(), output: output.into() };
    assert_eq!(turns, [turn("ringwall b", "one\ntwo\n"), turn("c", "")]);
    let text = cast(&turns);
    assert!(text.lines().any(|line| line.ends_with("\"one\\r\\ntwo\\r\\n\"]")), "{text}");
    assert_eq!(sandbox_id("ringwall: x: ringwall diff abc, ringwall apply abc\n"), Some("abc"));
}
