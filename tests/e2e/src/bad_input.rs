//! Bad input gets one clear line with the fix, exit code 125, and leaves nothing behind.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

use crate::support::World;

/// A line, and the parts of its answer: the fault and the fix.
const LINES: [(&str, &[&str]); 24] = [
    ("frobnicate", &["frobnicate"]),
    ("rum -- ls", &["rum", "'run'"]),
    ("run", &["no command", "--"]),
    ("run --", &["no command", "--"]),
    ("run --memroy 1G -- ls", &["--memroy", "--memory"]),
    ("run --memory lots -- ls", &["lots", "512M"]),
    ("run --memory 0 -- ls", &["memory", "4M"]),
    ("run --memory 99999T -- ls", &["memory", "16T"]),
    ("run --memory -1 -- ls", &["-1", "512M"]),
    ("run --timeout 0 -- ls", &["timeout", "1ms"]),
    ("run --timeout 9999h -- ls", &["timeout", "168h"]),
    ("run --cpus 0 -- ls", &["cpus", "0.010"]),
    ("run --pids 0 -- ls", &["pids", "2"]),
    ("run --pids 1.5 -- ls", &["1.5", "128"]),
    ("run --disk 0 -- ls", &["disk", "1M"]),
    ("run --output-limit 0 -- ls", &["output", "range"]),
    ("run --open-files 1 -- ls", &["open-files", "16"]),
    ("run --wall moat -- ls", &["moat", "process, container, wasm and vm"]),
    ("run --wall container -- ls", &["image", "--image"]),
    ("run --wall process --image x -- ls", &["--image", "--wall container"]),
    ("run --image localhost:1/such:image -- ls", &["localhost:1/such", "image import"]),
    ("run --name ../../etc -- ls", &["../../etc", "a-z"]),
    ("run --workspace absent -- ls", &["absent", "create it"]),
    ("run --ro absent -- ls", &["absent"]),
];

#[test]
fn wrong_lines_are_refused_with_one_line_and_leave_nothing() {
    let world = World::new();
    for (line, parts) in LINES {
        let refused = world.ringwall(line.split_whitespace());
        refused.is_refused().says(parts);
    }
    assert!(world.sandboxes().is_empty());
}

#[test]
fn ringwall_alone_shows_its_commands() {
    let world = World::new();
    let alone = world.ringwall([] as [&str; 0]);
    alone.exits(0).says(&["Usage: ringwall <COMMAND>", "ringwall run --"]);
    assert_eq!(alone.err(), world.ringwall(["--help"]).exits(0).out());
}

#[test]
fn a_workspace_that_is_a_file_or_a_link_outside_is_refused() {
    let world = World::new();
    world.write("file", "x");
    std::fs::create_dir(world.path("elsewhere")).unwrap();
    symlink(world.path("elsewhere"), world.project().join("link")).unwrap();
    let file = world.ringwall(["run", "--workspace", "file", "--", "ls"]);
    file.is_refused().says(&["file", "not a directory"]);
    let link = world.ringwall(["run", "--workspace", "link", "--", "ls"]);
    link.is_refused().says(&["link", "elsewhere"]);
    let root = world.ringwall(["run", "--workspace", "/", "--", "ls"]);
    root.is_refused().says(&["one project"]);
}

#[test]
fn bytes_that_are_not_utf8_work_where_they_may_and_are_refused_where_they_may_not() {
    let world = World::new();
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let echo = ["run", "--", "printf", "%s"].map(OsString::from).into_iter();
    let run = world.ringwall(echo.chain([odd(b"\xff\xfe")]));
    run.exits(0);
    assert_eq!(run.stdout, b"\xff\xfe");

    let variable = ["run".into(), "-e".into(), odd(b"KEY=\xff")].into_iter();
    let print = ["--", "sh", "-c", "printf %s \"$KEY\""].map(OsString::from);
    let run = world.ringwall(variable.chain(print));
    run.exits(0);
    assert_eq!(run.stdout, b"\xff");

    let image = ["run".into(), "--image".into(), odd(b"\xff"), "--".into(), "ls".into()];
    world.ringwall(image).is_refused();
    let program = ["run".into(), "--".into(), odd(b"absent\xff")];
    world.ringwall(program).exits(127).says(&["absent"]);
}

#[test]
fn a_workspace_with_any_file_name_can_be_used() {
    let world = World::new();
    let name = OsString::from_vec(b"caf\xe9 \n\x1b[2J".to_vec());
    let directory = world.project().join(&name);
    std::fs::create_dir(&directory).unwrap();
    let line = ["run".into(), "--workspace".into(), name, "-o".into(), "json".into(), "--".into()];
    let touch = ["sh", "-c", "echo new >file"].map(OsString::from);
    let mut command = world.command(line.into_iter().chain(touch));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!directory.join("file").exists(), "the workspace was written to");
}

#[test]
fn unknown_sandboxes_are_refused_by_every_verb() {
    let world = World::new();
    for line in [
        "exec nobody -- ls",
        "logs nobody",
        "stop nobody",
        "rm nobody",
        "diff nobody",
        "apply nobody",
        "cp nobody:/x y",
        "cp x y",
        "cp a:/x b:/y",
    ] {
        world.ringwall(line.split_whitespace()).is_refused();
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let world = World::new();
    for line in ["--help", "--version", "run --help", "image pull --help", "-h"] {
        let asked = world.ringwall(line.split_whitespace());
        asked.exits(0).says_nothing();
        assert!(!asked.stdout.is_empty(), "{asked:?}");
    }
    world.ringwall(["completions", "bash"]).exits(0).says_nothing();
    world.ringwall(["man"]).exits(0).says_nothing();
}
