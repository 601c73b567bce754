//! Finding the monitors of this host, and the one that a guest is run by.

use std::path::{Path, PathBuf};

use crate::cloud_hypervisor::CloudHypervisor;
use crate::driver::{Driver, VERSION_ARGUMENT};
use crate::firecracker::Firecracker;
use crate::kvm::KvmVerdict;
use crate::machine::Acceleration;
use crate::qemu::Qemu;
use crate::version::{self, Verdict};

/// The first that can be used is used. QEMU comes first: it runs guests with and without KVM, and
/// from templates.
pub const DRIVERS: [&dyn Driver; 3] = [&Qemu, &Firecracker, &CloudHypervisor];

/// Names the only driver that may be used.
pub const WANTED: &str = "RINGWALL_VM_DRIVER";

/// Searched when the environment says nothing.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A monitor on this host.
#[derive(Debug, Clone)]
pub struct Found {
    pub driver: &'static dyn Driver,
    pub program: PathBuf,
    pub version: String,
}

/// What guests are run by.
#[derive(Debug, Clone)]
pub struct Choice {
    pub monitor: Found,
    pub acceleration: Acceleration,
    /// It is the one that was asked for by name.
    pub was_wanted: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(
        "no VMM is on PATH; install QEMU (Debian: apt-get install qemu-system-x86), or run `make setup`"
    )]
    None,
    #[error("{program} has a known vulnerability ({why}); install version {good} or later")]
    Vulnerable { program: PathBuf, why: String, good: String },
    #[error("{0} does not say its version as expected; is it what its name says?")]
    Version(PathBuf),
    #[error("{program} needs KVM, but {reason}")]
    NeedsKvm { program: PathBuf, reason: String },
    #[error("invalid {WANTED} {name:?}: expected one of {known}")]
    NoSuchDriver { name: String, known: String },
    #[error("{WANTED} asks for {name}, but {program} is not on PATH")]
    WantedIsMissing { name: &'static str, program: &'static str },
}

/// The monitor for new guests, and who runs their instructions. `kvm` says whether KVM runs guests
/// according to the trial with QEMU; nothing, if that is not known.
pub fn choose(kvm: impl Fn(&Found) -> Option<KvmVerdict>) -> Result<Choice, DriverError> {
    choose_asking(&|_, ask| ask(), kvm)
}

/// A caller who knows a program's answer about its version need not run it.
pub type KnownVersion<'a> = &'a dyn Fn(&Path, &dyn Fn() -> Option<String>) -> Option<String>;

/// Chooses a VMM, for callers who remember versions.
pub fn choose_asking(
    known: KnownVersion<'_>,
    kvm: impl Fn(&Found) -> Option<KvmVerdict>,
) -> Result<Choice, DriverError> {
    let wanted = std::env::var_os(WANTED).filter(|name| !name.is_empty());
    let wanted = wanted.map(|name| name.to_string_lossy().into_owned());
    decide(wanted.as_deref(), |driver| look_asking(driver, known), kvm)
}

fn decide(
    wanted: Option<&str>,
    look: impl Fn(&'static dyn Driver) -> Result<Option<Found>, DriverError>,
    kvm: impl Fn(&Found) -> Option<KvmVerdict>,
) -> Result<Choice, DriverError> {
    let candidates = candidates(wanted)?;
    let mut qemu = Some(look(&Qemu));
    let proved = match &qemu {
        Some(Ok(Some(qemu))) => kvm(qemu),
        _ => None,
    };
    let mut refused = None;
    for driver in candidates {
        // Asked for its version once.
        let looked = if driver.name() == Qemu.name() { qemu.take() } else { None };
        let monitor = match looked.unwrap_or_else(|| look(driver)) {
            Ok(Some(monitor)) => monitor,
            Ok(None) if wanted.is_some() => {
                let (name, program) = (driver.name(), driver.program());
                return Err(DriverError::WantedIsMissing { name, program });
            }
            Ok(None) => continue,
            Err(error) => {
                refused.get_or_insert(error);
                continue;
            }
        };
        let acceleration =
            proved.as_ref().map_or(Acceleration::Emulation, KvmVerdict::acceleration);
        if driver.needs_kvm() && acceleration != Acceleration::Kvm {
            let reason = without_kvm(proved.as_ref());
            refused.get_or_insert(DriverError::NeedsKvm { program: monitor.program, reason });
            continue;
        }
        return Ok(Choice { monitor, acceleration, was_wanted: wanted.is_some() });
    }
    Err(refused.unwrap_or(DriverError::None))
}

fn candidates(wanted: Option<&str>) -> Result<Vec<&'static dyn Driver>, DriverError> {
    let Some(name) = wanted else {
        return Ok(DRIVERS.to_vec());
    };
    match DRIVERS.into_iter().find(|driver| driver.name() == name) {
        Some(driver) => Ok(vec![driver]),
        None => {
            let known = DRIVERS.map(Driver::name).join(", ");
            Err(DriverError::NoSuchDriver { name: name.to_owned(), known })
        }
    }
}

/// Why a VMM that cannot emulate is of no use, after "but".
pub(crate) fn without_kvm(verdict: Option<&KvmVerdict>) -> String {
    match verdict {
        None => "Ringwall has not checked yet whether KVM runs guests here: run `ringwall doctor`"
            .to_owned(),
        Some(KvmVerdict::Usable) => "KVM is usable".to_owned(),
        Some(KvmVerdict::Absent) => "there is no /dev/kvm".to_owned(),
        Some(KvmVerdict::NotPermitted) => "/dev/kvm is not for this user".to_owned(),
        Some(KvmVerdict::NoGuest { reason }) => format!("/dev/kvm runs no guest: {reason}"),
    }
}

/// What a known monitor is good for here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    Missing,
    Usable,
    /// It is there, and cannot run guests without KVM.
    NoKvm {
        reason: String,
    },
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

/// Every known monitor, in the order of preference.
pub fn survey(kvm: &KvmVerdict) -> Vec<Surveyed> {
    let examined = |driver: &dyn Driver| {
        let path = on_path(driver.program());
        let version = path.as_deref().and_then(|path| version::ask(path, VERSION_ARGUMENT));
        examine(driver, path, version, kvm)
    };
    DRIVERS.into_iter().map(examined).collect()
}

fn examine(
    driver: &dyn Driver,
    path: Option<PathBuf>,
    version: Option<String>,
    kvm: &KvmVerdict,
) -> Surveyed {
    let standing = match (&path, &version) {
        (None, _) => Standing::Missing,
        (Some(_), None) => Standing::Unknown,
        (Some(_), Some(version)) => match version::judge(version, driver.holes()) {
            Verdict::Good if driver.needs_kvm() && *kvm != KvmVerdict::Usable => {
                Standing::NoKvm { reason: without_kvm(Some(kvm)) }
            }
            Verdict::Good => Standing::Usable,
            Verdict::Hole { why, good } => Standing::Vulnerable { why, good },
            Verdict::Unknown => Standing::Unknown,
        },
    };
    Surveyed { name: driver.name(), program: driver.program(), path, version, standing }
}

/// The monitor of a driver, if its program is there; an error, if that must not be used.
fn look_asking(
    driver: &'static dyn Driver,
    known: KnownVersion<'_>,
) -> Result<Option<Found>, DriverError> {
    on_path(driver.program()).map(|program| judged(driver, &program, known)).transpose()
}

/// Looks for a driver's program and asks it for its version.
pub(crate) fn look(driver: &'static dyn Driver) -> Result<Option<Found>, DriverError> {
    look_asking(driver, &|_, ask| ask())
}

fn judged(
    driver: &'static dyn Driver,
    program: &Path,
    known: KnownVersion<'_>,
) -> Result<Found, DriverError> {
    let version = known(program, &|| version::ask(program, VERSION_ARGUMENT))
        .ok_or_else(|| DriverError::Version(program.to_owned()))?;
    match version::judge(&version, driver.holes()) {
        Verdict::Good => Ok(Found { driver, program: program.to_owned(), version }),
        Verdict::Hole { why, good } => {
            Err(DriverError::Vulnerable { program: program.to_owned(), why, good })
        }
        Verdict::Unknown => Err(DriverError::Version(program.to_owned())),
    }
}

/// Whether there is a monitor, whatever it is worth.
pub fn is_there() -> bool {
    DRIVERS.iter().any(|driver| on_path(driver.program()).is_some())
}

/// Where a program is. Only absolute directories count: a program of the current directory is
/// not trusted.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

#[cfg(test)]
#[path = "choose/tests.rs"]
mod tests;
