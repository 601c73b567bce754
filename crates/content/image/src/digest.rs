//! SHA-256 digests, and readers and writers that check bytes while they pass.
//!
//! Invariant: a [`Digest`] is always 64 lower-case hexadecimal characters, so it is safe as a file name.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of some content, shown as `sha256:<hex>`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest {
    hex: String,
}

/// Why a text is no digest that Ringwall accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("{0:?} is not a digest; expected sha256: and 64 lower-case hexadecimal characters")]
    Malformed(String),
    #[error("{0:?} uses a hash that is not supported; only sha256 is")]
    UnsupportedHash(String),
}

impl Digest {
    pub fn of(bytes: &[u8]) -> Digest {
        Digest::from_hash(&Sha256::digest(bytes))
    }

    /// The 64 characters without the `sha256:` prefix.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// Enough of the digest for a person to tell two apart.
    pub(crate) fn short(&self) -> &str {
        &self.hex[..12]
    }

    fn from_hash(hash: &[u8]) -> Digest {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let hex = hash
            .iter()
            .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]])
            .map(char::from)
            .collect();
        Digest { hex }
    }

    pub(crate) fn from_hex(hex: &str) -> Option<Digest> {
        let valid = hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Digest { hex: hex.to_owned() })
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        // What is echoed in an error may come from the network: keep it short.
        let shown = || text.chars().take(100).collect::<String>();
        match text.split_once(':') {
            Some(("sha256", hex)) => {
                Digest::from_hex(hex).ok_or_else(|| DigestError::Malformed(shown()))
            }
            Some((hash, _)) if hash.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                Err(DigestError::UnsupportedHash(shown()))
            }
            _ => Err(DigestError::Malformed(shown())),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest, DigestError> {
        text.parse()
    }
}

/// Hashes content that arrives piece by piece.
#[derive(Clone, Default)]
pub(crate) struct Hasher {
    state: Sha256,
    bytes: u64,
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// How many bytes have been hashed so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from_hash(&self.state.finalize())
    }
}

/// Hashes whatever `reader` has left.
pub(crate) fn digest_of_reader(mut reader: impl Read) -> io::Result<(Digest, u64)> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        let count = reader.read(&mut buffer)?;
        if count == 0 {
            let bytes = hasher.bytes();
            return Ok((hasher.finish(), bytes));
        }
        hasher.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_text_has_the_well_known_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), Digest::of(b""));
    }

    #[test]
    fn nothing_but_full_lower_case_sha256_is_accepted() {
        let upper = format!("sha256:{}", "A".repeat(64));
        for bad in ["", "sha256:", "sha256:abc", "sha256:../../x", &upper, "x"] {
            assert!(matches!(bad.parse::<Digest>(), Err(DigestError::Malformed(_))), "{bad:?}");
        }
        let sha512 = format!("sha512:{}", "a".repeat(128));
        assert!(matches!(sha512.parse::<Digest>(), Err(DigestError::UnsupportedHash(_))));
    }
}
