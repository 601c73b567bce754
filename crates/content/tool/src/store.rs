//! Where tools are kept, by content, and which names stand for them.
//!
//! ```text
//! wasm/HEX.wasm        installed tools, by the SHA-256 of their content; never changed
//! manifests/HEX.json   manifests that were made for programs without one
//! index.json           names, versions and sources of what is installed, in order of installation
//! built-in.json        what was found out about the tools that come with Ringwall
//! lock                 held by whoever changes any of it
//! ```
//!
//! Invariant: the directory belongs to whoever runs the engine and nobody else can write to it.
//! Everything appears whole, by rename.

mod add;
mod builtin;
mod fetch;
mod files;
mod index;
mod name;

use std::io;
use std::path::{Path, PathBuf};

use ringwall_spec::{ToolDigest, ToolKind};
use serde::{Deserialize, Serialize};

pub use add::{AddError, AddOptions, Added, RemoveError};
pub use builtin::BuiltIns;
pub use fetch::{MAX_WASM_BYTES, Origin, read_wasm};
pub use name::{ToolName, ToolNameError};

use crate::compiler::{Compiler, LoadError, describe};
use crate::contract::Tool;
use crate::manifest::Manifest;
use files::digest_of;

/// A directory with tools in it.
#[derive(Debug)]
pub struct ToolStore {
    root: PathBuf,
    built_ins: BuiltIns,
}

/// One tool that can be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is called here; its manifest may call it something else.
    pub name: String,
    pub version: String,
    pub digest: ToolDigest,
    pub kind: ToolKind,
    pub summary: String,
    pub source: Source,
    /// Nothing else may take the name.
    #[serde(default)]
    pub pinned: bool,
    /// The manifest is not the file's own but was made from its `--help`.
    #[serde(default)]
    pub made_manifest: bool,
    pub bytes: u64,
    #[serde(skip)]
    file: PathBuf,
}

/// Where a tool came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Source {
    BuiltIn,
    File { path: String },
    Oci { reference: String, manifest: String },
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the tool store {} is owned or writable by another user; make it yours alone with `chown` and `chmod 700`",
        .0.display()
    )]
    NotPrivate(PathBuf),
    #[error("{} is damaged; remove it and add its tools again", .0.display())]
    Damaged(PathBuf),
    #[error("the content of {0} is not what it was; remove the tool and add it again")]
    Changed(ToolDigest),
    #[error("another ringwall process is changing the tool store; try again when it has finished")]
    Busy,
    #[error("there is no tool {0}; `ringwall tool ls` lists them")]
    NotFound(ToolName),
    #[error("the tool {name} cannot be used")]
    Load { name: String, source: LoadError },
    #[error("{} has at most {MAX_WASM_BYTES} bytes to be a tool; this has more", .0.display())]
    TooLarge(PathBuf),
    #[error("{} is not a file; give a .wasm file", .0.display())]
    NotAFile(PathBuf),
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { action, path, source }
    }
}

impl ToolStore {
    /// Opens the store in `root`, making it if it does not exist.
    pub fn open(root: &Path, built_ins: BuiltIns) -> Result<ToolStore, StoreError> {
        files::make_private(root)?;
        Ok(ToolStore { root: root.to_owned(), built_ins })
    }

    /// What is installed, in order of installation, then what is built in.
    pub fn list(&self, compiler: &dyn Compiler) -> Result<Vec<Entry>, StoreError> {
        let mut entries = self.installed()?;
        entries.extend(self.built_in_entries(compiler)?);
        Ok(entries)
    }

    /// What a name stands for: of what is installed the pinned one, else the one added last; else
    /// what is built in.
    pub fn find(&self, name: &ToolName, compiler: &dyn Compiler) -> Result<Entry, StoreError> {
        let mut fitting: Vec<Entry> =
            self.installed()?.into_iter().filter(|entry| name.fits(entry)).collect();
        if let Some(pinned) = fitting.iter().position(|entry| entry.pinned) {
            return Ok(fitting.swap_remove(pinned));
        }
        if let Some(last) = fitting.pop() {
            return Ok(last);
        }
        let built_in = self.built_in_entry(name.name(), compiler)?;
        built_in.filter(|entry| name.fits(entry)).ok_or_else(|| StoreError::NotFound(name.clone()))
    }

    /// Makes a tool ready to be called; compiles it only if that was never done, or by another
    /// version of the compiler.
    pub fn open_tool(&self, entry: &Entry, compiler: &dyn Compiler) -> Result<Tool, StoreError> {
        let failed = |source| StoreError::Load { name: entry.name.clone(), source };
        let described = match compiler.find(&entry.digest) {
            Some(described) => described,
            None => compiler
                .compile(&self.read(entry)?)
                .map_err(|error| failed(LoadError::Compile(error)))?,
        };
        let manifest = if entry.made_manifest {
            self.read_made_manifest(&entry.digest)?
        } else {
            describe(compiler, &described, &entry.name).map_err(failed)?.0
        };
        let tool = Tool::new(entry.digest, described.kind, manifest);
        let tool = tool.map_err(|error| failed(LoadError::Manifest(error)))?;
        Ok(tool.installed_as(&entry.name))
    }

    /// Why no file may be in service under this name with this content, if another tool has the name.
    pub fn reserves(&self, name: &str, digest: &ToolDigest) -> Result<Option<String>, StoreError> {
        if self.built_ins.path(name).is_some() {
            return Ok(Some(format!("{name} is the name of a built-in tool")));
        }
        let installed = self.installed()?;
        let of_name = || installed.iter().filter(|entry| entry.name == name);
        if let Some(pinned) = of_name().find(|entry| entry.pinned && entry.digest != *digest) {
            return Ok(Some(format!("the name {name} is pinned to {}", pinned.digest)));
        }
        let other = of_name().next().filter(|_| of_name().all(|entry| entry.digest != *digest));
        Ok(other.map(|other| {
            format!("a tool {name} is installed already, with the content {}", other.digest)
        }))
    }

    /// The content of a tool, checked against its digest.
    pub fn read(&self, entry: &Entry) -> Result<Vec<u8>, StoreError> {
        let wasm = read_wasm(&entry.file)?;
        if digest_of(&wasm) == entry.digest {
            Ok(wasm)
        } else {
            Err(StoreError::Changed(entry.digest))
        }
    }

    fn read_made_manifest(&self, digest: &ToolDigest) -> Result<Manifest, StoreError> {
        let path = self.made_manifest_path(digest);
        let bytes = std::fs::read(&path).map_err(StoreError::io("read", &path))?;
        Manifest::parse(&bytes).map_err(|_| StoreError::Damaged(path))
    }

    fn wasm_path(&self, digest: &ToolDigest) -> PathBuf {
        self.root.join("wasm").join(format!("{}.wasm", digest.hex()))
    }

    fn made_manifest_path(&self, digest: &ToolDigest) -> PathBuf {
        self.root.join("manifests").join(format!("{}.json", digest.hex()))
    }
}

impl Entry {
    /// The digest as lists show it.
    pub fn short_digest(&self) -> String {
        self.digest.to_string().chars().take("sha256:".len() + 12).collect()
    }
}

impl Source {
    /// One word or name for lists.
    pub fn label(&self) -> &str {
        match self {
            Source::BuiltIn => "built-in",
            Source::File { path } => path,
            Source::Oci { reference, .. } => reference,
        }
    }
}

#[cfg(test)]
mod tests;
