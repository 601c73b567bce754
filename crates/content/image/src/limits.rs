//! Ceilings on everything that an image, an archive or a registry can make us read or store.

/// Bounds for one image. The defaults leave room for the largest images in daily use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bytes of one manifest, index or configuration.
    pub max_document_bytes: u64,
    pub max_layers: usize,
    /// Compressed bytes of one layer.
    pub max_blob_bytes: u64,
    /// Compressed bytes of all layers together.
    pub max_image_bytes: u64,
    /// Bytes of an image's root file system, as guests get it.
    pub max_root_image_bytes: u64,
    pub unpack: UnpackLimits,
}

/// Bounds for unpacking an image: all layers together, and all images of one archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Uncompressed bytes of the layers' archives, and a block for each file and directory.
    pub max_bytes: u64,
    /// Files, directories and links that the layers may create, directories that are only
    /// implied by a longer name included.
    pub max_entries: u64,
    /// Uncompressed bytes for each compressed byte, but for `ratio_floor_bytes`.
    pub max_ratio: u64,
    /// Small layers may compress as well as they like: up to this size a bomb does no harm.
    pub ratio_floor_bytes: u64,
}

/// Images that one import may bring, counted by their names.
pub(crate) const MAX_IMPORTED_NAMES: usize = 256;
/// Bytes of all manifests, indexes and configurations that one pull or import parses.
pub(crate) const MAX_DOCUMENTS_BYTES: u64 = 64 << 20;
/// What a file or a directory takes on the host's disk beside its content.
pub(crate) const BLOCK_BYTES: u64 = 4096;
/// Bytes of one extended header (long name, PAX records) in an archive.
pub(crate) const MAX_EXTENDED_HEADER_BYTES: u64 = 1 << 20;
/// PATH_MAX without its final NUL.
pub(crate) const MAX_PATH_BYTES: usize = 4095;
/// NAME_MAX of every common file system.
pub(crate) const MAX_NAME_BYTES: usize = 255;
/// Directories below one another; keeps every walk over a layer shallow.
pub(crate) const MAX_PATH_DEPTH: usize = 128;
/// Ids above this have no place in a ring's id map.
pub(crate) const MAX_ID: u64 = 65535;

impl Default for ImageLimits {
    fn default() -> Self {
        ImageLimits {
            max_document_bytes: 4 << 20,
            max_layers: 128,
            max_blob_bytes: 16 << 30,
            max_image_bytes: 32 << 30,
            max_root_image_bytes: 64 << 30,
            unpack: UnpackLimits::default(),
        }
    }
}

impl Default for UnpackLimits {
    fn default() -> Self {
        UnpackLimits {
            max_bytes: 32 << 30,
            max_entries: 2_000_000,
            max_ratio: 400,
            ratio_floor_bytes: 64 << 20,
        }
    }
}
