//! The content store: images, their layers and blobs, shared between images and processes.
//!
//! ```text
//! blobs/sha256/HEX   manifests, configurations and compressed layers, by digest
//! layers/HEX/        one unpacked layer, by diff id; immutable once it has its name
//! images/HEX.json    one image by manifest digest; also the file that a running sandbox locks
//! refs/HEX.json      one name (by its digest) with a copy of its image: one read resolves it
//! roots/HEX.erofs    a stack of layers as one file system, for guests; made when first asked for
//! tmp/               work in progress; everything else appears by rename, whole
//! lock               shared by pulls and imports, exclusive for whatever deletes
//! converting         exclusive for whoever makes a root image
//! ```
//!
//! Invariant: all directories are mode 0700 and owned by whoever runs the engine. Layers keep the
//! image's own file owners and modes, so no other user of the host may ever reach them.

mod assemble;
mod blobs;
mod hold;
mod layers;
mod lock;
mod record;
mod remove;
mod root_image;
mod temp;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

pub(crate) use assemble::{BlobSource, Candidate, Naming};
pub use blobs::BlobError;
pub(crate) use blobs::BlobWriter;
pub use hold::{HoldError, ImageHold};
pub use layers::LayerError;
use record::{ImageRecord, TagRecord};
pub use remove::{Freed, RemoveError, Removed};
pub use root_image::{RootImage, RootImageError};

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::limits::ImageLimits;
use crate::reference::{Reference, ReferenceError, Version};

/// A directory with images in it.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    directory: OwnedFd,
    limits: ImageLimits,
}

/// An image that is ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub name: String,
    /// Digest of the manifest.
    pub digest: String,
    /// Unpacked layers, bottom to top, each at most once: what an overlay's lower layers are to be.
    pub layers: Vec<PathBuf>,
    pub config: ImageConfig,
    record_path: PathBuf,
    root_image_path: PathBuf,
}

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    pub name: String,
    pub digest: String,
    /// Compressed bytes of all layers: what a pull downloads.
    pub size: u64,
    pub layers: usize,
    /// Bytes of the root image, if it has been made.
    pub root_image: Option<u64>,
    /// When the image was built, as the image says it.
    pub created: Option<String>,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the image store {} is owned or writable by another user; make it yours alone with `chown` and `chmod 700`, or choose another directory",
        path.display()
    )]
    NotPrivate { path: PathBuf },
    #[error("the record {} is damaged; remove it and pull or import the image again", path.display())]
    DamagedRecord { path: PathBuf, source: serde_json::Error },
    #[error("another ringwall process is using the image store; try again when it has finished")]
    Busy,
    #[error(
        "the name {name} belongs to another image, {there}; choose another name with --name, or use --replace"
    )]
    NameTaken { name: String, there: Digest },
}

/// Why a name does not lead to an image.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error(transparent)]
    BadName(#[from] ReferenceError),
    #[error(
        "the image {0} is not in the store; get it with `ringwall image pull {0}` or `ringwall image import PATH`"
    )]
    NotFound(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io { action, path, source }
    }
}

impl Store {
    /// Opens the store in `root`, making it if it does not exist.
    pub fn open(root: &Path) -> Result<Store, StoreError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |root: &Path| {
            rustix::fs::openat(CWD, root, flags, Mode::empty()).map_err(io::Error::from)
        };
        let root = std::path::absolute(root).map_err(StoreError::io("find", root))?;
        let directory = match open(&root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = root.parent() {
                    fs::create_dir_all(parent).map_err(StoreError::io("create", parent))?;
                }
                make_private_directory(&root)?;
                open(&root)
            }
            other => other,
        };
        let directory = directory.map_err(StoreError::io("open the image store", &root))?;
        let stat = rustix::fs::fstat(&directory)
            .map_err(|errno| StoreError::io("inspect", &root)(errno.into()))?;
        let writable_by_others = stat.st_mode & 0o022 != 0;
        if stat.st_uid != rustix::process::geteuid().as_raw() || writable_by_others {
            return Err(StoreError::NotPrivate { path: root });
        }
        Ok(Store { root, directory, limits: ImageLimits::default() })
    }

    /// Replaces the default ceilings on images that are pulled or imported from now on.
    pub fn with_limits(self, limits: ImageLimits) -> Store {
        Store { limits, ..self }
    }

    pub(crate) fn limits(&self) -> &ImageLimits {
        &self.limits
    }

    /// Finds an image by name, by `name@sha256:...` or by `sha256:...`, without any network.
    pub fn resolve(&self, reference: &str) -> Result<Image, ResolveError> {
        if let Ok(digest) = reference.parse::<Digest>() {
            return match self.read_image(&digest)? {
                Some(record) => Ok(self.image(digest.to_string(), &record)),
                None => Err(ResolveError::NotFound(reference.to_owned())),
            };
        }
        let reference: Reference = reference.parse()?;
        if let Some(tag) = self.find_tag(&reference)? {
            return Ok(self.image(tag.name, &tag.image));
        }
        // A manifest's digest says it all: it does not matter under which name the image came.
        if let Version::Digest(digest) = reference.version()
            && let Some(record) = self.read_image(digest)?
        {
            return Ok(self.image(reference.to_string(), &record));
        }
        Err(ResolveError::NotFound(reference.to_string()))
    }

    /// All names in the store, sorted.
    pub fn list(&self) -> Result<Vec<ImageInfo>, StoreError> {
        let mut images = Vec::new();
        for tag in self.read_all_tags()? {
            let root_image = self.root_image_path(&tag.image.stack);
            images.push(ImageInfo {
                name: tag.name,
                digest: tag.image.digest.to_string(),
                size: tag.image.layers.iter().map(|layer| layer.bytes).sum(),
                layers: tag.image.stack.len(),
                root_image: root_image::made_bytes(&root_image)
                    .map_err(StoreError::io("read", &root_image))?,
                created: tag.image.created,
            });
        }
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Refuses a name by which another image is found now: the name itself, or the short form of
    /// what was pulled.
    pub(crate) fn check_name(
        &self,
        name: &str,
        digest: &Digest,
        naming: Naming,
    ) -> Result<(), StoreError> {
        let Ok(reference) = name.parse::<Reference>() else { return Ok(()) };
        match self.find_tag(&reference)? {
            Some(tag) if naming == Naming::KeepOthers && tag.image.digest != *digest => {
                Err(StoreError::NameTaken { name: name.to_owned(), there: tag.image.digest })
            }
            _ => Ok(()),
        }
    }

    /// A local name first; then, for a name without a host, what an explicit pull of it stored.
    fn find_tag(&self, reference: &Reference) -> Result<Option<TagRecord>, StoreError> {
        if let Some(tag) = self.read_tag(&reference.to_string())? {
            return Ok(Some(tag));
        }
        let full = reference.with_default_registry();
        if full == *reference { Ok(None) } else { self.read_tag(&full.to_string()) }
    }

    fn image(&self, name: String, record: &ImageRecord) -> Image {
        Image {
            name,
            digest: record.digest.to_string(),
            layers: record.stack.iter().map(|diff_id| self.layer_path(diff_id)).collect(),
            config: record.config.clone(),
            record_path: self.image_path(&record.digest),
            root_image_path: self.root_image_path(&record.stack),
        }
    }

    /// Makes what a store consists of. Cheap, and done before anything is written.
    pub(crate) fn make_layout(&self) -> Result<(), StoreError> {
        for part in ["blobs", "blobs/sha256", "layers", "images", "refs", "roots", "tmp"] {
            make_private_directory(&self.root.join(part))?;
        }
        Ok(())
    }

    fn layer_path(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("layers").join(diff_id.hex())
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    fn image_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("images").join(format!("{}.json", digest.hex()))
    }
}

fn make_private_directory(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(StoreError::io("create", path)),
    }
}
