//! The kernels that are on this machine, and the one that a VM boots.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::place;
use crate::trust::{self, Distrust};

/// A description is one line.
const MAX_DESCRIPTION_BYTES: u64 = 4096;

/// Which kind of kernel. The later is the better one to boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// Debian's cloud kernel: drivers are modules.
    Debian,
    /// Made by [`crate::build`]: everything is built in, and little of it.
    Minimal,
}

/// A kernel that a guest can boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub flavour: Flavour,
    /// What `uname -r` says in the guest.
    pub release: String,
    /// The uncompressed ELF image.
    pub image: PathBuf,
    /// What the guest must load at its start, in this order.
    pub modules: Vec<PathBuf>,
    /// What it may load later, in this order: devices of some monitors, and what container engines
    /// need.
    pub more_modules: Vec<PathBuf>,
}

/// The directory of kernels.
#[derive(Debug, Clone)]
pub struct Kernels {
    directory: PathBuf,
}

/// `kernel.json`, as far as booting is concerned.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) flavour: Flavour,
    pub(crate) release: String,
    /// What a minimal kernel was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error(
        "there is no guest kernel in {}; get Debian's with `make setup`, or make one with `ringwall vm kernel build`",
        .0.display()
    )]
    None(PathBuf),
    #[error(transparent)]
    Distrust(#[from] Distrust),
    #[error(
        "{} is damaged: {reason}; remove it and get it again with `make setup` or `ringwall vm kernel build`",
        directory.display()
    )]
    Damaged { directory: PathBuf, reason: String },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("no place for guest kernels; set HOME or RINGWALL_KERNELS")]
    NoPlace(#[source] io::Error),
}

impl Kernels {
    pub fn open(directory: &Path) -> Kernels {
        Kernels { directory: directory.to_owned() }
    }

    /// Where `make setup` puts them: `RINGWALL_KERNELS`, else below root's or the user's data.
    pub fn from_environment() -> Result<Kernels, KernelError> {
        Ok(Kernels { directory: place::kernels().map_err(KernelError::NoPlace)? })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// All kernels, the one to boot first. One that cannot be used is an error: it would otherwise
    /// be passed over in silence for a worse one.
    pub fn list(&self) -> Result<Vec<Kernel>, KernelError> {
        if matches!(fs::symlink_metadata(&self.directory), Err(error) if error.kind() == io::ErrorKind::NotFound)
        {
            return Ok(Vec::new());
        }
        trust::directory(&self.directory)?;
        let mut found = Vec::new();
        for path in entries(&self.directory)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // What starts with a dot is being made or removed.
            if name.starts_with("debian-") || name.starts_with("minimal-") {
                found.push(read_kernel(&path)?);
            }
        }
        found.sort_by_cached_key(|(kernel, made)| {
            std::cmp::Reverse((kernel.flavour, version(&kernel.release), *made))
        });
        Ok(found.into_iter().map(|(kernel, _)| kernel).collect())
    }

    /// The one to boot: a minimal one before Debian's, then the newest.
    pub fn best(&self) -> Result<Kernel, KernelError> {
        let first = self.list()?.into_iter().next();
        first.ok_or_else(|| KernelError::None(self.directory.clone()))
    }
}

impl Kernel {
    /// The directory that holds it.
    pub fn directory(&self) -> &Path {
        self.image.parent().unwrap_or(&self.image)
    }

    /// Whether the guest can find its devices by ACPI only. Debian's cannot read them from the
    /// command line.
    pub fn needs_acpi(&self) -> bool {
        self.flavour == Flavour::Debian
    }
}

/// A kernel, and when it was made.
fn read_kernel(directory: &Path) -> Result<(Kernel, SystemTime), KernelError> {
    trust::directory(directory)?;
    let described = directory.join("kernel.json");
    let metadata = trust::file(&described)?;
    let damaged = |reason: &str| KernelError::Damaged {
        directory: directory.to_owned(),
        reason: reason.to_owned(),
    };
    if metadata.len() > MAX_DESCRIPTION_BYTES {
        return Err(damaged("kernel.json is too long"));
    }
    let text = fs::read(&described).map_err(read_error(&described))?;
    let description: Description =
        serde_json::from_slice(&text).map_err(|error| damaged(&format!("kernel.json: {error}")))?;
    let image = directory.join("vmlinux");
    if trust::file(&image)?.len() == 0 {
        return Err(damaged("vmlinux is empty"));
    }
    let kernel = Kernel {
        flavour: description.flavour,
        release: description.release,
        modules: modules(&directory.join("modules"))?,
        more_modules: modules(&directory.join("more"))?,
        image,
    };
    if kernel.flavour == Flavour::Debian && kernel.modules.is_empty() {
        return Err(damaged("its modules are missing"));
    }
    Ok((kernel, metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)))
}

/// Names begin with two digits, so their order is the load order.
fn modules(directory: &Path) -> Result<Vec<PathBuf>, KernelError> {
    if !directory.exists() {
        return Ok(Vec::new());
    }
    trust::directory(directory)?;
    let mut modules = entries(directory)?;
    modules.retain(|path| path.extension().is_some_and(|extension| extension == "ko"));
    modules.sort();
    for module in &modules {
        trust::file(module)?;
    }
    Ok(modules)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let listed = fs::read_dir(directory).map_err(read_error(directory))?;
    listed.map(|entry| Ok(entry.map_err(read_error(directory))?.path())).collect()
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> KernelError {
    let path = path.to_owned();
    move |source| KernelError::Read { path: path.clone(), source }
}

/// The numbers of a release, so that 6.1.9 comes before 6.1.10 and 6.1.0-9 before 6.1.0-10.
fn version(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
