//! The process wall needs no privilege. Run by root, these tests become somebody without any.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use crate::support::{User, World, is_root};

fn world() -> World {
    World::of(if is_root() { User::Ordinary } else { User::Same })
}

#[test]
fn exit_codes_are_the_same_for_everybody() {
    let world = world();
    world.sh(&[], "exit 42").exits(42).says_nothing();
    world.ringwall(["run", "--", "no-such-program"]).exits(127);
    world.ringwall(["run", "--", "/etc/passwd"]).exits(126);
    world.sh(&["--timeout", "300ms"], "sleep 60").exits(124);
    world.ringwall(["run", "--memory", "0", "--", "true"]).is_refused();
}

#[test]
fn no_user_of_the_ring_is_the_hosts_root() {
    let world = world();
    let document = world.ringwall(["run", "-o", "json", "--", "id", "-u"]).exits(0).json();
    for line in document["evidence"][0]["facts"]["uid_map"].as_array().unwrap() {
        assert_ne!(line["outside"], 0);
    }
    let means: Vec<_> = document["limits"].as_array().unwrap().iter().collect();
    assert!(means.iter().all(|limit| limit["means"].is_string()), "{means:?}");
}

#[test]
fn memory_and_processes_are_limited_without_a_cgroup() {
    let world = world();
    let run = world.sh(&["--memory", "48M"], "x=xxxxxxxx; while :; do x=$x$x; done");
    assert_ne!(run.code, 0, "{run:?}");
    let bomb = "bomb() { bomb | bomb & }; (bomb) 2>/dev/null; while :; do :; done";
    world.sh(&["--pids", "32", "--timeout", "1s"], bomb).exits(124);
}

#[test]
fn a_workspace_is_diffed_and_applied() {
    let world = world();
    world.write("file", "old\n");
    let script = "echo new >file; echo x >added";
    let run = world.sh(&["--workspace", ".", "-o", "json"], script);
    let id = run.exits(0).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.read("file"), "old\n");
    assert!(world.ringwall(["diff", &id]).out().contains("+new"));
    world.ringwall(["apply", &id]).exits(0);
    assert_eq!((world.read("file"), world.read("added")), ("new\n".into(), "x\n".into()));
}

/// A directory that several people share belongs to a group that the ring does not have.
#[test]
fn a_workspace_of_another_group_can_be_changed() {
    let world = world();
    world.write("file", "old\n");
    world.write("dir/gone", "x\n");
    if is_root() {
        for path in ["", "file", "dir", "dir/gone"] {
            chown(world.project().join(path), None, Some(23_456)).unwrap();
        }
    }
    let script = "echo new >file; rm dir/gone; mkdir dir/sub; echo x >dir/sub/added; ln file link";
    let run = world.sh(&["--workspace", ".", "-o", "json"], script);
    let id = run.exits(0).json()["id"].as_str().unwrap().to_owned();
    assert_eq!(world.read("file"), "old\n");
    world.ringwall(["apply", &id]).exits(0);
    assert_eq!((world.read("file"), world.read("dir/sub/added")), ("new\n".into(), "x\n".into()));
    assert!(!world.project().join("dir/gone").exists());
}

/// Single files and directories of another group below a directory of the user's own, as `sudo` and shared
/// directories leave them.
#[test]
fn what_belongs_to_another_group_deep_in_a_workspace_can_be_changed() {
    if !is_root() {
        eprintln!("not tested here: only root gives files to another group");
        return;
    }
    for foreign in ["deep/down/file", "deep/shared", "deep/down"] {
        let world = world();
        world.write("deep/down/file", "old\n");
        world.write("deep/shared/other", "old\n");
        chown(world.project().join(foreign), None, Some(23_456)).expect("a group");
        let script = "echo new >deep/down/file && echo new >deep/shared/other && mkdir deep/shared/new && \
                      chmod 700 deep/down";
        let run = world.sh(&["--workspace", ".", "-o", "json"], script);
        let id = run.exits(0).json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(world.read("deep/down/file"), "old\n");
        world.ringwall(["apply", &id]).exits(0);
        for file in ["deep/down/file", "deep/shared/other"] {
            assert_eq!(world.read(file), "new\n", "{foreign}");
        }
        assert!(world.project().join("deep/shared/new").is_dir());
    }
}

#[test]
fn what_belongs_to_another_group_is_told_where_the_workspace_is_too_large_to_be_copied() {
    if !is_root() {
        eprintln!("not tested here: only root gives files to another group");
        return;
    }
    let world = world();
    world.write("deep/file", "old\n");
    world.write("large", vec![b'x'; 2 << 20]);
    let read = ["run", "--disk", "2M", "--workspace", ".", "--", "cat", "deep/file"];
    world.ringwall(read).exits(0).prints("old\n").says_nothing();
    chown(world.project().join("deep/file"), None, Some(23_456)).expect("a group");
    let told = world.ringwall(read);
    told.exits(0).prints("old\n").says(&["deep/file", "another user or group", "--disk"]);
    // What the message says to do.
    let write = ["run", "--disk", "8M", "--workspace", ".", "--", "sh", "-c", "echo x >deep/file"];
    world.ringwall(write).exits(0);
}

/// A job, or a guest that was killed, can leave directories without write permission.
#[test]
fn directories_that_nobody_may_write_to_are_removed_with_their_sandbox() {
    let world = world();
    let script = "mkdir -p mod/cache && echo x >mod/cache/file && chmod 555 mod/cache mod";
    for verb in ["gc", "rm"] {
        let run = world.sh(&["--workspace", ".", "-o", "json"], script);
        let id = run.exits(0).json()["id"].as_str().expect("an id").to_owned();
        let directory = world.home().join("sandboxes").join(&id);
        // As a guest's changes are when Ringwall was killed before it had read them.
        let handed_over = "mkdir -p upper/mod/cache upper/none && echo x >upper/mod/cache/file && \
                           chmod 000 upper/none && chmod 555 upper/mod/cache upper/mod upper";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", handed_over]).current_dir(&directory);
        world.become_its_user(&mut shell);
        assert!(shell.status().expect("a shell").success());
        if verb == "gc" {
            world.ringwall(["gc"]).exits(0);
            assert!(!directory.join("upper").exists(), "it is not needed any more");
        }
        world.ringwall(["rm", &id]).exits(0);
        assert!(!directory.exists() && world.sandboxes().is_empty());
    }
    let left = fs::read_dir(world.home().join("sandboxes")).expect("a directory").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|it| it != ".creation").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_sandbox_can_live_on() {
    let world = world();
    let id = world.ringwall(["create"]).exits(0).word();
    world.ringwall(["exec", &id, "sh", "-c", "echo kept >/tmp/x"]).exits(0);
    world.ringwall(["exec", &id, "cat", "/tmp/x"]).exits(0).prints("kept\n");
    world.ringwall(["rm", "--force", &id]).exits(0);
    assert!(world.sandboxes().is_empty());
}

#[test]
fn nothing_is_left_of_a_killed_run() {
    let world = world();
    let mut command = world.command(["run", "--timeout", "60s", "--", "sleep", "577215664"]);
    let mut child = command.spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    world.ringwall(["gc"]).exits(0);
    assert!(world.sandboxes().is_empty());
}

/// Puts a program of the host into the project, where its user may run it and not read it. An overlay of that user
/// would not run it, so the project has to be shown as it is.
fn put_unreadable(world: &World, program: &str, name: &str) {
    let path = world.project().join(name);
    fs::copy(program, &path).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o711)).expect("a mode");
}

#[test]
fn a_program_that_its_user_may_not_read_runs() {
    if !is_root() {
        eprintln!("not tested here: only root has programs that others may not read");
        return;
    }
    let world = world();
    put_unreadable(&world, "/bin/sleep", "pause");
    let line = ["run", "--memory", "2G", "--workspace-rw", ".", "--", "./pause", "0.5"];
    world.ringwall(line).exits(0);
}

/// 120,000 locks on ranges of files, which are some 30 MiB of the kernel's memory.
const LOCKS: &str = "
    my @all; for my $file (1 .. 400) {
        my $at = qq(/tmp/lock-$file); open(my $one, '+>', $at) or exit 9; unlink $at; push @all, $one;
        for (1 .. 300) {
            fcntl($one, 6, pack('s s x4 q q i x4', 1, 0, 4000 - 4 * $_, 1, 0)) or exit 9
        }
    } select(undef, undef, undef, 2); print qq(got it all\\n);
";

#[test]
fn locks_of_a_process_that_may_not_be_read_are_not_free() {
    if !is_root() {
        eprintln!("not tested here: only root has programs that others may not read");
        return;
    }
    let world = world();
    put_unreadable(&world, "/usr/bin/perl", "unreadable");
    let flags = ["run", "--memory", "96M", "--timeout", "60s", "--workspace-rw", "."];
    let run = |program: &str| world.ringwall([&flags[..], &["--", program, "-e", LOCKS]].concat());
    run("perl").exits(0).prints("got it all\n");
    let stopped = run("./unreadable");
    stopped.exits(137).prints("").says(&["unreadable", "may not be read", "run Ringwall as root"]);
}
