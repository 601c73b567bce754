//! Paths inside a workspace, and how bytes that need not be text are kept in JSON.
//!
//! Invariant: a [`RelPath`] is relative, not empty, made of ordinary names only (no `.`, no `..`)
//! and short enough for the kernel to resolve in one call.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A path below the root of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RelPath(PathBuf);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("an empty path names nothing")]
    Empty,
    #[error("the path {0} is not made of plain names below the workspace")]
    NotPlain(String),
    #[error("a path of {0} bytes is longer than {max}", max = RelPath::MAX_BYTES)]
    TooLong(usize),
    #[error("{0:?} is not an escaped path")]
    BadEscape(String),
}

impl RelPath {
    /// Below the kernel's PATH_MAX (4096) with room for a staging name.
    pub const MAX_BYTES: usize = 4000;

    pub fn new(path: impl Into<PathBuf>) -> Result<Self, PathError> {
        let path = path.into();
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.len() > Self::MAX_BYTES {
            return Err(PathError::TooLong(bytes.len()));
        }
        // `components` forgives `a//b` and `a/./b`; only the exact form is stored and compared.
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let exact = path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        if !plain || !exact || bytes.contains(&0) {
            return Err(PathError::NotPlain(crate::show::quoted(&path)));
        }
        Ok(RelPath(path))
    }

    /// The entry `name` in the directory `parent`, where `None` is the workspace itself.
    pub(crate) fn in_dir(parent: Option<&RelPath>, name: &OsStr) -> Result<Self, PathError> {
        let parent = parent.map_or(Path::new(""), RelPath::as_path);
        RelPath::new(parent.join(name))
    }

    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// The directory that holds this path; `None` is the workspace itself.
    pub fn parent(&self) -> Option<RelPath> {
        let parent = self.0.parent()?;
        (!parent.as_os_str().is_empty()).then(|| RelPath(parent.to_owned()))
    }

    pub fn file_name(&self) -> &OsStr {
        self.0.file_name().unwrap_or(self.0.as_os_str())
    }

    pub fn depth(&self) -> usize {
        self.0.components().count()
    }

    /// Whether this is `other` or lies below it.
    pub fn is_within(&self, other: &Path) -> bool {
        self.0.starts_with(other)
    }

    /// The directories above this path, nearest first, without the workspace itself.
    pub fn ancestors(&self) -> impl Iterator<Item = &Path> {
        self.0.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty())
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> String {
        escape_bytes(path.0.as_os_str().as_bytes())
    }
}

impl TryFrom<String> for RelPath {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        let bytes = unescape_bytes(&text)?;
        RelPath::new(PathBuf::from(OsString::from_vec(bytes)))
    }
}

/// Bytes as JSON text: printable UTF-8 as it is, everything else as `\xNN`, a backslash doubled.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EscapedBytes(pub(crate) Vec<u8>);

impl EscapedBytes {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<EscapedBytes> for String {
    fn from(bytes: EscapedBytes) -> String {
        escape_bytes(&bytes.0)
    }
}

impl TryFrom<String> for EscapedBytes {
    type Error = PathError;

    fn try_from(text: String) -> Result<Self, PathError> {
        unescape_bytes(&text).map(EscapedBytes)
    }
}

fn escape_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push_str("\\\\");
            } else if c.is_control() {
                let mut buffer = [0; 4];
                push_hex(&mut text, c.encode_utf8(&mut buffer).as_bytes());
            } else {
                text.push(c);
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

fn unescape_bytes(text: &str) -> Result<Vec<u8>, PathError> {
    let wrong = || PathError::BadEscape(text.chars().take(80).collect());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        if let Some(after) = escape.strip_prefix('\\') {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = escape.strip_prefix('x').and_then(|hex| hex.get(..2)).ok_or_else(wrong)?;
            if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
            rest = &escape[3..];
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_plain_relative_paths_are_accepted() {
        for good in ["a", "a/b", ".env", "a b/\n", "..."] {
            assert!(RelPath::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", "/", "/etc", "..", "a/../b", "./a", "a/.", "a//b", "a/", "a\0b"] {
            assert!(RelPath::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(RelPath::new("x".repeat(4001)), Err(PathError::TooLong(4001)));
    }

    #[test]
    fn a_hostile_manifest_path_is_refused_on_reading() {
        for bad in ["\"../x\"", "\"/x\"", "\"a\\\\x00b\"", "\"\\\\x2e\\\\x2e/x\"", "\"\\\\xzz\""] {
            assert!(serde_json::from_str::<RelPath>(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_survive_json(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let json = serde_json::to_string(&EscapedBytes(bytes.clone())).unwrap();
            let back: EscapedBytes = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(back.0, bytes);
        }
    }
}
