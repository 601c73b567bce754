//! Root images: an image's layers as one file system, made once, for guests to boot from.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{Hold, Lock, lock};
use rustix::fs::OFlags;

use super::record::ImageRecord;
use super::{Image, Store, StoreError};
use crate::digest::Digest;
use crate::erofs::image_bytes;
use crate::flatten::{FlattenError, write_root_image};
use crate::progress::Progress;

/// Part of every name: goes up whenever the same layers would give other bytes than before, so that
/// old files are no longer found, and are swept.
const FORMAT: &str = "erofs 1";

/// A file system to attach to a guest, read-only. It may be shared by any number of guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootImage {
    pub path: PathBuf,
    pub bytes: u64,
}

/// Why an image has no root image.
#[derive(Debug, thiserror::Error)]
pub enum RootImageError {
    #[error(
        "the image {0} was removed in the meantime; get it again with `ringwall image pull {0}` or `ringwall image import PATH`"
    )]
    Removed(String),
    #[error("cannot make a root file system of the image {name}")]
    Flatten { name: String, source: FlattenError },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// The image's root image, which is made if there is none yet. It stays for as long as the image
    /// does: who wants to use it holds the image ([`Image::hold`]) before asking.
    pub fn root_image(
        &self,
        image: &Image,
        progress: &dyn Progress,
    ) -> Result<RootImage, RootImageError> {
        if let Some(made) = image.made_root_image()? {
            return Ok(made);
        }
        let _adding = self.lock_for_adding()?;
        let _converting = self.lock_for_converting()?;
        // Someone else may have made it while this process waited.
        if let Some(made) = image.made_root_image()? {
            return Ok(made);
        }
        if !image.record_path.exists() {
            return Err(RootImageError::Removed(image.name.clone()));
        }
        let path = &image.root_image_path;
        let (file, temp) = self.temp_file()?;
        let bytes = write_root_image(&image.layers, &file, id_of(path), &self.limits, progress)
            .map_err(|source| RootImageError::Flatten { name: image.name.clone(), source })?;
        file.set_permissions(Permissions::from_mode(0o444))
            .map_err(StoreError::io("write", path))?;
        temp.replace(path)?;
        Ok(RootImage { path: path.clone(), bytes })
    }

    pub(super) fn root_image_path(&self, stack: &[Digest]) -> PathBuf {
        let layers: String = stack.iter().map(|layer| format!("\n{}", layer.hex())).collect();
        let key = Digest::of(format!("{FORMAT}{layers}").as_bytes());
        self.root.join("roots").join(format!("{}.erofs", key.hex()))
    }

    /// Deletes the root images that no image of `kept` has. Gives how many there were.
    pub(super) fn sweep_root_images(&self, kept: &[ImageRecord]) -> Result<usize, StoreError> {
        let used: Vec<PathBuf> =
            kept.iter().map(|image| self.root_image_path(&image.stack)).collect();
        let mut count = 0;
        for name in self.names_in("roots")? {
            let path = self.root.join("roots").join(name);
            if !used.contains(&path) {
                fs::remove_file(&path).map_err(StoreError::io("remove", &path))?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// One at a time. It saves doing the work twice; and to read a file that even its owner may not
    /// read, an ordinary user changes its mode for a moment, which no other conversion must see.
    ///
    /// Waits for as long as it takes: the lock is gone as soon as its holder is.
    fn lock_for_converting(&self) -> Result<Lock, StoreError> {
        let path = self.root.join("converting");
        lock(&path, Hold::Alone).map_err(|error| StoreError::io("lock", &path)(error.into()))
    }
}

impl Image {
    /// The root image, if it has been made.
    pub fn made_root_image(&self) -> Result<Option<RootImage>, StoreError> {
        let path = &self.root_image_path;
        let bytes = made_bytes(path).map_err(StoreError::io("read", path))?;
        Ok(bytes.map(|bytes| RootImage { path: path.clone(), bytes }))
    }
}

/// The size of the root image in `path`. One that a crash of the machine has cut short is as good as
/// none; it is replaced.
pub(super) fn made_bytes(path: &Path) -> io::Result<Option<u64>> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => image_bytes(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A UUID from the file's name, so that equal layers give equal bytes.
fn id_of(path: &Path) -> [u8; 16] {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let digits = name.get(..32).unwrap_or_default();
    u128::from_str_radix(digits, 16).unwrap_or_default().to_be_bytes()
}
