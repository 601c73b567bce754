//! What changes are by their nature, and what the host's repositories name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_workspace::{Applied, ApplyError, ApplyOptions, Nature};
use support::{Sandbox, set_mode, status};

/// What a repository names that is refused, if anything is.
#[track_caller]
fn named(result: Result<Applied, ApplyError>) -> Vec<String> {
    match result {
        Err(ApplyError::NamedByRepository(paths)) => {
            paths.0.iter().map(|path| path.as_path().display().to_string()).collect()
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn git(directory: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "protocol.file.allow=always", "-c", "user.name=a", "-c", "user.email=a@b"])
        .args(arguments)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn allow(path: &str) -> ApplyOptions {
    ApplyOptions { allow_protected: vec![PathBuf::from(path)], ..ApplyOptions::default() }
}

#[test]
fn what_a_repositorys_configuration_executes_is_not_written_unasked() {
    let mut sandbox = Sandbox::with(&[("tools/fsmonitor", "host"), ("src/a", "1")]);
    let top = sandbox.workspace();
    git(&top, &["init", "-q"]);
    for (name, value) in [
        ("core.hooksPath", "tools/hooks"),
        ("core.fsmonitor", "tools/fsmonitor"),
        ("filter.x.clean", "python3 scripts/clean.py --fast %f"),
        ("diff.x.textconv", "./textconv"),
        ("merge.x.driver", "sh -c 'exec scripts/merge.sh %A'"),
        ("credential.helper", "!f() { $(git rev-parse --show-toplevel)/helper/get; }; f"),
        ("alias.up", "!tools/up.sh"),
        ("include.path", "../conf/shared.gitconfig"),
    ] {
        git(&top, &["config", name, value]);
    }
    support::fill(&top, &[("conf/shared.gitconfig", "[core]\n\tpager = bin/pager\n")]);
    sandbox.upper_files(&[
        ("bin/pager", "x"),
        ("conf/shared.gitconfig", "x"),
        ("helper/get", "x"),
        ("scripts/clean.py", "x"),
        ("scripts/merge.sh", "x"),
        ("scripts/other.py", "x"),
        ("src/a", "2"),
        ("textconv", "x"),
        ("tools/fsmonitor", "x"),
        ("tools/hooks/pre-commit", "x"),
        ("tools/up.sh", "x"),
    ]);
    let changes = sandbox.collect();
    let refused = named(sandbox.apply(&changes));
    let expected = [
        "bin/pager",
        "conf/shared.gitconfig",
        "helper/get",
        "scripts/clean.py",
        "scripts/merge.sh",
        "textconv",
        "tools/fsmonitor",
        "tools/hooks",
        "tools/hooks/pre-commit",
        "tools/up.sh",
    ];
    assert_eq!(refused, expected);
    let one = |path: &str, options: &ApplyOptions| sandbox.apply_with(&changes, &[path], options);
    one("src/a", &ApplyOptions::default()).unwrap();
    one("scripts/other.py", &ApplyOptions::default()).unwrap();
    assert_eq!(named(one("tools/up.sh", &allow("tools"))), ["tools/up.sh"]);
    one("tools/up.sh", &allow("tools/up.sh")).unwrap();
    one("tools/hooks", &allow("tools/hooks")).unwrap();
}

#[test]
fn configuration_of_a_repository_above_or_below_the_workspace_counts() {
    let mut sandbox = Sandbox::with(&[("inner/a", "1")]);
    git(&sandbox.beside(""), &["init", "-q"]);
    git(&sandbox.beside(""), &["config", "core.hooksPath", "workspace/outer-hooks"]);
    git(&sandbox.workspace().join("inner"), &["init", "-q"]);
    git(&sandbox.workspace().join("inner"), &["config", "core.fsmonitor", "bin/watch"]);
    sandbox.upper_files(&[
        ("outer-hooks/pre-push", "x"),
        ("inner/bin/watch", "x"),
        ("bin/watch", "x"),
    ]);
    let changes = sandbox.collect();
    let refused = named(sandbox.apply(&changes));
    assert_eq!(refused, ["inner/bin/watch", "outer-hooks", "outer-hooks/pre-push"]);
}

#[test]
fn configuration_of_worktrees_and_submodules_counts() {
    let mut sandbox = Sandbox::with(&[]);
    let main = sandbox.beside("main");
    fs::create_dir(&main).unwrap();
    git(&main, &["init", "-q"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&main, &["config", "core.sshCommand", "bin/ssh"]);
    git(&main, &["config", "extensions.worktreeConfig", "true"]);
    let tree = sandbox.workspace().join("tree");
    git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    git(&tree, &["config", "--worktree", "core.editor", "bin/edit"]);
    let outer = sandbox.workspace().join("outer");
    fs::create_dir(&outer).unwrap();
    git(&outer, &["init", "-q"]);
    git(&outer, &["submodule", "--quiet", "add", main.to_str().unwrap(), "part"]);
    git(&outer.join("part"), &["config", "core.fsmonitor", "watch.sh"]);
    sandbox.upper_files(&[
        ("outer/part/watch.sh", "x"),
        ("outer/watch.sh", "x"),
        ("tree/bin/edit", "x"),
        ("tree/bin/ssh", "x"),
    ]);
    let changes = sandbox.collect();
    let refused = named(sandbox.apply(&changes));
    assert_eq!(refused, ["outer/part/watch.sh", "tree/bin/edit", "tree/bin/ssh"]);
}

#[test]
fn a_link_to_or_above_what_is_executed_does_not_help() {
    let mut sandbox = Sandbox::with(&[("real/run", "host"), ("tools/hooks/x", "host")]);
    let top = sandbox.workspace();
    git(&top, &["init", "-q"]);
    symlink("real/run", top.join("link")).unwrap();
    git(&top, &["config", "core.fsmonitor", "./link"]);
    git(&top, &["config", "core.hooksPath", "tools/hooks"]);
    sandbox.upper_files(&[("real/run", "mine"), ("elsewhere/pre-commit", "mine")]);
    sandbox.whiteout("tools/hooks");
    fs::remove_file(sandbox.upper().join("tools/hooks")).unwrap();
    symlink("../elsewhere", sandbox.upper().join("tools/hooks")).unwrap();
    let changes = sandbox.collect();
    assert_eq!(named(sandbox.apply(&changes)), ["real/run", "tools/hooks", "tools/hooks/x"]);
}

#[test]
fn each_change_is_shown_with_what_it_is() {
    let mut sandbox = Sandbox::with(&[("run.sh", "#!/bin/sh\n"), ("src/a.rs", "a")]);
    sandbox.upper_files(&[
        (".newtool/x", "x"),
        ("lib.so", "\u{7f}ELF"),
        ("new.sh", "#!/bin/sh\n"),
        ("newci.yml", "x"),
        ("run.sh", "#!/bin/sh\n"),
        ("scripts/post-checkout", "x"),
        ("src/a.rs", "b"),
    ]);
    for path in ["new.sh", "run.sh"] {
        set_mode(&sandbox.upper().join(path), 0o755);
    }
    symlink("src/a.rs", sandbox.upper().join("link")).unwrap();
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        [
            "A  .newtool/",
            "A  .newtool/x [dot-directory]",
            "A  lib.so [new executable]",
            "A  link [link]",
            "A  new.sh [new executable]",
            "A  newci.yml [configuration]",
            "M  run.sh (mode 644 -> 755) [new executable]",
            "A  scripts/",
            "A  scripts/post-checkout [hook]",
            "M  src/a.rs",
        ]
    );
    let strict = ApplyOptions { strict: true, ..ApplyOptions::default() };
    let refused = match sandbox.apply_with(&changes, &[], &strict) {
        Err(ApplyError::NotPlain(ranked)) => ranked.0.len(),
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(refused, 7);
    sandbox.apply_with(&changes, &["src/a.rs"], &strict).unwrap();
    let asked = ApplyOptions { strict: true, ..allow("scripts") };
    sandbox.apply_with(&changes, &["scripts"], &asked).unwrap();
    sandbox.apply(&changes).unwrap();
}

#[test]
fn an_executable_that_stays_one_is_plain_unless_it_becomes_machine_code() {
    let mut sandbox = Sandbox::with(&[("a.sh", "1"), ("b.sh", "1")]);
    sandbox.upper_files(&[("a.sh", "2"), ("b.sh", "\u{7f}ELF")]);
    for path in ["a.sh", "b.sh"] {
        set_mode(&sandbox.upper().join(path), 0o755);
        set_mode(&sandbox.workspace().join(path), 0o755);
    }
    let changes = sandbox.collect();
    let natures: Vec<Nature> =
        changes.entries().iter().map(|change| changes.nature_of(change)).collect();
    assert_eq!(natures, [Nature::Plain, Nature::Executable]);
}
