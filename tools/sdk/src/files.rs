//! Paths and files below a granted directory.
//!
//! The runtime lets no path leave a granted directory, whatever a tool does. These functions
//! refuse such paths earlier and with a better message, and keep reading bounded.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use crate::Failure;

/// Where tools that work on files find them.
pub const WORK: &str = "/work";

/// `path` below `root`. Relative paths start at `root`; a path that already begins with the
/// conventional directory is understood too. `..` is refused even where it would stay inside.
pub fn resolve(root: &Path, path: &str) -> Result<PathBuf, Failure> {
    Ok(root.join(relative(path)?))
}

/// The same path relative to the granted directory, without `.`; empty for the directory itself.
pub fn relative(path: &str) -> Result<PathBuf, Failure> {
    if path.contains('\0') {
        return Err(Failure::bad_input(format_args!("{path:?} contains a NUL character")));
    }
    let below = match Path::new(path).strip_prefix(WORK) {
        Ok(below) => below,
        Err(_) => Path::new(path),
    };
    let mut clean = PathBuf::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Failure::bad_input(format_args!(
                    "{path:?} leaves the granted directory; give a path relative to {WORK}, without .."
                )));
            }
        }
    }
    Ok(clean)
}

/// Refuses when there is no directory to work in, in words that say how to give one.
pub fn granted(root: &Path) -> Result<(), Failure> {
    if root.is_dir() {
        return Ok(());
    }
    Err(Failure::new(
        "not-granted",
        format_args!("no directory is granted; grant one as {WORK}, for example --dir {WORK}=."),
    ))
}

/// Reads a whole file of at most `most` bytes.
pub fn read(root: &Path, path: &str, most: u64) -> Result<Vec<u8>, Failure> {
    let full = resolve(root, path)?;
    granted(root)?;
    let file = File::open(&full).map_err(|error| Failure::io(path, &error))?;
    let size = file.metadata().map_err(|error| Failure::io(path, &error))?;
    if size.is_dir() {
        return Err(Failure::bad_input(format_args!("{path:?} is a directory, not a file")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size.len().min(most)).unwrap_or(0));
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| Failure::io(path, &error))?;
    if bytes.len() as u64 > most {
        return Err(Failure::limit(format_args!("{path:?} is larger than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a whole UTF-8 file of at most `most` bytes.
pub fn read_text(root: &Path, path: &str, most: u64) -> Result<String, Failure> {
    String::from_utf8(read(root, path, most)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::bad_input(format_args!("{path:?} is not UTF-8 text (byte {at})"))
    })
}

/// Writes a file, making the directories above it. An existing file is written in place: a tool
/// cannot give a new file the permissions of the old one, and a script must stay executable.
pub fn write(root: &Path, path: &str, bytes: &[u8]) -> Result<(), Failure> {
    let full = resolve(root, path)?;
    if let Some(parent) = full.parent() {
        fs::create_dir_all(parent).map_err(|error| Failure::io(path, &error))?;
    }
    fs::write(&full, bytes).map_err(|error| Failure::io(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_directory_are_refused() {
        for path in ["../x", "a/../../x", "a/../b", "/etc/passwd", "/workshop/x", "a\0b"] {
            let failure = relative(path).expect_err(path);
            assert_eq!(failure.code, "bad-input", "{path}");
        }
    }

    #[test]
    fn the_conventional_directory_may_be_named() {
        let named = Path::new(WORK).join("src/./lib.rs");
        let named = named.to_str().expect("it is text");
        assert_eq!(relative(named), Ok(PathBuf::from("src/lib.rs")));
        assert_eq!(relative("./src//lib.rs"), Ok(PathBuf::from("src/lib.rs")));
        assert_eq!(relative("."), Ok(PathBuf::new()));
    }
}
