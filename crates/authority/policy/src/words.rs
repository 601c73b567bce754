//! The words of the policy file: kinds of work, risk levels, trust levels, and where a value stands.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// What kind of work a job is. The kind decides the route, so whatever is not declared is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Pure computation: text in, text out.
    Compute,
    /// Reads and writes files of the workspace.
    Files,
    /// Builds and tests.
    Build,
    /// Scripts that nobody has looked at, and everything of no declared kind.
    Untrusted,
}

/// How much is at risk where this runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// One person's own machine.
    Low,
    /// A team, a CI.
    Medium,
    /// A model executes code of its own.
    High,
    /// Many tenants.
    VeryHigh,
}

/// How far a task is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Untrusted.
    Low,
    /// A user's task.
    Medium,
    /// The system's own.
    High,
}

/// How far a trust level's network reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    None,
    /// What `[network]` allows.
    Allowlist,
    /// Every public host that `[network]` does not deny.
    Open,
}

/// Which tools a trust level may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ToolReach {
    None,
    /// Tools that write nothing.
    ReadOnly,
    /// Tools that a `[[tool]]` table approves.
    Approved,
    All,
}

/// What a tainted task loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TaintEffect {
    NoNetwork,
    NoSecrets,
    NoApply,
    NoPhaseChange,
    /// Only tools that write nothing.
    ReadOnlyTools,
    /// Whatever its kind, it runs where untrusted work runs.
    Isolate,
}

/// Names each value as it stands in the file.
macro_rules! named {
    ($type:ident: $($value:ident = $name:literal),+) => {
        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$value),+];

            pub fn name(self) -> &'static str {
                match self { $($type::$value => $name),+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|value| value.name() == text).ok_or_else(|| {
                    UnknownWord {
                        word: text.to_owned(),
                        known: Self::ALL.iter().map(|value| value.name()).collect(),
                    }
                })
            }
        }
    };
}

named!(Kind: Compute = "compute", Files = "files", Build = "build", Untrusted = "untrusted");
named!(Risk: Low = "low", Medium = "medium", High = "high", VeryHigh = "very-high");
named!(Trust: Low = "low", Medium = "medium", High = "high");
named!(Reach: None = "none", Allowlist = "allowlist", Open = "open");
named!(ToolReach: None = "none", ReadOnly = "read-only", Approved = "approved", All = "all");
named!(TaintEffect: NoNetwork = "no-network", NoSecrets = "no-secrets", NoApply = "no-apply",
    NoPhaseChange = "no-phase-change", ReadOnlyTools = "read-only-tools", Isolate = "isolate");

impl Kind {
    /// Nothing declared, or a kind that nobody knows, is untrusted.
    pub fn declared(kind: Option<&str>) -> Kind {
        kind.and_then(|kind| kind.parse().ok()).unwrap_or(Kind::Untrusted)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not one of {}{}", known.join(", "), suggestion(word, known))]
pub struct UnknownWord {
    pub word: String,
    pub known: Vec<&'static str>,
}

/// `; did you mean X?` where one of `known` is near, else nothing.
pub(crate) fn suggestion<S: AsRef<str>>(word: &str, known: &[S]) -> String {
    nearest(word, known).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

/// The one of `known` that is so near that it may be meant.
pub fn nearest<'a, S: AsRef<str>>(word: &str, known: &'a [S]) -> Option<&'a str> {
    // A word of hostile length would cost its square.
    if word.len() > 64 {
        return None;
    }
    known
        .iter()
        .map(|known| (strsim::damerau_levenshtein(word, known.as_ref()), known.as_ref()))
        .filter(|(distance, known)| *distance <= 1 + known.len().min(word.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// A value with the place where it stands in its file.
#[derive(Debug, Clone)]
pub(crate) struct At<T> {
    pub value: T,
    pub(crate) offset: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(from)?;
        Ok(At { offset: spanned.span().start, value: spanned.into_inner() })
    }
}

#[cfg(test)]
impl<T: schemars::JsonSchema> schemars::JsonSchema for At<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<T>()
    }
}

/// Line and column, from 1, of a byte of `text`.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_declared_is_untrusted() {
        assert_eq!(Kind::declared(None), Kind::Untrusted);
        assert_eq!(Kind::declared(Some("Compute")), Kind::Untrusted);
        assert_eq!(Kind::declared(Some("build")), Kind::Build);
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggestion("metods", &["methods", "paths"]), "; did you mean \"methods\"?");
        assert_eq!(suggestion("zebra", &["methods", "paths"]), "");
        assert_eq!(suggestion(&"m".repeat(10_000), &["methods"]), "");
    }

    #[test]
    fn places_count_from_one_and_in_characters() {
        assert_eq!(line_and_column("a\nüb", 4), (2, 2));
        assert_eq!(line_and_column("", 0), (1, 1));
    }
}
