//! Makes the minimal kernel from Debian's kernel sources and the configuration of this repository.
//!
//! The result is kept by what it was made from: version of the source, configuration, compiler.
//! Packages stay in the cache; the unpacked source and the objects, some gigabytes, go when the
//! kernel is there.

mod command;
mod config;
mod source;
mod tools;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::kernels::{Description, Flavour, Kernel, KernelError, Kernels};
use crate::place;
pub use command::CommandError;
use command::Log;
pub use source::SourceError;

/// The configuration, on top of `make tinyconfig`.
pub const CONFIG: &str = include_str!("../../../../resources/kernel/minimal.config");

/// Part of the key: what is done with the same inputs.
const RECIPE: &str = "1";

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("building a kernel needs {missing}; as root run: apt-get install {packages}")]
    Tools { missing: String, packages: String },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("the kernel's own rules do not allow these options of resources/kernel/minimal.config: {}", .0.join(", "))]
    Config(Vec<String>),
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Kernels(#[from] KernelError),
    #[error("no place for the build; set HOME or RINGWALL_CACHE")]
    NoPlace(#[source] io::Error),
}

/// A kernel, and whether it had to be made.
#[derive(Debug)]
pub struct Built {
    pub kernel: Kernel,
    pub fresh: bool,
}

/// Makes the kernel unless it is there. `say` is told each step that takes a while.
pub fn build(kernels: &Kernels, say: &mut dyn FnMut(&str)) -> Result<Built, BuildError> {
    tools::check(Path::new("/usr/include"))?;
    let package = source::candidate()?;
    let key = key(&package.version, CONFIG, &tools::compiler()?);
    if let Some(kernel) = find(kernels, &key)? {
        return Ok(Built { kernel, fresh: false });
    }
    let cache = place::cache().map_err(BuildError::NoPlace)?;
    make_directory(&cache)?;
    make_directory(kernels.directory())?;
    let _one_at_a_time = lock(&cache.join(".lock"))?;
    // Whoever held the lock may have made it.
    if let Some(kernel) = find(kernels, &key)? {
        return Ok(Built { kernel, fresh: false });
    }

    let work = cache.join(format!("build-{key}"));
    remove(&work)?;
    make_directory(&work)?;
    let log = Log::new(&cache.join(format!("build-{key}.log")))?;
    let tree = source::unpack(&package, &cache, &work, &log, say)?;
    let made = Making { tree, objects: work.join("objects"), log: &log }.run(say)?;
    let place = keep(kernels, &made, &key)?;
    remove(&work)?;
    let found = find(kernels, &key)?;
    let damaged =
        || KernelError::Damaged { directory: place, reason: "it has vanished".to_owned() };
    Ok(Built { kernel: found.ok_or_else(damaged)?, fresh: true })
}

/// Sixteen digits that stand for all that the kernel is made from.
fn key(source: &str, config: &str, compiler: &str) -> String {
    let mut hash = blake3::Hasher::new();
    for part in [RECIPE, source, config, compiler] {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hash.finalize().to_hex()[..16].to_owned()
}

fn find(kernels: &Kernels, key: &str) -> Result<Option<Kernel>, KernelError> {
    let ours = |kernel: &Kernel| {
        let name = kernel.directory().file_name().unwrap_or_default().to_string_lossy();
        kernel.flavour == Flavour::Minimal && name.ends_with(&format!("-{key}"))
    };
    Ok(kernels.list()?.into_iter().find(ours))
}

/// One build in its own directory.
struct Making<'a> {
    tree: PathBuf,
    objects: PathBuf,
    log: &'a Log,
}

struct Made {
    image: PathBuf,
    release: String,
}

impl Making<'_> {
    fn run(&self, say: &mut dyn FnMut(&str)) -> Result<Made, BuildError> {
        make_directory(&self.objects)?;
        say("configuring");
        self.make(&["tinyconfig"])?;
        let path = self.objects.join(".config");
        let base = read(&path)?;
        fs::write(&path, config::merge(&base, CONFIG)).map_err(io_error("write", &path))?;
        self.make(&["olddefconfig"])?;
        let missing = config::unmet(CONFIG, &read(&path)?);
        if !missing.is_empty() {
            return Err(BuildError::Config(missing));
        }
        say("compiling: about a quarter of an hour of one processor's time");
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        self.make(&[&format!("-j{jobs}"), "vmlinux"])?;
        self.make(&["--silent", "kernelrelease"])?;
        let release = read(&self.objects.join("include/config/kernel.release"))?.trim().to_owned();
        let image = self.objects.join("vmlinux");
        self.log.run("strip", &[&"--strip-all", &image])?;
        Ok(Made { image, release })
    }

    fn make(&self, arguments: &[&str]) -> Result<(), CommandError> {
        let objects = format!("O={}", self.objects.display());
        let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"-C", &self.tree, &objects];
        // The same inputs give the same kernel, whoever builds it and when.
        all.extend::<[&dyn AsRef<std::ffi::OsStr>; 4]>([
            &"ARCH=x86_64",
            &"KBUILD_BUILD_TIMESTAMP=1970-01-01 00:00:00 +0000",
            &"KBUILD_BUILD_USER=ringwall",
            &"KBUILD_BUILD_HOST=ringwall",
        ]);
        for argument in arguments {
            all.push(argument);
        }
        self.log.run("make", &all)
    }
}

/// Puts the kernel among the others, whole or not at all.
fn keep(kernels: &Kernels, made: &Made, key: &str) -> Result<PathBuf, BuildError> {
    let place = kernels.directory().join(format!("minimal-{}-{key}", made.release));
    let making = tempfile::Builder::new()
        .prefix(".making-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(kernels.directory())
        .map_err(io_error("make a directory in", kernels.directory()))?;
    let image = making.path().join("vmlinux");
    fs::copy(&made.image, &image).map_err(io_error("write", &image))?;
    let description = Description {
        flavour: Flavour::Minimal,
        release: made.release.clone(),
        key: Some(key.to_owned()),
    };
    let described = making.path().join("kernel.json");
    let text = serde_json::to_string(&description).map_err(io::Error::from);
    text.and_then(|text| fs::write(&described, text + "\n"))
        .map_err(io_error("write", &described))?;
    for file in [&image, &described] {
        fs::set_permissions(file, Permissions::from_mode(0o444))
            .map_err(io_error("protect", file))?;
    }
    fs::rename(making.path(), &place).map_err(io_error("make", &place))?;
    Ok(place)
}

/// Held until dropped.
fn lock(path: &Path) -> Result<File, BuildError> {
    let file = File::create(path).map_err(io_error("make", path))?;
    file.lock().map_err(io_error("lock", path))?;
    Ok(file)
}

/// Nobody else may write there, whatever this process's umask is.
fn make_directory(path: &Path) -> Result<(), BuildError> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(io_error("make", path))
}

fn remove(path: &Path) -> Result<(), BuildError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, BuildError> {
    fs::read_to_string(path).map_err(io_error("read", path))
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_changes_with_everything_that_the_kernel_is_made_from() {
        let keys = [
            key("6.1.190-1", "CONFIG_A=y", "gcc 12"),
            key("6.1.191-1", "CONFIG_A=y", "gcc 12"),
            key("6.1.190-1", "CONFIG_A=n", "gcc 12"),
            key("6.1.190-1", "CONFIG_A=y", "gcc 13"),
            key("6.1.190-1CONFIG_A=y", "", "gcc 12"),
        ];
        let different: std::collections::BTreeSet<&String> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(key("6.1.190-1", "CONFIG_A=y", "gcc 12"), keys[0]);
    }

    #[test]
    fn a_finished_kernel_is_found_again_by_its_key() {
        let root = tempfile::tempdir().unwrap();
        let kernels = Kernels::open(root.path());
        let image = root.path().join("image");
        fs::write(&image, "ELF").unwrap();
        let made = Made { image, release: "6.1.190-ringwall".to_owned() };
        let place = keep(&kernels, &made, "0123456789abcdef").unwrap();
        assert_eq!(place.file_name().unwrap(), "minimal-6.1.190-ringwall-0123456789abcdef");
        let found = find(&kernels, "0123456789abcdef").unwrap().unwrap();
        assert_eq!((found.flavour, found.release.as_str()), (Flavour::Minimal, "6.1.190-ringwall"));
        assert_eq!(found.directory(), place);
        assert!(find(&kernels, "fedcba9876543210").unwrap().is_none());
    }
}
