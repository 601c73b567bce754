//! Versions of monitors, and which of them have holes.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use semver::Version;

use crate::bounded::Bounded;

/// A program that takes longer to say its version is not what it should be.
const PATIENCE: Duration = Duration::from_secs(5);
/// What a program says of itself is short. This fits in a pipe, so it need not be read meanwhile.
const LONGEST_ANSWER: u64 = 16 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Hole {
        why: String,
        good: String,
    },
    /// The program's answer is no version.
    Unknown,
}

/// Runs the program and gives the first version in what it says.
pub(crate) fn ask(program: &Path, argument: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(argument).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Bounded::start(&mut command).ok()?;
    running.wait_until(Instant::now() + PATIENCE)?;
    let mut said = Vec::new();
    running.child().stdout.take()?.take(LONGEST_ANSWER).read_to_end(&mut said).ok()?;
    first_version(&String::from_utf8_lossy(&said))
}

fn first_version(text: &str) -> Option<String> {
    text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches('v').trim_end_matches([',', ';']);
        let whole = match word.split('.').count() {
            // Cloud Hypervisor leaves the last number out.
            2 => format!("{word}.0"),
            _ => word.to_owned(),
        };
        Version::parse(&whole).is_ok().then_some(whole)
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
    fn every_monitor_is_understood_when_it_says_its_version() {
        let said = |text: &str| first_version(text).unwrap_or_default();
        assert_eq!(said("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\n(c) 2003"), "7.2.22");
        assert_eq!(said("Firecracker v1.16.1\n\nSupported snapshot versions: v8.0.0"), "1.16.1");
        assert_eq!(said("cloud-hypervisor v53.0"), "53.0.0");
        assert_eq!(first_version("usage: 1.2.3.4 or 7"), None);
    }

    #[test]
    fn a_program_that_says_nothing_has_no_version() {
        assert_eq!(ask(Path::new("/bin/true"), "--version-please"), None);
        assert_eq!(ask(Path::new("/no/such/program"), "--version"), None);
    }

    #[test]
    fn a_release_candidate_comes_before_the_release_that_mends_it() {
        assert!(matches!(judge("8.0.2-rc1", &HOLES), Verdict::Hole { .. }));
    }

    #[test]
    fn what_is_no_version_is_not_trusted() {
        assert_eq!(judge("new", &HOLES), Verdict::Unknown);
        assert_eq!(judge("7", &HOLES), Verdict::Unknown);
    }
}
