//! What the first process of a guest kernel does that no other process does: modules, random
//! numbers, the clock, the end.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// `RNDADDENTROPY`: credits what follows to the kernel's generator.
const ADD_ENTROPY: libc::c_ulong = 0x4008_5203;
/// `RNDRESEEDCRNG`: takes it over at once.
const RESEED: libc::c_ulong = 0x5207;

/// The most that one call adds.
const MAX_SEED: usize = 64;

/// `struct rand_pool_info` with its bytes.
#[repr(C)]
struct Entropy {
    bits: libc::c_int,
    bytes: libc::c_int,
    buffer: [u8; MAX_SEED],
}

/// Loads a kernel module from its file.
pub fn load_module(path: &Path) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::system::finit_module(&file, c"", 0) {
        // Built in, or loaded before.
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

/// Mixes fresh random bytes into the kernel's generator, which then gives other numbers than the
/// same kernel in a copy of this guest. `random` is the random device.
pub fn reseed(random: BorrowedFd<'_>, seed: &[u8]) -> io::Result<()> {
    let mut entropy = Entropy { bits: 0, bytes: 0, buffer: [0; MAX_SEED] };
    let seed = seed.get(..MAX_SEED).unwrap_or(seed);
    for (to, from) in entropy.buffer.iter_mut().zip(seed) {
        *to = *from;
    }
    entropy.bytes = libc::c_int::try_from(seed.len()).map_err(io::Error::other)?;
    entropy.bits = entropy.bytes.saturating_mul(8);
    // SAFETY: the kernel reads the two numbers and as many bytes as the second says, which are
    // within the buffer.
    let added =
        unsafe { libc::ioctl(random.as_raw_fd(), request(ADD_ENTROPY), &raw const entropy) };
    if added != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: takes no argument.
    let reseeded = unsafe { libc::ioctl(random.as_raw_fd(), request(RESEED)) };
    if reseeded == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number as this C library's `ioctl` wants it.
fn request(number: libc::c_ulong) -> libc::Ioctl {
    number as libc::Ioctl
}

pub fn set_clock(unix_nanos: u64) -> io::Result<()> {
    let seconds = i64::try_from(unix_nanos / 1_000_000_000).map_err(io::Error::other)?;
    let nanos = i64::try_from(unix_nanos % 1_000_000_000).map_err(io::Error::other)?;
    let now = rustix::time::Timespec { tv_sec: seconds, tv_nsec: nanos };
    Ok(rustix::time::clock_settime(rustix::time::ClockId::Realtime, now)?)
}

/// Ends the machine. Monitors take the reset of a guest that must not reboot for its end.
pub fn reset() -> io::Result<()> {
    Ok(rustix::system::reboot(rustix::system::RebootCommand::Restart)?)
}

/// Makes the directory `new` the root of this process, and forgets the old one.
///
/// The first root of a kernel cannot be left with `pivot_root`; what is mounted at `new` is moved
/// over it instead.
pub fn switch_root(new: &Path) -> io::Result<()> {
    rustix::process::chdir(new)?;
    rustix::mount::mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    Ok(rustix::process::chdir("/")?)
}

/// Messages of ours for the kernel's log.
pub fn log(message: &str) {
    use std::io::Write;
    // Nobody may be reading; then nobody is told.
    let _ = File::options()
        .write(true)
        .open("/dev/kmsg")
        .and_then(|mut log| writeln!(log, "ringwall: {message}"));
}
