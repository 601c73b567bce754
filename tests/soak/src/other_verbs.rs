//! `kill -9` of `apply` and `image import`: all or nothing, and nothing else is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringwall_testkit::ground::{Dice, Ground};

const KILLS: usize = 30;
const FILES: usize = 150;

/// Changes every file of the project.
fn change_all(ground: &Ground) -> String {
    let script = "for file in many/*; do echo new >$file; done";
    let run = ["run", "--workspace", ".", "-o", "json", "--", "sh", "-c", script];
    let outcome = ground.world.ringwall(run);
    let outcome = outcome.exits(0).json();
    outcome["id"].as_str().expect("an id").to_owned()
}

fn write_all(ground: &Ground) {
    for number in 0..FILES {
        ground.world.write(&format!("many/{number}"), "old\n");
    }
}

/// The different contents of all files that are there, hidden ones included.
fn contents(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let files: Vec<_> = entries.map(|entry| entry.path()).collect();
    assert_eq!(files.len(), FILES, "{files:?}");
    files.iter().map(|file| fs::read_to_string(file).expect("a file")).collect()
}

#[test]
fn an_apply_killed_at_any_moment_is_whole_or_undone_after_gc() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    write_all(&ground);
    let id = change_all(&ground);
    let begun = Instant::now();
    ground.world.ringwall(["apply", &id]).exits(0);
    let most = begun.elapsed();
    let (mut whole, mut undone) = (0, 0);
    for _ in 0..KILLS {
        write_all(&ground);
        let id = change_all(&ground);
        let mut child = ground.start(&["apply", &id]);
        sleep(dice.moment(most));
        child.kill().expect("our child");
        child.wait().expect("our child");
        ground.gc();
        let found = contents(&ground.world.project().join("many"));
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        match found[..] {
            ["new\n"] => whole += 1,
            ["old\n"] => undone += 1,
            _ => panic!("half applied: {found:?}"),
        }
        ground.remove_finished();
        ground.world.ringwall(["gc"]).exits(0);
    }
    eprintln!("{whole} whole, {undone} undone");
    fs::remove_dir_all(ground.world.project().join("many")).expect("our files");
    ground.is_clean(&BTreeSet::new());
}

#[test]
fn an_import_killed_at_any_moment_leaves_a_whole_image_or_none_after_gc() {
    let ground = Ground::new();
    let mut dice = Dice::new();
    ground.world.ringwall(["image", "rm", ringwall_testkit::ground::IMAGE]).exits(0);
    let layout = ground.world.path("image-layout");
    let layout = layout.to_str().expect("a plain path");
    let import = ["image", "import", layout, "--name", "again:latest"];
    let begun = Instant::now();
    ground.world.ringwall(import).exits(0);
    let most = begun.elapsed().max(Duration::from_millis(5));
    let images = ground.world.home().join("images");
    for _ in 0..KILLS {
        let _ = ground.world.ringwall(["image", "rm", "again:latest"]);
        let mut child = ground.start(&import);
        sleep(dice.moment(most));
        child.kill().expect("our child");
        child.wait().expect("our child");
        ground.gc();
        let temporary = fs::read_dir(images.join("tmp")).map_or(0, Iterator::count);
        assert_eq!(temporary, 0, "temporary files are left");
        let listed = ground.world.ringwall(["image", "ls", "-o", "json"]);
        let count = |name: &str| fs::read_dir(images.join(name)).map_or(0, Iterator::count);
        if listed.exits(0).json() == serde_json::json!([]) {
            assert_eq!((count("layers"), count("blobs/sha256")), (0, 0));
        } else {
            let run = ["run", "--image", "again:latest", "--", "cat", "/etc/motd"];
            ground.world.ringwall(run).exits(0).prints("made for tests\n");
        }
    }
    ground.is_clean(&BTreeSet::new());
}
