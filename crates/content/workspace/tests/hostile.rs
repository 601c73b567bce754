//! Upper directories as no overlay would write them: made by hand to fool the reader.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use ringwall_spec::WriteRights;
use ringwall_workspace::{ApplyError, Bounds, CollectError, Periods};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mkfifoat, mknodat};
use support::{Sandbox, is_root, status};

#[test]
fn links_are_taken_as_text_and_never_followed() {
    let mut sandbox = Sandbox::with(&[("dir/inner", "host")]);
    let outside = sandbox.beside("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "s3cret").unwrap();
    symlink(&outside, sandbox.upper().join("dir")).unwrap();
    symlink("/etc/passwd", sandbox.upper().join("passwd")).unwrap();
    symlink("/proc/self/root", sandbox.upper().join("root")).unwrap();
    let changes = sandbox.collect();
    assert_eq!(
        status(&changes),
        ["M  dir [link]", "D  dir/inner", "A  passwd [link]", "A  root [link]"]
    );
    let before = sandbox.tree();
    let error = sandbox.apply(&changes).unwrap_err();
    assert!(matches!(&error, ApplyError::LinksOutside(paths) if paths.0.len() == 3), "{error}");
    assert_eq!(sandbox.tree(), before);
}

#[test]
fn a_link_chain_cannot_step_out_behind_another_link() {
    let mut sandbox = Sandbox::with(&[("a/b/x", "")]);
    // `up` is the workspace itself, so `a/b/up/..` is its parent, though the text stays inside.
    fs::create_dir_all(sandbox.upper().join("a/b")).unwrap();
    symlink("../..", sandbox.upper().join("a/b/up")).unwrap();
    symlink("a/b/up/../x", sandbox.upper().join("out")).unwrap();
    let changes = sandbox.collect();
    let error = sandbox.apply(&changes).unwrap_err().to_string();
    assert!(error.contains("out would be a link out of the workspace"), "{error}");
}

#[test]
fn a_link_through_the_users_own_link_to_elsewhere_is_refused() {
    let mut sandbox = Sandbox::with(&[]);
    symlink("/etc", sandbox.workspace().join("mine")).unwrap();
    symlink("mine/passwd", sandbox.upper().join("theirs")).unwrap();
    let changes = sandbox.collect();
    assert!(matches!(sandbox.apply(&changes), Err(ApplyError::LinksOutside(_))));
}

#[test]
fn hard_links_become_files_of_their_own() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.upper_files(&[("one", "same")]);
    fs::hard_link(sandbox.upper().join("one"), sandbox.upper().join("two")).unwrap();
    let changes = sandbox.collect();
    sandbox.apply(&changes).unwrap();
    fs::write(sandbox.workspace().join("one"), "changed").unwrap();
    assert_eq!(fs::read_to_string(sandbox.workspace().join("two")).unwrap(), "same");
    assert_eq!(fs::read_dir(sandbox.beside("changes-1/blobs")).unwrap().count(), 1);
}

#[test]
fn fifos_sockets_and_devices_are_listed_and_never_opened() {
    let mut sandbox = Sandbox::with(&[("was-a-file", "x")]);
    let upper = sandbox.upper();
    for name in ["fifo", "was-a-file"] {
        mkfifoat(CWD, upper.join(name), Mode::RUSR).unwrap();
    }
    let _socket = UnixListener::bind(upper.join("socket")).unwrap();
    let mut expected = vec![
        "!  fifo (fifo, not taken over)",
        "!  socket (socket, not taken over)",
        "!  was-a-file (fifo, not taken over)",
    ];
    if is_root() {
        let device = |name: &str, kind, major, minor| {
            mknodat(CWD, upper.join(name), kind, Mode::RUSR, makedev(major, minor))
        };
        // 5:1 is the console, 1:3 the null device; a root without CAP_MKNOD cannot make them.
        if device("char", FileType::CharacterDevice, 5, 1).is_ok() {
            device("block", FileType::BlockDevice, 7, 0).unwrap();
            expected.splice(
                0..0,
                ["!  block (device, not taken over)", "!  char (device, not taken over)"],
            );
        }
    }
    let changes = sandbox.collect();
    assert_eq!(status(&changes), expected);
    assert_eq!(changes.summary(), Default::default());
}

#[test]
fn forged_overlay_attributes_are_refused() {
    let mut sandbox = Sandbox::with(&[("secret/key", "k"), ("moved/", "")]);
    sandbox.upper_files(&[("moved/", ""), ("odd/", ""), ("meta", ""), ("white", "")]);
    sandbox.attribute("moved", "user.overlay.redirect", "/secret");
    sandbox.attribute("odd", "user.overlay.opaque", "maybe");
    sandbox.attribute("meta", "user.overlay.metacopy", "");
    sandbox.attribute("white", "user.overlay.whiteout", "");
    let why = "(carries overlay attributes, not taken over)";
    assert_eq!(
        status(&sandbox.collect()),
        ["meta", "moved", "odd", "white"].map(|name| format!("!  {name} {why}"))
    );
}

#[test]
fn whiteouts_by_attribute_count_where_their_directory_says_so() {
    let mut sandbox = Sandbox::with(&[("d/a", "1"), ("d/b", "2")]);
    sandbox.upper_files(&[("d/a", "")]);
    sandbox.attribute("d", "user.overlay.opaque", "x");
    sandbox.attribute("d/a", "user.overlay.whiteout", "");
    assert_eq!(status(&sandbox.collect()), ["D  d/a"]);
}

#[test]
fn whiteouts_of_nothing_are_nothing() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.whiteout("never/was");
    assert_eq!(status(&sandbox.collect()), ["A  never/"]);
}

#[test]
fn too_many_files_are_refused_as_a_whole() {
    let mut sandbox = Sandbox::with(&[]);
    for n in 0..200 {
        fs::write(sandbox.upper().join(n.to_string()), "").unwrap();
    }
    let bounds = Bounds { max_entries: 199, ..Bounds::default() };
    let error = sandbox.try_collect(&bounds).unwrap_err();
    assert!(matches!(error, CollectError::TooManyEntries { max: 199 }), "{error}");
    let bounds = Bounds { max_entries: 200, ..Bounds::default() };
    assert_eq!(sandbox.try_collect(&bounds).unwrap().entries().len(), 200);
}

#[test]
fn long_paths_count_as_several_entries() {
    let mut sandbox = Sandbox::with(&[]);
    let parent = sandbox.upper().join("n".repeat(255));
    fs::create_dir(&parent).unwrap();
    for n in 0..10 {
        fs::write(parent.join(format!("{n}{}", "x".repeat(250))), "").unwrap();
    }
    let bounds = Bounds { max_entries: 20, ..Bounds::default() };
    assert!(matches!(sandbox.try_collect(&bounds), Err(CollectError::TooManyEntries { .. })));
    let bounds = Bounds { max_entries: 21, ..Bounds::default() };
    assert!(sandbox.try_collect(&bounds).is_ok());
}

#[test]
fn deleting_a_host_directory_counts_what_was_in_it() {
    let mut sandbox = Sandbox::with(&[("d/a", ""), ("d/b", ""), ("d/c", "")]);
    sandbox.whiteout("d");
    let bounds = Bounds { max_entries: 3, ..Bounds::default() };
    assert!(matches!(sandbox.try_collect(&bounds), Err(CollectError::TooManyEntries { .. })));
}

#[test]
fn ten_thousand_files_are_read() {
    let mut sandbox = Sandbox::with(&[]);
    for n in 0..10_000 {
        fs::write(sandbox.upper().join(n.to_string()), "").unwrap();
    }
    assert_eq!(sandbox.collect().summary().added, 10_000);
}

#[test]
fn deep_nesting_ends_at_its_bound() {
    let mut sandbox = Sandbox::with(&[]);
    // Deeper than any path can be named at once, so built step by step.
    let mut dir = rustix::fs::open(sandbox.upper(), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let changes = sandbox.collect();
    assert_eq!(changes.entries().len(), 128);
    assert_eq!(changes.refused().len(), 1);
    assert!(status(&changes).last().unwrap().ends_with("(nested too deeply, not taken over)"));
    let removed = std::process::Command::new("rm").arg("-rf").arg(sandbox.upper()).status();
    assert!(removed.unwrap().success());
}

#[test]
fn a_huge_sparse_file_is_listed_and_the_rest_is_kept() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.upper_files(&[("huge", ""), ("small", "x")]);
    let huge = fs::OpenOptions::new().write(true).open(sandbox.upper().join("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let changes = sandbox.collect();
    assert_eq!(status(&changes), ["A  small", "!  huge (too large, not taken over)"]);
}

#[test]
fn too_many_bytes_are_refused_as_a_whole() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.upper_files(&[("a", "12345"), ("b", "12345")]);
    let bounds = Bounds { max_total_bytes: 9, ..Bounds::default() };
    let error = sandbox.try_collect(&bounds).unwrap_err();
    assert!(matches!(error, CollectError::TooManyBytes { max: 9 }), "{error}");
}

#[test]
fn a_directory_that_is_not_fresh_is_not_written_to() {
    let sandbox = Sandbox::with(&[]);
    fs::create_dir(sandbox.beside("changes-1")).unwrap();
    fs::write(sandbox.beside("changes-1/mine"), "x").unwrap();
    let upper = fs::File::open(sandbox.upper()).unwrap();
    let error = ringwall_workspace::collect(
        std::os::fd::AsFd::as_fd(&upper),
        &ringwall_workspace::open_workspace(&sandbox.workspace()).unwrap(),
        &[],
        &Periods::always(WriteRights::everywhere()),
        &sandbox.beside("changes-1"),
        &Bounds::default(),
    )
    .unwrap_err();
    assert!(matches!(error, CollectError::StoreNotEmpty { .. }), "{error}");
}

#[test]
fn changes_where_the_sandbox_was_never_allowed_to_write_are_refused() {
    let mut sandbox = Sandbox::with(&[("src/main.rs", "host"), ("docs/plan.md", "host")]);
    let writable = vec!["docs".into(), "new/deep".into()];
    sandbox.rights = WriteRights { writable, read_only: Vec::new() };
    sandbox.upper_files(&[
        ("src/main.rs", "changed"),
        ("docs/plan.md", "changed"),
        ("new/deep/file", "made"),
        ("new/beside", "made"),
    ]);
    let changes = sandbox.collect();
    let paths: Vec<_> =
        changes.entries().iter().map(|it| it.path.as_path().to_str().unwrap()).collect();
    assert_eq!(paths, ["docs/plan.md", "new", "new/deep", "new/deep/file"]);
    let refused: Vec<_> = changes.refused().iter().map(|it| it.path.as_path()).collect();
    assert_eq!(refused, [Path::new("new/beside"), Path::new("src/main.rs")]);
}

#[test]
fn the_names_that_apply_itself_uses_are_refused() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.upper_files(&[(".ringwall-apply-0/1", "x"), (".Ringwall-Apply-x", "y")]);
    let changes = sandbox.collect();
    assert!(changes.is_empty());
    assert_eq!(changes.refused().len(), 2);
}

#[test]
fn a_directory_swapped_for_a_link_while_it_is_read_leads_nowhere() {
    let mut sandbox = Sandbox::with(&[]);
    let upper = sandbox.upper();
    let outside = sandbox.beside("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "OUTSIDE").unwrap();
    fs::create_dir(upper.join("d")).unwrap();
    fs::write(upper.join("d/file"), "inside").unwrap();
    symlink(&outside, upper.join("l")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, upper.join("d"), CWD, upper.join("l"), flags)
                    .unwrap();
            }
        });
        for _ in 0..60 {
            // The diff varies; it must never show the content from outside.
            let changes = sandbox.collect();
            let mut diff = Vec::new();
            changes.write_diff(&sandbox.workspace(), &Default::default(), &mut diff).unwrap();
            assert!(!String::from_utf8_lossy(&diff).contains("OUTSIDE"));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_name_of_the_greatest_length_and_a_path_beyond_it_are_handled() {
    let mut sandbox = Sandbox::with(&[]);
    let longest = "n".repeat(255);
    let mut path = sandbox.upper();
    for _ in 0..14 {
        path.push(&longest);
    }
    fs::create_dir_all(&path).unwrap();
    let odd = OsStr::from_bytes(b"\xff\xfe");
    fs::write(sandbox.upper().join(Path::new(odd)), "x").unwrap();
    let changes = sandbox.collect();
    assert_eq!(changes.summary().added, 15);
    sandbox.apply(&changes).unwrap();
}
