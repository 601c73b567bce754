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
