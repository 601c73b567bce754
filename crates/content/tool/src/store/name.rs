//! How people name a tool: `grep`, `grep@1.2.0`, `grep@sha256:...`.

use std::fmt;
use std::str::FromStr;

use super::Entry;
use crate::manifest::is_name;

/// As many digits of a digest as nobody hits by chance.
const LEAST_DIGITS: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolName {
    name: String,
    which: Which,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    Any,
    Version(String),
    /// `sha256:` and the first digits.
    Digest(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolNameError {
    #[error("{0:?} is no name of a tool; use a-z, 0-9 and '-', a letter first, such as json-lint")]
    Name(String),
    #[error(
        "{0:?} is neither a version such as 1.2.0 nor sha256: and at least {LEAST_DIGITS} hexadecimal digits"
    )]
    Which(String),
}

impl ToolName {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether only one content or version will do.
    pub fn is_exact(&self) -> bool {
        self.which != Which::Any
    }

    pub(super) fn fits(&self, entry: &Entry) -> bool {
        entry.name == self.name
            && match &self.which {
                Which::Any => true,
                Which::Version(version) => entry.version == *version,
                Which::Digest(start) => entry.digest.to_string().starts_with(start.as_str()),
            }
    }
}

impl FromStr for ToolName {
    type Err = ToolNameError;

    fn from_str(text: &str) -> Result<ToolName, ToolNameError> {
        let shown = |text: &str| text.chars().take(100).collect::<String>();
        let (name, which) = match text.split_once('@') {
            Some((name, which)) => (name, Some(which)),
            None => (text, None),
        };
        if !is_name(name) {
            return Err(ToolNameError::Name(shown(name)));
        }
        let which = match which {
            None => Which::Any,
            Some(which) if is_digest_start(which) => Which::Digest(which.to_owned()),
            Some(which) if semver::Version::parse(which).is_ok() => {
                Which::Version(which.to_owned())
            }
            Some(which) => return Err(ToolNameError::Which(shown(which))),
        };
        Ok(ToolName { name: name.to_owned(), which })
    }
}

fn is_digest_start(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| {
        (LEAST_DIGITS..=64).contains(&digits.len())
            && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.which {
            Which::Any => Ok(()),
            Which::Version(which) | Which::Digest(which) => write!(f, "@{which}"),
        }
    }
}
