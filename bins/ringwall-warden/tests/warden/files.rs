//! File operations, on a directory of the test.

use std::ffi::OsStr;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ringwall_wire::{ErrorCode, FileKind, Parents, RemoveWhat, WriteHow};
use tempfile::TempDir;

use crate::harness::{RunningWarden, code};

struct Files {
    warden: RunningWarden,
    directory: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { warden: RunningWarden::start(), directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &[u8]) -> Vec<u8> {
        [self.directory.path().as_os_str().as_bytes(), b"/", name].concat()
    }

    fn host(&self, name: &[u8]) -> std::path::PathBuf {
        Path::new(OsStr::from_bytes(&self.path(name))).to_owned()
    }

    fn write(&self, name: &[u8], how: WriteHow, content: &[u8]) -> Result<u64, ErrorCode> {
        let mut source = Cursor::new(content);
        let written = self.warden.client.write_file(&self.path(name), 0o640, how, &mut source);
        written.map_err(|error| code::<()>(Err(error)))
    }

    fn read(&self, name: &[u8], max: u64) -> Result<Vec<u8>, ErrorCode> {
        let mut sink = Vec::new();
        let read = self.warden.client.read_file(&self.path(name), &mut sink, max);
        read.map(|_| sink).map_err(|error| code::<()>(Err(error)))
    }
}

#[test]
fn content_is_written_and_read_back() {
    let files = Files::new();
    let large: Vec<u8> = (0..5 << 20).map(|n: u32| (n % 253) as u8).collect();
    assert_eq!(files.write(b"large", WriteHow::CreateNew, &large), Ok(large.len() as u64));
    assert!(std::fs::read(files.host(b"large")).unwrap() == large);
    assert!(files.read(b"large", u64::MAX).unwrap() == large);
    let mode = std::fs::metadata(files.host(b"large")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert_eq!(files.write(b"empty", WriteHow::CreateNew, b""), Ok(0));
    assert_eq!(files.read(b"empty", 100), Ok(Vec::new()));
}

#[test]
fn the_three_ways_to_write_differ() {
    let files = Files::new();
    assert_eq!(files.write(b"f", WriteHow::CreateNew, b"one"), Ok(3));
    assert_eq!(files.write(b"f", WriteHow::CreateNew, b"two"), Err(ErrorCode::Invalid));
    assert_eq!(files.write(b"f", WriteHow::Append, b"-two"), Ok(4));
    assert_eq!(files.read(b"f", 100), Ok(b"one-two".to_vec()));
    assert_eq!(files.write(b"f", WriteHow::Replace, b"3"), Ok(1));
    assert_eq!(files.read(b"f", 100), Ok(b"3".to_vec()));
}

#[test]
fn what_is_no_ordinary_file_is_not_opened_for_content() {
    let files = Files::new();
    std::fs::create_dir(files.host(b"dir")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        files.host(b"fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    assert_eq!(files.read(b"fifo", 100), Err(ErrorCode::Invalid));
    assert_eq!(files.read(b"dir", 100), Err(ErrorCode::Invalid));
    assert_eq!(files.read(b"missing", 100), Err(ErrorCode::NotFound));
    assert_eq!(files.write(b"dir", WriteHow::Replace, b"x"), Err(ErrorCode::Invalid));
    assert_eq!(files.write(b"missing/x", WriteHow::Replace, b"x"), Err(ErrorCode::NotFound));
}

#[test]
fn a_planted_link_does_not_lead_into_the_warden_itself() {
    let files = Files::new();
    for (name, target) in [("mem", "/proc/self/mem"), ("comm", "/proc/self/comm")] {
        symlink(target, files.host(name.as_bytes())).unwrap();
        // The kernel already says no to all but root.
        let refusal = files.write(name.as_bytes(), WriteHow::Append, b"x").unwrap_err();
        assert!(
            matches!(refusal, ErrorCode::Invalid | ErrorCode::NotPermitted),
            "{name}: {refusal:?}"
        );
    }
    symlink("/proc/self/fd/3", files.host(b"fd")).unwrap();
    assert_eq!(files.read(b"fd", 100), Err(ErrorCode::Invalid));
    symlink("/proc/self/exe", files.host(b"exe")).unwrap();
    assert_eq!(files.read(b"exe", 100), Err(ErrorCode::Invalid));
}

#[test]
fn names_need_not_be_text() {
    let files = Files::new();
    let name = b"\xff\xfe \n'";
    assert_eq!(files.write(name, WriteHow::CreateNew, b"x"), Ok(1));
    let entries = files.warden.client.list(&files.path(b"")).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].name, name);
    assert_eq!((entries[0].stat.kind, entries[0].stat.size), (FileKind::File, 1));
    files.warden.client.rename(&files.path(name), &files.path(b"\xfd")).unwrap();
    assert_eq!(files.read(b"\xfd", 100), Ok(b"x".to_vec()));
}

#[test]
fn a_large_directory_is_listed_whole() {
    let files = Files::new();
    for number in 0..5000 {
        std::fs::write(files.host(format!("file-{number:05}").as_bytes()), "").unwrap();
    }
    let mut names: Vec<_> =
        files.warden.client.list(&files.path(b".")).unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    assert_eq!(names.len(), 5000);
    assert_eq!(names[4999], b"file-04999");
    assert_eq!(code(files.warden.client.list(&files.path(b"missing"))), ErrorCode::NotFound);
    assert_eq!(code(files.warden.client.list(&files.path(b"file-00000"))), ErrorCode::Invalid);
}

#[test]
fn stat_does_not_follow_a_link() {
    let files = Files::new();
    std::fs::write(files.host(b"f"), "12345").unwrap();
    symlink("f", files.host(b"link")).unwrap();
    let stat = |name| files.warden.client.stat(&files.path(name));
    assert_eq!(stat(b"link").unwrap().kind, FileKind::Symlink);
    let file = stat(b"f").unwrap();
    assert_eq!((file.kind, file.size), (FileKind::File, 5));
    assert!(file.modified_seconds > 0);
    assert_eq!(stat(b".").unwrap().kind, FileKind::Directory);
    assert_eq!(code(stat(b"missing")), ErrorCode::NotFound);
    assert_eq!(code(files.warden.client.stat(b"")), ErrorCode::Invalid);
    assert_eq!(code(files.warden.client.stat(b"a\0b")), ErrorCode::Invalid);
}

#[test]
fn directories_are_made_with_and_without_parents() {
    let files = Files::new();
    let make = |name, parents| files.warden.client.make_dir(&files.path(name), 0o700, parents);
    assert_eq!(code(make(b"a/b/c", Parents::MustExist)), ErrorCode::NotFound);
    make(b"a/b/c", Parents::Create).unwrap();
    make(b"a/b/c", Parents::Create).unwrap();
    assert_eq!(code(make(b"a/b/c", Parents::MustExist)), ErrorCode::Invalid);
    assert!(files.host(b"a/b/c").is_dir());
    std::fs::write(files.host(b"file"), "").unwrap();
    assert_eq!(code(make(b"file", Parents::Create)), ErrorCode::Invalid);
    assert_eq!(code(make(b"file/x", Parents::Create)), ErrorCode::Invalid);
}

#[test]
fn a_tree_is_removed_but_nothing_that_links_lead_to() {
    let files = Files::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("precious"), "x").unwrap();
    std::fs::create_dir_all(files.host(b"tree/a/b")).unwrap();
    for number in 0..3000 {
        std::fs::write(files.host(format!("tree/a/{number}").as_bytes()), "").unwrap();
    }
    symlink(outside.path(), files.host(b"tree/a/b/link")).unwrap();
    symlink(outside.path(), files.host(b"top-link")).unwrap();
    let remove = |name, what| files.warden.client.remove(&files.path(name), what);
    assert_eq!(code(remove(b"tree", RemoveWhat::Single)), ErrorCode::Invalid);
    remove(b"tree", RemoveWhat::WholeTree).unwrap();
    remove(b"top-link", RemoveWhat::WholeTree).unwrap();
    assert!(!files.host(b"tree").exists());
    assert!(outside.path().join("precious").exists());
    assert_eq!(code(remove(b"tree", RemoveWhat::WholeTree)), ErrorCode::NotFound);
}

#[test]
fn a_tree_deeper_than_any_path_or_descriptor_table_is_removed() {
    let files = Files::new();
    let mut current = rustix::fs::open(
        files.directory.path(),
        rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&current, "deep", rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        current = rustix::fs::openat(&current, "deep", flags, rustix::fs::Mode::empty()).unwrap();
    }
    files.warden.client.remove(&files.path(b"deep"), RemoveWhat::WholeTree).unwrap();
    assert!(!files.host(b"deep").exists());
}

#[test]
fn the_root_and_names_with_dots_are_never_removed() {
    let files = Files::new();
    for path in [&b"/"[..], b"//", b".", b"..", b"", b"/tmp/.", b"/tmp/.."] {
        let refused = files.warden.client.remove(path, RemoveWhat::WholeTree);
        assert_eq!(code(refused), ErrorCode::Invalid, "{path:?}");
    }
}

#[test]
fn set_user_id_bits_from_outside_are_dropped() {
    let files = Files::new();
    let mut source = Cursor::new(b"x");
    let client = &files.warden.client;
    client.write_file(&files.path(b"f"), 0o6755, WriteHow::CreateNew, &mut source).unwrap();
    client.make_dir(&files.path(b"d"), 0o7777, Parents::MustExist).unwrap();
    assert_eq!(client.stat(&files.path(b"f")).unwrap().mode, 0o755);
    assert_eq!(client.stat(&files.path(b"d")).unwrap().mode, 0o777);
}
