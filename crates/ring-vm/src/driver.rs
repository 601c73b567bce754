//! What monitors have in common, and finding one.

use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::qemu::Qemu;
use crate::version::{self, Verdict};

/// Where the jail shows the machine's files, the same for every monitor.
pub(crate) mod inside {
    pub(crate) const KERNEL: &str = "/vm/kernel";
    pub(crate) const INITRAMFS: &str = "/vm/initramfs";
    pub(crate) const ROOT_IMAGE: &str = "/vm/root";
}

/// Descriptors of a monitor, in this order.
pub(crate) mod descriptor {
    /// The channel to the guest's warden.
    pub(crate) const CHANNEL: u32 = 3;
    /// The monitor's own control socket.
    pub(crate) const CONTROL: u32 = 4;
    /// The guest's memory, if that is passed.
    pub(crate) const MEMORY: u32 = 5;
}

/// Searched when the environment says nothing.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// One kind of monitor. Everything but its own words is shared.
pub trait Driver: std::fmt::Debug + Send + Sync {
    fn name(&self) -> &'static str;
    /// The program to look for.
    fn program(&self) -> &'static str;
    /// Directories of the host that the program reads, besides its libraries.
    fn data(&self) -> &'static [&'static str];
    /// How its version is asked for, and told.
    fn version_argument(&self) -> &'static str;
    /// Versions with known holes, and the first that is good: `(first bad, first good, why)`.
    fn holes(&self) -> &'static [(&'static str, &'static str, &'static str)];
    /// The words after the program's name.
    fn arguments(&self, machine: &Machine) -> Vec<String>;
}

pub const DRIVERS: [&dyn Driver; 1] = [&Qemu];

/// A monitor on this host.
#[derive(Debug, Clone)]
pub struct Found {
    pub driver: &'static dyn Driver,
    pub program: PathBuf,
    pub version: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(
        "no monitor for microVMs is on PATH; install QEMU (Debian: apt-get install qemu-system-x86), or run `make setup`"
    )]
    None,
    #[error("{program} has a known hole ({why}); install version {good} or later")]
    Vulnerable { program: PathBuf, why: String, good: String },
    #[error("{0} does not say its version as expected; is it what its name says?")]
    Version(PathBuf),
}

/// The first monitor on this host that can be used.
pub fn find() -> Result<Found, DriverError> {
    let mut refused = None;
    for driver in DRIVERS {
        let Some(program) = on_path(driver.program()) else {
            continue;
        };
        match look(driver, &program) {
            Ok(found) => return Ok(found),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or(DriverError::None))
}

/// A monitor by name, whether Ringwall can drive it or not.
struct Known {
    name: &'static str,
    program: &'static str,
    version_argument: &'static str,
    holes: &'static [(&'static str, &'static str, &'static str)],
}

/// Looked for so that people know where they stand.
const WITHOUT_DRIVER: [Known; 2] = [
    Known {
        name: "firecracker",
        program: "firecracker",
        version_argument: "--version",
        holes: &[
            // The serial console's buffer grew without bound.
            ("0.0.0", "0.22.1", "CVE-2020-27174"),
            // A guest could write outside its queues (virtio over PCI).
            ("1.13.0", "1.14.4", "CVE-2026-5747"),
            ("1.15.0", "1.15.1", "CVE-2026-5747"),
        ],
    },
    Known {
        name: "cloud-hypervisor",
        program: "cloud-hypervisor",
        version_argument: "--version",
        holes: &[],
    },
];

/// What a known monitor is good for here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Missing,
    Usable,
    /// It is there, and Ringwall does not know how to drive it yet.
    NoDriver,
    Vulnerable {
        why: String,
        good: String,
    },
    /// It does not say its version as expected.
    Unknown,
}

/// A known monitor, found or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surveyed {
    pub name: &'static str,
    /// The program that was looked for.
    pub program: &'static str,
    pub path: Option<PathBuf>,
    pub version: Option<String>,
    pub standing: Standing,
}

/// Every known monitor, those with a driver first.
pub fn survey() -> Vec<Surveyed> {
    let driven = DRIVERS.iter().map(|driver| {
        let known = Known {
            name: driver.name(),
            program: driver.program(),
            version_argument: driver.version_argument(),
            holes: driver.holes(),
        };
        known.examine(on_path(known.program), Standing::Usable)
    });
    let others = WITHOUT_DRIVER
        .iter()
        .map(|known| known.examine(on_path(known.program), Standing::NoDriver));
    driven.chain(others).collect()
}

impl Known {
    fn examine(&self, path: Option<PathBuf>, if_good: Standing) -> Surveyed {
        let version = path.as_deref().and_then(|path| version::ask(path, self.version_argument));
        let standing = match (&path, &version) {
            (None, _) => Standing::Missing,
            (Some(_), None) => Standing::Unknown,
            (Some(_), Some(version)) => match version::judge(version, self.holes) {
                Verdict::Good => if_good,
                Verdict::Hole { why, good } => Standing::Vulnerable { why, good },
                Verdict::Unknown => Standing::Unknown,
            },
        };
        Surveyed { name: self.name, program: self.program, path, version, standing }
    }
}

fn look(driver: &'static dyn Driver, program: &Path) -> Result<Found, DriverError> {
    let version = version::ask(program, driver.version_argument())
        .ok_or_else(|| DriverError::Version(program.to_owned()))?;
    match version::judge(&version, driver.holes()) {
        Verdict::Good => {}
        Verdict::Hole { why, good } => {
            return Err(DriverError::Vulnerable { program: program.to_owned(), why, good });
        }
        Verdict::Unknown => return Err(DriverError::Version(program.to_owned())),
    }
    Ok(Found { driver, program: program.to_owned(), version })
}

/// Where a program is. Only absolute directories count: a program of the current directory is
/// anybody's.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Firecracker, if it said this.
    fn firecracker_that_says(text: &'static str) -> Standing {
        let [firecracker, _] = WITHOUT_DRIVER;
        let parrot = Known { version_argument: text, ..firecracker };
        parrot.examine(Some("/bin/echo".into()), Standing::NoDriver).standing
    }

    #[test]
    fn every_known_monitor_is_listed_found_or_not() {
        let programs: Vec<_> = survey().into_iter().map(|found| found.program).collect();
        assert_eq!(programs, ["qemu-system-x86_64", "firecracker", "cloud-hypervisor"]);
    }

    #[test]
    fn a_version_with_a_hole_is_refused_with_the_reason_and_the_remedy() {
        let standing = firecracker_that_says("Firecracker v1.15.0");
        let (why, good) = ("CVE-2026-5747".to_owned(), "1.15.1".to_owned());
        assert_eq!(standing, Standing::Vulnerable { why, good });
        assert_eq!(firecracker_that_says("Firecracker v1.16.1"), Standing::NoDriver);
    }

    #[test]
    fn a_monitor_that_is_missing_or_says_no_version_is_not_usable() {
        let [_, known] = WITHOUT_DRIVER;
        assert_eq!(known.examine(None, Standing::NoDriver).standing, Standing::Missing);
        assert_eq!(firecracker_that_says("hello"), Standing::Unknown);
    }

    #[test]
    fn holes_are_written_as_versions() {
        let known = WITHOUT_DRIVER.iter().flat_map(|known| known.holes);
        let driven = DRIVERS.iter().flat_map(|driver| driver.holes());
        for (bad, good, why) in known.chain(driven) {
            let verdict = version::judge(bad, &[(*bad, *good, *why)]);
            assert!(matches!(verdict, Verdict::Hole { .. }), "{bad} to {good}");
        }
    }
}
