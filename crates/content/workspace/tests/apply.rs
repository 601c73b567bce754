//! What `apply` writes, what it refuses, and that a refusal leaves the workspace untouched.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use ringwall_workspace::{ApplyError, ApplyOptions, Changes, Wanted, apply};
use support::{Sandbox, is_root, set_mode, status, tree};

fn allow(paths: &[&str]) -> ApplyOptions {
    let allow_protected = paths.iter().map(PathBuf::from).collect();
    ApplyOptions { allow_protected, ..ApplyOptions::default() }
}

fn refused(sandbox: &Sandbox, changes: &Changes) -> String {
    let before = sandbox.tree();
    let error = sandbox.apply(changes).unwrap_err();
    assert_eq!(sandbox.tree(), before, "a refusal changes nothing");
    error.to_string()
}

#[test]
fn a_run_is_written_back_exactly() {
    let mut sandbox = Sandbox::with(&[
        ("edit", "old"),
        ("gone/a", "1"),
        ("gone/b/c", "2"),
        ("file", "f"),
        ("dir/x", "x"),
        ("mode", "m"),
    ]);
    sandbox.run(
        "echo new > edit; rm -r gone; rm file; mkdir -p file/deep; echo in > file/deep/in; \
         rm -r dir; echo now-a-file > dir; chmod 700 mode; ln -s file/deep link; cp -a . \"$COPY\"",
    );
    let changes = sandbox.collect();
    let applied = sandbox.apply(&changes).unwrap();
    assert_eq!(applied.applied.len(), changes.entries().len());
    assert_eq!(sandbox.tree(), tree(&sandbox.beside("copy")));
}

#[test]
fn applying_twice_is_harmless() {
    let mut sandbox = Sandbox::with(&[("a", "1"), ("b", "2")]);
    sandbox.run("echo 3 > a; rm b; mkdir d; ln -s a l");
    let changes = sandbox.collect();
    sandbox.apply(&changes).unwrap();
    let after = sandbox.tree();
    let again = sandbox.apply(&changes).unwrap();
    assert!(again.applied.is_empty());
    assert_eq!(again.already.len(), 4);
    assert_eq!(sandbox.tree(), after);
}

#[test]
fn only_the_named_paths_are_written_with_the_directories_they_need() {
    let mut sandbox = Sandbox::with(&[("a", "1")]);
    sandbox.run("echo 2 > a; mkdir -p n/m n/o; echo x > n/m/x; echo y > n/o/y");
    let changes = sandbox.collect();
    let absolute = sandbox.workspace().join("n/m/x");
    let wanted = [absolute.to_str().unwrap()];
    sandbox.apply_with(&changes, &wanted, &ApplyOptions::default()).unwrap();
    let paths: Vec<PathBuf> = sandbox.tree().into_keys().collect();
    assert_eq!(paths, ["a", "n", "n/m", "n/m/x"].map(PathBuf::from));
    assert_eq!(fs::read_to_string(sandbox.workspace().join("a")).unwrap(), "1");
    sandbox.apply_with(&changes, &["./n/", "a"], &ApplyOptions::default()).unwrap();
    assert!(sandbox.workspace().join("n/o/y").exists());
}

#[test]
fn paths_that_did_not_change_or_lie_outside_are_an_error() {
    let mut sandbox = Sandbox::with(&[("a", "1")]);
    sandbox.run("echo 2 > a");
    let changes = sandbox.collect();
    let apply = |only: &str| sandbox.apply_with(&changes, &[only], &ApplyOptions::default());
    assert!(matches!(apply("b"), Err(ApplyError::NotChanged { .. })));
    for bad in ["../a", "/etc/passwd", "x/../../a", ""] {
        assert!(matches!(apply(bad), Err(ApplyError::BadPath { .. })), "{bad}");
    }
}

#[test]
fn what_is_applied_is_a_part_of_what_was_selected_however_it_is_spelled() {
    let made = || {
        let mut sandbox = Sandbox::with(&[("a", "1")]);
        sandbox.run("echo 2 > a; mkdir -p n/m; echo x > n/m/x; echo y > deps.lock");
        let changes = sandbox.collect();
        (sandbox, changes)
    };

    let spellings: [(&[&str], &[&str]); 14] = [
        (&["./"], &[]),
        (&["."], &[]),
        (&["./n/"], &[]),
        (&["n//m/./x"], &[]),
        (&["WORKSPACE"], &[]),
        (&["WORKSPACE/"], &[]),
        (&["WORKSPACE/deps.lock"], &[]),
        (&["WORKSPACE/./n/"], &["n/m/"]),
        (&["a", "./"], &["./deps.lock"]),
        (&["WORKSPACE/../elsewhere"], &[]),
        (&["n/../deps.lock"], &[]),
        (&[".."], &[]),
        (&[""], &[]),
        (&[], &["WORKSPACE/deps.lock", "n/"]),
    ];
    for (only, except) in spellings {
        let (sandbox, changes) = made();
        let given = |paths: &[&str]| -> Vec<PathBuf> {
            let root = sandbox.workspace().display().to_string();
            paths.iter().map(|path| path.replace("WORKSPACE", &root).into()).collect()
        };
        let before = sandbox.tree();
        let wanted = Wanted { only: given(only), except: given(except) };
        let decided: Vec<PathBuf> = match changes.select(&wanted) {
            Ok(selection) => {
                let decided = selection.paths().map(Path::to_path_buf).collect();
                apply(&selection, &ApplyOptions::default()).unwrap();
                decided
            }
            Err(_) => Vec::new(),
        };
        let after = sandbox.tree();
        let written = after.iter().filter(|(path, entry)| before.get(*path) != Some(*entry));
        for (path, _) in written {
            assert!(decided.contains(path), "{only:?} {except:?}: {path:?} of {decided:?}");
        }
        let named_lock = only.iter().any(|path| path.contains("deps") && !path.contains(".."));
        let all = !only.iter().any(|path| path.contains('n') || path.contains(".."))
            && !only.contains(&"");
        let excepted = except.iter().any(|path| path.contains("deps"));
        let expected = (named_lock || all) && !excepted;
        assert_eq!(decided.contains(&PathBuf::from("deps.lock")), expected, "{only:?} {except:?}");
    }
}

#[test]
fn protected_paths_refuse_the_whole_apply_until_they_are_named() {
    let mut sandbox = Sandbox::with(&[("src/main.rs", "x")]);
    sandbox.run(
        "echo y > src/main.rs; mkdir -p .git/hooks sub/.GIT/Hooks .github/workflows; \
         echo '#!/bin/sh' > .git/hooks/pre-commit; echo x > sub/.GIT/Hooks/x; \
         echo '[core]' > .git/config; echo on: > .github/workflows/ci.yml; echo A=1 > .env",
    );
    let changes = sandbox.collect();
    let error = refused(&sandbox, &changes);
    assert_eq!(
        error,
        "nothing was applied: .env, .git/config, .git/hooks, .github/workflows, sub/.GIT/Hooks is \
         protected, as programs on the host trust it; review the change and name it with \
         --allow-protected"
    );
    let some = allow(&[".git/config", ".git/hooks", ".git", "sub", "."]);
    assert!(sandbox.apply_with(&changes, &[], &some).is_err());
    sandbox.apply_with(&changes, &["src"], &ApplyOptions::default()).unwrap();
    let all = [".env", ".git/config", ".git/hooks", ".github/workflows", "sub/.GIT/Hooks"];
    sandbox.apply_with(&changes, &[], &allow(&all)).unwrap();
    assert!(sandbox.workspace().join(".git/hooks/pre-commit").exists());
}

#[test]
fn deleting_or_moving_a_protected_path_away_is_refused_too() {
    let mut sandbox = Sandbox::with(&[(".git/config", "[core]"), (".git/HEAD", "ref"), ("a", "")]);
    sandbox.run("mv .git renamed; mkdir .git; echo '[core] fsmonitor=evil' > .git/config");
    let changes = sandbox.collect();
    assert!(refused(&sandbox, &changes).contains(".git/config"));
}

#[test]
fn a_git_file_and_links_above_protected_paths_are_refused() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run(
        "mkdir -p sub gh/workflows; echo 'gitdir: ../evil' > sub/.git; ln -s gh .github; \
         ln -s sub/x .cargo",
    );
    let changes = sandbox.collect();
    let error = refused(&sandbox, &changes);
    assert!(error.contains(": .cargo, .github, sub/.git is protected"), "{error}");
}

#[test]
fn a_directory_that_git_would_take_for_a_repository_is_refused() {
    let mut sandbox = Sandbox::with(&[("docs/HEAD", "ref: refs/heads/x"), ("docs/refs/x", "")]);
    sandbox.run("mkdir docs/objects; echo '[core] fsmonitor=evil' > docs/config; echo a > docs/a");
    let changes = sandbox.collect();
    let error = refused(&sandbox, &changes);
    assert!(error.contains(": docs/config, docs/objects is protected"), "{error}");

    // Without the telling parts the same names are ordinary.
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("mkdir -p app/refs app/hooks; echo x > app/config; echo y > app/hooks/use.ts");
    let changes = sandbox.collect();
    sandbox.apply(&changes).unwrap();
}

#[test]
fn files_that_changed_on_the_host_are_a_conflict_unless_forced() {
    let mut sandbox = Sandbox::with(&[("a", "1"), ("b", "2"), ("c", "3"), ("d/x", "4")]);
    sandbox.run("echo mine > a; rm b; echo new > n; rm -r d; echo c >> c");
    let changes = sandbox.collect();
    fs::write(sandbox.workspace().join("a"), "7").unwrap();
    fs::write(sandbox.workspace().join("b"), "22").unwrap();
    fs::write(sandbox.workspace().join("n"), "theirs").unwrap();
    fs::write(sandbox.workspace().join("d/more"), "theirs").unwrap();
    let error = refused(&sandbox, &changes);
    assert!(error.contains(": a, b, d, n changed on the host"), "{error}");

    sandbox.apply_with(&changes, &["c"], &ApplyOptions::default()).unwrap();
    let force = ApplyOptions { force: true, ..ApplyOptions::default() };
    // Even then a directory with files that the caller did not name is not emptied.
    assert!(sandbox.apply_with(&changes, &[], &force).is_err());
    sandbox.apply_with(&changes, &["a", "b", "n"], &force).unwrap();
    assert_eq!(fs::read_to_string(sandbox.workspace().join("n")).unwrap(), "new\n");
    assert!(!sandbox.workspace().join("b").exists());
}

#[test]
fn a_file_that_was_only_touched_is_no_conflict() {
    let mut sandbox = Sandbox::with(&[("a", "1")]);
    sandbox.run("echo 2 > a");
    let changes = sandbox.collect();
    fs::write(sandbox.workspace().join("a"), "1").unwrap();
    sandbox.apply(&changes).unwrap();
}

#[test]
fn a_link_that_appears_in_the_workspace_is_not_written_through() {
    let mut sandbox = Sandbox::with(&[("d/a", "1"), ("e/b", "2")]);
    sandbox.run("echo 2 > d/a; echo n > d/new; echo 3 > e/b");
    let changes = sandbox.collect();
    let outside = sandbox.beside("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "1").unwrap();
    fs::remove_dir_all(sandbox.workspace().join("d")).unwrap();
    symlink(&outside, sandbox.workspace().join("d")).unwrap();
    let error = refused(&sandbox, &changes);
    assert!(error.contains("d/a, d/new changed on the host"), "{error}");
    assert_eq!(fs::read_to_string(outside.join("a")).unwrap(), "1");
    assert!(!outside.join("new").exists());
    let force = ApplyOptions { force: true, ..ApplyOptions::default() };
    assert!(sandbox.apply_with(&changes, &[], &force).is_err());
}

#[test]
fn other_names_of_a_host_file_keep_their_content_and_mode() {
    let mut sandbox = Sandbox::with(&[("content", "1"), ("mode", "2")]);
    let outside = [sandbox.beside("content"), sandbox.beside("mode")];
    fs::hard_link(sandbox.workspace().join("content"), &outside[0]).unwrap();
    fs::hard_link(sandbox.workspace().join("mode"), &outside[1]).unwrap();
    sandbox.run("echo evil > content; chmod 777 mode");
    let changes = sandbox.collect();
    sandbox.apply(&changes).unwrap();
    assert_eq!(fs::read_to_string(&outside[0]).unwrap(), "1");
    assert_eq!(fs::metadata(&outside[1]).unwrap().mode() & 0o777, 0o644);
    assert_eq!(sandbox.tree()[Path::new("mode")], "file 755 \"2\"");
}

#[test]
fn damaged_kept_content_is_noticed() {
    let mut sandbox = Sandbox::with(&[("a", "1")]);
    sandbox.run("echo 2 > a; echo x > b");
    let changes = sandbox.collect();
    fs::write(sandbox.beside("changes-1/blobs/0"), "9\n").unwrap();
    assert!(refused(&sandbox, &changes).contains("the kept content of a is damaged"));
}

#[test]
fn two_applies_at_once_do_not_mix() {
    let mut sandbox = Sandbox::with(&[("a", "1")]);
    sandbox.run("echo 2 > a");
    let changes = sandbox.collect();
    let other = File::open(sandbox.workspace()).unwrap();
    other.lock().unwrap();
    assert!(matches!(sandbox.apply(&changes), Err(ApplyError::Busy { .. })));
    other.unlock().unwrap();
    sandbox.apply(&changes).unwrap();
}

#[test]
fn a_write_that_fails_half_way_is_undone() {
    if is_root() {
        // The crash tests inside the crate cover root.
        println!("not tested here: root may write everything");
        return;
    }
    let mut sandbox = Sandbox::with(&[("a", "1"), ("b", "2"), ("locked/c", "3"), ("z/d", "4")]);
    sandbox.run("echo 2 > a; rm b; echo x > locked/c; rm -r z; mkdir n; echo n > n/n");
    let changes = sandbox.collect();
    set_mode(&sandbox.workspace().join("locked"), 0o555);
    let error = refused(&sandbox, &changes);
    assert!(error.contains("locked/c cannot be written"), "{error}");
    set_mode(&sandbox.workspace().join("locked"), 0o755);
    sandbox.apply(&changes).unwrap();
}

#[test]
fn files_written_by_root_belong_to_the_owner_of_the_place() {
    if !is_root() {
        println!("not tested here: only root gives files away");
        return;
    }
    let mut sandbox = Sandbox::with(&[("mine", "1"), ("dir/x", "2")]);
    let workspace = sandbox.workspace();
    let chown = |path: &str, id| std::os::unix::fs::chown(workspace.join(path), Some(id), Some(id));
    chown("", 4001).unwrap();
    chown("mine", 4002).unwrap();
    chown("dir", 4003).unwrap();
    sandbox.upper_files(&[("mine", "2"), ("new", "n"), ("dir/sub/n", "m")]);
    symlink("n", sandbox.upper().join("dir/l")).unwrap();
    let changes = sandbox.collect();
    sandbox.apply(&changes).unwrap();
    let owner = |path: &str| fs::symlink_metadata(workspace.join(path)).unwrap().uid();
    assert_eq!(
        ["mine", "new", "dir/sub", "dir/sub/n", "dir/l"].map(owner),
        [4002, 4001, 4003, 4003, 4003]
    );
}

#[test]
fn what_was_refused_at_collect_time_is_never_written() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("mkfifo pipe; echo x > a");
    let changes = sandbox.collect();
    assert_eq!(status(&changes), ["A  a", "!  pipe (fifo, not taken over)"]);
    sandbox.apply(&changes).unwrap();
    assert!(!sandbox.workspace().join("pipe").exists());
}

#[test]
fn paths_can_be_left_out() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("mkdir venv; ln -s /usr/bin/python3 venv/python; echo x > a");
    let changes = sandbox.collect();
    assert!(refused(&sandbox, &changes).contains("venv/python would be a link out"));
    let wanted = Wanted { except: vec!["venv".into()], ..Wanted::default() };
    apply(&changes.select(&wanted).unwrap(), &ApplyOptions::default()).unwrap();
    assert_eq!(sandbox.tree().len(), 1);
}

#[test]
fn what_a_link_at_a_protected_path_leads_to_is_protected_too() {
    let mut sandbox = Sandbox::with(&[
        ("scripts/pre-commit", "mine"),
        ("docs.md", "mine"),
        ("ci/workflows/ci.yml", "mine"),
        ("ci/README", "mine"),
        ("plain", "mine"),
        (".git/hooks/", ""),
    ]);
    let workspace = sandbox.workspace();
    let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, workspace.join(at));
    link("../../scripts/pre-commit", ".git/hooks/pre-commit").unwrap();
    link("also.md", "CLAUDE.md").unwrap();
    link(&workspace.join("docs.md").display().to_string(), "also.md").unwrap();
    link("ci", ".github").unwrap();
    link("not-yet/there", ".git/hooks/post-merge").unwrap();
    for path in ["scripts/pre-commit", "docs.md", "ci/workflows/ci.yml", ".git/hooks/not-yet/there"]
    {
        fs::remove_dir_all(sandbox.upper()).unwrap();
        fs::create_dir(sandbox.upper()).unwrap();
        sandbox.upper_files(&[(path, "theirs")]);
        let changes = sandbox.collect();
        let error = sandbox.apply(&changes).unwrap_err();
        assert!(matches!(error, ApplyError::Protected(_)), "{path}: {error}");
    }
    // A directory or a link on the way becomes a link of the sandbox's.
    for path in ["scripts", "also.md"] {
        fs::remove_dir_all(sandbox.upper()).unwrap();
        fs::create_dir(sandbox.upper()).unwrap();
        std::os::unix::fs::symlink("plain", sandbox.upper().join(path)).unwrap();
        let changes = sandbox.collect();
        let error = sandbox.apply(&changes).unwrap_err();
        assert!(matches!(error, ApplyError::Protected(_)), "{path}: {error}");
    }
    fs::remove_dir_all(sandbox.upper()).unwrap();
    fs::create_dir(sandbox.upper()).unwrap();
    sandbox.upper_files(&[("ci/README", "theirs"), ("plain", "theirs")]);
    let changes = sandbox.collect();
    sandbox.apply(&changes).unwrap();
}

#[test]
fn nothing_is_opened_for_others_to_write() {
    let mut sandbox =
        Sandbox::with(&[("a/ringwall.toml", "1"), ("file", "2"), ("team/own", "3"), ("open", "4")]);
    for (path, mode) in [("team", 0o775), ("team/own", 0o664), ("open", 0o666)] {
        set_mode(&sandbox.workspace().join(path), mode);
    }
    sandbox.run(
        "chmod 777 a; chmod 666 file; chmod 777 team; chmod 666 team/own; echo 5 > open; chmod 777 open; \
         echo x > new; chmod 666 new; mkdir made; chmod 777 made; echo y > made/in; chmod 620 made/in; \
         rm -r file; echo z > file; chmod 772 file",
    );
    let changes = sandbox.collect();
    let told = status(&changes);
    assert!(!told.iter().any(|line| line.contains(" a/") || line.contains("team")), "{told:?}");
    sandbox.apply(&changes).unwrap();
    let tree = sandbox.tree();
    let found = |path: &str| tree[Path::new(path)].clone();
    assert_eq!(found("a"), "directory 755");
    assert_eq!(found("file"), "file 750 \"z\\n\"");
    // The host's own files keep the permissions that they had.
    assert_eq!(found("team"), "directory 775");
    assert_eq!(found("team/own"), "file 664 \"3\"");
    assert_eq!(found("open"), "file 777 \"5\\n\"");
    assert_eq!(found("new"), "file 644 \"x\\n\"");
    assert_eq!(found("made"), "directory 755");
    assert_eq!(found("made/in"), "file 600 \"y\\n\"");
}

#[test]
fn changes_that_were_kept_with_open_modes_open_nothing() {
    let mut sandbox = Sandbox::with(&[("dir/", ""), ("mode", "1"), ("edit", "2")]);
    sandbox.run(
        "chmod 700 dir; chmod 700 mode; echo 3 > edit; chmod 700 edit; echo 4 > new; chmod 700 new; \
         mkdir -m 700 made",
    );
    sandbox.collect();
    let place = sandbox.beside("changes-1");
    let file = place.join("manifest.json");
    let text = fs::read_to_string(&file).unwrap();
    // Earlier versions kept such modes.
    let mode = |mode: u32| format!("\"mode\":{mode}");
    let open = text.replace(&mode(0o700), &mode(0o777));
    assert_ne!(open, text);
    fs::write(&file, open).unwrap();
    sandbox.apply(&Changes::load(&place).unwrap()).unwrap();
    let tree = sandbox.tree();
    for (path, what) in [
        ("dir", "directory 755"),
        ("made", "directory 755"),
        ("mode", "file 755 \"1\""),
        ("edit", "file 755 \"3\\n\""),
        ("new", "file 755 \"4\\n\""),
    ] {
        assert_eq!(tree[Path::new(path)], what, "{path}");
    }
}

#[test]
fn links_at_protected_paths_above_the_workspace_count_too() {
    let mut sandbox = Sandbox::with(&[("check", "mine"), ("notes.md", "mine"), ("gh/x", "mine")]);
    let outer = sandbox.beside("");
    for directory in [".git/hooks", "docs", "deep/er"] {
        fs::create_dir_all(outer.join(directory)).unwrap();
    }
    for (target, link) in [
        ("../../workspace/check", ".git/hooks/pre-commit"),
        ("../../workspace/not-yet", ".git/hooks/pre-push"),
        ("../workspace/notes.md", "docs/CLAUDE.md"),
        ("workspace/gh", ".github"),
        ("../../workspace/plain", "deep/er/other"),
    ] {
        std::os::unix::fs::symlink(target, outer.join(link)).unwrap();
    }
    let protected = ["check", "gh/workflows/ci.yml", "not-yet", "notes.md"];
    for path in protected.iter().chain(&["gh/README", "plain"]) {
        sandbox.upper_files(&[(path, "theirs")]);
    }
    let changes = sandbox.collect();
    for path in protected {
        let error = sandbox.apply_with(&changes, &[path], &ApplyOptions::default()).unwrap_err();
        assert!(matches!(error, ApplyError::Protected(_)), "{path}: {error}");
    }
    for path in ["gh/README", "plain"] {
        sandbox.apply_with(&changes, &[path], &ApplyOptions::default()).unwrap();
    }
    // The workspace is all of what such a link leads to.
    fs::remove_file(outer.join(".github")).unwrap();
    std::os::unix::fs::symlink("workspace", outer.join(".github")).unwrap();
    sandbox.upper_files(&[("workflows/ci.yml", "theirs")]);
    let changes = sandbox.collect();
    let error = sandbox.apply_with(&changes, &["workflows"], &ApplyOptions::default()).unwrap_err();
    assert!(matches!(error, ApplyError::Protected(_)), "{error}");
}
