//! `archive` round trips, and archives that try to get out, to lie or to explode.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use ringwall_tool_sdk::{Failure, testing};
use serde_json::{Value, json};
use tar::{EntryType, Header};
use tempfile::TempDir;
use tool_archive::call_in;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }
    folder
}

fn run(root: &Path, input: &Value) -> Result<Value, Failure> {
    let output =
        ringwall_tool_sdk::call_with_json(&input.to_string(), |input| call_in(root, &input))?;
    Ok(serde_json::from_str(&output).expect("it is JSON"))
}

fn extract(root: &Path, archive: &str) -> Result<Value, Failure> {
    run(root, &json!({ "action": "extract", "archive": archive, "dir": "out" }))
}

/// Name, type, and content or the target of a link.
type TarEntry = (&'static str, EntryType, &'static str);

/// Writes names as they are given; the library's own functions refuse hostile ones.
fn hostile_tar(path: &Path, entries: &[TarEntry]) {
    let mut builder = tar::Builder::new(File::create(path).expect("created"));
    for (name, kind, content) in entries {
        let mut header = Header::new_ustar();
        let fields = header.as_ustar_mut().expect("it is ustar");
        fields.name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        if is_link {
            let fields = header.as_ustar_mut().expect("it is ustar");
            fields.linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        let content = if is_link { "" } else { content };
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).expect("appended");
    }
    builder.finish().expect("finished");
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;

#[test]
fn the_examples_give_what_the_manifest_says() {
    let root = folder(&[("project/README.md", "# app\n"), ("project/src/main.py", "print(1)\n")]);
    testing::check(env!("CARGO_MANIFEST_DIR"), |input| call_in(root.path(), &input));
}

#[test]
fn what_is_packed_comes_out_the_same_in_every_format() {
    let long = format!("deep/{}/{}.txt", "d".repeat(90), "f".repeat(90));
    let root = folder(&[("in/a.txt", "hello"), ("in/empty", ""), ("in/b/c", "x"), ("in/ü", "y")]);
    let long_file = root.path().join("in").join(&long);
    fs::create_dir_all(long_file.parent().expect("a parent")).expect("made");
    fs::write(long_file, "long").expect("written");
    std::os::unix::fs::symlink("../a.txt", root.path().join("in/b/link")).expect("linked");
    for name in ["x.tar", "x.tar.gz", "x.zip"] {
        let create = json!({ "action": "create", "archive": name, "dir": "in" });
        let packed = run(root.path(), &create).expect(name);
        let out = format!("out-{name}");
        let input = json!({ "action": "extract", "archive": name, "dir": out });
        let unpacked = run(root.path(), &input).expect(name);
        assert_eq!(packed["entries"], unpacked["entries"], "{name}");
        let read = |path: &str| fs::read_to_string(root.path().join(&out).join(path)).expect(path);
        assert_eq!(
            (read("a.txt"), read("empty"), read("ü")),
            ("hello".into(), "".into(), "y".into())
        );
        assert_eq!((read(&long), read("b/link")), ("long".into(), "hello".into()));
        let again = run(root.path(), &input).expect_err("files are there already");
        assert_eq!(again.code, "conflict");
        let input = json!({ "action": "extract", "archive": name, "dir": out, "overwrite": true });
        run(root.path(), &input).expect(name);
    }
}

#[test]
fn packing_the_same_files_gives_the_same_bytes() {
    let root = folder(&[("in/b", "1"), ("in/a", "2")]);
    for format in ["tar.gz", "zip"] {
        let bytes = |name: &str| {
            let input =
                json!({ "action": "create", "archive": name, "dir": "in", "format": format });
            run(root.path(), &input).expect("packed");
            fs::read(root.path().join(name)).expect("read")
        };
        assert_eq!(bytes(&format!("1.{format}")), bytes(&format!("2.{format}")));
    }
}

#[test]
fn entries_that_lead_out_refuse_the_whole_archive() {
    let hostile: [(&str, &[TarEntry]); 11] = [
        ("parent", &[("../evil", FILE, "x")]),
        ("inner parent", &[("a/../../evil", FILE, "x")]),
        ("absolute", &[("/tmp/evil", FILE, "x")]),
        ("backslash", &[("..\\evil", FILE, "x")]),
        ("link out", &[("l", LINK, "../..")]),
        ("absolute link", &[("l", LINK, "/etc")]),
        ("link by a detour", &[("d", LINK, "."), ("l", LINK, "d/../..")]),
        ("through a link", &[("d/x", FILE, ""), ("l", LINK, "d"), ("l/evil", FILE, "x")]),
        ("link after its content", &[("l/evil", FILE, "x"), ("l", LINK, "d")]),
        ("hard link out", &[("l", EntryType::Link, "/etc/passwd")]),
        ("device", &[("null", EntryType::Char, "")]),
    ];
    for (name, entries) in hostile {
        let root = folder(&[]);
        let good = [("first", FILE, "written before the bad one")];
        let entries: Vec<_> = good.iter().chain(entries).copied().collect();
        hostile_tar(&root.path().join("x.tar"), &entries);
        let failure = extract(root.path(), "x.tar").expect_err(name);
        assert_eq!(failure.code, "refused", "{name}: {failure}");
        assert!(!root.path().join("out").exists(), "{name}: nothing may be written");
    }
}

#[test]
fn zip_entries_that_lead_out_are_refused() {
    for name in ["../evil", "/etc/evil", "a/../../evil"] {
        let root = folder(&[]);
        let file = File::create(root.path().join("x.zip")).expect("created");
        let mut zip = zip::ZipWriter::new(file);
        let plain = zip::write::SimpleFileOptions::default();
        // The writer tidies names, so the right length goes in and the bytes are changed after.
        zip.start_file("x".repeat(name.len()), plain).expect("started");
        zip.finish().expect("finished");
        let bytes = fs::read(root.path().join("x.zip")).expect("read");
        let (from, to) = ("x".repeat(name.len()), name);
        let mut changed = bytes.clone();
        for at in 0..bytes.len() - from.len() {
            if bytes[at..].starts_with(from.as_bytes()) {
                changed[at..at + to.len()].copy_from_slice(to.as_bytes());
            }
        }
        fs::write(root.path().join("x.zip"), changed).expect("written");
        let failure = extract(root.path(), "x.zip").expect_err(name);
        assert_eq!(failure.code, "refused", "{name}: {failure}");
    }
}

#[test]
fn links_and_hard_links_that_stay_inside_are_made() {
    let root = folder(&[]);
    let entries = [("d/f", FILE, "text"), ("d/l", LINK, "../d/f"), ("h", EntryType::Link, "d/f")];
    hostile_tar(&root.path().join("x.tar"), &entries);
    let output = extract(root.path(), "x.tar").expect("extracted");
    assert_eq!(output["entries"][0]["executable"], true);
    for path in ["out/d/l", "out/h"] {
        assert_eq!(fs::read_to_string(root.path().join(path)).expect(path), "text");
    }
}

#[test]
fn nothing_is_written_through_a_link_that_was_there_before() {
    let root = folder(&[("elsewhere/keep", "mine")]);
    fs::create_dir(root.path().join("out")).expect("made");
    std::os::unix::fs::symlink("../elsewhere", root.path().join("out/d")).expect("linked");
    hostile_tar(&root.path().join("x.tar"), &[("d/f", FILE, "x")]);
    assert_eq!(extract(root.path(), "x.tar").expect_err("refused").code, "conflict");
    assert!(!root.path().join("elsewhere/f").exists());
}

#[test]
fn bombs_are_refused_by_size_count_and_ratio() {
    let root = folder(&[]);
    let zeros = |size: u64, name: &str| {
        let file = File::create(root.path().join(name)).expect("created");
        let gzip = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        let mut builder = tar::Builder::new(gzip);
        let mut header = Header::new_gnu();
        header.set_size(size);
        builder.append_data(&mut header, "zeros", io::Read::take(io::repeat(0), size)).expect("ok");
        builder.into_inner().expect("tar").finish().expect("gzip").flush().expect("flushed");
    };
    let limited = |archive: &str, limits: Value| {
        let input = json!({ "action": "extract", "archive": archive, "limits": limits });
        run(root.path(), &input).expect_err(archive)
    };
    zeros(20 << 20, "ratio.tgz");
    let ratio = limited("ratio.tgz", json!({}));
    assert!(ratio.code == "limit" && ratio.message.contains("max_ratio"), "{ratio}");
    let size = limited("ratio.tgz", json!({ "max_bytes": 1000 }));
    assert!(size.code == "limit" && size.message.contains("max_bytes"), "{size}");
    hostile_tar(
        &root.path().join("many.tar"),
        &[("a", FILE, ""), ("b", FILE, ""), ("c", FILE, "")],
    );
    let count = limited("many.tar", json!({ "max_files": 2 }));
    assert!(count.code == "limit" && count.message.contains("max_files"), "{count}");
    assert!(!root.path().join("zeros").exists() && !root.path().join("a").exists());
}

#[test]
fn a_broken_archive_leaves_nothing_behind() {
    let root = folder(&[("in/a", "first"), ("in/b", &"second ".repeat(1000))]);
    let create = json!({ "action": "create", "archive": "x.zip", "dir": "in" });
    run(root.path(), &create).expect("packed");
    let path = root.path().join("x.zip");
    let mut bytes = fs::read(&path).expect("read");
    let middle = bytes.windows(1).len() / 3;
    bytes[middle] ^= 0xff;
    fs::write(&path, &bytes).expect("written");
    extract(root.path(), "x.zip").expect_err("the checksum is wrong");
    assert!(!root.path().join("out").exists());
    fs::write(&path, "no archive at all").expect("written");
    assert_eq!(extract(root.path(), "x.zip").expect_err("refused").code, "bad-input");
}

#[test]
fn paths_of_the_call_must_stay_inside_too() {
    let root = folder(&[]);
    for input in [
        json!({ "action": "list", "archive": "../x.tar" }),
        json!({ "action": "create", "archive": "x.tar", "dir": ".." }),
        json!({ "action": "create", "archive": "x.tar", "only": ["../y"] }),
    ] {
        assert_eq!(run(root.path(), &input).expect_err("refused").code, "bad-input", "{input}");
    }
}
