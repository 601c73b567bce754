//! What `collect` makes of upper directories that a real overlay filled.

mod support;

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;

use ringwall_workspace::{
    Before, Bounds, ChangeKind, HideRules, find_hidden, hidden_parents, plant_whiteouts,
};
use support::{Sandbox, set_mode, status};

#[test]
fn a_run_that_changes_nothing_leaves_no_changes() {
    let mut sandbox = Sandbox::with(&[("a", "1"), ("dir/b", "2")]);
    // Every file is copied up, by a time stamp or by being opened for writing.
    sandbox.run("touch a dir dir/b; : >> a; chmod 600 a; chmod 644 a");
    assert!(sandbox.upper().join("dir/b").exists());
    assert!(sandbox.collect().is_empty());
}

#[test]
fn every_kind_of_change_is_told_from_the_others() {
    let mut sandbox =
        Sandbox::with(&[("keep", "k"), ("edit", "old"), ("gone", "g"), ("mode", "m")]);
    symlink("keep", sandbox.workspace().join("link")).unwrap();
    sandbox.run(
        "echo new > edit; rm gone; chmod 755 mode; mkdir -p new/dir; echo x > new/dir/file; \
         ln -sf edit link; ln -s new other",
    );
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        [
            "M  edit",
            "D  gone",
            "M  link [link]",
            "M  mode (mode 644 -> 755) [new executable]",
            "A  new/",
            "A  new/dir/",
            "A  new/dir/file",
            "A  other [link]",
        ]
    );
    let summary = changes.summary();
    assert_eq!((summary.added, summary.modified, summary.deleted), (4, 3, 1));
}

#[test]
fn a_removed_directory_is_a_deletion_of_everything_in_it() {
    let mut sandbox = Sandbox::with(&[("d/a", "1"), ("d/sub/b", "2"), ("e", "3")]);
    sandbox.run("rm -r d");
    assert_eq!(status(&sandbox.collect()), ["D  d/", "D  d/a", "D  d/sub/", "D  d/sub/b"]);
}

#[test]
fn a_directory_made_anew_is_compared_with_the_old_one() {
    let mut sandbox =
        Sandbox::with(&[("d/a", "1"), ("d/b", "2"), ("d/sub/c", "3"), ("d/sub/d", "4")]);
    sandbox.run("rm -r d; mkdir -p d/sub; echo -n 1 > d/a; echo -n 4 > d/sub/d; echo n > d/new");
    let opaque =
        rustix::fs::getxattr(sandbox.upper().join("d"), "user.overlay.opaque", &mut [0u8; 8][..]);
    assert!(opaque.is_ok(), "overlayfs marked the directory opaque");
    assert_eq!(status(&sandbox.collect()), ["D  d/b", "A  d/new", "D  d/sub/c"]);
}

#[test]
fn a_path_may_change_its_kind() {
    let mut sandbox = Sandbox::with(&[("file", "f"), ("dir/a", "1"), ("dir/sub/b", "2")]);
    sandbox.run("rm file; mkdir file; echo x > file/in; rm -r dir; echo y > dir");
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        ["M  dir", "D  dir/a", "D  dir/sub/", "D  dir/sub/b", "M  file/", "A  file/in"]
    );
}

#[test]
fn a_renamed_directory_is_a_deletion_and_an_addition() {
    let mut sandbox = Sandbox::with(&[("old/a", "1"), ("old/b", "2")]);
    sandbox.run("mv old new");
    let lines = status(&sandbox.collect());
    assert_eq!(lines, ["A  new/", "A  new/a", "A  new/b", "D  old/", "D  old/a", "D  old/b"]);
}

#[test]
fn special_bits_are_removed_and_noted() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("echo x > tool; chmod 4755 tool; mkdir d; chmod 1777 d");
    let changes = sandbox.collect();
    let removed = "(setuid, setgid or sticky bit removed)";
    assert_eq!(
        status(&changes),
        [format!("A  d/ {removed}"), format!("A  tool [new executable] {removed}")]
    );
    sandbox.apply(&changes).unwrap();
    assert_eq!(sandbox.tree()[std::path::Path::new("tool")], "file 755 \"x\\n\"");
}

#[test]
fn hidden_files_are_not_seen_not_deleted_and_do_not_fall_with_their_directory() {
    let mut sandbox = Sandbox::with(&[
        (".env", "TOKEN=1"),
        ("conf/.env", "TOKEN=2"),
        ("conf/deep/.env", "TOKEN=3"),
        ("conf/app.toml", "a"),
        ("conf/deep/b", "b"),
        (".ssh/id", "key"),
    ]);
    set_mode(&sandbox.workspace().join("conf"), 0o750);
    let root = File::open(sandbox.workspace()).unwrap();
    let hidden = find_hidden(root.as_fd(), &HideRules::default()).unwrap();
    let upper = File::open(sandbox.upper()).unwrap();
    assert_eq!(
        hidden_parents(root.as_fd(), &hidden).unwrap(),
        [("conf".into(), 0o750), ("conf/deep".into(), 0o755)]
    );
    plant_whiteouts(upper.as_fd(), root.as_fd(), &hidden, None).unwrap();
    sandbox.hidden = hidden;
    sandbox.run("test -z \"$(find . -name .env -o -name .ssh)\"\n stat -c %a conf | grep -qx 750");
    assert!(sandbox.collect().is_empty());

    sandbox.run("rm -r conf");
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        [
            "D  conf/app.toml",
            "D  conf/deep/b",
            "!  conf (kept, it holds files hidden from the sandbox)",
        ]
    );
    sandbox.apply(&changes).unwrap();
    for kept in [".env", "conf/.env", "conf/deep/.env", ".ssh/id"] {
        assert!(sandbox.workspace().join(kept).exists(), "{kept}");
    }
}

#[test]
fn a_file_written_over_a_hidden_one_is_marked_and_never_hashed_or_shown() {
    let mut sandbox = Sandbox::with(&[(".env", "TOKEN=1"), (".ssh/id", "key")]);
    sandbox.hidden = vec![".env".into(), ".ssh".into()];
    sandbox.whiteout(".env");
    sandbox.whiteout(".ssh");
    sandbox.run("echo A=2 > .env; mkdir .ssh; echo k > .ssh/id; echo c > .ssh/config");
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        ["M  .env [protected]", "A  .ssh/config [protected]", "M  .ssh/id [protected]"]
    );
    assert!(changes.entries().iter().all(|change| change.hidden));
    let manifest = fs::read_to_string(sandbox.beside("changes-1/manifest.json")).unwrap();
    assert!(manifest.contains("\"sha256\":null"));
    let mut diff = Vec::new();
    changes.write_diff(&sandbox.workspace(), &Default::default(), &mut diff).unwrap();
    let diff = String::from_utf8(diff).unwrap();
    assert!(!diff.contains("TOKEN") && !diff.contains("key"), "{diff}");
    sandbox.apply(&changes).unwrap_err();
}

#[test]
fn a_file_in_the_place_of_a_directory_with_hidden_files_is_refused() {
    let mut sandbox = Sandbox::with(&[("conf/.env", "TOKEN=2"), ("conf/a", "a")]);
    sandbox.hidden = vec!["conf/.env".into()];
    sandbox.whiteout("conf/.env");
    sandbox.run("rm -r conf; echo mine > conf");
    let changes = sandbox.collect();
    assert_eq!(status(&changes), ["!  conf (would remove hidden files, not taken over)"]);
}

#[test]
fn names_of_any_bytes_are_kept_and_shown_escaped() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run(
        "echo 1 > \"$(printf 'new\\nline')\"; echo 2 > \"$(printf 'esc\\033[31m')\"; \
                 echo 3 > \"$(printf 'bad\\377')\"; echo 4 > 'back\\slash'",
    );
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        [r#"A  "back\\slash""#, r#"A  "bad\377""#, r#"A  "esc\033[31m""#, r#"A  "new\nline""#]
    );
    assert!(changes.entries().iter().all(|change| change.kind() == ChangeKind::Added));
    sandbox.apply(&changes).unwrap();
    assert_eq!(sandbox.tree(), support::tree(&sandbox.upper()));
}

#[test]
fn files_without_permissions_are_read_all_the_same() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("mkdir d; echo x > d/f; chmod 0 d/f; mkdir d/e; echo y > d/e/g; chmod 0 d/e d");
    let changes = sandbox.collect();
    assert_eq!(status(&changes), ["A  d/", "A  d/e/", "A  d/e/g", "A  d/f"]);
    let mode = fs::metadata(sandbox.upper().join("d")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0, "left as it was");
    sandbox.apply(&changes).unwrap();
    let applied = fs::metadata(sandbox.workspace().join("d")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&applied) & 0o777, 0);
    // So that the directories can be removed again by an ordinary user.
    for path in [sandbox.workspace(), sandbox.upper()] {
        set_mode(&path.join("d"), 0o700);
        set_mode(&path.join("d/e"), 0o700);
    }
}

#[test]
fn what_was_only_deleted_is_not_read() {
    let mut sandbox = Sandbox::with(&[("d/large", "content"), ("gone", "content"), ("kept", "1")]);
    sandbox.run("rm -r d gone; echo 2 > kept");
    let changes = sandbox.collect();
    assert_eq!(status(&changes), ["D  d/", "D  d/large", "D  gone", "M  kept"]);
    let digests: Vec<bool> = changes
        .entries()
        .iter()
        .filter_map(|change| match &change.before {
            Some(Before::File { sha256, .. }) => Some(sha256.is_some()),
            _ => None,
        })
        .collect();
    assert_eq!(digests, [false, false, true]);
    fs::write(sandbox.workspace().join("gone"), "changed since").unwrap();
    sandbox.apply(&changes).unwrap_err();
    sandbox.apply_with(&changes, &["d"], &Default::default()).unwrap();
    assert!(!sandbox.workspace().join("d").exists());
}

#[test]
fn names_of_one_file_take_no_more_than_the_disk_limit_when_written_out() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("head -c 4000 /dev/zero > a; for n in 1 2 3 4; do ln a b$n; done; echo x > z");
    let bounds = Bounds { max_total_bytes: 10_000, ..Bounds::default() };
    let changes = sandbox.try_collect(&bounds).unwrap();
    let link = "(was a hard link, now a file of its own)";
    let refused = "one more hard link than the disk limit has room for, not taken over";
    let lines = status(&changes);
    assert_eq!(lines[..3], [format!("A  a {link}"), format!("A  b1 {link}"), "A  z".to_owned()]);
    let gone = lines.iter().filter(|line| line.contains(refused)).count();
    assert_eq!(gone, 3, "{lines:?}");
    sandbox.apply(&changes).unwrap();
    let written: u64 = ["a", "b1", "z"]
        .map(|name| fs::metadata(sandbox.workspace().join(name)).unwrap().len())
        .iter()
        .sum();
    assert!(written <= 10_000, "{written}");
    assert!(!sandbox.workspace().join("b2").exists());
}
