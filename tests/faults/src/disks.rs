//! A disk that is full, and one that does not answer for a while.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;

use crate::support::{Daemon, World, is_root, is_told, wait_for_end};

/// A small file system of its own; unmounted when it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn small(at: &Path) -> Disk {
        let size = c"size=6m,mode=700";
        rustix::mount::mount("tmpfs", at, "tmpfs", MountFlags::empty(), size).expect("root mounts");
        Disk(at.to_owned())
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// To the last byte.
    fn fill(&self) {
        let mut file = File::create(self.filler()).expect("a file");
        for size in [64 << 10, 4 << 10, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).expect("our own file");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A disk of a test must be gone after the sandboxes that are on it.
macro_rules! only_root {
    () => {
        if !is_root() {
            eprintln!("not tested here: only root can mount a small disk");
            return;
        }
    };
}

#[test]
fn a_full_disk_refuses_runs_in_words_and_room_brings_them_back() {
    only_root!();
    let world = World::new();
    let disk = Disk::small(&world.home());
    world.sh(&[], "true").exits(0);
    for _ in 0..3 {
        disk.fill();
        let refused = world.sh(&[], "touch /tmp/started; echo started");
        assert_eq!(refused.code, 125, "{refused:?}");
        is_told(&refused);
        // What cannot be written down does not run.
        assert!(!refused.out().contains("started"), "{refused:?}");
        world.ringwall(["ps", "-a"]).exits(0);
        disk.free();
        world.sh(&[], "true").exits(0);
    }
    world.ringwall(["audit", "verify"]).exits(0);
    assert!(world.sandboxes().is_empty());
    drop(world);
    drop(disk);
}

#[test]
fn what_a_sandbox_was_told_before_the_disk_was_full_is_still_true_after() {
    only_root!();
    let world = World::new();
    let disk = Disk::small(&world.home());
    let id = world.ringwall(["create"]).exits(0).word();
    world.ringwall(["exec", &id, "sh", "-c", "echo kept >/tmp/kept"]).exits(0);
    disk.fill();
    // It may be refused, but not be half done.
    let tried = world.ringwall(["exec", &id, "sh", "-c", "cat /tmp/kept"]);
    assert!(tried.code == 0 || tried.code == 125, "{tried:?}");
    disk.free();
    world.ringwall(["exec", &id, "cat", "/tmp/kept"]).exits(0).prints("kept\n");
    disk.fill();
    let removed = world.ringwall(["rm", "--force", &id]);
    disk.free();
    if removed.code != 0 {
        is_told(&removed);
        world.ringwall(["rm", "--force", &id]).exits(0);
    }
    world.ringwall(["gc"]).exits(0);
    assert!(world.sandboxes().is_empty());
    world.ringwall(["audit", "verify"]).exits(0);
    drop(world);
    drop(disk);
}

#[test]
fn a_workspace_is_not_harmed_by_a_disk_on_which_its_changes_find_no_room() {
    only_root!();
    let world = World::new();
    let disk = Disk::small(&world.home());
    world.write("file", "old\n");
    let changes = "echo new >file; dd if=/dev/zero of=large bs=1M count=12 2>/dev/null";
    let run = world.sh(&["--workspace", "."], changes);
    assert_ne!(run.code, 0, "{run:?}");
    is_told(&run);
    assert_eq!(world.read("file"), "old\n");
    world.ringwall(["gc"]).exits(0);
    let kept = world.sh(&["--workspace", "."], "echo new >file");
    kept.exits(0);
    drop(world);
    drop(disk);
}

#[test]
fn a_daemon_with_a_full_disk_says_so_and_forgets_nothing_that_it_acknowledged() {
    only_root!();
    let world = World::new();
    let disk = Disk::small(&world.home());
    let mut daemon = Daemon::start_in(world);
    let mut client = daemon.client();
    let body = json!({ "wall": "process", "limits": { "memory_bytes": 32 << 20 } });
    let id = client.post("/v1/sandboxes", &body).is(201).field("id");
    let exec = format!("/v1/sandboxes/{id}/exec");
    let script = json!({ "argv": ["sh", "-c", "echo alive"] });
    let call = client.post(&exec, &script).is(200).field("call");
    disk.fill();
    let refused = client.post("/v1/sandboxes", &body);
    assert!(refused.status >= 500, "{refused:?}");
    disk.free();
    assert_eq!(client.post(&exec, &script).is(200).json()["stdout"], "alive\n");
    disk.fill();
    daemon.kill();
    disk.free();
    daemon.start_again();
    let mut client = daemon.client();
    assert_eq!(client.get(&format!("/v1/calls/{call}")).is(200).json()["state"], "ended");
    assert_eq!(client.post(&exec, &script).is(200).json()["stdout"], "alive\n");
    daemon.world.ringwall(["audit", "verify"]).exits(0);
    daemon.end();
    drop(daemon);
    drop(disk);
}

/// A file system on a file, which can be frozen: whoever writes waits until it is thawed.
struct Frozen {
    mounted: PathBuf,
}

impl Frozen {
    /// None, with the reason, where this machine has no loop devices or no ext4.
    fn mount(image: &Path, at: &Path) -> Result<Frozen, String> {
        let run = |program: &str, arguments: &[&str]| -> Result<(), String> {
            let output = Command::new(program).args(arguments).output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() { Ok(()) } else { Err(format!("{program}: {said}")) }
        };
        let (file, place) = (image.to_string_lossy(), at.to_string_lossy());
        File::create(image).and_then(|file| file.set_len(64 << 20)).map_err(|e| e.to_string())?;
        run("mkfs.ext4", &["-q", &file])?;
        run("mount", &["-o", "loop", &file, &place])?;
        Ok(Frozen { mounted: at.to_owned() })
    }

    fn set(&self, flag: &str) {
        let done = Command::new("fsfreeze").arg(flag).arg(&self.mounted).status();
        assert!(done.expect("fsfreeze runs").success(), "fsfreeze {flag}");
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.mounted).output();
        let _ = Command::new("umount").arg("-l").arg(&self.mounted).output();
    }
}

#[test]
fn a_disk_that_does_not_answer_delays_a_run_and_harms_nothing() {
    only_root!();
    let world = World::new();
    let disk = match Frozen::mount(&world.path("disk"), &world.home()) {
        Ok(disk) => disk,
        Err(reason) => {
            eprintln!("not tested here: {reason}");
            return;
        }
    };
    world.sh(&[], "true").exits(0);
    for _ in 0..2 {
        disk.set("-f");
        let mut waiting = world.command(["run", "--", "true"]).spawn().expect("ringwall starts");
        std::thread::sleep(Duration::from_secs(2));
        assert!(waiting.try_wait().expect("our child").is_none(), "it ran without its record");
        disk.set("-u");
        assert_eq!(wait_for_end(&mut waiting), 0);
    }
    world.ringwall(["audit", "verify"]).exits(0);
    assert!(world.sandboxes().is_empty());
    drop(world);
    drop(disk);
}
