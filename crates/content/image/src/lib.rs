//! OCI images without a daemon: pull, import, verify, unpack, keep, and make guests' roots of them.
//!
//! Everything that comes from a registry, an archive or an image is hostile: it is bounded before it
//! is parsed, checked against its digest while it streams, and unpacked beneath one directory by a
//! writer that refuses whatever could reach outside it. See [`unpack_layer`] for the rules.
//!
//! Invariant: blocking, no async runtime; no unsafe code; plain HTTP only to this machine itself.

mod artifact;
mod budget;
mod config;
mod digest;
mod erofs;
mod flatten;
mod import;
mod limits;
mod manifest;
mod progress;
mod pull;
mod reference;
mod registry;
mod store;
mod tar_stream;
mod unpack;

pub use artifact::{Artifact, ArtifactKind};
pub use budget::Bomb;
pub use config::{ConfigError, ImageConfig};
pub use digest::{Digest, DigestError};
pub use flatten::{FlattenError, write_root_image};
pub use import::{ImportError, ImportOptions};
pub use limits::{ImageLimits, UnpackLimits};
pub use manifest::ManifestError;
pub use progress::{NoProgress, Progress};
pub use pull::{PullError, PullOptions};
pub use reference::{Reference, ReferenceError, Version};
pub use registry::{HttpError, RegistryError};
pub use store::{
    BlobError, Freed, HoldError, Image, ImageHold, ImageInfo, LayerError, RemoveError, Removed,
    ResolveError, RootImage, RootImageError, Store, StoreError,
};
pub use tar_stream::ArchiveError;
pub use unpack::{Refusal, UnpackError, Unpacked, unpack_layer};
