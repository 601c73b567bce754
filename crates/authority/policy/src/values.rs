//! Single values of the policy file: names, amounts, keys, grants of elevations, sources of taint.

use std::fmt;
use std::time::Duration;

use ringwall_spec::{
    BadPattern, HostPattern, Wall, WallError, parse_bytes, parse_cpus, parse_duration,
};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::pattern::{NamePattern, PathPattern};
use crate::words::{Kind, suggestion};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("{text:?} is no path that policy can speak of: {why}")]
    Path { text: String, why: &'static str },
    #[error(transparent)]
    Host(#[from] BadPattern),
    #[error("{0:?} is no tool; write its name, with * for any characters")]
    Tool(String),
    #[error(
        "{0:?} is not the beginning of a command; write a program and its first arguments as plain words, for example cargo build"
    )]
    Command(String),
    #[error("{what} is longer than {most} bytes")]
    TooLong { what: &'static str, most: usize },
    #[error("{0:?} is no name; use at most 64 letters, digits, -, _ and .")]
    Name(String),
    #[error("{0:?} is no key; write ed25519/ and 64 hexadecimal digits")]
    Key(String),
    #[error(
        "{text:?} is no grant; write connect:HOST, read:PATH, write:PATH, run:KIND, call:TOOL, secret:NAME, phase:NAME, apply or taint{near}"
    )]
    Grant { text: String, near: String },
    #[error(
        "{text:?} is no source of taint; write network, kind:KIND, tool:TOOL or path:PATH{near}"
    )]
    Source { text: String, near: String },
    #[error("{0}")]
    Amount(String),
    #[error("{error}{near}")]
    Wall { error: WallError, near: String },
    #[error(
        "policy knows no wall {0:?}: each ring at most once, in the order vm, container, process, wasm"
    )]
    OddWall(String),
}

/// A secret, phase, elevation, approver or group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// `ed25519/` and the 32 bytes of a public key in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(String);

/// A size: `512M`, `2G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Size(pub u64);

/// A duration: `30s`, `10m`, `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Time(pub Duration);

/// A number of CPUs: `"0.5"`, `"2"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Cpus(pub u32);

/// A wall that policy knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct WallName(pub Wall);

/// One wall or a list of walls of which any will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walls(pub Vec<WallName>);

/// What an elevation gives while it lasts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Grant {
    Connect(HostPattern),
    Read(PathPattern),
    Write(PathPattern),
    Run(Kind),
    Call(NamePattern),
    Secret(Name),
    Phase(Name),
    Apply,
    /// Lifts what taint takes away.
    Taint,
}

/// What makes a task tainted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum TaintSource {
    /// Anything read from a network.
    Network,
    Kind(Kind),
    Tool(NamePattern),
    Path(PathPattern),
}

/// Implements the way to text and back for a type whose text is its first field.
macro_rules! texts {
    ($($type:ident),+) => {
        $(impl From<$type> for String {
            fn from(value: $type) -> String {
                value.0
            }
        }

        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        })+
    };
}

texts!(Name, PublicKey);

impl TryFrom<String> for Name {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let fits = (1..=64).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if fits { Ok(Name(text)) } else { Err(ValueError::Name(text)) }
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PublicKey {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let fits = text.strip_prefix("ed25519/").is_some_and(|digits| {
            digits.len() == 64
                && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        });
        if fits { Ok(PublicKey(text)) } else { Err(ValueError::Key(text)) }
    }
}

macro_rules! amounts {
    ($($type:ident, $parse:ident, $show:expr);+) => {
        $(impl TryFrom<String> for $type {
            type Error = ValueError;

            fn try_from(text: String) -> Result<Self, ValueError> {
                $parse(&text).map($type).map_err(|error| ValueError::Amount(error.to_string()))
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                $show(value.0)
            }
        })+
    };
}

amounts!(
    Size, parse_bytes, |bytes: u64| bytes.to_string();
    Time, parse_duration, |time: Duration| format!("{}ms", time.as_millis());
    Cpus, parse_cpus, |milli: u32| format!("{}.{:03}", milli / 1000, milli % 1000)
);

impl TryFrom<String> for WallName {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let wall: Wall = text.parse().map_err(|error: WallError| {
            let near = match &error {
                WallError::UnknownRing(ring) => {
                    suggestion(ring, &["process", "container", "wasm", "vm"])
                }
                _ => String::new(),
            };
            ValueError::Wall { error, near }
        })?;
        if crate::strength::known_walls().contains(&wall) {
            Ok(WallName(wall))
        } else {
            Err(ValueError::OddWall(text))
        }
    }
}

impl From<WallName> for String {
    fn from(wall: WallName) -> String {
        wall.0.to_string()
    }
}

impl<'de> Deserialize<'de> for Walls {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrMore;

        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Walls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a wall such as \"container\", or a list of walls")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Walls, E> {
                let wall = WallName::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(Walls(vec![wall]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Walls, A::Error> {
                let mut walls = Vec::new();
                while let Some(wall) = items.next_element()? {
                    walls.push(wall);
                }
                Ok(Walls(walls))
            }
        }

        from.deserialize_any(OneOrMore)
    }
}

impl TryFrom<String> for Grant {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let (verb, what) = text.split_once(':').unwrap_or((&text, ""));
        let what = what.to_owned();
        Ok(match verb {
            "connect" => Grant::Connect(what.try_into()?),
            "read" => Grant::Read(what.try_into()?),
            "write" => Grant::Write(what.try_into()?),
            "run" => Grant::Run(what.parse().map_err(word)?),
            "call" => Grant::Call(what.try_into()?),
            "secret" => Grant::Secret(what.try_into()?),
            "phase" => Grant::Phase(what.try_into()?),
            "apply" if !text.contains(':') => Grant::Apply,
            "taint" if !text.contains(':') => Grant::Taint,
            _ => {
                const VERBS: [&str; 9] = [
                    "connect", "read", "write", "run", "call", "secret", "phase", "apply", "taint",
                ];
                let near = suggestion(verb, &VERBS);
                return Err(ValueError::Grant { text, near });
            }
        })
    }
}

impl From<Grant> for String {
    fn from(grant: Grant) -> String {
        match grant {
            Grant::Connect(host) => format!("connect:{host}"),
            Grant::Read(path) => format!("read:{}", path.as_str()),
            Grant::Write(path) => format!("write:{}", path.as_str()),
            Grant::Run(kind) => format!("run:{kind}"),
            Grant::Call(tool) => format!("call:{}", tool.as_str()),
            Grant::Secret(name) => format!("secret:{name}"),
            Grant::Phase(name) => format!("phase:{name}"),
            Grant::Apply => "apply".to_owned(),
            Grant::Taint => "taint".to_owned(),
        }
    }
}

impl TryFrom<String> for TaintSource {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let (verb, what) = text.split_once(':').unwrap_or((&text, ""));
        let what = what.to_owned();
        Ok(match verb {
            "network" if !text.contains(':') => TaintSource::Network,
            "kind" => TaintSource::Kind(what.parse().map_err(word)?),
            "tool" => TaintSource::Tool(what.try_into()?),
            "path" => TaintSource::Path(what.try_into()?),
            _ => {
                let near = suggestion(verb, &["network", "kind", "tool", "path"]);
                return Err(ValueError::Source { text, near });
            }
        })
    }
}

impl From<TaintSource> for String {
    fn from(source: TaintSource) -> String {
        match source {
            TaintSource::Network => "network".to_owned(),
            TaintSource::Kind(kind) => format!("kind:{kind}"),
            TaintSource::Tool(tool) => format!("tool:{}", tool.as_str()),
            TaintSource::Path(path) => format!("path:{}", path.as_str()),
        }
    }
}

fn word(error: crate::words::UnknownWord) -> ValueError {
    ValueError::Amount(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_and_sources_read_back_as_they_were_written() {
        for text in
            ["connect:*.x.org", "write:./ci/**", "run:build", "call:web-*", "apply", "taint"]
        {
            let grant = Grant::try_from(text.to_owned()).unwrap();
            assert_eq!(String::from(grant), text);
        }
        for text in ["network", "kind:untrusted", "tool:web-*", "path:./inbox/**"] {
            let source = TaintSource::try_from(text.to_owned()).unwrap();
            assert_eq!(String::from(source), text);
        }
    }

    #[test]
    fn a_wrong_grant_is_answered_with_the_near_one() {
        let error = Grant::try_from("conect:x.org".to_owned()).unwrap_err().to_string();
        assert!(error.ends_with("did you mean \"connect\"?"), "{error}");
        assert!(Grant::try_from("apply:x".to_owned()).is_err());
        assert!(Grant::try_from("run:everything".to_owned()).is_err());
    }

    #[test]
    fn a_wrong_wall_is_answered_with_the_near_ring() {
        let error = WallName::try_from("vm/contianer".to_owned()).unwrap_err().to_string();
        assert!(error.contains("did you mean \"container\"?"), "{error}");
        assert!(WallName::try_from("container/vm".to_owned()).is_err());
        assert!(WallName::try_from("process/process".to_owned()).is_err());
    }

    #[test]
    fn keys_are_exactly_32_bytes() {
        assert!(PublicKey::try_from(format!("ed25519/{}", "0a".repeat(32))).is_ok());
        for bad in [format!("ed25519/{}", "0A".repeat(32)), "ed25519/00".into(), "00".repeat(32)] {
            assert!(PublicKey::try_from(bad).is_err());
        }
    }
}
