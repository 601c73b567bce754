//! What a build needs on this machine, and how to get it.

use std::path::Path;

use super::BuildError;
use super::command::{self, CommandError};

/// Programs with Debian's packages of them.
const PROGRAMS: [(&str, &str); 11] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("strip", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
    ("dpkg-deb", "dpkg"),
];

/// Headers of libraries, likewise.
const HEADERS: [(&str, &str); 2] = [("libelf.h", "libelf-dev"), ("openssl/ssl.h", "libssl-dev")];

/// `headers` is where the system has them.
pub(super) fn check(headers: &Path) -> Result<(), BuildError> {
    let programs = PROGRAMS.into_iter().filter(|(program, _)| !is_on_path(program));
    let files = HEADERS.into_iter().filter(|(file, _)| !headers.join(file).exists());
    let (missing, mut packages): (Vec<&str>, Vec<&str>) = programs.chain(files).unzip();
    if missing.is_empty() {
        return Ok(());
    }
    packages.dedup();
    Err(BuildError::Tools { missing: missing.join(", "), packages: packages.join(" ") })
}

/// What tells one compiler from another, linker included.
pub(super) fn compiler() -> Result<String, CommandError> {
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    let compiler = first(command::ask("gcc", &["--version"])?);
    let linker = first(command::ask("ld", &["--version"])?);
    Ok(format!("{compiler}; {linker}"))
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_packages_that_have_it() {
        let empty = tempfile::tempdir().unwrap();
        let error = check(empty.path()).unwrap_err().to_string();
        assert!(error.contains("libelf.h, openssl/ssl.h"), "{error}");
        assert!(error.ends_with("libelf-dev libssl-dev"), "{error}");
    }
}
