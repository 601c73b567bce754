//! Names inside an archive, checked before they get anywhere near a file system.

use crate::limits::{MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_DEPTH};
use crate::unpack::Refusal;

/// A relative path without empty, `.` or `..` parts. The layer's own root is the empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryPath {
    bytes: Vec<u8>,
    /// Where the last part begins.
    name_at: usize,
}

impl EntryPath {
    pub(super) fn parse(raw: &[u8]) -> Result<EntryPath, Refusal> {
        // Kaniko names the root itself "/"; every other absolute name is refused.
        if raw == b"/" {
            return Ok(EntryPath { bytes: Vec::new(), name_at: 0 });
        }
        if raw.is_empty() {
            return Err(Refusal::EmptyName);
        }
        if raw.starts_with(b"/") {
            return Err(Refusal::AbsoluteName);
        }
        if raw.contains(&0) {
            return Err(Refusal::NulInName);
        }
        if raw.len() > MAX_PATH_BYTES {
            return Err(Refusal::NameTooLong);
        }
        let mut bytes = Vec::with_capacity(raw.len());
        let mut name_at = 0;
        let mut depth = 0;
        for part in raw.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")) {
            if part == b".." {
                return Err(Refusal::ParentDirectory);
            }
            if part.len() > MAX_NAME_BYTES {
                return Err(Refusal::NameTooLong);
            }
            depth += 1;
            if depth > MAX_PATH_DEPTH {
                return Err(Refusal::TooDeep);
            }
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            name_at = bytes.len();
            bytes.extend_from_slice(part);
        }
        Ok(EntryPath { bytes, name_at })
    }

    pub(super) fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The last part.
    pub(super) fn name(&self) -> &[u8] {
        &self.bytes[self.name_at..]
    }

    /// Everything before the last part; empty for what lies directly in the root.
    pub(super) fn parent(&self) -> &[u8] {
        &self.bytes[..self.name_at.saturating_sub(1)]
    }

    /// The same directory, another name in it.
    pub(super) fn sibling(&self, name: &[u8]) -> EntryPath {
        let mut bytes = self.bytes[..self.name_at].to_vec();
        bytes.extend_from_slice(name);
        EntryPath { bytes, name_at: self.name_at }
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/')
    }
}

/// What an entry's name says about lower layers, in the notation that AUFS left to OCI.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// An ordinary entry.
    None,
    /// Hide this path of the lower layers.
    Whiteout(EntryPath),
    /// Hide everything that lower layers have in this entry's directory.
    Opaque,
    /// AUFS' own bookkeeping, which means nothing here.
    Bookkeeping,
}

const WHITEOUT: &[u8] = b".wh.";
const BOOKKEEPING: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

impl Marker {
    pub(super) fn of(path: &EntryPath) -> Result<Marker, Refusal> {
        if path.name() == OPAQUE {
            return Ok(Marker::Opaque);
        }
        if path.parts().any(|part| part.starts_with(BOOKKEEPING)) {
            return Ok(Marker::Bookkeeping);
        }
        if path.parent().split(|byte| *byte == b'/').any(|part| part.starts_with(WHITEOUT)) {
            return Err(Refusal::BadWhiteout);
        }
        match path.name().strip_prefix(WHITEOUT) {
            None => Ok(Marker::None),
            Some(b"" | b"." | b"..") => Err(Refusal::BadWhiteout),
            Some(hidden) => Ok(Marker::Whiteout(path.sibling(hidden))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(raw: &str) -> Result<EntryPath, Refusal> {
        EntryPath::parse(raw.as_bytes())
    }

    #[test]
    fn harmless_spellings_are_normalised() {
        for (raw, expected) in [("./a//b/", "a/b"), ("a/./b", "a/b"), ("./", ""), ("/", "")] {
            assert_eq!(parse(raw).unwrap().bytes(), expected.as_bytes(), "{raw:?}");
        }
        let path = parse("usr/bin/env").unwrap();
        assert_eq!((path.parent(), path.name()), (&b"usr/bin"[..], &b"env"[..]));
        assert_eq!(parse("top").unwrap().parent(), b"");
    }

    #[test]
    fn hostile_names_are_refused_by_kind() {
        for (raw, refusal) in [
            ("", Refusal::EmptyName),
            ("/etc/passwd", Refusal::AbsoluteName),
            ("//", Refusal::AbsoluteName),
            ("..", Refusal::ParentDirectory),
            ("a/../../b", Refusal::ParentDirectory),
            ("a\0b", Refusal::NulInName),
            (&"a/".repeat(MAX_PATH_DEPTH + 1), Refusal::TooDeep),
            (&"a".repeat(256), Refusal::NameTooLong),
            (&"abcdefg/".repeat(600), Refusal::NameTooLong),
        ] {
            assert_eq!(parse(raw), Err(refusal), "{raw:?}");
        }
    }

    #[test]
    fn whiteouts_are_told_from_files() {
        let marker = |raw: &str| Marker::of(&parse(raw).unwrap());
        assert_eq!(marker("a/b"), Ok(Marker::None));
        assert_eq!(marker("a/.wh.b"), Ok(Marker::Whiteout(parse("a/b").unwrap())));
        assert_eq!(marker("a/.wh..wh..opq"), Ok(Marker::Opaque));
        assert_eq!(marker(".wh..wh.plnk/1.2"), Ok(Marker::Bookkeeping));
        for bad in [".wh.", ".wh..", ".wh...", "a/.wh.b/c"] {
            assert_eq!(marker(bad), Err(Refusal::BadWhiteout), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_stays_inside(raw in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..64)) {
            if let Ok(path) = EntryPath::parse(&raw) {
                prop_assert!(!path.bytes().starts_with(b"/"));
                prop_assert!(path.is_root() || path.parts().all(|p| !matches!(p, b"" | b"." | b"..")));
            }
        }
    }
}
