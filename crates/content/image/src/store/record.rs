//! The small files that say what the store holds.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Store, StoreError};
use crate::config::ImageConfig;
use crate::digest::Digest;

/// Everything the store knows about an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    pub(super) digest: Digest,
    pub(super) config_digest: Digest,
    /// The layers of the manifest, bottom to top.
    pub(super) layers: Vec<LayerRecord>,
    /// The diff ids to mount, bottom to top: without repetitions and what is hidden entirely.
    pub(super) stack: Vec<Digest>,
    pub(super) created: Option<String>,
    pub(super) config: ImageConfig,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    pub(super) diff_id: Digest,
    pub(super) blob: Digest,
    /// Compressed.
    pub(super) bytes: u64,
}

/// A name and the image it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TagRecord {
    pub(super) name: String,
    pub(super) image: ImageRecord,
}

impl Store {
    pub(super) fn read_tag(&self, name: &str) -> Result<Option<TagRecord>, StoreError> {
        // A name is free text of up to 512 bytes; its digest is a file name.
        self.read_record(&tag_file(name))
    }

    pub(super) fn read_image(&self, digest: &Digest) -> Result<Option<ImageRecord>, StoreError> {
        self.read_record(&format!("images/{}.json", digest.hex()))
    }

    pub(super) fn read_all_tags(&self) -> Result<Vec<TagRecord>, StoreError> {
        let mut tags = Vec::new();
        for file_name in self.names_in("refs")? {
            // Gone in the meantime: another process has removed the image.
            tags.extend(self.read_record(&format!("refs/{file_name}"))?);
        }
        Ok(tags)
    }

    /// The digests of all images, tagged or not.
    pub(super) fn all_image_digests(&self) -> Result<Vec<Digest>, StoreError> {
        let names = self.names_in("images")?;
        Ok(names.iter().filter_map(|name| Digest::from_hex(name.strip_suffix(".json")?)).collect())
    }

    /// Stores the image and makes `name` stand for it, replacing whatever the name stood for.
    pub(super) fn write_image(&self, name: &str, image: &ImageRecord) -> Result<(), StoreError> {
        let path = self.image_path(&image.digest);
        // Never replaced: a running sandbox may hold a lock on it.
        if !path.exists() {
            self.write_record(image, &path)?;
        }
        let tag = TagRecord { name: name.to_owned(), image: image.clone() };
        self.write_record(&tag, &self.root.join(tag_file(name)))
    }

    pub(super) fn delete_tag(&self, name: &str) -> Result<(), StoreError> {
        let path = self.root.join(tag_file(name));
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))
    }

    /// File names in one of the store's directories; a store that was never written to has none.
    pub(super) fn names_in(&self, directory: &str) -> Result<Vec<String>, StoreError> {
        let path = self.root.join(directory);
        let failed = StoreError::io("list", &path);
        let listing = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other,
        };
        listing
            .and_then(|entries| {
                entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
            })
            .map_err(failed)
    }

    fn read_record<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>, StoreError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let path = || self.root.join(file);
        let mut open = match rustix::fs::openat(&self.directory, file, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(StoreError::io("read", &path())(errno.into())),
        };
        let mut bytes = Vec::with_capacity(4096);
        open.read_to_end(&mut bytes).map_err(StoreError::io("read", &path()))?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| StoreError::DamagedRecord { path: path(), source })
    }

    fn write_record(&self, record: &impl Serialize, path: &Path) -> Result<(), StoreError> {
        let failed = |source: io::Error| StoreError::io("write", path)(source);
        let bytes = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        let (mut file, temp) = self.temp_file()?;
        file.write_all(&bytes).map_err(failed)?;
        temp.replace(path)
    }
}

fn tag_file(name: &str) -> String {
    format!("refs/{}.json", Digest::of(name.as_bytes()).hex())
}
