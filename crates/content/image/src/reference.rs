//! Names of images: `name`, `name:tag`, `host/name:tag`, `host:port/name@sha256:...`.
//!
//! A name without a host is first of all the name of something in the local store. A pull gives it the
//! default registry, by the rules people know from Docker.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::digest::{Digest, DigestError};

/// Where a pull looks for a name without a host.
pub(crate) const DEFAULT_REGISTRY: &str = "docker.io";
/// The default registry's API does not live at its own name.
const DEFAULT_REGISTRY_API: &str = "registry-1.docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";

const MAX_REFERENCE_BYTES: usize = 512;
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

/// A parsed image name. Its text form is canonical: two spellings of one name print the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    host: Option<String>,
    repository: String,
    version: Version,
}

/// Which of a repository's images is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    Tag(String),
    Digest(Digest),
}

/// Why a text is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("an image name must not be empty")]
    Empty,
    #[error("an image name has at most {MAX_REFERENCE_BYTES} bytes")]
    TooLong,
    #[error(
        "{0:?} is not a registry host; expected a host name or address, with :PORT where needed"
    )]
    BadHost(String),
    #[error(
        "{0:?} is not an image name; use a-z, 0-9 and '/', with '.', '_' or '-' between them, such as team/tool:1.0"
    )]
    BadRepository(String),
    #[error("{0:?} is not a tag; use up to 128 of A-Z, a-z, 0-9, '.', '_' and '-'")]
    BadTag(String),
    #[error(transparent)]
    BadDigest(#[from] DigestError),
}

impl Reference {
    /// The registry host as written; `None` for a local name.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub fn repository(&self) -> &str {
        &self.repository
    }

    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The name that a pull uses: a missing host becomes the default registry.
    pub(crate) fn with_default_registry(&self) -> Reference {
        let mut full = self.clone();
        let host = full.host.get_or_insert_with(|| DEFAULT_REGISTRY.to_owned());
        if host == DEFAULT_REGISTRY && !full.repository.contains('/') {
            full.repository = format!("{DEFAULT_NAMESPACE}/{}", full.repository);
        }
        full
    }

    pub(crate) fn is_of_default_registry(&self) -> bool {
        self.host.as_deref().is_none_or(|host| host == DEFAULT_REGISTRY)
    }

    /// The host and port that serve the registry's API for this name.
    pub(crate) fn api_host(&self) -> &str {
        match self.host.as_deref() {
            None | Some(DEFAULT_REGISTRY) => DEFAULT_REGISTRY_API,
            Some(host) => host,
        }
    }

    /// What follows `/manifests/` in the registry's API.
    pub(crate) fn version_text(&self) -> String {
        match &self.version {
            Version::Tag(tag) => tag.clone(),
            Version::Digest(digest) => digest.to_string(),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Reference, ReferenceError> {
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        if text.len() > MAX_REFERENCE_BYTES {
            return Err(ReferenceError::TooLong);
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        let (host, rest) = match rest.split_once('/') {
            Some((first, rest)) if looks_like_host(first) => (Some(parse_host(first)?), rest),
            _ => (None, rest),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(parse_tag(tag)?)),
            None => (rest, None),
        };
        // With both a tag and a digest the digest decides; the tag is only a note to the reader.
        let version = match digest {
            Some(digest) => Version::Digest(digest),
            None => Version::Tag(tag.unwrap_or(DEFAULT_TAG).to_owned()),
        };
        Ok(Reference { host, repository: parse_repository(repository)?, version })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}/")?;
        }
        match &self.version {
            Version::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            Version::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

/// Whether plain HTTP may be spoken with `authority` (a host with an optional port): it never
/// leaves this machine.
pub(crate) fn is_loopback(authority: &str) -> bool {
    let host = split_port(authority).0;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Splits `host:port`, leaving the colons inside `[::1]` alone.
pub(crate) fn split_port(authority: &str) -> (&str, Option<&str>) {
    let after_address = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_address..].rfind(':') {
        Some(colon) => {
            let colon = after_address + colon;
            (&authority[..colon], Some(&authority[colon + 1..]))
        }
        None => (authority, None),
    }
}

/// Docker's rule for telling `host/name` from `user/name`.
fn looks_like_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

fn parse_host(text: &str) -> Result<String, ReferenceError> {
    let (host, port) = split_port(text);
    let good_port = port.is_none_or(|port| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
    });
    let good_host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            host.len() <= 253
                && host.split('.').all(|label| {
                    !label.is_empty()
                        && label.len() <= 63
                        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                        && !label.starts_with('-')
                })
        }
    };
    if good_host && good_port {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(ReferenceError::BadHost(text.to_owned()))
    }
}

fn parse_repository(text: &str) -> Result<String, ReferenceError> {
    let good = text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(is_repository_part);
    if good { Ok(text.to_owned()) } else { Err(ReferenceError::BadRepository(text.to_owned())) }
}

/// Runs of a-z and 0-9, joined by one '.', one or two '_', or any number of '-'.
fn is_repository_part(part: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let known = part.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'_' | b'-'));
    let ends_in_words =
        part.bytes().next().is_some_and(is_word) && part.bytes().last().is_some_and(is_word);
    let joints_are_simple = part
        .split(|c: char| c.is_ascii_alphanumeric())
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'));
    known && ends_in_words && joints_are_simple
}

fn parse_tag(tag: &str) -> Result<&str, ReferenceError> {
    let starts_well = tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let known = tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if starts_well && known && tag.len() <= MAX_TAG_BYTES {
        Ok(tag)
    } else {
        Err(ReferenceError::BadTag(tag.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn canonical(text: &str) -> String {
        text.parse::<Reference>().unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, expected) in [
            ("busybox", "busybox:latest"),
            ("team/tool:1.0", "team/tool:1.0"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
            ("localhost/a:x", "localhost/a:x"),
            ("[::1]:5000/a:x", "[::1]:5000/a:x"),
            ("a__b--c.d:T_1", "a__b--c.d:T_1"),
        ] {
            assert_eq!(canonical(text), expected);
        }
        let pinned = format!("127.0.0.1:5000/a@sha256:{HEX}");
        assert_eq!(canonical(&pinned), pinned);
        assert_eq!(canonical(&format!("127.0.0.1:5000/a:tag@sha256:{HEX}")), pinned);
    }

    #[test]
    fn names_that_could_leave_the_url_or_the_store_are_refused() {
        for bad in [
            "",
            "..",
            "a/../b",
            "/a",
            "a/",
            "A",
            "a b",
            "a:",
            "a:b/c",
            "a?x",
            "a#x",
            "a%2f",
            "a\n",
            "a@sha256:12",
            "user:pw@127.0.0.1/a",
            "127.0.0.1:0/a",
            "127.0.0.1:99999/a",
            "[::g]/a",
            "-x.y/a",
            "a..b",
            "a.",
            "a.-b",
            "127.0.0.1:5000/",
            "a:-x",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!("a".repeat(600).parse::<Reference>(), Err(ReferenceError::TooLong));
    }

    #[test]
    fn only_an_explicit_pull_adds_the_default_registry() {
        let bare: Reference = "tool".parse().unwrap();
        assert_eq!(bare.host(), None);
        let full = bare.with_default_registry();
        assert_eq!(full.to_string(), format!("{DEFAULT_REGISTRY}/library/tool:latest"));
        assert_eq!(full.api_host(), DEFAULT_REGISTRY_API);
        let named: Reference = "127.0.0.1:5000/tool".parse().unwrap();
        assert_eq!(named.with_default_registry(), named);
    }

    #[test]
    fn loopback_is_recognised_by_address_and_not_by_resemblance() {
        for yes in ["localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:1", "[::1]:5000"] {
            assert!(is_loopback(yes), "{yes}");
        }
        for no in ["localhost.example", "127.0.0.1.example:5000", "10.0.0.1", "[::2]", "128.0.0.1"]
        {
            assert!(!is_loopback(no), "{no}");
        }
    }
}
