//! Content by digest: nothing gets a name here before its bytes have been checked.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};

use super::temp::Temp;
use super::{Store, StoreError};
use crate::digest::{Digest, Hasher};
use crate::manifest::Descriptor;

/// Why content did not make it into the store.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("{digest} has more than the {size} bytes that the image says")]
    TooLong { digest: Digest, size: u64 },
    #[error("{digest} has {found} bytes, not the {size} that the image says")]
    TooShort { digest: Digest, size: u64, found: u64 },
    #[error("the content of {expected} is wrong: its digest is {found}")]
    WrongDigest { expected: Digest, found: Digest },
    #[error("cannot write {digest}")]
    Write { digest: Digest, source: io::Error },
}

/// A blob on its way into the store.
pub(crate) struct BlobWriter {
    file: File,
    temp: Temp,
    hasher: Hasher,
    expected: Descriptor,
}

impl Store {
    pub(super) fn has_blob(&self, blob: &Descriptor) -> bool {
        // Names are only given to checked content, so the size is enough to notice a torn disk.
        fs::metadata(self.blob_path(&blob.digest)).is_ok_and(|found| found.len() == blob.size)
    }

    pub(super) fn open_blob(&self, digest: &Digest) -> Result<File, StoreError> {
        let path = self.blob_path(digest);
        File::open(&path).map_err(StoreError::io("read", &path))
    }

    /// Reads a small blob that has been checked before.
    pub(super) fn read_blob(&self, blob: &Descriptor) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let read = self.open_blob(&blob.digest)?.take(blob.size).read_to_end(&mut bytes);
        read.map_err(StoreError::io("read", &self.blob_path(&blob.digest)))?;
        Ok(bytes)
    }

    pub(crate) fn write_blob(&self, expected: &Descriptor) -> Result<BlobWriter, StoreError> {
        let (file, temp) = self.temp_file()?;
        Ok(BlobWriter { file, temp, hasher: Hasher::default(), expected: expected.clone() })
    }

    /// Stores bytes under their own digest.
    pub(super) fn put_bytes(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        let path = self.blob_path(&digest);
        if !path.exists() {
            let (mut file, temp) = self.temp_file()?;
            file.write_all(bytes).map_err(StoreError::io("write", &path))?;
            temp.replace(&path)?;
        }
        Ok(digest)
    }

    pub(super) fn commit_blob(&self, writer: BlobWriter) -> Result<(), CommitError> {
        let BlobWriter { file: _, temp, hasher, expected } = writer;
        check_content(hasher, &expected)?;
        Ok(temp.replace(&self.blob_path(&expected.digest))?)
    }
}

fn check_content(hasher: Hasher, expected: &Descriptor) -> Result<(), BlobError> {
    let Descriptor { digest, size, .. } = expected;
    let found = hasher.bytes();
    if found != *size {
        return Err(BlobError::TooShort { digest: digest.clone(), size: *size, found });
    }
    let found = hasher.finish();
    if found != *digest {
        return Err(BlobError::WrongDigest { expected: digest.clone(), found });
    }
    Ok(())
}

/// Why a finished blob was not stored.
pub(super) enum CommitError {
    Blob(BlobError),
    Store(StoreError),
}

impl From<BlobError> for CommitError {
    fn from(error: BlobError) -> Self {
        CommitError::Blob(error)
    }
}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        CommitError::Store(error)
    }
}

impl BlobWriter {
    /// Bytes written so far: where an interrupted download goes on.
    pub(crate) fn written(&self) -> u64 {
        self.hasher.bytes()
    }

    /// Refuses the first byte beyond the expected size, so that nobody can fill the disk.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        let Descriptor { digest, size, .. } = &self.expected;
        if self.hasher.bytes() + bytes.len() as u64 > *size {
            return Err(BlobError::TooLong { digest: digest.clone(), size: *size });
        }
        self.hasher.update(bytes);
        self.file
            .write_all(bytes)
            .map_err(|source| BlobError::Write { digest: digest.clone(), source })
    }

    /// Hands out the content, checked, instead of storing it.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, BlobError> {
        let BlobWriter { mut file, temp: _temp, hasher, expected } = self;
        check_content(hasher, &expected)?;
        let mut bytes = Vec::new();
        let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
        read.map_err(|source| BlobError::Write { digest: expected.digest, source })?;
        Ok(bytes)
    }

    /// Forgets what was written.
    pub(crate) fn restart(&mut self) -> Result<(), BlobError> {
        self.hasher = Hasher::default();
        self.file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .map_err(|source| BlobError::Write { digest: self.expected.digest.clone(), source })
    }
}
