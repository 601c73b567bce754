//! File contents: hashing and copying with a bound.

use std::fmt;
use std::io::{self, Read, Write};

use ringwall_safekeeping::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || "a digest is 64 hexadecimal digits".to_owned();
        hex::decode_array(&text).map(Digest).ok_or_else(wrong)
    }
}

/// The content that was read from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) size: u64,
    pub(crate) sha256: Digest,
}

/// Which side of a copy failed; the two are told to the user differently.
#[derive(Debug)]
pub(crate) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// Copies and hashes until the end, or stops with `None` as soon as there are more than
/// `max_bytes`: a file may grow while it is read.
pub(crate) fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    max_bytes: u64,
) -> Result<Option<Content>, CopyError> {
    // Small enough to come from the heap again and again, not from fresh pages each time.
    let mut buffer = vec![0u8; 64 << 10];
    let mut hasher = Sha256::new();
    let mut size = 0u64;
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        size += got as u64;
        if size > max_bytes {
            return Ok(None);
        }
        hasher.update(&buffer[..got]);
        to.write_all(&buffer[..got]).map_err(CopyError::Write)?;
    }
    Ok(Some(Content { size, sha256: Digest(hasher.finalize().into()) }))
}

/// Hashes to the end, or `None` if there are more than `max_bytes`.
pub(crate) fn hash(from: &mut dyn Read, max_bytes: u64) -> io::Result<Option<Content>> {
    copy(from, &mut io::sink(), max_bytes).map_err(|error| match error {
        CopyError::Read(error) | CopyError::Write(error) => error,
    })
}

/// The whole content, or `None` if there are more than `max_bytes`.
pub(crate) fn read_bounded(from: impl Read, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= max_bytes).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_sha256_and_survives_json() {
        let content = hash(&mut &b"abc"[..], 10).unwrap().unwrap();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(content.sha256.to_string(), known);
        let json = serde_json::to_string(&content.sha256).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), content.sha256);
        assert!(serde_json::from_str::<Digest>("\"é\"").is_err());
    }

    #[test]
    fn a_copy_stops_at_its_bound() {
        let mut out = Vec::new();
        assert!(copy(&mut &b"abcd"[..], &mut out, 3).unwrap().is_none());
        assert_eq!(read_bounded(&b"abcd"[..], 3).unwrap(), None);
        assert_eq!(read_bounded(&b"abc"[..], 3).unwrap(), Some(b"abc".to_vec()));
    }
}
