//! A ring that is not any more what its evidence showed is stopped, and the log says why.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{World, busybox_layout, eventually, is_root};

/// The number that a program of a sandbox has on the host: found by its arguments.
fn host_pid(argument: &str) -> String {
    eventually("the program runs", || {
        let all = fs::read_dir("/proc").expect("a list of processes").flatten();
        let mut numbers = all.filter_map(|entry| entry.file_name().into_string().ok());
        let runs = |pid: &String| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.starts_with(b"sleep\0") && line.ends_with(format!("{argument}\0").as_bytes())
        };
        numbers.find(runs)
    })
}

/// As somebody with power over the host could: changes the mounts of a ring behind Ringwall's back.
#[track_caller]
fn meddle(pid: &str, mount: &[&str]) {
    let mut command = Command::new("nsenter");
    let entered = command.args(["--target", pid, "--mount", "mount"]).args(mount).status();
    assert!(entered.expect("nsenter can be started").success(), "{mount:?}");
}

fn failed_checks(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.home().join("audit/log")).expect("a log");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let events = lines.map(|line| line["event"].clone());
    events.filter(|it| it["kind"] == "evidence-checked" && it["passed"] == false).collect()
}

#[test]
fn a_ring_with_other_mounts_than_it_was_raised_with_runs_nothing_more() {
    if !is_root() {
        eprintln!("not tested here: only root can change the mounts of a ring");
        return;
    }
    let changes: [&[&str]; 2] =
        [&["-t", "tmpfs", "none", "/dev/shm"], &["-o", "remount,bind,rw", "/usr"]];
    for (number, change) in changes.into_iter().enumerate() {
        let world = World::new();
        // Nobody else sleeps for so long.
        let seconds = format!("86{}{number}", std::process::id());
        let line = ["create", "--workspace", ".", "--", "sleep", &seconds];
        let id = world.ringwall(line).exits(0).word();
        world.ringwall(["exec", &id, "--", "true"]).exits(0);
        world.ringwall(["rights", &id, "--writable", "docs"]).exits(0);
        world.ringwall(["exec", &id, "--", "touch", "docs/made"]).exits(0);
        assert_eq!(failed_checks(&world), Vec::<Value>::new());
        meddle(&host_pid(&seconds), change);
        let refused = world.ringwall(["exec", &id, "--", "touch", "docs/more"]);
        refused.is_refused().says(&["mounts", "process ring"]);
        eventually("the sandbox is stopped", || {
            world.ringwall(["exec", &id, "--", "true"]).err().contains("not running").then_some(())
        });
        let failed = failed_checks(&world);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0]["missing"][0].as_str().expect("text").contains("mounts"), "{failed:?}");
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}

#[test]
fn a_change_of_rights_in_a_ring_with_other_mounts_stops_it() {
    if !is_root() {
        eprintln!("not tested here: only root can change the mounts of a ring");
        return;
    }
    let world = World::new();
    let seconds = format!("87{}", std::process::id());
    let line = ["create", "--workspace", ".", "--", "sleep", &seconds];
    let id = world.ringwall(line).exits(0).word();
    let project = world.project().display().to_string();
    // One more way to write to the workspace.
    meddle(&host_pid(&seconds), &["--bind", &project, "/dev/shm"]);
    let refused = world.ringwall(["rights", &id, "--nowhere"]);
    refused.is_refused().says(&["was stopped", "mounts"]);
    eventually("the sandbox is stopped", || {
        world.ringwall(["exec", &id, "--", "true"]).err().contains("not running").then_some(())
    });
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn an_owner_who_saves_a_hidden_file_anew_does_not_stop_the_sandbox() {
    let world = World::new();
    let place = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(place.path(), Some(12345), Some(12345)).ok();
    fs::write(place.path().join(".env"), "TOKEN=old\n").expect("a file");
    let line = ["create", "--workspace-rw", place.path().to_str().expect("text")];
    let id = world.ringwall(line).exits(0).word();
    world.ringwall(["exec", &id, "--", "true"]).exits(0);
    // As editors do. The kernel takes the cover away with the old file.
    fs::write(place.path().join("new"), "TOKEN=new\n").expect("a file");
    fs::rename(place.path().join("new"), place.path().join(".env")).expect("a new name");
    world.ringwall(["exec", &id, "--", "true"]).exits(0);
    world.ringwall(["rm", "--force", &id]).exits(0);
}

/// The process that started another one, as the host numbers them.
fn parent(pid: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.expect("a parent").trim().to_owned()
}

#[test]
fn a_warden_with_other_limits_than_it_was_raised_with_runs_nothing_more() {
    if !is_root() {
        eprintln!("not tested here: only root becomes the user of a ring");
        return;
    }
    // The command's own warden, and the one round that.
    for (number, above) in [1, 2].into_iter().enumerate() {
        let world = World::new();
        let layout = busybox_layout(&world.path("layout"));
        let import = ["image", "import", layout.to_str().expect("text"), "--name", "test:1"];
        world.ringwall(import).exits(0);
        let seconds = format!("88{}{number}", std::process::id());
        let wall = ["create", "--wall", "container/process", "--image", "test:1"];
        let id = world.ringwall([&wall[..], &["--", "sleep", &seconds]].concat()).exits(0).word();
        world.ringwall(["exec", &id, "--", "true"]).exits(0);
        let warden = (0..above).fold(host_pid(&seconds), |pid, _| parent(&pid));
        let limit = ["--pid", &warden, "--nofile=512:512"];
        // A user may lower the limits of its own processes.
        let its = fs::metadata(format!("/proc/{warden}")).expect("a process");
        let mut lower = Command::new("prlimit");
        let lowered = lower.args(limit).uid(its.uid()).gid(its.gid()).status();
        assert!(lowered.expect("prlimit can be started").success());
        let refused = world.ringwall(["exec", &id, "--", "true"]);
        refused.is_refused().says(&["set of limits"]);
        eventually("the sandbox is stopped", || {
            world.ringwall(["exec", &id, "--", "true"]).err().contains("not running").then_some(())
        });
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}

/// The file that keeps the number of processes of a process's control group, where there is one.
fn file_of_most_processes(pid: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a list of groups");
    let files = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let mount = match controllers {
            "" => "/sys/fs/cgroup",
            "pids" => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        Some(PathBuf::from(format!("{mount}{path}/pids.max")))
    });
    files.into_iter().find(|file| file.exists())
}

#[test]
fn a_control_group_with_other_limits_is_noticed_before_the_next_command() {
    let world = World::new();
    let seconds = format!("89{}", std::process::id());
    let line = ["create", "--pids", "77", "--", "sleep", &seconds];
    let id = world.ringwall(line).exits(0).word();
    world.ringwall(["exec", &id, "--", "true"]).exits(0);
    let file = file_of_most_processes(&host_pid(&seconds));
    let Some(file) = file.filter(|file| fs::read_to_string(file).is_ok_and(|it| it == "77\n"))
    else {
        eprintln!("not tested here: the limits are kept without control groups");
        world.ringwall(["rm", "--force", &id]).exits(0);
        return;
    };
    fs::write(file, "78").expect("a limit can be changed");
    world.ringwall(["exec", &id, "--", "true"]).is_refused().says(&["control group", "77", "78"]);
    eventually("the sandbox is stopped", || {
        world.ringwall(["exec", &id, "--", "true"]).err().contains("not running").then_some(())
    });
    world.ringwall(["rm", "--force", &id]).exits(0);
}

#[test]
fn a_ring_that_is_changed_between_two_regular_checks_is_stopped_without_a_request() {
    if !is_root() {
        eprintln!("not tested here: only root can change the mounts of a ring");
        return;
    }
    let world = World::new();
    let create = |number: usize| {
        let seconds = format!("85{}{number}", std::process::id());
        let line = ["create", "--workspace", ".", "--", "sleep", &seconds];
        let made = world.command(line).env("RINGWALL_CHECK_SECONDS", "1").output();
        let made = String::from_utf8(made.expect("ringwall can be started").stdout).expect("text");
        (made.trim().to_owned(), host_pid(&seconds))
    };
    let (left_alone, _) = create(0);
    let (id, job) = create(1);
    meddle(&job, &["-t", "tmpfs", "none", "/dev/shm"]);
    eventually("the end of the sandbox", || {
        let listed = world.sandboxes();
        let found = listed.iter().find(|record| record["id"] == id.as_str())?;
        (found["state"] != "running").then_some(())
    });
    let failed = failed_checks(&world);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0]["missing"][0].as_str().expect("text").contains("mounts"), "{failed:?}");
    // The second sandbox passed these checks.
    world.ringwall(["exec", &left_alone, "--", "true"]).exits(0);
    for id in [id, left_alone] {
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
}
