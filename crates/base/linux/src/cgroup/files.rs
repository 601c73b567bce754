//! Control files: small, read and written in one system call each.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::CgroupError;

/// No control file that we read by value is longer than this; cgroup.procs is read in pieces.
const LONGEST_VALUE: usize = 16 * 1024;

/// Whether the file was there. Some control files exist only on some kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Present {
    Yes,
    No,
}

pub(super) fn open_to_write(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn open_to_read(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    match write_if_present(path, value)? {
        Present::Yes => Ok(()),
        Present::No => Err(CgroupError::io("open", path, Errno::NOENT)),
    }
}

pub(super) fn write_if_present(path: &Path, value: &str) -> Result<Present, CgroupError> {
    let file = match open_to_write(path) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Present::No),
        Err(why) => return Err(CgroupError::io("open", path, why)),
    };
    // A control file takes its value whole or not at all, so a short write cannot happen.
    rustix::io::write(&file, value.as_bytes())
        .map(|_| Present::Yes)
        .map_err(|why| CgroupError::io("write to", path, why))
}

pub(super) fn read(path: &Path) -> Result<String, CgroupError> {
    match read_if_present(path)? {
        Some(text) => Ok(text),
        None => Err(CgroupError::io("open", path, Errno::NOENT)),
    }
}

pub(super) fn read_if_present(path: &Path) -> Result<Option<String>, CgroupError> {
    let file = match open_to_read(path) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(why) => return Err(CgroupError::io("open", path, why)),
    };
    let mut bytes = [0; LONGEST_VALUE];
    let mut filled = 0;
    while let Some(space) = bytes.get_mut(filled..).filter(|space| !space.is_empty()) {
        match rustix::io::read(&file, space) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(why) => return Err(CgroupError::io("read", path, why)),
        }
    }
    let text = bytes.get(..filled).unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(text).into_owned()))
}

/// A file that holds one number, or `max` for no limit.
pub(super) fn read_limit(path: &Path) -> Result<Option<u64>, CgroupError> {
    let text = read(path)?;
    match text.trim() {
        "max" => Ok(None),
        number => parse_number(path, number).map(Some),
    }
}

pub(super) fn read_number(path: &Path) -> Result<u64, CgroupError> {
    parse_number(path, read(path)?.trim())
}

fn parse_number(path: &Path, text: &str) -> Result<u64, CgroupError> {
    text.parse().map_err(|_| unreadable(path, text))
}

pub(super) fn unreadable(path: &Path, text: &str) -> CgroupError {
    CgroupError::Unreadable { path: path.to_owned(), text: text.chars().take(80).collect() }
}

/// The value of `key` in a file of `key value` lines.
pub(super) fn keyed_number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        if name == key { value.trim().parse().ok() } else { None }
    })
}

/// A path under `directory`, built with one allocation: this runs a dozen times per sandbox.
pub(super) fn inside(directory: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::with_capacity(directory.as_os_str().len() + 1 + name.len());
    path.push(directory);
    path.push(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_files_give_the_value_of_exactly_that_key() {
        let text = "low 0\nhigh 0\nmax 7\noom 1\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(keyed_number(text, "oom_kill"), Some(2));
        assert_eq!(keyed_number(text, "oom"), Some(1));
        assert_eq!(keyed_number(text, "oom_k"), None);
        assert_eq!(keyed_number("oom_kill x\n", "oom_kill"), None);
    }

    #[test]
    fn a_limit_file_is_a_number_or_max_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pids.max");
        let reads = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_limit(&path)
        };
        assert_eq!(reads("max\n").unwrap(), None);
        assert_eq!(reads("32\n").unwrap(), Some(32));
        assert!(matches!(reads("-1\n"), Err(CgroupError::Unreadable { .. })));
        assert!(matches!(reads(""), Err(CgroupError::Unreadable { .. })));
    }

    #[test]
    fn a_control_file_that_is_not_there_is_told_apart_from_one_that_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("memory.swap.max");
        assert_eq!(write_if_present(&missing, "0").unwrap(), Present::No);
        assert!(matches!(write(&missing, "0"), Err(CgroupError::Io { .. })));
        assert_eq!(read_if_present(&missing).unwrap(), None);
        assert!(write_if_present(directory.path(), "0").is_err());
    }
}
