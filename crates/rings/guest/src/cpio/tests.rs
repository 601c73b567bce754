//! Archives read back, by a reader of our own and by the system's where there is one.

use std::process::{Command, Stdio};

use super::*;

/// Mode, device and content of one entry.
type Entry = (String, u32, (u32, u32), Vec<u8>);

fn sample() -> Vec<u8> {
    let mut archive = Archive::new(Vec::new());
    archive.directory("dev", 0o755).unwrap();
    archive.character_device("dev/console", 0o600, (5, 1)).unwrap();
    archive.file("/init", 0o755, 5, &b"12345"[..]).unwrap();
    archive.file("empty", 0o444, 0, &b""[..]).unwrap();
    archive.finish().unwrap()
}

fn read_back(bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut at = 0;
    loop {
        let header = std::str::from_utf8(&bytes[at..at + 110]).unwrap();
        assert_eq!(&header[..6], "070701");
        let field =
            |index: usize| u32::from_str_radix(&header[6 + 8 * index..14 + 8 * index], 16).unwrap();
        let (size, name_size) = (field(6) as usize, field(11) as usize);
        let name = &bytes[at + 110..at + 110 + name_size - 1];
        let name = String::from_utf8(name.to_vec()).unwrap();
        at = (at + 110 + name_size).next_multiple_of(4);
        if name == TRAILER {
            assert_eq!(at, bytes.len());
            return entries;
        }
        entries.push((name, field(1), (field(9), field(10)), bytes[at..at + size].to_vec()));
        at = (at + size).next_multiple_of(4);
    }
}

#[test]
fn an_archive_says_what_was_put_into_it() {
    let entry = |name: &str, mode, device, content: &[u8]| {
        (name.to_owned(), mode, device, content.to_vec())
    };
    assert_eq!(
        read_back(&sample()),
        [
            entry("dev", 0o040_755, (0, 0), b""),
            entry("dev/console", 0o020_600, (5, 1), b""),
            entry("init", 0o100_755, (0, 0), b"12345"),
            entry("empty", 0o100_444, (0, 0), b""),
        ]
    );
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    assert_eq!(sample(), sample());
}

#[test]
fn the_system_s_cpio_lists_the_same_entries() {
    let reader = Command::new("cpio")
        .args(["-t", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut reader) = reader else {
        eprintln!("not tested here: cpio is not installed");
        return;
    };
    reader.stdin.take().unwrap().write_all(&sample()).unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "dev\ndev/console\ninit\nempty\n");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_noticed() {
    for size in [4, 6] {
        let error = Archive::new(Vec::new()).file("x", 0o644, size, &b"12345"[..]).unwrap_err();
        assert!(error.to_string().contains("changed"), "{error}");
    }
}

#[test]
fn a_file_without_a_name_is_refused() {
    for name in ["", "/", "a\0b"] {
        assert!(Archive::new(Vec::new()).directory(name, 0o755).is_err(), "{name:?}");
    }
}
