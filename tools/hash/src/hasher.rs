//! The algorithms behind one interface.

use serde::{Deserialize, Serialize};
use sha2::digest::DynDigest;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    Sha256,
    Sha512,
    #[serde(rename = "sha3-256")]
    Sha3,
    Blake3,
    /// For checking what others publish; broken as a defence.
    Sha1,
    /// For checking what others publish; broken as a defence.
    Md5,
    /// The checksum of zip, gzip and PNG.
    Crc32,
}

impl Algorithm {
    pub(crate) fn hasher(self) -> Box<dyn Hasher> {
        match self {
            Self::Sha256 => Box::new(Digest(Box::<sha2::Sha256>::default())),
            Self::Sha512 => Box::new(Digest(Box::<sha2::Sha512>::default())),
            Self::Sha3 => Box::new(Digest(Box::<sha3::Sha3_256>::default())),
            Self::Sha1 => Box::new(Digest(Box::<sha1::Sha1>::default())),
            Self::Md5 => Box::new(Digest(Box::<md5::Md5>::default())),
            Self::Blake3 => Box::<blake3::Hasher>::default(),
            Self::Crc32 => Box::<crc32fast::Hasher>::default(),
        }
    }
}

pub(crate) trait Hasher {
    fn update(&mut self, bytes: &[u8]);
    fn finish(self: Box<Self>) -> Vec<u8>;
}

struct Digest(Box<dyn DynDigest>);

impl Hasher for Digest {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        self.0.finalize().into_vec()
    }
}

impl Hasher for blake3::Hasher {
    fn update(&mut self, bytes: &[u8]) {
        blake3::Hasher::update(self, bytes);
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        self.finalize().as_bytes().to_vec()
    }
}

impl Hasher for crc32fast::Hasher {
    fn update(&mut self, bytes: &[u8]) {
        crc32fast::Hasher::update(self, bytes);
    }

    fn finish(self: Box<Self>) -> Vec<u8> {
        self.finalize().to_be_bytes().to_vec()
    }
}
