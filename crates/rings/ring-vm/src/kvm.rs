//! Whether /dev/kvm really runs a guest: one is run.
//!
//! A device that can be opened proves little. Some hosts emulate what a guest's kernel does one
//! instruction at a time, or stop at the first. So a guest of a few bytes is run twice, once with
//! nothing to do and once with a loop that a processor is done with in a millisecond.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ringwall_safekeeping::{Content, Trust, read, replace};
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::bounded::Bounded;
use crate::check::HostKernel;
use crate::choose::{DriverError, Found, look};
use crate::machine::Acceleration;
use crate::qemu::Qemu;

const DEVICE: &str = "/dev/kvm";
/// A guest that has not ended by then, after its monitor was loaded, never will.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much longer the guest with the loop may take than the one without.
const MARGIN: Duration = Duration::from_millis(50);
/// The margin at most, on a host where everything takes longer: well below the time of a host that
/// emulates the loop.
const MOST_MARGIN: Duration = Duration::from_millis(250);
/// Loading a monitor takes this often what it takes to ask it for its version, at the worst.
const LOADINGS: u32 = 4;
/// No host is so slow that loading takes longer.
const LOADING_PATIENCE: Duration = Duration::from_secs(5);
/// A millisecond for a processor, a second where each is emulated by the host's kernel.
const ITERATIONS: u32 = 1_000_000;
/// A busy host gets more than one chance.
const TRIES: u32 = 3;
/// Complaints of a monitor, as far as they are repeated.
const LONGEST_REASON: u64 = 300;

/// The file with the kept verdict, and the longest that is read.
const RECORD: &str = "kvm.json";
const LONGEST_RECORD: u64 = 8 << 10;

/// What the guest writes to its exit port, and what the monitor makes of it.
const SIGN: u8 = 0x2a;
const SIGN_AS_EXIT_CODE: i32 = ((SIGN as i32) << 1) | 1;
const EXIT_PORT: u8 = 0xf4;

/// What /dev/kvm is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kvm", rename_all = "kebab-case")]
pub enum KvmVerdict {
    /// A guest ran, at a processor's speed.
    Usable,
    /// There is no such device.
    Absent,
    /// The device is there, but not for this user.
    NotPermitted,
    /// The device is there and runs no guest, or none that is of use.
    NoGuest { reason: String },
}

impl KvmVerdict {
    /// Who would run a guest's instructions.
    pub fn acceleration(&self) -> Acceleration {
        match self {
            KvmVerdict::Usable => Acceleration::Kvm,
            _ => Acceleration::Emulation,
        }
    }
}

/// A verdict to be kept, with all that it depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvmRecord {
    boot_id: String,
    program: PathBuf,
    version: String,
    verdict: KvmVerdict,
}

impl KvmRecord {
    /// Gives the record of a verdict for this host and its QEMU; nothing, where there is no QEMU.
    pub fn make(verdict: &KvmVerdict) -> Option<KvmRecord> {
        let (host, monitor) = (HostKernel::read().ok()?, qemu().ok()?);
        Some(KvmRecord::new(&host, &monitor, verdict.clone()))
    }

    /// Where it is kept, below the engine's home.
    pub fn place(home: &Path) -> PathBuf {
        home.join(RECORD)
    }

    /// Keeps it for the engine.
    pub fn write(&self, home: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        Ok(replace(&Self::place(home), Content::quick(&text))?)
    }

    /// The kept record, if it can be believed: written by this user or root, and no other user can
    /// write to it. Whatever is wrong with it, guests are then emulated.
    pub fn read(home: &Path) -> Option<KvmRecord> {
        let text = read(&Self::place(home), Trust::OwnOrRoots, LONGEST_RECORD).ok()?;
        serde_json::from_slice(&text).ok()
    }

    pub fn new(host: &HostKernel, monitor: &Found, verdict: KvmVerdict) -> KvmRecord {
        let (program, version) = (monitor.program.clone(), monitor.version.clone());
        KvmRecord { boot_id: host.boot_id.clone(), program, version, verdict }
    }

    /// The verdict, if nothing changed since. Whether the device can be opened is always asked anew.
    pub fn still_holds(&self, host: &HostKernel, monitor: &Found) -> Option<KvmVerdict> {
        device(Path::new(DEVICE)).err().or_else(|| self.kept(host, monitor))
    }

    fn kept(&self, host: &HostKernel, monitor: &Found) -> Option<KvmVerdict> {
        let same = self.boot_id == host.boot_id
            && self.program == monitor.program
            && self.version == monitor.version;
        let of_a_guest = matches!(self.verdict, KvmVerdict::Usable | KvmVerdict::NoGuest { .. });
        (same && of_a_guest).then(|| self.verdict.clone())
    }
}

/// Runs a guest. Takes as long as starting a monitor a few times; nothing is remembered.
pub fn kvm_is_usable() -> KvmVerdict {
    if let Err(verdict) = device(Path::new(DEVICE)) {
        return verdict;
    }
    match qemu() {
        Ok(monitor) => try_guest(&monitor.program, Acceleration::Kvm),
        Err(error) => KvmVerdict::NoGuest { reason: error.to_string() },
    }
}

/// The monitor that this is found out with.
fn qemu() -> Result<Found, DriverError> {
    look(&Qemu)?.ok_or(DriverError::None)
}

fn device(path: &Path) -> Result<(), KvmVerdict> {
    match File::options().read(true).write(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(KvmVerdict::NotPermitted),
        // Also a device file whose driver is not loaded.
        Err(_) => Err(KvmVerdict::Absent),
    }
}

/// How long things take on this host, by a start of the monitor that runs nothing.
#[derive(Debug, Clone, Copy)]
struct Pace {
    patience: Duration,
    margin: Duration,
}

impl Pace {
    fn of_loading(loading: Duration) -> Pace {
        Pace {
            patience: PATIENCE + loading * LOADINGS,
            margin: (loading / LOADINGS).clamp(MARGIN, MOST_MARGIN),
        }
    }

    fn measure(program: &Path) -> Result<Pace, Failure> {
        let mut command = Command::new(program);
        command.arg("--version").env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = Instant::now();
        let mut monitor = Bounded::start(&mut command)?;
        let ended = monitor.wait_until(started + LOADING_PATIENCE);
        ended.ok_or(Failure::TooSlow { patience: LOADING_PATIENCE })?;
        Ok(Pace::of_loading(started.elapsed()))
    }
}

fn try_guest(program: &Path, by: Acceleration) -> KvmVerdict {
    let no_guest = |reason: String| KvmVerdict::NoGuest { reason };
    let pace = match Pace::measure(program) {
        Ok(pace) => pace,
        Err(failure) => return no_guest(failure.to_string()),
    };
    // Another program may have kept the host busy.
    let idle = match run(program, by, 0, pace.patience) {
        Err(Failure::TooSlow { .. }) => run(program, by, 0, pace.patience),
        ran => ran,
    };
    let idle = match idle {
        Ok(took) => took,
        Err(failure) => return no_guest(failure.to_string()),
    };
    let allowed = idle.saturating_add(pace.margin).min(pace.patience);
    for _ in 0..TRIES {
        match run(program, by, ITERATIONS, allowed) {
            Ok(_) => return KvmVerdict::Usable,
            Err(Failure::TooSlow { .. }) => {}
            Err(failure) => return no_guest(failure.to_string()),
        }
    }
    no_guest(format!(
        "a guest starts, but a loop that takes a processor a millisecond was not done after {} ms: \
         this host seems to emulate guests' kernels",
        pace.margin.as_millis()
    ))
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the guest did not end within {} ms", patience.as_millis())]
    TooSlow { patience: Duration },
    #[error("the VMM ended before the guest did ({status}){said}")]
    Ended { status: ExitStatus, said: String },
    #[error("cannot start the VMM: {0}")]
    Start(#[from] io::Error),
}

/// Runs the guest and says how long that took, from the start of the monitor to its end.
fn run(
    program: &Path,
    acceleration: Acceleration,
    iterations: u32,
    patience: Duration,
) -> Result<Duration, Failure> {
    // Memory without a name; the monitor finds it as its own standard input.
    let memory =
        rustix::fs::memfd_create(c"guest", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
    let mut kernel = File::from(memory);
    kernel.write_all(&guest(iterations))?;
    let mut command = Command::new(program);
    command.args(arguments(acceleration)).env_clear();
    command.stdin(kernel).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut monitor = Bounded::start(&mut command)?;
    let status = monitor.wait_until(started + patience).ok_or(Failure::TooSlow { patience })?;
    let took = started.elapsed();
    if status.code() == Some(SIGN_AS_EXIT_CODE) {
        return Ok(took);
    }
    let mut said = Vec::new();
    if let Some(errors) = monitor.child().stderr.take() {
        errors.take(LONGEST_REASON).read_to_end(&mut said)?;
    }
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let said = if line.is_empty() { line } else { format!(": {line}") };
    Err(Failure::Ended { status, said })
}

fn arguments(acceleration: Acceleration) -> Vec<String> {
    let (accelerator, cpu) = match acceleration {
        Acceleration::Kvm => ("kvm", "host"),
        Acceleration::Emulation => ("tcg", "max"),
    };
    let exit = format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1");
    [
        "-M microvm,acpi=off,isa-serial=off,usb=off,pit=off,pic=off,rtc=off",
        "-m 16M -nodefaults -no-user-config -no-reboot -display none -serial none",
        "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-kernel /proc/self/fd/0",
    ]
    .iter()
    .flat_map(|words| words.split(' '))
    .chain(["-accel", accelerator, "-cpu", cpu, "-device", &exit])
    .map(str::to_owned)
    .collect()
}

/// Where the guest is loaded: the first address that is memory on every PC.
const BASE: u64 = 0x10_0000;
const HEADER_BYTES: u16 = 64;
const SEGMENT_BYTES: u16 = 56;
const NOTE_AT: u64 = HEADER_BYTES as u64 + 2 * SEGMENT_BYTES as u64;
const NOTE_BYTES: u64 = 24;
const CODE_AT: u64 = NOTE_AT + NOTE_BYTES;
/// The note of an ELF file that says where a guest begins, in 32-bit mode without paging (PVH).
const ENTRY_NOTE: u32 = 18;

/// A kernel: counts down, says that it is done, stops.
fn guest(iterations: u32) -> Vec<u8> {
    let mut code = vec![0xb9]; // mov ecx, iterations
    code.extend(iterations.to_le_bytes());
    code.extend([0xe3, 0x03]); // jecxz over the loop
    code.extend([0x49, 0x75, 0xfd]); // dec ecx; jnz back to it
    code.extend([0xb0, SIGN, 0xe6, EXIT_PORT]); // mov al, sign; out port, al
    code.extend([0xf4, 0xeb, 0xfd]); // hlt; jmp back to it
    let length = CODE_AT + code.len() as u64;

    let mut file = b"\x7fELF\x02\x01\x01".to_vec(); // 64 bits, little-endian, version 1
    file.resize(16, 0);
    for half in [2_u16, 62] {
        file.extend(half.to_le_bytes()); // a program, for x86-64
    }
    file.extend(1_u32.to_le_bytes());
    for word in [BASE + CODE_AT, u64::from(HEADER_BYTES), 0] {
        file.extend(word.to_le_bytes()); // entry, segments, no sections
    }
    file.extend(0_u32.to_le_bytes());
    for half in [HEADER_BYTES, SEGMENT_BYTES, 2, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // All of the file is loaded (1, to be read and run); a part of it is the note (4, to be read).
    for (kind, flags, at, bytes, align) in
        [(1_u32, 5_u32, 0, length, 0x1000), (4, 4, NOTE_AT, NOTE_BYTES, 4)]
    {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [at, BASE + at, BASE + at, bytes, bytes, align] {
            file.extend(word.to_le_bytes());
        }
    }
    for word in [4, 8, ENTRY_NOTE] {
        file.extend(word.to_le_bytes()); // bytes of the name, bytes of the content, kind
    }
    file.extend(b"Xen\0");
    file.extend((BASE + CODE_AT).to_le_bytes());
    file.extend(code);
    file
}

#[cfg(test)]
#[path = "kvm/tests.rs"]
mod tests;
