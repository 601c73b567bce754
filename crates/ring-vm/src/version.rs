//! Versions of monitors, and which of them have holes.

use std::path::Path;
use std::process::{Command, Stdio};

use semver::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Hole {
        why: String,
        good: String,
    },
    /// What was said is no version.
    Unknown,
}

/// Runs the program and gives the first version in what it says.
pub(crate) fn ask(program: &Path, argument: &str) -> Option<String> {
    let said = Command::new(program)
        .arg(argument)
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches('v').trim_end_matches([',', ';']);
        Version::parse(word).is_ok().then(|| word.to_owned())
    })
}

/// Compares a version with the ranges that have holes.
pub(crate) fn judge(version: &str, holes: &[(&str, &str, &str)]) -> Verdict {
    let Ok(version) = Version::parse(version) else {
        return Verdict::Unknown;
    };
    for (bad, good, why) in holes {
        let (Ok(first_bad), Ok(first_good)) = (Version::parse(bad), Version::parse(good)) else {
            return Verdict::Unknown;
        };
        if version >= first_bad && version < first_good {
            return Verdict::Hole { why: (*why).to_owned(), good: (*good).to_owned() };
        }
    }
    Verdict::Good
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLES: [(&str, &str, &str); 2] =
        [("0.0.0", "6.2.0", "too old"), ("8.0.0", "8.0.2", "CVE-0000-0001")];

    #[test]
    fn versions_inside_a_hole_are_refused_and_its_ends_are_not() {
        assert_eq!(judge("6.2.0", &HOLES), Verdict::Good);
        assert_eq!(judge("8.0.2", &HOLES), Verdict::Good);
        let hole = Verdict::Hole { why: "CVE-0000-0001".into(), good: "8.0.2".into() };
        assert_eq!(judge("8.0.1", &HOLES), hole);
        assert!(matches!(judge("5.9.9", &HOLES), Verdict::Hole { .. }));
    }

    #[test]
    fn what_is_no_version_is_not_trusted() {
        assert_eq!(judge("new", &HOLES), Verdict::Unknown);
        assert_eq!(judge("7", &HOLES), Verdict::Unknown);
    }
}
