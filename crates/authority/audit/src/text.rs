//! Text and ids as they may stand in a record: bounded, and without characters that could forge
//! anything.

use std::fmt::{self, Write};

use ringwall_spec::{SandboxId, push_shown};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Free text, at most [`Text::MOST_BYTES`] long. Control characters, and characters that reorder or
/// hide text, are replaced by their escapes; a text that is too long is cut, and ends with `...`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Text(String);

/// What joins records: names a task, a call, a sandbox, a grant or an approval.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Id(String);

impl Text {
    pub const MOST_BYTES: usize = 2048;

    pub fn new(text: impl AsRef<str>) -> Text {
        const CUT: &str = "...";
        let mut clean = String::new();
        for character in text.as_ref().chars() {
            let before = clean.len();
            push_shown(&mut clean, character);
            if clean.len() > Text::MOST_BYTES {
                clean.truncate(before);
                let mut end = clean.len().min(Text::MOST_BYTES - CUT.len());
                while !clean.is_char_boundary(end) {
                    end -= 1;
                }
                clean.truncate(end);
                clean.push_str(CUT);
                break;
            }
        }
        Text(clean)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Id {
    pub const MOST_BYTES: usize = 200;

    /// Takes letters, digits and `-_.:/@+=` as they are and escapes all else as `%XX`, so that two
    /// ids stay two. An id that is too long is replaced by its digest.
    pub fn new(id: impl AsRef<str>) -> Id {
        let id = id.as_ref();
        let mut clean = String::with_capacity(id.len());
        for byte in id.bytes() {
            if byte.is_ascii_alphanumeric() || b"-_.:/@+=%".contains(&byte) {
                clean.push(char::from(byte));
            } else {
                let _ = write!(clean, "%{byte:02X}");
            }
            if clean.len() > Id::MOST_BYTES {
                return Id(format!("sha256:{}", crate::hash::hex(&Sha256::digest(id))));
            }
        }
        Id(clean)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! conversions {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name::new(text)
            }
        }
    };
}

conversions!(Text);
conversions!(Id);

impl From<&SandboxId> for Id {
    fn from(id: &SandboxId) -> Id {
        Id(id.as_str().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_carries_no_orders_for_a_terminal() {
        assert_eq!(Text::new("a\x1b[2J\nb\u{202e}").as_str(), "a\\u{1b}[2J\\u{a}b\\u{202e}");
        assert_eq!(Text::new("größe").as_str(), "größe");
        assert_eq!(Text::new("a\u{e0041}\u{ad}").as_str(), "a\\u{e0041}\\u{ad}");
    }

    #[test]
    fn different_ids_stay_different() {
        assert_ne!(Id::new("a b"), Id::new("a_b"));
        assert_ne!(Id::new("x".repeat(201)), Id::new("x".repeat(202)));
        assert!(Id::new("x".repeat(4000)).as_str().len() <= Id::MOST_BYTES);
    }

    proptest! {
        #[test]
        fn any_text_is_bounded_and_taken_again_as_it_is(text in "\\PC{0,40}|(?s).{0,3000}") {
            let once = Text::new(&text);
            prop_assert!(once.as_str().len() <= Text::MOST_BYTES);
            prop_assert!(!once.as_str().chars().any(char::is_control));
            prop_assert_eq!(Text::new(once.as_str()), once);
            let id = Id::new(&text);
            prop_assert!(id.as_str().len() <= Id::MOST_BYTES);
            prop_assert_eq!(Id::new(id.as_str()), id);
        }
    }
}
