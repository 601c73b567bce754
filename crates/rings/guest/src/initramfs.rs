//! The initramfs: the guest's first root, made from host files and kept by what is in it.
//!
//! Invariant: an archive has its final name only when it is whole, and is never written again.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::cpio::Archive;
use crate::kernels::Kernel;
use crate::place;
use crate::trust::{self, Distrust};

/// Path in the guest, file on the host, permissions.
pub type GuestFile<'a> = (&'a str, &'a Path, u32);

/// Mount points, and what programs expect to be there.
const DIRECTORIES: [(&str, u32); 8] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("modules", 0o755),
    ("modules/more", 0o755),
    ("proc", 0o555),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
];

/// For messages and errors until a full /dev is mounted.
const DEVICES: [(&str, u32, (u32, u32)); 2] =
    [("dev/console", 0o600, (5, 1)), ("dev/null", 0o666, (1, 3))];

/// Archives that nobody asked for in this time are of an older warden or kernel.
const UNUSED: Duration = Duration::from_secs(14 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum InitramfsError {
    #[error("cannot read {} for the guest's initramfs", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path:?} cannot be a file of the guest: give an absolute path without `..`, once")]
    Path { path: String },
    #[error("cannot keep the guest's initramfs in {}", directory.display())]
    Keep { directory: PathBuf, source: io::Error },
    #[error("the guest's initramfs cannot be kept")]
    Distrust(#[from] Distrust),
    #[error("a file of the guest's initramfs changed while it was made; try again")]
    Changed,
}

/// An archive of `files` and the kernel's modules, in root's or the user's data directory.
pub fn initramfs(kernel: &Kernel, files: &[GuestFile<'_>]) -> Result<PathBuf, InitramfsError> {
    let directory = place::initramfs()
        .map_err(|source| InitramfsError::Keep { directory: PathBuf::new(), source })?;
    initramfs_in(&directory, kernel, files)
}

/// The same, kept in `directory`.
pub fn initramfs_in(
    directory: &Path,
    kernel: &Kernel,
    files: &[GuestFile<'_>],
) -> Result<PathBuf, InitramfsError> {
    let keep = |source| InitramfsError::Keep { directory: directory.to_owned(), source };
    let contents = Contents::new(kernel, files)?;
    let hash = contents.write(blake3::Hasher::new())?.finalize();
    make_private(directory).map_err(keep)?;
    trust::directory(directory)?;
    let path = directory.join(format!("{}.cpio", hash.to_hex()));
    if path.exists() {
        trust::file(&path)?;
        // So that it is not taken for unused; root's archive may be used by others.
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(path);
    }
    let mut made =
        tempfile::Builder::new().prefix(".making-").tempfile_in(directory).map_err(keep)?;
    let both = Both { file: BufWriter::new(made.as_file_mut()), hash: blake3::Hasher::new() };
    let mut both = contents.write(both)?;
    both.file.flush().map_err(keep)?;
    if both.hash.finalize() != hash {
        return Err(InitramfsError::Changed);
    }
    drop(both);
    made.as_file().set_permissions(Permissions::from_mode(0o444)).map_err(keep)?;
    made.persist(&path).map_err(|error| keep(error.error))?;
    remove_unused(directory);
    Ok(path)
}

/// The archive that [`initramfs`] gave before for the same files, if it is still there.
pub fn known_initramfs(path: &Path) -> Option<PathBuf> {
    let directory = place::initramfs().ok()?;
    trust::directory(&directory).ok()?;
    trust::file(path).ok().filter(|_| path.parent() == Some(&directory))?;
    let _ = File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
    Some(path.to_owned())
}

/// What goes into the archive, in order.
struct Contents {
    directories: Vec<(String, u32)>,
    files: Vec<(String, PathBuf, u32)>,
}

impl Contents {
    fn new(kernel: &Kernel, given: &[GuestFile<'_>]) -> Result<Contents, InitramfsError> {
        let mut files = Vec::new();
        for (path, host, mode) in given {
            let inside = inside(path)
                .filter(|inside| !files.iter().any(|(other, _, _)| other == inside))
                .ok_or_else(|| InitramfsError::Path { path: (*path).to_owned() })?;
            files.push((inside, (*host).to_owned(), mode & 0o7777));
        }
        for (place, modules) in
            [("modules", &kernel.modules), ("modules/more", &kernel.more_modules)]
        {
            for module in modules {
                let name = module.file_name().unwrap_or_default().to_string_lossy();
                files.push((format!("{place}/{name}"), module.clone(), 0o444));
            }
        }
        let mut directories: Vec<(String, u32)> =
            DIRECTORIES.map(|(path, mode)| (path.to_owned(), mode)).to_vec();
        let known: BTreeSet<&str> = DIRECTORIES.iter().map(|(path, _)| *path).collect();
        let parents: BTreeSet<String> =
            files.iter().flat_map(|(path, _, _)| parents(path)).collect();
        let missing = parents.into_iter().filter(|path| !known.contains(path.as_str()));
        directories.extend(missing.map(|path| (path, 0o755)));
        Ok(Contents { directories, files })
    }

    fn write<W: Write>(&self, out: W) -> Result<W, InitramfsError> {
        let out_error = |source| InitramfsError::Read { path: PathBuf::from("/dev"), source };
        let mut archive = Archive::new(out);
        for (path, mode) in &self.directories {
            archive.directory(path, *mode).map_err(out_error)?;
        }
        for (path, mode, device) in DEVICES {
            archive.character_device(path, mode, device).map_err(out_error)?;
        }
        for (path, host, mode) in &self.files {
            let copied = File::open(host).and_then(|file| {
                let size = file.metadata()?.len();
                archive.file(path, *mode, size, BufReader::with_capacity(1 << 16, file))
            });
            copied.map_err(|source| InitramfsError::Read { path: host.clone(), source })?;
        }
        archive.finish().map_err(out_error)
    }
}

/// `path` as it stands in the archive.
fn inside(path: &str) -> Option<String> {
    let inside = path.strip_prefix('/')?;
    let plain = inside.split('/').all(|part| !matches!(part, "" | "." | ".."));
    // Modules are the kernel's own.
    let ours = inside == "modules" || inside.starts_with("modules/");
    (plain && !ours && !inside.contains('\0')).then(|| inside.to_owned())
}

/// The directories above a path, outermost first.
fn parents(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect()
}

fn make_private(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// What cannot be removed stays for the next time.
fn remove_unused(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified());
        if age.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > UNUSED)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes to the file and the hash.
struct Both<W> {
    file: W,
    hash: blake3::Hasher,
}

impl<W: Write> Write for Both<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests;
