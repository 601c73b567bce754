//! What changes are by their nature, and what the host's repositories name.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod support;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_spec::WriteRights;
use ringwall_workspace::{
    Applied, ApplyError, ApplyOptions, Bounds, Nature, Periods, Wanted, collect,
};
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
        ("alias.inside", "!f() { cd moved && ./x; }; f"),
        ("filter.make.clean", "make -s -C generated"),
        ("filter.own.clean", "\"$PWD/by-variable/x\" %f"),
        ("filter.spaced.clean", "'my tools/x' %f"),
        ("include.path", "../conf/shared.gitconfig"),
    ] {
        git(&top, &["config", name, value]);
    }
    support::fill(&top, &[("conf/shared.gitconfig", "[core]\n\tpager = bin/pager\n")]);
    sandbox.upper_files(&[
        ("bin/pager", "x"),
        ("by-variable/x", "x"),
        ("conf/shared.gitconfig", "x"),
        ("generated/Makefile", "x"),
        ("helper/get", "x"),
        ("moved/x", "x"),
        ("my tools/x", "x"),
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
        "by-variable/x",
        "conf/shared.gitconfig",
        "generated",
        "generated/Makefile",
        "helper/get",
        "moved",
        "moved/x",
        "my tools/x",
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
fn modules_that_a_repository_has_an_interpreter_load_are_not_written_unasked() {
    let mut sandbox = Sandbox::with(&[("train.py", "1"), ("auth/login.py", "1")]);
    let top = sandbox.workspace();
    git(&top, &["init", "-q"]);
    for (name, value) in [
        // As `nbstripout --install` writes it.
        ("filter.nbstripout.clean", "\"/usr/bin/python3\" -m nbstripout"),
        ("diff.x.textconv", "python3 -m tools.show.text"),
        ("filter.js.clean", "npx prettier --stdin"),
        ("credential.helper", "!gh auth git-credential"),
        ("init.defaultBranch", "main"),
        ("alias.lg", "log --graph"),
        ("filter.lfs.clean", "git-lfs clean -- %f"),
    ] {
        git(&top, &["config", name, value]);
    }
    let refused = [
        "NBstripout.py",
        "json.py",
        "nbstripout.cpython-311-x86_64-linux-gnu.so",
        "nbstripout/__main__.py",
        "node_modules/.bin/prettier",
        "node_modules/prettier/index.js",
        "re/__init__.py",
        "tools.py",
        "tools/__init__.py",
        "tools/show/text.py",
    ];
    let taken =
        ["auth/login.py", "clean.sh", "log/today", "main.go", "src/json.py", "train.py", "x/y.py"];
    for path in refused.iter().chain(&taken) {
        sandbox.upper_files(&[(path, "new")]);
    }
    let changes = sandbox.collect();
    let one = |path: &str, options: &ApplyOptions| sandbox.apply_with(&changes, &[path], options);
    for strict in [false, true] {
        for path in refused {
            let options = ApplyOptions { strict, ..ApplyOptions::default() };
            assert!(named(one(path, &options)).contains(&path.to_owned()), "{path}");
        }
    }
    one("json.py", &allow("json.py")).unwrap();
    for path in taken {
        one(path, &ApplyOptions::default()).unwrap();
    }
    // A module that was there is what it was: only new ones come before those of the interpreter.
    sandbox.upper_files(&[("json.py", "newer")]);
    let changes = sandbox.collect();
    sandbox.apply_with(&changes, &["json.py"], &ApplyOptions::default()).unwrap();
}

#[test]
fn a_workspace_in_what_a_repository_names_is_named_as_a_whole() {
    let mut sandbox = Sandbox::with(&[]);
    git(&sandbox.beside(""), &["init", "-q"]);
    sandbox.upper_files(&[("pre-commit", "x"), ("__init__.py", "x")]);
    let changes = sandbox.collect();
    sandbox.apply_with(&changes, &["pre-commit"], &ApplyOptions::default()).unwrap();
    fs::remove_file(sandbox.workspace().join("pre-commit")).unwrap();
    git(&sandbox.beside(""), &["config", "filter.x.clean", "python3 -m other"]);
    assert_eq!(named(sandbox.apply(&changes)), ["__init__.py"]);
    git(&sandbox.beside(""), &["config", "core.hooksPath", "workspace"]);
    assert_eq!(named(sandbox.apply(&changes)), ["__init__.py", "pre-commit"]);
    git(&sandbox.beside(""), &["config", "core.hooksPath", "."]);
    sandbox.apply_with(&changes, &["pre-commit"], &ApplyOptions::default()).unwrap();
}

#[test]
fn links_below_what_a_repository_names_lead_to_what_it_executes() {
    let mut sandbox = Sandbox::with(&[
        ("scripts/check", "host"),
        ("shared/hooks/post-merge", "host"),
        ("lib/merge", "host"),
        ("tools/hooks/", ""),
    ]);
    let top = sandbox.workspace();
    git(&top, &["init", "-q"]);
    git(&top, &["config", "core.hooksPath", "tools/hooks"]);
    symlink("../../scripts/check", top.join("tools/hooks/pre-commit")).unwrap();
    symlink("../../not/yet", top.join("tools/hooks/pre-push")).unwrap();
    symlink("../../shared/hooks", top.join("tools/hooks/more")).unwrap();
    symlink("../../lib/merge", top.join("shared/hooks/post-rewrite")).unwrap();
    let refused = ["lib/merge", "not/yet", "scripts/check", "shared/hooks/post-merge"];
    for path in refused.iter().chain(&["scripts/other", "shared/readme"]) {
        sandbox.upper_files(&[(path, "mine")]);
    }
    let changes = sandbox.collect();
    assert_eq!(named(sandbox.apply(&changes)), refused);
    for path in ["scripts/other", "shared/readme"] {
        sandbox.apply_with(&changes, &[path], &ApplyOptions::default()).unwrap();
    }
}

#[test]
fn configuration_of_a_neighbour_and_of_a_superproject_counts() {
    let mut sandbox = Sandbox::with(&[("inner/a", "1"), ("deep/er/repo/a", "1")]);
    let (outer, top) = (sandbox.beside(""), sandbox.workspace());
    for (directory, hooks) in [
        (outer.clone(), "workspace/from-above"),
        (top.clone(), "own"),
        (top.join("inner"), "../shared"),
    ] {
        git(&directory, &["init", "-q"]);
        git(&directory, &["config", "core.hooksPath", hooks]);
    }
    git(&top.join("deep/er/repo"), &["init", "-q"]);
    git(&top.join("deep/er/repo"), &["config", "core.fsmonitor", "../../../watch.sh"]);
    let refused = ["from-above/x", "own/x", "shared/x", "watch.sh"];
    for path in refused.iter().chain(&["plain"]) {
        sandbox.upper_files(&[(path, "mine")]);
    }
    let changes = sandbox.collect();
    for path in refused {
        let result = sandbox.apply_with(&changes, &[path], &ApplyOptions::default());
        assert!(named(result).contains(&path.to_owned()), "{path}");
    }
    sandbox.apply_with(&changes, &["plain"], &ApplyOptions::default()).unwrap();
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
fn a_workspace_inside_a_dot_directory_has_no_plain_changes() {
    for (inside, at_top) in
        [(".newtool", true), (".newtool/deep", true), ("hooks.d", true), ("src", false)]
    {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap().join("project");
        let workspace = top.join(inside);
        fs::create_dir_all(&workspace).unwrap();
        fs::create_dir(top.join(".git")).unwrap();
        let upper = dir.path().join("upper");
        support::fill(&upper, &[("start.sh", "x")]);
        let seen = ringwall_workspace::open_workspace(&workspace).unwrap();
        let periods = Periods::always(WriteRights::everywhere());
        let (opened, into) = (fs::File::open(&upper).unwrap(), dir.path().join("changes"));
        let bounds = Bounds::default();
        let changes = collect(opened.as_fd(), &seen, &[], &periods, &into, &bounds).unwrap();
        let nature = changes.nature_of(&changes.entries()[0]);
        assert_eq!(nature != Nature::Plain, at_top, "{inside}: {nature:?}");
        let options = ApplyOptions { strict: true, ..ApplyOptions::default() };
        let applied =
            ringwall_workspace::apply(&changes.select(&Wanted::default()).unwrap(), &options);
        assert_eq!(matches!(applied, Err(ApplyError::NotPlain(_))), at_top, "{inside}");
    }
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

#[test]
fn what_is_loaded_instead_of_a_source_is_not_plain() {
    let mut sandbox = Sandbox::with(&[("src/a.py", "1"), ("init.el", "1")]);
    let compiled = ["init.elc", "run.desktop", "src/__pycache__/a.cpython-311.pyc"];
    sandbox.upper_files(&compiled.map(|path| (path, "x")));
    let changes = sandbox.collect();
    for path in compiled {
        let change =
            changes.entries().iter().find(|change| change.path.as_path() == Path::new(path));
        assert_ne!(changes.nature_of(change.unwrap()), Nature::Plain, "{path}");
    }
}
