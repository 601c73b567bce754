//! The container wall: an image made by real tools, imported, used, removed.

use crate::support::{World, busybox_layout};

/// A world with the image `test:latest`.
fn world() -> World {
    let world = World::new();
    let layout = busybox_layout(&world.path(""));
    world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", "test:latest"]).exits(0);
    world
}

#[test]
fn an_image_is_imported_run_and_removed() {
    let world = world();
    let listed = world.ringwall(["image", "ls"]);
    listed.exits(0);
    assert!(listed.out().contains("test"), "{listed:?}");
    let run = world.ringwall(["run", "--image", "test:latest", "--", "cat", "/etc/motd"]);
    run.exits(0).prints("made for tests\n").says_nothing();
    let gone = world.ringwall(["run", "--image", "test:latest", "--", "ls", "/usr/bin/env"]);
    assert_ne!(gone.code, 0, "the host's programs are visible\n{gone:?}");
    world.ringwall(["image", "rm", "test:latest"]).exits(0);
    world.ringwall(["image", "inspect", "test:latest"]).is_refused();
}

#[test]
fn the_image_is_the_same_for_every_run() {
    let world = world();
    let run =
        |script: &str| world.ringwall(["run", "--image", "test:latest", "--", "sh", "-c", script]);
    run("echo changed >/etc/motd && rm /bin/false && cat /etc/motd").exits(0).prints("changed\n");
    run("cat /etc/motd; ls /bin/false").exits(0).prints("made for tests\n/bin/false\n");
}

#[test]
fn the_evidence_is_that_of_a_container() {
    let world = world();
    let run = world.ringwall(["run", "--image", "test:latest", "-o", "json", "--", "id", "-u"]);
    let document = run.exits(0).json();
    assert_eq!(document["wall"], "container");
    assert_eq!(document["evidence"][0]["ring"], "container");
    for line in document["evidence"][0]["facts"]["uid_map"].as_array().unwrap() {
        assert_ne!(line["outside"], 0);
    }
}

#[test]
fn what_is_shown_can_lie_below_tmp() {
    let world = world();
    std::fs::create_dir(world.path("shown")).unwrap();
    std::fs::write(world.path("shown/file"), "visible\n").unwrap();
    let (dir, file) = (world.path("shown"), world.path("shown/file"));
    for shown in [&dir, &file] {
        let script =
            format!("cat {0}; echo x >{0}; echo y >/tmp/own && cat /tmp/own", file.display());
        let flags = ["run", "--image", "test:latest", "--ro", shown.to_str().unwrap(), "--"];
        let run = world.ringwall([&flags[..], &["sh", "-c", &script]].concat());
        run.exits(0).prints("visible\ny\n").says(&["Read-only"]);
    }
}

#[test]
fn walls_nest() {
    let world = world();
    let line = ["run", "--wall", "container/process", "--image", "test:latest", "-o", "json"];
    let run = world.ringwall([&line[..], &["--", "cat", "/etc/motd"]].concat());
    let document = run.exits(0).json();
    assert_eq!(document["stdout"], "made for tests\n");
    let rings: Vec<_> =
        document["evidence"].as_array().unwrap().iter().map(|e| e["ring"].clone()).collect();
    assert_eq!(rings, ["container", "process"]);
}

#[test]
fn limits_hold_in_a_container() {
    let world = world();
    let run = |flags: &[&str], script: &str| {
        let start = ["run", "--image", "test:latest"];
        world.ringwall([&start[..], flags, &["--", "sh", "-c", script]].concat())
    };
    run(&["--memory", "32M"], "x=xxxxxxxx; while :; do x=$x$x; done").exits(137);
    run(&["--timeout", "300ms"], "sleep 60").exits(124);
    run(&["--disk", "4M"], "dd if=/dev/zero of=/tmp/fill bs=1M count=64").exits(1);
}

#[test]
fn a_workspace_works_in_a_container() {
    let world = world();
    world.write("file", "old\n");
    let line = ["run", "--image", "test:latest", "--workspace", ".", "-o", "json"];
    let tail = ["--", "sh", "-c", "cat file; echo new >file"];
    let run = world.ringwall([&line[..], &tail].concat());
    let document = run.exits(0).json();
    assert_eq!(document["stdout"], "old\n", "{document:#}");
    assert_eq!(world.read("file"), "old\n");
    world.ringwall(["apply", document["id"].as_str().unwrap()]).exits(0);
    assert_eq!(world.read("file"), "new\n");
}

#[test]
fn an_image_with_a_bad_digest_is_refused() {
    let world = World::new();
    let layout = busybox_layout(&world.path(""));
    let blobs = layout.join("blobs/sha256");
    let largest = std::fs::read_dir(&blobs)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max_by_key(|path| path.metadata().unwrap().len())
        .unwrap();
    let mut bytes = std::fs::read(&largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&largest, bytes).unwrap();
    let refused =
        world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", "bad:latest"]);
    refused.is_refused().says(&["digest"]);
    assert_eq!(world.ringwall(["image", "ls", "-o", "json"]).json(), serde_json::json!([]));
}

#[test]
fn a_living_container_keeps_its_files_until_it_is_removed() {
    let world = world();
    let id = world.ringwall(["create", "--image", "test:latest"]).exits(0).word();
    world.ringwall(["exec", &id, "sh", "-c", "echo kept >/root-file"]).exits(0);
    world.ringwall(["exec", &id, "cat", "/root-file"]).exits(0).prints("kept\n");
    let used = world.ringwall(["image", "rm", "test:latest"]);
    // Either is fine, as long as the sandbox keeps working.
    assert!(matches!(used.code, 0 | 125), "{used:?}");
    world.ringwall(["exec", &id, "cat", "/etc/motd"]).exits(0).prints("made for tests\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
}
