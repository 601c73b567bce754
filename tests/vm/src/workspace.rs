//! A guest works on a copy of the workspace; what it changed comes out, and nothing else.

use std::os::unix::fs::symlink;

use crate::site::Site;

/// Every kind of change at once.
const CHANGES: &str = "echo changed >notes.txt; rm gone.txt; mkdir -p new/deep; \
    echo added >new/deep/file; rm -r replaced; mkdir replaced; echo fresh >replaced/only; \
    rm link; ln -s notes.txt link; ln -s new newlink; chmod 755 script; \
    rm -r becomes-file; echo file >becomes-file";

fn furnish(site: &Site) {
    let world = &site.ground.world;
    for (name, content) in [
        ("notes.txt", "original\n"),
        ("gone.txt", "to be removed\n"),
        ("replaced/one", "1\n"),
        ("replaced/two", "2\n"),
        ("becomes-file/inner", "x\n"),
        ("script", "#!/bin/sh\n"),
        (".env", "TOKEN=hunter2\n"),
        ("kept/.env.local", "TOKEN=hunter3\n"),
    ] {
        world.write(name, content);
    }
    symlink("gone.txt", world.project().join("link")).expect("a link");
}

fn changes_come_out_of(wall: &str) {
    let site = Site::new();
    furnish(&site);
    let world = &site.ground.world;
    let script = format!("cat notes.txt; cat .env kept/.env.local; {CHANGES}");
    let run = site.run_in(wall, &["--workspace", ".", "-o", "json"], &script);
    let document = run.exits(0).json();
    let seen = document["stdout"].as_str().expect("text");
    assert!(seen.starts_with("original\n"), "{wall}: {seen}");
    assert!(!document.to_string().contains("hunter"), "{wall}: secrets were copied in");
    assert_unchanged(&site);

    let id = document["id"].as_str().expect("an id");
    let names = site.ringwall(&["diff", "--name-only", id]).exits(0).out();
    for name in ["notes.txt", "gone.txt", "new/deep/file", "replaced/only", "replaced/one", "link"]
    {
        assert!(names.lines().any(|line| line == name), "{wall}: {name} is not in\n{names}");
    }
    assert!(!names.contains(".env"), "{wall}: {names}");
    let diff = site.ringwall(&["diff", id]).exits(0).out();
    for part in ["-original", "+changed", "+added", "-to be removed"] {
        assert!(diff.contains(part), "{wall}: {part} is not in\n{diff}");
    }
    assert_unchanged(&site);

    site.ringwall(&["apply", id]).exits(0);
    assert_eq!(world.read("notes.txt"), "changed\n");
    assert_eq!(world.read("new/deep/file"), "added\n");
    assert_eq!(world.read("replaced/only"), "fresh\n");
    assert_eq!(world.read("becomes-file"), "file\n");
    assert_eq!(world.read(".env"), "TOKEN=hunter2\n");
    let project = world.project();
    for name in ["gone.txt", "replaced/one", "replaced/two"] {
        assert!(!project.join(name).exists(), "{wall}: {name} is still there");
    }
    for (name, target) in [("link", "notes.txt"), ("newlink", "new")] {
        let link = std::fs::read_link(project.join(name)).expect("a link");
        assert_eq!(link.to_str(), Some(target), "{wall}");
    }
    site.ringwall(&["rm", id]).exits(0);
    assert!(site.monitors().is_empty() && world.sandboxes().is_empty());
}

/// Nothing but what was there before.
#[track_caller]
fn assert_unchanged(site: &Site) {
    let world = &site.ground.world;
    assert_eq!(world.read("notes.txt"), "original\n");
    assert_eq!(world.read("gone.txt"), "to be removed\n");
    assert_eq!(world.read("replaced/two"), "2\n");
    assert!(!world.project().join("new").exists());
}

#[test]
fn changes_come_out_of_a_guest() {
    changes_come_out_of("vm");
}

#[test]
fn changes_come_out_of_a_container_in_a_guest() {
    changes_come_out_of("vm/container");
}

#[test]
fn changes_come_out_of_a_process_ring_in_a_guest() {
    changes_come_out_of("vm/process");
}

#[test]
fn a_run_that_changes_nothing_leaves_nothing_and_one_that_fails_keeps_its_changes() {
    let site = Site::new();
    site.run(&["--workspace", "."], "cat file").exits(0).prints("old\n").says_nothing();
    site.is_clean();
    let late = site.run(&["--workspace", ".", "--timeout", "2s"], "echo new >file; sleep 60");
    late.exits(124).says(&["ringwall diff"]);
    let id = site.ground.world.sandboxes()[0]["id"].as_str().expect("an id").to_owned();
    let diff = site.ringwall(&["diff", &id]).exits(0).out();
    assert!(diff.contains("+new"), "{diff}");
    site.ringwall(&["rm", &id]).exits(0);
    site.is_clean();
}
