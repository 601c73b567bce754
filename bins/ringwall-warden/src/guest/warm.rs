//! Reads ahead, in what is to become a template, what every guest of it reads first.
//!
//! Nothing is executed and nothing is decided here: a file that is not there is not read. The boot id
//! is left alone: the kernel makes it up when it is first asked for, and each guest has to have its
//! own.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What most first commands consist of.
const PROGRAMS: [&str; 6] =
    ["/bin/sh", "/bin/true", "/bin/cat", "/usr/bin/env", "/usr/bin/sh", "/bin/busybox"];
/// Where dynamic programs find the rest of themselves.
const LIBRARIES: [&str; 5] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/lib/ld-musl-x86_64.so.1",
    "/etc/ld.so.cache",
];
/// More than this of the image is nobody's first command, and each template has to hold it.
const MOST_BYTES: u64 = 8 << 20;

pub(super) fn up() {
    ringwall_facts::warm_up();
    let mut left = MOST_BYTES;
    let mut read: Vec<PathBuf> = Vec::new();
    for path in PROGRAMS.iter().chain(&LIBRARIES) {
        // Many of them are one program under several names.
        if let Ok(real) = fs::canonicalize(path)
            && !read.contains(&real)
        {
            left -= read_file(&real, left).unwrap_or(0);
            read.push(real);
        }
    }
}

/// Gives how much there was, at most `most`.
fn read_file(path: &Path, most: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(0);
    }
    io::copy(&mut file.take(most), &mut io::sink())
}
