//! `ringwall doctor` says what it saw, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Finished, User, World, is_root};

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

fn wall<'a>(report: &'a Value, name: &str) -> &'a Value {
    let walls = report["walls"].as_array().expect("a list");
    walls.iter().find(|wall| wall["wall"] == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Everything below a directory, by name.
fn all_below(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).expect("a directory").flatten() {
        names.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            names.extend(all_below(&entry.path()));
        }
    }
    names.sort();
    names
}

fn both_users() -> Vec<World> {
    match is_root() {
        true => vec![World::new(), World::of(User::Ordinary)],
        false => vec![World::new()],
    }
}

#[test]
fn every_wall_was_raised_soon_and_nothing_is_left_of_it() {
    for world in both_users() {
        let before = all_below(&world.home());
        let begun = Instant::now();
        // Without monitors on the path no guest is tried.
        let output = world.command(["doctor", "-o", "json"]).env("PATH", "/none").output();
        let took = begun.elapsed();
        let report = report(&output.expect("doctor runs"));
        for name in ["process", "container", "container/process", "wasm"] {
            let wall = wall(&report, name);
            assert_eq!(wall["result"], "yes", "{wall}");
            let seen = wall["seen"].as_str().expect("words");
            assert!(seen.contains("facts checked") && wall["took_ms"].is_u64(), "{wall}");
        }
        assert_eq!(wall(&report, "vm")["result"], "no", "there is no monitor");
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert_eq!(all_below(&world.home()), before);
        assert!(world.sandboxes().is_empty());
    }
}

#[test]
fn a_home_that_was_not_there_is_not_there_afterwards() {
    let world = World::new();
    let home = world.path("new/home");
    let mut command = world.command(["doctor"]);
    let output = command.env("RINGWALL_HOME", &home).env("PATH", "/none").output();
    assert!(output.expect("doctor runs").status.success());
    assert!(!world.path("new").exists());
}

#[test]
fn a_trial_that_was_killed_is_cleaned_up_after_by_the_next() {
    let world = World::new();
    let left = world.home().join(".doctor-0123456789abcdef");
    fs::create_dir_all(left.join("home/sandboxes")).expect("a directory");
    fs::write(left.join("lock"), "").expect("a file");
    let output = world.command(["doctor"]).env("PATH", "/none").output();
    assert!(output.expect("doctor runs").status.success());
    assert!(!left.exists());
}

#[test]
fn without_its_programs_a_wall_is_not_there_and_the_fix_names_them() {
    let world = World::new();
    let few = world.path("few-programs");
    fs::create_dir(&few).expect("a directory");
    for name in ["ringwall-launcher", "ringwall-warden"] {
        fs::copy(world.programs().join(name), few.join(name)).expect("a copy");
    }
    let mut command = world.command(["doctor", "-o", "json"]);
    command.env("RINGWALL_PROGRAMS", &few).env("PATH", "/none");
    let report = report(&command.output().expect("doctor runs"));
    assert_eq!(wall(&report, "process")["result"], "yes");
    let wasm = wall(&report, "wasm");
    assert_eq!((&wasm["result"], &wasm["possible"]), (&"no".into(), &false.into()));
    assert!(wasm["seen"].as_str().expect("words").contains("ringwall-wasm-warden"), "{wasm}");
    assert!(wasm["fix"].as_str().expect("words").contains("make install"), "{wasm}");
}

#[test]
fn every_no_has_a_fix_where_no_wall_can_be_raised() {
    let world = World::new();
    let mut command = world.command(["doctor", "-o", "json"]);
    // Neither programs nor a place for state.
    command.env("RINGWALL_PROGRAMS", "/none").env("RINGWALL_HOME", "/proc/none");
    let output = command.env("PATH", "/none").output().expect("doctor runs");
    assert_eq!(output.status.code(), Some(1));
    for wall in report(&output)["walls"].as_array().expect("a list") {
        assert_eq!(wall["result"], "no", "{wall}");
        assert!(wall["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{wall}");
    }
}

#[test]
fn the_same_failure_is_told_in_the_same_words_every_time() {
    if !is_root() {
        eprintln!("not tested here: only root can ask for what the ring's user cannot read");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let secret = world.path("secret");
    fs::create_dir(&secret).expect("a directory");
    fs::write(secret.join("file"), "x").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("own directory");
    let path = secret.join("file").display().to_string();
    let mut told: Vec<String> = (0..50)
        .map(|_| {
            let run = world.command(["run", "--ro", &path, "--", "true"]).output();
            String::from_utf8_lossy(&run.expect("ringwall runs").stderr).into_owned()
        })
        .collect();
    told.dedup();
    let [words] = told.as_slice() else { panic!("{told:?}") };
    assert!(words.contains(&format!("show file \"{path}\"")), "{words}");
    assert!(words.contains("Permission denied (os error 13)"), "{words}");
}

/// Runs Ringwall in a user namespace of its own below which the kernel allows no further one, with no more rights
/// than an ordinary user has.
fn where_no_namespace_is_allowed(world: &World, arguments: &[&str]) -> Finished {
    const SCRIPT: &str = "echo 0 >/proc/sys/user/max_user_namespaces \
        && exec setpriv --inh-caps=-all --ambient-caps=-all \"$0\" \"$@\"";
    let asked = world.command(arguments);
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "sh", "-c", SCRIPT])
        .arg(asked.get_program())
        .args(asked.get_args())
        .env_clear()
        .envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(world.project());
    let line = format!("ringwall {arguments:?} without namespaces");
    Finished::new(line, command.output().expect("unshare of util-linux"))
}

#[test]
fn a_wall_that_fails_for_want_of_namespaces_tells_what_doctor_tells() {
    let world = World::new();
    let doctor = where_no_namespace_is_allowed(&world, &["doctor", "-o", "json"]).json();
    let features = doctor["features"].as_array().expect("a list");
    let feature = features.iter().find(|it| it["name"] == "user-namespace").expect("the feature");
    let fix = feature["fix"].as_str().expect("a command");
    assert!(fix.contains("sysctl -w user.max_user_namespaces="), "{fix}");
    for wall in [&["--wall", "process"][..], &["--wall", "process", "--workspace", "."]] {
        let run = [&["run"][..], wall, &["--", "true"]].concat();
        let refused = where_no_namespace_is_allowed(&world, &run);
        refused.is_refused().says(&["could not make own user namespace", fix]);
    }
}
