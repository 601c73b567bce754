//! Ed25519 keys: in memory, and in files that nobody else can read.

use std::fmt;
use std::path::Path;

use biscuit_auth::builder::Algorithm;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use ringwall_safekeeping::{Content, FileError, Trust, create_new, hex, random, read};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const FORM: &str = "ringwall-ed25519-secret:";

/// A key that signs. Its bytes are wiped when it is dropped.
pub struct SecretKey(SigningKey);

/// What anybody may know of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublicKey([u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no public key; it is ed25519/ and 64 hexadecimal digits")]
pub struct PublicKeyError(String);

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the file {0} holds no key; restore it, or remove it to have a new one made")]
    Content(String),
}

impl SecretKey {
    pub fn generate() -> Result<SecretKey, KeyError> {
        let mut seed = Zeroizing::new([0; 32]);
        random(&mut seed[..])?;
        Ok(SecretKey(SigningKey::from_bytes(&seed)))
    }

    /// Reads a key from a file, which nobody else may be able to read or to have put there.
    pub fn load(path: &Path) -> Result<SecretKey, KeyError> {
        let content = Zeroizing::new(read(path, Trust::Secret, 256)?);
        let wrong = || KeyError::Content(path.display().to_string());
        let text = std::str::from_utf8(&content).map_err(|_| wrong())?;
        let digits = text.trim_end().strip_prefix(FORM).ok_or_else(wrong)?;
        let seed = Zeroizing::new(hex::decode_array::<32>(digits).ok_or_else(wrong)?);
        Ok(SecretKey(SigningKey::from_bytes(&seed)))
    }

    /// Writes the key to a new file. Fails if there is one.
    pub fn store_new(&self, path: &Path) -> Result<(), KeyError> {
        let digits = Zeroizing::new(hex::encode(self.0.as_bytes()));
        let content = Zeroizing::new(format!("{FORM}{}\n", digits.as_str()));
        Ok(create_new(path, Content::durable(content.as_bytes()))?)
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs a message of one sort. The sort is part of what is signed, so that a signature is never
    /// taken for one of another sort.
    pub fn sign(&self, sort: &str, message: &[u8]) -> [u8; 64] {
        self.0.sign(&of_sort(sort, message)).to_bytes()
    }

    pub(crate) fn pair(&self) -> Result<biscuit_auth::KeyPair, biscuit_auth::error::Format> {
        let seed = Zeroizing::new(self.0.to_bytes());
        biscuit_auth::KeyPair::from_bytes(&seed[..], Algorithm::Ed25519.into())
    }
}

impl PublicKey {
    /// Whether this key signed that message, as one of that sort.
    pub fn verifies(&self, sort: &str, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            key.verify_strict(&of_sort(sort, message), &Signature::from_bytes(signature)).is_ok()
        })
    }

    pub(crate) fn to_biscuit(self) -> Result<biscuit_auth::PublicKey, biscuit_auth::error::Format> {
        biscuit_auth::PublicKey::from_bytes(&self.0, Algorithm::Ed25519)
    }

    /// `None`: a key of another sort, which no key of ours is.
    pub(crate) fn of_biscuit(key: &biscuit_auth::PublicKey) -> Option<PublicKey> {
        let bytes = key.to_bytes().try_into().ok().map(PublicKey)?;
        (key.algorithm_string() == "ed25519").then_some(bytes)
    }
}

fn of_sort(sort: &str, message: &[u8]) -> Vec<u8> {
    [b"ringwall ", sort.as_bytes(), b"\n", message].concat()
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519/{}", hex::encode(&self.0))
    }
}

impl std::str::FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<PublicKey, PublicKeyError> {
        let bytes = text.strip_prefix("ed25519/").and_then(hex::decode_array::<32>);
        let valid = bytes.filter(|bytes| VerifyingKey::from_bytes(bytes).is_ok());
        valid.map(PublicKey).ok_or_else(|| PublicKeyError(text.chars().take(100).collect()))
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> String {
        key.to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = PublicKeyError;

    fn try_from(text: String) -> Result<PublicKey, PublicKeyError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_one_sort_and_one_message() {
        let (key, other) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let signature = key.sign("a", b"message");
        assert!(key.public().verifies("a", b"message", &signature));
        assert!(!key.public().verifies("b", b"message", &signature));
        assert!(!key.public().verifies("a", b"another", &signature));
        assert!(!other.public().verifies("a", b"message", &signature));
    }

    #[test]
    fn a_public_key_prints_as_it_is_read() {
        let key = SecretKey::generate().unwrap().public();
        assert_eq!(key.to_string().parse(), Ok(key));
        assert!("ed25519/00".parse::<PublicKey>().is_err());
    }

    #[test]
    fn a_secret_key_comes_back_from_its_file_and_is_not_printed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let key = SecretKey::generate().unwrap();
        key.store_new(&path).unwrap();
        assert_eq!(SecretKey::load(&path).unwrap().public(), key.public());
        assert!(matches!(key.store_new(&path), Err(KeyError::File(FileError::Exists(_)))));
        let secret = hex::encode(key.0.as_bytes());
        assert!(!format!("{key:?}").contains(&secret));
        std::fs::write(&path, "nonsense").unwrap();
        assert!(matches!(SecretKey::load(&path), Err(KeyError::Content(_))));
    }
}
