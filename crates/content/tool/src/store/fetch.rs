//! Where a tool is added from: a file, an OCI layout or a registry.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ringwall_image::{ArtifactKind, Progress, PullOptions, Store};
use rustix::fs::{CWD, Mode, OFlags};

use super::{AddError, Source, StoreError};

/// The largest file that is taken for a tool: a whole language runtime has a fifth of it.
pub const MAX_WASM_BYTES: u64 = 256 << 20;

/// What tools of the WebAssembly ecosystem push to registries.
const WASM: ArtifactKind = ArtifactKind {
    name: "WebAssembly artefact",
    config: "application/vnd.wasm.config.v0+json",
    layer: "application/wasm",
    max_bytes: MAX_WASM_BYTES,
};

/// What `ringwall tool add` was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    File(PathBuf),
    /// An OCI layout: a directory, an archive, or `oci:DIRECTORY[:TAG]`.
    Layout(PathBuf),
    /// A name in a registry.
    Registry(String),
}

/// A file on its way into the store.
pub(super) struct Fetched {
    pub(super) wasm: Vec<u8>,
    pub(super) source: Source,
    /// What a program without a manifest is named after.
    pub(super) file: String,
}

impl Origin {
    /// By how it is written, and not by what lies in the working directory: a file there can have the name of
    /// what a registry has.
    pub fn of(text: &str) -> Origin {
        let path = Path::new(text);
        let is_path = text.starts_with(['/', '.']);
        let is_layout = is_path && path.is_dir();
        if text.starts_with("oci:") || text.ends_with(".tar") || is_layout {
            Origin::Layout(path.to_owned())
        } else if is_path || text.ends_with(".wasm") {
            Origin::File(path.to_owned())
        } else {
            Origin::Registry(text.to_owned())
        }
    }

    pub(super) fn fetch(
        &self,
        images: &Store,
        progress: &dyn Progress,
    ) -> Result<Fetched, AddError> {
        match self {
            Origin::File(path) => {
                let wasm = read_wasm(path)?;
                let whole = std::path::absolute(path).map_err(StoreError::io("find", path))?;
                let source = Source::File { path: whole.display().to_string() };
                Ok(Fetched { wasm, source, file: file_name(path) })
            }
            Origin::Layout(path) => {
                let artifact = images.read_artifact(path, &WASM, progress)?;
                let reference = path.display().to_string();
                let manifest = artifact.manifest.to_string();
                let source = Source::Oci { reference, manifest };
                let file = file_name(path).split(':').next().unwrap_or_default().to_owned();
                Ok(Fetched { wasm: artifact.content, source, file })
            }
            Origin::Registry(name) => {
                let options = PullOptions::from_environment();
                let artifact = images.pull_artifact(name, &options, &WASM, progress)?;
                let manifest = artifact.manifest.to_string();
                let source = Source::Oci { reference: name.clone(), manifest };
                let last = name.rsplit('/').next().unwrap_or_default();
                let file = last.split([':', '@']).next().unwrap_or_default().to_owned();
                Ok(Fetched { wasm: artifact.content, source, file })
            }
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a `.wasm` file of this machine; never waits for a pipe, never reads without end.
pub fn read_wasm(path: &Path) -> Result<Vec<u8>, StoreError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let failed = |errno: rustix::io::Errno| StoreError::io("read", path)(errno.into());
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?);
    let found = file.metadata().map_err(StoreError::io("inspect", path))?;
    if !found.is_file() {
        return Err(StoreError::NotAFile(path.to_owned()));
    }
    let mut wasm =
        Vec::with_capacity(usize::try_from(found.len().min(MAX_WASM_BYTES)).unwrap_or(0));
    file.take(MAX_WASM_BYTES + 1).read_to_end(&mut wasm).map_err(StoreError::io("read", path))?;
    if wasm.len() as u64 > MAX_WASM_BYTES {
        return Err(StoreError::TooLarge(path.to_owned()));
    }
    Ok(wasm)
}
