//! Keeps an image in the store for as long as a sandbox runs on it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use ringwall_safekeeping::{Hold, Wait, hold};

use super::Image;

/// While this lives, in this process or in one that inherited its descriptor, the image's layers
/// stay. The kernel lets go of it when the last holder dies, however it dies.
#[derive(Debug)]
pub struct ImageHold {
    file: File,
}

/// Why an image could not be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error(
        "the image {0} was removed in the meantime; get it again with `ringwall image pull {0}` or `ringwall image import PATH`"
    )]
    Removed(String),
    #[error("cannot hold the image {name}")]
    Lock { name: String, source: io::Error },
}

impl Image {
    /// Holds the image; three system calls.
    pub fn hold(&self) -> Result<ImageHold, HoldError> {
        let failed = |source| HoldError::Lock { name: self.name.clone(), source };
        let file = match File::open(&self.record_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(HoldError::Removed(self.name.clone()));
            }
            other => other.map_err(failed)?,
        };
        hold(&file, Hold::Shared, Wait::Forever).map_err(failed)?;
        // A removal between opening and locking leaves a lock on a file without a name.
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed(errno.into()))?;
        if stat.st_nlink == 0 {
            return Err(HoldError::Removed(self.name.clone()));
        }
        Ok(ImageHold { file })
    }
}

impl AsFd for ImageHold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What stands in the way of deleting an image.
pub(super) enum Claim {
    /// Nothing; and nobody can hold the image while the file is open.
    Unheld(File),
    Held,
    /// The image is gone already.
    Gone,
}

pub(super) fn claim(record_path: &Path) -> io::Result<Claim> {
    let file = match File::open(record_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Claim::Gone),
        other => other?,
    };
    match hold(&file, Hold::Alone, Wait::Never)? {
        true => Ok(Claim::Unheld(file)),
        false => Ok(Claim::Held),
    }
}
