//! A sandbox that lives on: created, used, listed, stopped, removed.

use std::time::Duration;

use crate::support::{World, eventually, wait_for_end};

#[track_caller]
fn create(world: &World, arguments: &[&str]) -> String {
    let created = world.ringwall([&["create"], arguments].concat());
    created.exits(0).says_nothing();
    created.word()
}

#[test]
fn a_sandbox_is_created_used_and_removed() {
    let world = World::new();
    let id = create(&world, &["--name", "box"]);
    assert_eq!(id.len(), 12);
    let exec = |line: &[&str]| world.ringwall([&["exec"], line].concat());
    exec(&["box", "--", "sh", "-c", "echo kept >/tmp/state; echo err >&2; exit 4"]).exits(4);
    exec(&[&id, "cat", "/tmp/state"]).exits(0).prints("kept\n");
    exec(&[&id[..6], "-e", "X=1", "--", "true"]).exits(0);
    exec(&["-e", "X=1", "-w", "/usr", "box", "sh", "-c", "echo $X; pwd"]).prints("1\n/usr\n");
    exec(&["box", "--", "no-such-program"]).exits(127);
    exec(&["--timeout", "200ms", "box", "sleep", "60"]).exits(124).says(&["200ms"]);

    let listed = world.ringwall(["ps"]);
    listed.exits(0);
    let columns: Vec<String> =
        listed.out().lines().next().unwrap().split_whitespace().map(str::to_owned).collect();
    assert_eq!(columns, ["ID", "NAME", "WALL", "IMAGE", "STATE", "AGE", "COMMAND"]);
    assert!(listed.out().contains(&id) && listed.out().contains("running"), "{listed:?}");

    world.ringwall(["rm", "box"]).is_refused().says(&["running", "--force"]);
    world.ringwall(["stop", "box"]).exits(0);
    assert!(!world.ringwall(["ps"]).out().contains(&id));
    world.ringwall(["exec", &id, "--", "true"]).exits(125);
    // A sandbox with nothing to keep may be gone already.
    let _ = world.ringwall(["rm", &id]);
    assert!(world.sandboxes().is_empty());
}

#[test]
fn two_sandboxes_do_not_see_each_other_and_names_are_unique() {
    let world = World::new();
    let first = create(&world, &["--name", "one"]);
    let second = create(&world, &["--name", "two"]);
    world.ringwall(["create", "--name", "one"]).is_refused().says(&["one"]);
    world.ringwall(["exec", &first, "--", "touch", "/tmp/mark"]).exits(0);
    let other = world.ringwall(["exec", &second, "--", "ls", "/tmp/mark"]);
    assert_ne!(other.code, 0, "{other:?}");
    world.ringwall(["rm", "--force", "one", "two"]).exits(0);
    assert!(world.sandboxes().is_empty());
}

#[test]
fn the_command_of_a_sandbox_is_logged() {
    let world = World::new();
    let script = "echo first; sleep 0.3; echo second; exec sleep 600";
    let id = create(&world, &["--timeout", "1h", "--", "sh", "-c", script]);
    eventually("both lines in the log", || {
        let log = world.ringwall(["logs", &id]);
        (log.exits(0).out() == "first\nsecond\n").then_some(())
    });
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn a_followed_log_goes_on_until_the_sandbox_ends() {
    let world = World::new();
    let script = "echo first; sleep 1; echo last; exec sleep 600";
    let id = create(&world, &["--timeout", "1h", "--", "sh", "-c", script]);
    let mut command = world.command(["logs", "-f", &id]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    eventually("the last line", || {
        world.ringwall(["logs", &id]).out().contains("last").then_some(())
    });
    world.ringwall(["stop", "--grace", "100ms", &id]).exits(0);
    assert_eq!(wait_for_end(&mut child), 0);
    let log = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
    assert_eq!(log, "first\nlast\n");
}

#[test]
fn files_are_copied_in_and_out() {
    let world = World::new();
    world.write("tree/a.txt", "a");
    world.write("tree/sub/b.txt", "b");
    std::os::unix::fs::symlink("/etc/passwd", world.project().join("tree/link")).unwrap();
    let id = create(&world, &[]);
    let inside = |path: &str| format!("{id}:{path}");
    world.ringwall(["cp", "tree", &inside("/tmp/tree")]).exits(0).says(&["1 links"]);
    let listed = world.ringwall(["exec", &id, "sh", "-c", "cd /tmp/tree; find . | sort"]);
    listed.prints(".\n./a.txt\n./sub\n./sub/b.txt\n");

    let script = "cd /tmp/tree; echo c >c.txt; ln -s /etc/passwd evil; chmod 6755 a.txt";
    world.ringwall(["exec", &id, "sh", "-c", script]).exits(0);
    world.ringwall(["cp", &inside("/tmp/tree"), "back"]).exits(0).says(&["1 links"]);
    assert_eq!(world.read("back/sub/b.txt"), "b");
    assert_eq!(world.read("back/c.txt"), "c\n");
    assert!(!world.project().join("back/evil").exists());
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(world.project().join("back/a.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7000, 0, "a set-user-id bit came out");

    world.ringwall(["cp", &inside("/tmp/tree/c.txt"), "."]).exits(0);
    assert_eq!(world.read("c.txt"), "c\n");
    world.ringwall(["cp", &inside("/no/such/file"), "."]).is_refused();
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn input_reaches_a_command_in_a_living_sandbox() {
    let world = World::new();
    let id = create(&world, &[]);
    let run = world.ringwall_with_input(&["exec", "-i", &id, "cat"], b"typed\n");
    run.exits(0).prints("typed\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn a_sandbox_that_is_given_little_time_to_stop_keeps_its_changes() {
    let world = World::new();
    let id = create(&world, &["--workspace", "."]);
    let script = "i=0; while [ $i -lt 1000 ]; do echo $i >file$i; i=$((i + 1)); done";
    world.ringwall(["exec", &id, "sh", "-c", script]).exits(0);
    world.ringwall(["stop", "--grace", "1ms", &id]).exits(0);
    let names = world.ringwall(["diff", "--name-only", &id]);
    assert_eq!(names.exits(0).out().lines().count(), 1000);
    world.ringwall(["rm", &id]).exits(0);
}

#[test]
fn changes_of_a_living_sandbox_can_be_taken_once_it_has_stopped() {
    let world = World::new();
    world.write("file", "old\n");
    let id = create(&world, &["--workspace", "."]);
    world.ringwall(["exec", &id, "sh", "-c", "echo new >file"]).exits(0);
    world.ringwall(["stop", "--grace", "100ms", &id]).exits(0);
    let diff = world.ringwall(["diff", &id]);
    diff.exits(0);
    assert!(diff.out().contains("+new"), "{diff:?}");
    world.ringwall(["apply", &id]).exits(0);
    assert_eq!(world.read("file"), "new\n");
    world.ringwall(["rm", &id]).exits(0);
}

#[test]
fn a_stopped_sandbox_leaves_no_process() {
    let world = World::new();
    let marker = "161803398";
    let id = create(&world, &["--", "sleep", marker]);
    let running = || {
        std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
        })
    };
    eventually("the start of the command", || running().then_some(()));
    world.ringwall(["rm", "--force", &id]).exits(0);
    assert!(!running());
    std::thread::sleep(Duration::from_millis(50));
    assert!(world.sandboxes().is_empty());
}
