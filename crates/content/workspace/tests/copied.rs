//! Where there is no overlay but a copy of the workspace: the same changes come of the same work.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringwall_spec::WriteRights;
use ringwall_workspace::{Bounds, Changes, Copied, Periods, Upper, collect};
use support::Sandbox;

const FILES: [(&str, &str); 7] = [
    ("a", "a"),
    ("b", "b"),
    ("dir/x", "x"),
    ("dir/sub/y", "y"),
    ("keep/k", "k"),
    ("keep/deep/er/z", "z"),
    ("empty/", ""),
];

/// A copy of the sandbox's workspace, and its entries.
fn copy(sandbox: &Sandbox) -> (PathBuf, Copied) {
    let to = sandbox.beside("copied-upper");
    let status = Command::new("cp").arg("-a").arg(sandbox.workspace()).arg(&to).status().unwrap();
    assert!(status.success());
    let mut copied = Copied::default();
    let mut pending = vec![to.clone()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let changed = (stat.ctime(), stat.ctime_nsec().unsigned_abs());
            copied.note(path.strip_prefix(&to).unwrap(), stat.ino(), changed);
            if stat.is_dir() {
                pending.push(path);
            }
        }
    }
    // The kernel's clock for files goes on.
    std::thread::sleep(std::time::Duration::from_millis(20));
    (to, copied)
}

fn run(script: &str, directory: &Path) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(directory).status().unwrap();
    assert!(status.success(), "{script}");
}

fn collect_copy(sandbox: &Sandbox, upper: &Path, copied: Copied) -> Changes {
    let dir = File::open(upper).unwrap();
    let upper = Upper { dir: dir.as_fd(), copied: Some(copied) };
    let rights = Periods::always(WriteRights::everywhere());
    let into = sandbox.beside("changes-of-copy");
    let seen = ringwall_workspace::open_workspace(&sandbox.workspace()).unwrap();
    collect(upper, &seen, &sandbox.hidden, &rights, &into, &Bounds::default()).unwrap()
}

/// What each change comes to, without the numbers of stored contents.
fn meaning(changes: &Changes) -> Vec<String> {
    let entry = |change: &ringwall_workspace::Change| {
        let kind = match (&change.before, &change.after) {
            (None, _) => "new",
            (_, None) => "gone",
            _ => "changed",
        };
        format!("{kind} {}", change.path.as_path().display())
    };
    changes.entries().iter().map(entry).collect()
}

#[test]
fn a_copy_and_an_overlay_come_to_the_same_changes() {
    let scripts = [
        "true",
        "cat a >/dev/null; ls -R >/dev/null",
        "echo new >n; echo changed >a; rm b; mkdir -p p/q; echo 1 >p/q/1",
        "rm -rf dir; mkdir dir; echo z >dir/z",
        "rm -rf dir keep; echo file >dir",
        "rm a; mkdir a; echo in >a/in",
        "mv keep/k keep/k2; rmdir empty",
        "cp -r dir moved; rm -rf dir; mv moved dir",
        "chmod 755 a; chmod 700 dir",
        "ln -s a link; rm dir/sub/y; ln -s ../../a dir/sub/y",
        "echo xx >dir/x; printf x >dir/x",
        "touch a",
    ];
    for script in scripts {
        let mut sandbox = Sandbox::with(&FILES);
        let (upper, copied) = copy(&sandbox);
        run(script, &upper);
        let of_copy = collect_copy(&sandbox, &upper, copied);
        sandbox.run(script);
        assert_eq!(meaning(&of_copy), meaning(&sandbox.collect()), "{script}");
    }
}

#[test]
fn what_the_host_changed_meanwhile_is_no_change_of_the_sandbox() {
    let sandbox = Sandbox::with(&FILES);
    let (upper, copied) = copy(&sandbox);
    fs::write(sandbox.workspace().join("a"), "edited by its owner").unwrap();
    fs::write(sandbox.workspace().join("keep/new"), "made by its owner").unwrap();
    fs::remove_file(sandbox.workspace().join("b")).unwrap();
    run("echo job >dir/x", &upper);
    let changes = collect_copy(&sandbox, &upper, copied);
    assert_eq!(meaning(&changes), ["changed dir/x"]);
}

#[test]
fn a_changed_file_with_its_old_size_and_time_is_noticed() {
    let sandbox = Sandbox::with(&FILES);
    let (upper, copied) = copy(&sandbox);
    run("touch -r a then; echo -n A >a; touch -r then a; rm then", &upper);
    assert_eq!(meaning(&collect_copy(&sandbox, &upper, copied)), ["changed a"]);
}

#[test]
fn what_was_never_copied_is_never_deleted() {
    let mut sandbox = Sandbox::with(&FILES);
    let (upper, copied) = copy(&sandbox);
    fs::write(sandbox.workspace().join("keep/.env"), "secret").unwrap();
    sandbox.hidden = vec![PathBuf::from("keep/.env")];
    run("rm -rf keep", &upper);
    let changes = collect_copy(&sandbox, &upper, copied);
    assert!(!meaning(&changes).iter().any(|line| line.contains(".env")), "{changes:?}");
    assert!(!meaning(&changes).contains(&"gone keep".to_owned()), "its directory stays");
}
