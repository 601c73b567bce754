//! The kernel's source: Debian's package of it, fetched by apt, checked and unpacked.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::command::{self, CommandError, Log};

/// The configuration was written for this version; Debian keeps it patched.
const PACKAGE: &str = "linux-source-6.1";

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(
        "this system's package lists have no {PACKAGE}; on Debian 12, as root run: apt-get update"
    )]
    Unknown,
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("{} is not what the package lists promise; remove it and try again", .0.display())]
    Checksum(PathBuf),
    #[error("{PACKAGE} has no source archive where one is expected")]
    NoArchive,
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

/// What apt would install now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) version: String,
    sha256: String,
}

pub(super) fn candidate() -> Result<Package, SourceError> {
    let shown = command::ask("apt-cache", &["show", "--no-all-versions", PACKAGE]);
    match shown {
        Ok(text) => parse(&text).ok_or(SourceError::Unknown),
        Err(CommandError::Asked { .. }) => Err(SourceError::Unknown),
        Err(error) => Err(error.into()),
    }
}

/// Version and checksum from `apt-cache show`.
fn parse(text: &str) -> Option<Package> {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?.strip_prefix(": ")?;
        Some(value.trim().to_owned())
    };
    let (version, sha256) = (field("Version")?, field("SHA256")?);
    let sane = |c: char| c.is_ascii_alphanumeric() || ".+-~:".contains(c);
    (version.chars().all(sane) && sha256.len() == 64).then_some(Package { version, sha256 })
}

/// The source tree, in `work`. The package itself stays in `cache`.
pub(super) fn unpack(
    package: &Package,
    cache: &Path,
    work: &Path,
    log: &Log,
    say: &mut dyn FnMut(&str),
) -> Result<PathBuf, SourceError> {
    let file = cache.join(format!("{PACKAGE}_{}.deb", package.version.replace(':', "_")));
    if !is_what_was_promised(&file, package)? {
        say(&format!("fetching {PACKAGE} {}", package.version));
        fetch(&file, work, log)?;
        if !is_what_was_promised(&file, package)? {
            return Err(SourceError::Checksum(file));
        }
    }
    say("unpacking the source");
    let unpacked = work.join("package");
    log.run("dpkg-deb", &[&"-x", &file, &unpacked])?;
    let archive = unpacked.join("usr/src").join(format!("{PACKAGE}.tar.xz"));
    if !archive.is_file() {
        return Err(SourceError::NoArchive);
    }
    log.run("tar", &[&"-xf", &archive, &"-C", &work])?;
    fs::remove_dir_all(&unpacked).map_err(io_error("remove", &unpacked))?;
    Ok(work.join(PACKAGE))
}

fn fetch(file: &Path, work: &Path, log: &Log) -> Result<(), SourceError> {
    let directory = work.join("fetched");
    fs::create_dir(&directory).map_err(io_error("make", &directory))?;
    let mut apt = command::plain("apt-get");
    if rustix::process::geteuid().is_root() {
        // apt's own user may not enter this directory.
        apt.args(["-o", "APT::Sandbox::User=root"]);
    }
    apt.args(["-q", "download", PACKAGE]).current_dir(&directory);
    log.run_command(&mut apt)?;
    let mut listed = fs::read_dir(&directory).map_err(io_error("read", &directory))?;
    let fetched = listed.find_map(|entry| {
        let path = entry.ok()?.path();
        (path.extension()? == "deb").then_some(path)
    });
    let fetched = fetched.ok_or(SourceError::NoArchive)?;
    fs::rename(&fetched, file).map_err(io_error("keep", file))
}

/// apt's lists are signed, so what has their checksum is Debian's even if it was here before.
fn is_what_was_promised(file: &Path, package: &Package) -> Result<bool, SourceError> {
    if File::open(file).is_err() {
        return Ok(false);
    }
    let summed = command::ask("sha256sum", &["--", &file.to_string_lossy()])?;
    Ok(summed.starts_with(&package.sha256))
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SourceError {
    let path = path.to_owned();
    move |source| SourceError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_and_checksum_are_read_from_the_package_lists() {
        let sum = "5".repeat(64);
        let text = format!("Package: {PACKAGE}\nVersion: 6.1.190-1\nSize: 5\nSHA256: {sum}\n");
        let expected = Package { version: "6.1.190-1".to_owned(), sha256: sum };
        assert_eq!(parse(&text), Some(expected));
        assert_eq!(parse("Package: x\n"), None);
        assert_eq!(parse(&text.replace("6.1.190-1", "../6.1")), None);
    }
}
