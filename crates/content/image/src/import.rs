//! Images from files: OCI layouts, as directories or archives, and what `docker save` writes.
//!
//! The files are as hostile as a registry: everything is bounded and checked in the same way.

mod docker_archive;
mod files;
mod layout;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files::{Files, Opened};

use crate::artifact::{Artifact, ArtifactKind};
use crate::budget::{Bomb, Budget};
use crate::digest::{Digest, DigestError};
use crate::limits::MAX_IMPORTED_NAMES;
use crate::manifest::{Descriptor, Manifest, ManifestError};
use crate::progress::{Piece, Progress};
use crate::reference::{Reference, ReferenceError, Version};
use crate::store::{
    BlobError, BlobSource, BlobWriter, Candidate, Image, LayerError, Naming, Store, StoreError,
};
use crate::tar_stream::ArchiveError;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is neither an OCI layout nor an archive made by `docker save`", .0.display())]
    NotAnImage(PathBuf),
    #[error("{} has no image for this machine", .0.display())]
    NoImage(PathBuf),
    #[error("there is no image {wanted:?}; there are: {there}")]
    NoSuchTag { wanted: String, there: String },
    #[error(
        "there are several images ({0}); choose one with oci:DIRECTORY:TAG, or leave out the name"
    )]
    SeveralImages(String),
    #[error("there is no name for the image that could be used; give it one with --name")]
    BadName(#[from] ReferenceError),
    #[error(
        "the name {name} has the digest of another image: this one is {found}; choose another name with --name"
    )]
    NamesOtherDigest { name: String, found: Digest },
    #[error("{name:?} cannot be read")]
    Read { name: String, source: io::Error },
    #[error("{name:?} is missing, a link, or not a file")]
    NotAFile { name: String },
    #[error("{name:?} is not valid JSON of the expected shape")]
    Malformed { name: String, source: serde_json::Error },
    #[error("{0:?} is not a layout version that is supported; only 1 is")]
    LayoutVersion(String),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("the archive has more than {0} entries")]
    TooManyEntries(usize),
    #[error("there are more than {0} names of images; choose one with oci:DIRECTORY:TAG")]
    TooManyImages(usize),
    #[error(transparent)]
    Bomb(#[from] Bomb),
    #[error(transparent)]
    Digest(#[from] DigestError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Layer(#[from] LayerError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What images are called when they come from files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportOptions<'a> {
    /// The name for the only image, instead of the one that the files give it.
    pub name: Option<&'a str>,
    /// Lets a name that the files give stand for the new image from now on, where it stood for
    /// another one. A name that the caller gives always does.
    pub replace: bool,
}

impl<'a> ImportOptions<'a> {
    pub fn named(name: &'a str) -> ImportOptions<'a> {
        ImportOptions { name: Some(name), replace: false }
    }
}

/// Where to import from.
struct Source {
    path: PathBuf,
    tag: Option<String>,
}

/// What an import has to go by.
struct Import<'a> {
    store: &'a Store,
    source: &'a Source,
    name: Option<Reference>,
    naming: Naming,
    /// What all images together may unpack to.
    budget: &'a Budget,
    progress: &'a dyn Progress,
}

/// An image that the files offer, with its names.
struct Offer<B> {
    names: Vec<Reference>,
    manifest_bytes: Vec<u8>,
    manifest: Manifest,
    blobs: B,
}

impl Store {
    /// Imports from an OCI layout directory (also spelled `oci:DIRECTORY` or `oci:DIRECTORY:TAG`), an
    /// OCI layout in a tar archive, or an archive from `docker save`, gzipped or not.
    ///
    /// Images get the names that they have in there, or the given one if there is only one image.
    pub fn import(
        &self,
        source: &Path,
        options: ImportOptions<'_>,
        progress: &dyn Progress,
    ) -> Result<Vec<Image>, ImportError> {
        let name = options.name.map(str::parse::<Reference>).transpose()?;
        let asked_for = options.replace || name.is_some();
        let naming = if asked_for { Naming::Replace } else { Naming::KeepOthers };
        let source = Source::parse(source);
        let Opened { files, budget } = Files::open(&source.path, self)?;
        let import =
            Import { store: self, source: &source, name, naming, budget: &budget, progress };
        if files.contains("oci-layout") && files.contains("index.json") {
            import.layout(&files)
        } else if files.contains("manifest.json") {
            import.docker_archive(&files)
        } else {
            Err(ImportError::NotAnImage(source.path.clone()))
        }
    }
}

impl Store {
    /// Reads a file that was packed as an OCI artefact, out of a layout directory (also spelled
    /// `oci:DIRECTORY` or `oci:DIRECTORY:TAG`) or a layout in a tar archive.
    pub fn read_artifact(
        &self,
        source: &Path,
        kind: &ArtifactKind,
        progress: &dyn Progress,
    ) -> Result<Artifact, ImportError> {
        let source = Source::parse(source);
        let Opened { files, budget } = Files::open(&source.path, self)?;
        if !files.contains("oci-layout") || !files.contains("index.json") {
            return Err(ImportError::NotAnImage(source.path));
        }
        let naming = Naming::KeepOthers;
        Import { store: self, source: &source, name: None, naming, budget: &budget, progress }
            .artifact(&files, kind)
    }
}

impl Import<'_> {
    /// Takes all images or, if one of their names belongs to another image, none.
    fn take<B: BlobSource<Error = ImportError>>(
        &self,
        offers: &[Offer<B>],
    ) -> Result<Vec<Image>, ImportError> {
        let names: usize = offers.iter().map(|offer| offer.names.len()).sum();
        if names > MAX_IMPORTED_NAMES {
            return Err(ImportError::TooManyImages(MAX_IMPORTED_NAMES));
        }
        for offer in offers {
            let digest = Digest::of(&offer.manifest_bytes);
            for name in &offer.names {
                // A digest in a name promises its users that image.
                if matches!(name.version(), Version::Digest(named) if *named != digest) {
                    let name = name.to_string();
                    return Err(ImportError::NamesOtherDigest { name, found: digest });
                }
                self.store.check_name(&name.to_string(), &digest, self.naming)?;
            }
        }
        let mut images = Vec::new();
        for offer in offers {
            for name in &offer.names {
                let candidate = Candidate {
                    name: name.to_string(),
                    manifest_bytes: &offer.manifest_bytes,
                    manifest: &offer.manifest,
                    budget: self.budget,
                    naming: self.naming,
                };
                images.push(self.store.assemble(&offer.blobs, &candidate, self.progress)?);
            }
        }
        Ok(images)
    }
}

impl Source {
    fn parse(given: &Path) -> Source {
        let Some(layout) = given.as_os_str().as_bytes().strip_prefix(b"oci:") else {
            return Source { path: given.to_owned(), tag: None };
        };
        let path = PathBuf::from(OsStr::from_bytes(layout));
        // A directory may have a colon in its name: what exists is not taken apart.
        if !path.exists()
            && let Some(colon) = layout.iter().rposition(|byte| *byte == b':')
            && let Ok(tag) = std::str::from_utf8(&layout[colon + 1..])
        {
            let path = PathBuf::from(OsStr::from_bytes(&layout[..colon]));
            return Source { path, tag: Some(tag.to_owned()) };
        }
        Source { path, tag: None }
    }

    /// What to call an image that says nothing about its name.
    fn default_repository(&self) -> String {
        let name = self.path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        let name = name.unwrap_or_default();
        let stem = [".tar.gz", ".tgz", ".tar"].iter().find_map(|end| name.strip_suffix(end));
        stem.unwrap_or(&name).to_owned()
    }
}

/// Copies a file's bytes to where they are checked.
fn copy_blob(
    files: &Files,
    name: &str,
    into: &mut BlobWriter,
    piece: &Piece<'_>,
) -> Result<(), ImportError> {
    let mut content = files.open_file(name)?.reader;
    let mut buffer = vec![0; 128 * 1024];
    let failed = |source| ImportError::Read { name: name.to_owned(), source };
    loop {
        let count = content.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            return Ok(());
        }
        into.write(&buffer[..count])?;
        piece.advance(count as u64).map_err(failed)?;
    }
}

/// Where a layout keeps the content that `blob` names.
fn blob_name(blob: &Descriptor) -> String {
    format!("blobs/sha256/{}", blob.digest.hex())
}
