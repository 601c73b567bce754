//! Installing and removing tools.

use std::fs;
use std::io;

use ringwall_image::{ImportError, Progress, PullError, Store};
use ringwall_spec::ToolDigest;

use super::files::digest_of;
use super::{Entry, Origin, StoreError, ToolName, ToolStore};
use crate::compiler::{Compiler, LoadError, load};
use crate::manifest::is_name;

/// How a tool is to be installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Another name than the manifest's.
    pub name: Option<String>,
    /// The only content that will do.
    pub expected: Option<ToolDigest>,
    /// Let nothing else take the name.
    pub pin: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    pub entry: Entry,
    /// It was installed under this name already.
    pub known: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{expected} was asked for, but this is {found}; nothing was installed")]
    WrongDigest { expected: ToolDigest, found: ToolDigest },
    #[error("{0:?} is no name for a tool; use a-z, 0-9 and '-', a letter first")]
    BadName(String),
    #[error("{0} is the name of a built-in tool; choose another one with --name")]
    BuiltIn(String),
    #[error(
        "the name {name} is pinned to {digest}; remove that with `ringwall tool rm {name}`, or choose another name with --name"
    )]
    Pinned { name: String, digest: ToolDigest },
}

#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0} is built in and cannot be removed")]
    BuiltIn(String),
}

impl ToolStore {
    /// Fetches, compiles, checks and tries out a tool; only then it gets a name.
    pub fn add(
        &self,
        origin: &Origin,
        options: &AddOptions,
        compiler: &dyn Compiler,
        images: &Store,
        progress: &dyn Progress,
    ) -> Result<Added, AddError> {
        if let Some(name) = options.name.as_ref().filter(|name| !is_name(name)) {
            return Err(AddError::BadName(name.chars().take(80).collect()));
        }
        let fetched = origin.fetch(images, progress)?;
        let found = digest_of(&fetched.wasm);
        if let Some(expected) = options.expected.filter(|expected| *expected != found) {
            return Err(AddError::WrongDigest { expected, found });
        }
        let (tool, made_manifest) = load(compiler, &fetched.wasm, &fetched.file)?;
        let manifest = tool.manifest();
        let name = options.name.clone().unwrap_or_else(|| manifest.name.clone());
        if self.built_ins.path(&name).is_some() {
            return Err(AddError::BuiltIn(name));
        }
        let lock = self.lock()?;
        let mut installed = self.installed()?;
        let other = installed.iter().find(|other| other.name == name && other.digest != found);
        if let Some(other) = other.filter(|other| other.pinned || options.pin) {
            return Err(AddError::Pinned { name, digest: other.digest });
        }
        self.write(&self.wasm_path(&found), &fetched.wasm, &lock)?;
        if made_manifest {
            self.write_json(&self.made_manifest_path(&found), manifest, &lock)?;
        }
        let known = installed.iter().position(|old| old.name == name && old.digest == found);
        let pinned_before = known.is_some_and(|known| installed.remove(known).pinned);
        let entry = Entry {
            name,
            version: manifest.version.clone(),
            digest: found,
            kind: tool.kind,
            summary: manifest.summary.clone(),
            source: fetched.source,
            pinned: options.pin || pinned_before,
            made_manifest,
            bytes: fetched.wasm.len() as u64,
            file: self.wasm_path(&found),
        };
        installed.push(entry.clone());
        self.write_index(installed, &lock)?;
        Ok(Added { entry, known: known.is_some() })
    }

    /// Removes whatever `name` fits, and content that nothing else uses.
    pub fn remove(&self, name: &ToolName) -> Result<Vec<Entry>, RemoveError> {
        let lock = self.lock()?;
        let (gone, kept): (Vec<Entry>, Vec<Entry>) =
            self.installed()?.into_iter().partition(|entry| name.fits(entry));
        if gone.is_empty() {
            return Err(match self.built_ins.path(name.name()) {
                Some(_) => RemoveError::BuiltIn(name.to_string()),
                None => StoreError::NotFound(name.clone()).into(),
            });
        }
        let unused = |entry: &&Entry| !kept.iter().any(|other| other.digest == entry.digest);
        let unused: Vec<ToolDigest> =
            gone.iter().filter(unused).map(|entry| entry.digest).collect();
        self.write_index(kept, &lock)?;
        for digest in unused {
            for path in [self.wasm_path(&digest), self.made_manifest_path(&digest)] {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(StoreError::io("remove", &path)(error).into());
                    }
                    _ => {}
                }
            }
        }
        Ok(gone)
    }
}
