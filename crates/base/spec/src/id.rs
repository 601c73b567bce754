//! Names of sandboxes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Identifies one sandbox: twelve lower-case base-32 characters. Safe as a file, cgroup and host name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SandboxId(String);

/// A name that a person gave to a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SandboxName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("{0:?} is not a sandbox id; ids are 12 characters of a-z and 2-7")]
    BadId(String),
    #[error(
        "{0:?} is not a sandbox name; use 1 to 63 characters of a-z, 0-9, '-', '_' and '.', starting with a letter or digit"
    )]
    BadName(String),
    #[error(
        "{0:?} looks like a sandbox id and cannot be a name; choose one of another length than 12, or with a character like '-'"
    )]
    NameLikeId(String),
}

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

impl SandboxId {
    pub const LENGTH: usize = 12;

    /// Builds an id from random bytes; the caller owns the source of randomness.
    pub fn from_random(bytes: [u8; 12]) -> Self {
        SandboxId(bytes.iter().map(|b| ALPHABET[usize::from(b & 31)] as char).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SandboxName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let valid = text.len() == Self::LENGTH && text.bytes().all(|b| ALPHABET.contains(&b));
        if valid { Ok(SandboxId(text.to_owned())) } else { Err(IdError::BadId(text.to_owned())) }
    }
}

impl FromStr for SandboxName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let starts_well = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let all_known =
            text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'));
        // Sandboxes are found by id or name, so no name may be another sandbox's id.
        if text.parse::<SandboxId>().is_ok() {
            return Err(IdError::NameLikeId(text.to_owned()));
        }
        if starts_well && all_known && text.len() <= 63 {
            Ok(SandboxName(text.to_owned()))
        } else {
            Err(IdError::BadName(text.to_owned()))
        }
    }
}

macro_rules! text_conversions {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
    };
}

text_conversions!(SandboxId);
text_conversions!(SandboxName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_always_make_a_valid_id() {
        let id = SandboxId::from_random([0, 31, 32, 63, 255, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(id.as_str().parse::<SandboxId>().unwrap(), id);
    }

    #[test]
    fn names_that_could_be_paths_or_flags_are_refused() {
        for bad in ["", "..", "-x", "a/b", "A", "a b", &"a".repeat(64)] {
            assert!(bad.parse::<SandboxName>().is_err(), "{bad:?}");
        }
        assert!("build-1.2_x".parse::<SandboxName>().is_ok());
        let like_id = "vl4emwf4rlgr".parse::<SandboxName>();
        assert!(matches!(like_id, Err(IdError::NameLikeId(_))), "{like_id:?}");
        assert!("integration-tests".parse::<SandboxName>().is_ok());
    }
}
