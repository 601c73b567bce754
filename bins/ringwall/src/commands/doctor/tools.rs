//! Other programs that isolate: where they are and which version.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::report::Tool;

const NAMES: [&str; 6] = ["bwrap", "crun", "runc", "podman", "docker", "runsc"];

/// A program that takes longer to say its version is listed without one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Only the first line of what a program says is of interest.
const LONGEST_ANSWER: u64 = 4096;

pub(super) fn find() -> Vec<Tool> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    // All at once: some need a tenth of a second.
    std::thread::scope(|scope| {
        let search = &search;
        let threads: Vec<_> =
            NAMES.into_iter().map(|name| scope.spawn(move || examine(name, search))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

fn examine(name: &'static str, search: &OsStr) -> Tool {
    let path = locate(name, search);
    let version = path.as_deref().and_then(version_of);
    Tool { name, path: path.map(|path| path.display().to_string()), version }
}

fn locate(name: &str, search: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search)
        // An empty or relative entry would find programs in whatever directory we are in.
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn version_of(path: &Path) -> Option<String> {
    let mut child = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let answer = child.stdout.take();
    if !ends_in_time(&mut child) {
        return None;
    }
    let mut text = String::new();
    answer?.take(LONGEST_ANSWER).read_to_string(&mut text).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Waits for the program, and kills it when patience runs out. What it says fits in a pipe, so it
/// does not wait for us to read.
fn ends_in_time(child: &mut Child) -> bool {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(_) => return false,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_absolute_entries_of_the_path_only() {
        assert!(locate("sh", OsStr::new("/bin:/usr/bin")).is_some());
        assert_eq!(locate("sh", OsStr::new("::bin:.")), None);
        assert_eq!(locate("no-such-program", OsStr::new("/bin:/usr/bin")), None);
        assert_eq!(locate("passwd", OsStr::new("/etc")), None, "not executable");
    }

    #[test]
    fn every_known_tool_is_listed_found_or_not() {
        let names: Vec<_> = find().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, NAMES);
    }

    #[test]
    fn a_program_that_fails_or_says_nothing_has_no_version() {
        assert_eq!(version_of(Path::new("/bin/false")), None);
        assert_eq!(version_of(Path::new("/no/such/program")), None);
    }
}
