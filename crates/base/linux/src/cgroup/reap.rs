//! Emptying and removing group directories, within bounded time.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::CgroupError;
use super::files::{inside, open_to_read};

/// How long killed processes may take to leave a group. Freeing gigabytes takes a while.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How long a group may stay busy after no process is listed in it. Its last process still counts until it is
/// waited for, and a killed VMM takes seconds to free the memory of its guest.
const REMOVE_PATIENCE: Duration = Duration::from_secs(5);

/// Descriptors held at once while killing, well under the usual limit of open files.
const BATCH: usize = 128;

/// Removes one group directory; one that is gone already is no error.
pub(super) fn remove_directory(directory: &Path) -> Result<(), CgroupError> {
    let mut waits = Waits::new(REMOVE_PATIENCE);
    loop {
        match rustix::fs::rmdir(directory) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::INTR) => {}
            // A process that is listed no more can still be counted.
            Err(Errno::BUSY) => {
                if !waits.wait() {
                    let path = directory.to_owned();
                    return Err(CgroupError::StillBusy { path, waited: REMOVE_PATIENCE });
                }
            }
            Err(why) => return Err(CgroupError::io("remove", directory, why)),
        }
    }
}

/// Signals every process in the group until none is listed.
pub(super) fn kill_members(directory: &Path) -> Result<(), CgroupError> {
    let list = inside(directory, "cgroup.procs");
    let mut waits = Waits::new(KILL_PATIENCE);
    loop {
        let members = read_members(&list)?;
        if members.is_empty() {
            return Ok(());
        }
        for batch in members.chunks(BATCH) {
            kill_batch(&list, batch)?;
        }
        if !waits.wait() {
            return Err(CgroupError::StillBusy {
                path: directory.to_owned(),
                waited: KILL_PATIENCE,
            });
        }
    }
}

/// A process id from the list may belong to a stranger by the time it is signalled. So: pin each
/// with a descriptor, read the list again, and signal only those still in it.
fn kill_batch(list: &Path, batch: &[Pid]) -> Result<(), CgroupError> {
    let pinned: Vec<_> = batch
        .iter()
        .filter_map(|pid| Some((*pid, pidfd_open(*pid, PidfdFlags::empty()).ok()?)))
        .collect();
    let mut still_inside = read_members(list)?;
    still_inside.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
    for (pid, descriptor) in &pinned {
        let inside =
            still_inside.binary_search_by_key(&pid.as_raw_nonzero(), |p| p.as_raw_nonzero());
        if inside.is_err() {
            continue;
        }
        match pidfd_send_signal(descriptor, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(why) => return Err(CgroupError::io("kill a process listed in", list, why)),
        }
    }
    Ok(())
}

/// Process ids in a `cgroup.procs` file. A list that is gone is empty. Processes that this pid
/// namespace cannot see are listed as 0 and left out.
pub(super) fn read_members(list: &Path) -> Result<Vec<Pid>, CgroupError> {
    let file = match open_to_read(list) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(why) => return Err(CgroupError::io("open", list, why)),
    };
    let mut text = String::new();
    match std::fs::File::from(file).read_to_string(&mut text) {
        Ok(_) => {}
        Err(why) if why.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
            return Ok(Vec::new());
        }
        Err(why) => return Err(CgroupError::io("read", list, why)),
    }
    Ok(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect())
}

/// Pauses that grow from a yield to two milliseconds, until patience runs out.
struct Waits {
    until: Instant,
    pause: Duration,
}

impl Waits {
    fn new(patience: Duration) -> Self {
        Waits { until: Instant::now() + patience, pause: Duration::ZERO }
    }

    /// False when there is no patience left.
    fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        if self.pause.is_zero() {
            std::thread::yield_now();
            self.pause = Duration::from_micros(20);
        } else {
            std::thread::sleep(self.pause);
            self.pause = (self.pause * 2).min(Duration::from_millis(2));
        }
        true
    }
}
