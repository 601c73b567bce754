//! What `make install` and `make dist` put in place, from the programs that were built for these tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, World};

/// Tools that are quick to compile.
const TOOLS: [&str; 2] = ["echo", "hash"];

/// Programs as `make install` finds them: built, in one directory, with the tools below it.
fn built(world: &World) -> PathBuf {
    let built = world.path("built");
    fs::create_dir_all(built.join("tools")).unwrap();
    for entry in fs::read_dir(world.programs()).unwrap().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("ringwall") && entry.path().is_file() {
            symlink(entry.path(), built.join(name)).unwrap();
        }
    }
    for tool in TOOLS {
        let file = Path::new("tools").join(tool).with_extension("wasm");
        fs::copy(world.programs().join(&file), built.join(&file))
            .expect("a tool that `make quick-tools` has built");
    }
    built
}

fn finished(line: &str, command: &mut Command) -> Finished {
    Finished::new(line.to_owned(), command.output().expect("it starts"))
}

#[test]
fn what_is_installed_runs_and_finds_its_parts() {
    let world = World::new();
    let (built, package) = (built(&world), world.path("package"));
    let mut make = Command::new("make");
    make.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["put-files", "PREFIX=/usr/local"])
        .arg(format!("DESTDIR={}", package.display()))
        .arg(format!("DIST_DIR={}", built.display()));
    // The tests may be run by a make, whose flags are not for this one.
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL"] {
        make.env_remove(name);
    }
    finished("make put-files", &mut make).exits(0);

    let prefix = package.join("usr/local");
    let installed = |arguments: &[&str]| {
        let mut command = Command::new(prefix.join("bin/ringwall"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", world.path("home"))
            .env("RINGWALL_HOME", world.path("home/state"))
            .current_dir(&prefix)
            .args(arguments);
        finished(&format!("installed ringwall {arguments:?}"), &mut command)
    };
    let version = installed(&["--version"]);
    assert!(version.exits(0).out().starts_with("ringwall "), "{version:?}");
    let listed = installed(&["tool", "ls", "-o", "json"]).exits(0).json();
    let names: Vec<&Value> = listed.as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, TOOLS);
    let call = ["tool", "call", "echo", "--input", r#"{"text": "installed"}"#];
    assert!(installed(&call).exits(0).out().contains("installed"));
    installed(&["run", "--no-workspace", "--wall", "process", "--", "true"]).exits(0);
    // Every program that the Makefile names is there, and only its owner can write it.
    for program in ["agent", "daemon", "gateway", "launcher", "probe", "warden", "wasm-warden"] {
        let file = prefix.join("bin").join(format!("ringwall-{program}"));
        let mode = fs::metadata(&file).expect("installed").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{}", file.display());
    }
}
