//! Guests that are kept with their memory, and what goes on from them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::{Living, Site};

/// In the environment of every command, and nowhere in a guest.
const CANARY: &str = "canary-5d1c9e07-of-the-host";
const IDENTITY: &str =
    "cat /proc/sys/kernel/random/boot_id /etc/machine-id /etc/hostname; hostname";
const RANDOM: &str = "head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo";

fn line(living: &Living<'_>, script: &str) -> String {
    living.exec(script).exits(0).out()
}

fn copies<'a>(site: &'a Site, ids: &str) -> Vec<Living<'a>> {
    ids.lines().map(|id| site.living(id)).collect()
}

fn memory_of(site: &Site, snapshot: &str) -> PathBuf {
    site.ground.world.home().join("snapshots").join(snapshot).join("memory")
}

/// By a program that is made for it: this is much to read.
pub(crate) fn holds(file: &Path, text: &str) -> bool {
    let found = Command::new("grep").args(["-qaF", text]).arg(file).status();
    match found.expect("grep can be started").code() {
        Some(0) => true,
        Some(1) => false,
        other => panic!("grep ended with {other:?}"),
    }
}

#[test]
fn copies_of_a_guest_remember_what_it_knew_and_are_nobody_else() {
    let site = Site::new();
    let parent = site.create("vm", &[]);
    // Held in memory by a process that nobody waits for.
    line(&parent, "echo kept >/tmp/state; (sleep 600 </dev/null >/dev/null 2>&1 &)");
    let before = line(&parent, IDENTITY);
    let made = site.ringwall(&["fork", "--count", "2", &parent.id]).exits(0).out();
    let all = copies(&site, &made);
    assert_eq!(all.len(), 2);
    assert_eq!(line(&parent, IDENTITY), before, "the parent is still itself");
    let mut seen: BTreeSet<String> = before.lines().map(str::to_owned).collect();
    let mut random = BTreeSet::from([line(&parent, RANDOM)]);
    for copy in &all {
        assert_eq!(line(copy, "cat /tmp/state; pidof sleep | wc -w"), "kept\n1\n");
        let names = line(copy, IDENTITY);
        let names: Vec<&str> = names.lines().collect();
        for name in &names[..3] {
            assert!(seen.insert((*name).to_owned()), "{name} is somebody else's");
        }
        assert_eq!(names[2], names[3], "its name is the one it answers to");
        assert!(random.insert(line(copy, RANDOM)), "two guests have the same random bytes");
        let now = line(copy, "date +%s").trim().parse::<u64>().expect("seconds");
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        assert!(here.expect("a clock").as_secs().abs_diff(now) < 30, "its clock stands");
    }
    // What one writes nobody else sees.
    line(&all[0], "echo changed >/tmp/state");
    assert_eq!(line(&all[1], "cat /tmp/state"), "kept\n");
    assert_eq!(line(&parent, "cat /tmp/state"), "kept\n");
    all.into_iter().for_each(Living::remove);
    parent.remove();
    site.is_clean();
}

#[test]
fn a_snapshot_outlives_its_sandbox_and_holds_no_secret_of_the_host() {
    let site = Site::new();
    let line_of_create =
        ["create", "--wall", "vm", "--memory", "128M", "--image", ringwall_testkit::ground::IMAGE];
    let mut create = site.command(line_of_create);
    let made = create.env("CANARY", CANARY).output().expect("ringwall can be started");
    let parent = site.living(String::from_utf8_lossy(&made.stdout).trim());
    line(&parent, "echo kept >/tmp/state");
    let kept = site.ringwall(&["snapshot", "--name", "base", &parent.id]).exits(0).word();
    let again = site.ringwall(&["snapshot", "--name", "base", &parent.id]);
    again.is_refused().says(&["taken", "base"]);
    assert_eq!(line(&parent, "cat /tmp/state"), "kept\n", "it goes on");
    parent.remove();
    let listed = site.ringwall(&["snapshot", "ls"]).exits(0).out();
    assert!(listed.contains(&kept) && listed.contains("base"), "{listed}");
    let memory = memory_of(&site, &kept);
    assert!(holds(&memory, "RW-ADOPT"), "this is no guest's memory");
    for file in ["memory", "state", "snapshot.json"] {
        let file = memory.with_file_name(file);
        assert!(!holds(&file, CANARY), "a secret of the host is in {}", file.display());
    }

    let first = site.living(&site.ringwall(&["restore", "base"]).exits(0).word());
    let second = site.ringwall(&["restore", "--name", "second", &kept]).exits(0).word();
    let second = site.living(&second);
    assert_eq!(line(&first, "cat /tmp/state"), "kept\n");
    assert_ne!(line(&first, RANDOM), line(&second, RANDOM));
    assert_ne!(line(&first, IDENTITY), line(&second, IDENTITY));
    first.remove();
    // A copy can be kept as well.
    let deeper = site.ringwall(&["snapshot", "second"]).exits(0).word();
    second.remove();
    site.ringwall(&["snapshot", "rm", "base", &deeper]).exits(0);
    site.ringwall(&["restore", "base"]).is_refused().says(&["no snapshot"]);
    site.is_clean();
}

const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

#[test]
fn copies_are_admitted_by_the_policy_of_now() {
    let site = Site::new();
    let world = &site.ground.world;
    let parent = site.create("vm", &["--memory", "96M", "--timeout", "5m"]);
    let kept = site.ringwall(&["snapshot", &parent.id]).exits(0).word();
    let config = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&config).expect("a directory");
    let policy = |part: &str, with: &str| {
        assert!(SHIPPED.contains(part));
        fs::write(config.join("ringwall.toml"), SHIPPED.replacen(part, with, 1)).expect("a policy");
    };
    for (part, with, rule) in [
        ("trust = \"medium\"\n", "trust = \"medium\"\nfloor = \"vm/container\"\n", "floor"),
        ("risk = \"medium\"", "risk = \"very-high\"", "risk-levels.very-high"),
        ("memory = \"2G\"", "memory = \"64M\"", "limits.memory"),
    ] {
        policy(part, with);
        site.ringwall(&["restore", &kept]).is_refused().says(&[rule]);
        site.ringwall(&["fork", "--count", "1", &parent.id]).is_refused().says(&[rule]);
    }
    policy("risk = \"medium\"", "risk = \"medium\"");
    let restored = site.living(&site.ringwall(&["restore", &kept]).exits(0).word());
    assert_eq!(line(&restored, "echo lives"), "lives\n");
    let log = fs::read_to_string(world.home().join("audit/log")).expect("a log");
    let denied = log.lines().filter(|line| line.contains("admission-denied")).count();
    assert_eq!(denied, 6, "{log}");
    restored.remove();
    parent.remove();
    site.ringwall(&["snapshot", "rm", &kept]).exits(0);
    site.is_clean();
}

#[test]
fn a_snapshot_that_was_changed_is_refused() {
    let site = Site::new();
    let parent = site.create("vm", &[]);
    let kept = site.ringwall(&["snapshot", &parent.id]).exits(0).word();
    parent.remove();
    let memory = memory_of(&site, &kept);
    let file = fs::File::options().read(true).write(true).open(&memory).expect("memory");
    let length = file.metadata().expect("memory").len();
    file.write_all_at(b"x", length / 2).expect("a byte");
    site.ringwall(&["restore", &kept]).is_refused().says(&["changed", "snapshot rm"]);
    fs::write(memory.with_file_name("mac"), "0".repeat(64)).expect("a file");
    site.ringwall(&["restore", &kept]).is_refused().says(&["changed", "snapshot rm"]);
    site.ringwall(&["snapshot", "rm", &kept]).exits(0);
    site.is_clean();
}

#[test]
fn what_cannot_be_kept_is_refused_with_the_reason() {
    let site = Site::new();
    let busy = site.create("vm", &["--", "sleep", "600"]);
    site.ringwall(&["snapshot", &busy.id]).is_refused().says(&["commands are running"]);
    site.ringwall(&["fork", "--count", "65", &busy.id]).is_refused().says(&["1 to 64"]);
    busy.exec("echo fine").exits(0).prints("fine\n");
    busy.remove();
    let nested = site.create("vm/container", &[]);
    site.ringwall(&["fork", &nested.id]).is_refused().says(&["wall is `vm` alone"]);
    nested.remove();
    site.is_clean();
}
