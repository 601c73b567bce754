//! Lists the mounts in the directories that a ring shows of the host.
//!
//! An overlay of a directory shows none of the mounts below it, and the kernel lets no user
//! namespace make one that would show what lies under a mount. So a ring puts such a directory
//! together from its parts; here they are listed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ringwall_ring::{MAX_COPIED_BYTES, Part};

use crate::place::PlaceError;

/// Parts of the directories of one ring: each takes a mount or a copy.
const MAX_PARTS: usize = 2048;

/// File systems that overlayfs refuses, or that are about processes and devices and not files.
const NEVER_SHOWN: [&str; 17] = [
    "autofs",
    "binfmt_misc",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "exfat",
    "fusectl",
    "mqueue",
    "msdos",
    "proc",
    "sysfs",
    "tracefs",
    "vfat",
];

/// Where something is mounted, and the type of the file system that is seen there.
type Mounts = BTreeMap<PathBuf, String>;

/// The directories at or below `tops` in which something is mounted, with all that is in them.
pub(crate) fn in_parts(tops: &[PathBuf]) -> Result<BTreeMap<PathBuf, Vec<Part>>, PlaceError> {
    const MOUNTS: &str = "/proc/self/mountinfo";
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source| PlaceError::HostPath { path, source }
    };
    let text = fs::read(MOUNTS).map_err(wrong(Path::new(MOUNTS)))?;
    let mounts = parse(&text);
    let mut parts = BTreeMap::new();
    let mut count = 0;
    for directory in above_mounts(&mounts, tops) {
        // Another mount may lie over all of it.
        if !is_directory(&directory) {
            continue;
        }
        let listed = match list(&directory, &mounts) {
            // Then no process in the ring could look into it either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
            listed => listed.map_err(wrong(&directory))?,
        };
        count += listed.len();
        if count > MAX_PARTS {
            return Err(PlaceError::TooManyParts(directory));
        }
        parts.insert(directory, listed);
    }
    Ok(parts)
}

/// `id parent device root at options [tags...] - type source options` (proc_pid_mountinfo(5)). Of those
/// at one place the last one is seen.
fn parse(text: &[u8]) -> Mounts {
    let lines = text.split(|byte| *byte == b'\n');
    let mount = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let at = unescaped(words.nth(4)?);
        let file_system = words.skip_while(|word| *word != b"-").nth(1)?;
        Some((at, String::from_utf8_lossy(file_system).into_owned()))
    };
    lines.filter_map(mount).collect()
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Every directory between a top and a mount below it, and the top itself.
fn above_mounts(mounts: &Mounts, tops: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for top in tops {
        let below = mounts.keys().filter(|at| at.starts_with(top) && *at != top);
        for at in below {
            let above = at.ancestors().skip(1).take_while(|path| path.starts_with(top));
            directories.extend(above.map(Path::to_owned));
        }
    }
    directories
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn list(directory: &Path, mounts: &Mounts) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        // The metadata of the mount itself, not of the directory under it.
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let kind = found.file_type();
        if kind.is_dir() {
            let never = |file_system: &String| NEVER_SHOWN.contains(&file_system.as_str());
            let covered = mounts.get(&path).is_some_and(never);
            parts.push(if covered { Part::Covered(name) } else { Part::Directory(name) });
        } else if kind.is_symlink() {
            parts.push(Part::Link { name, target: fs::read_link(&path)? });
        } else if kind.is_file() && found.len() <= MAX_COPIED_BYTES {
            parts.push(Part::File(name));
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &[u8] = b"\
20 1 254:0 / / rw - ext4 /dev/vda rw
21 20 0:21 / /usr/local rw shared:1 - ext4 /dev/vdb rw
22 20 0:22 / /usr/share/a\\040b/c rw shared:1 master:2 - vfat /dev/vdc rw
23 20 0:23 / /opt rw - tmpfs none rw
24 20 0:24 / /usrx/y rw - tmpfs none rw
25 20 0:25 / /opt rw - autofs none rw
";

    #[test]
    fn every_directory_above_a_mount_is_put_together_from_its_parts() {
        let mounts = parse(HOST);
        let tops = ["/usr", "/opt", "/etc"].map(PathBuf::from);
        let found: Vec<_> = above_mounts(&mounts, &tops).into_iter().collect();
        assert_eq!(found, ["/usr", "/usr/share", "/usr/share/a b"].map(PathBuf::from));
        assert_eq!(mounts[Path::new("/opt")], "autofs", "the last one is on top");
        assert_eq!(mounts[Path::new("/usr/share/a b/c")], "vfat");
    }

    #[test]
    fn what_is_no_file_directory_or_link_is_no_part() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir(at("plain")).unwrap();
        fs::create_dir(at("floppy")).unwrap();
        fs::write(at("file"), "text").unwrap();
        fs::File::create(at("large")).unwrap().set_len(MAX_COPIED_BYTES + 1).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mounts = Mounts::from([(at("floppy"), "vfat".to_owned())]);
        let mut parts = list(top.path(), &mounts).unwrap();
        parts.sort_by_key(|part| format!("{part:?}"));
        let expected = [
            Part::Covered("floppy".into()),
            Part::Directory("plain".into()),
            Part::File("file".into()),
            Part::Link { name: "link".into(), target: "file".into() },
        ];
        assert_eq!(parts, expected);
    }
}
