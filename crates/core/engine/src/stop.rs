//! Ends sandboxes that other processes own.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringwall_linux::process;
use ringwall_spec::WorkspaceMode;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::config::Engine;
use crate::gc::GcError;
use crate::record::{self, Record, RecordState};
use crate::settle::COPY_PATIENCE;

/// How often the lock of a sandbox is looked at whose owner lives on without it.
const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum StopError {
    #[error("sandbox {0} is running; stop it first, or use `ringwall rm -f`")]
    Running(String),
    #[error("sandbox {id} could not be stopped")]
    Signal { id: String, source: io::Error },
    #[error("the record of sandbox {id} could not be removed")]
    Remove { id: String, source: io::Error },
    #[error(transparent)]
    Gc(#[from] GcError),
}

impl Engine {
    /// Asks the owner to end the sandbox; after `grace`, and the time to collect changes of the
    /// workspace, it is killed and cleaned up after.
    pub fn stop(&self, record: &Record, grace: Duration) -> Result<(), StopError> {
        if record.state != RecordState::Running {
            return Ok(());
        }
        let failed = |source: io::Error| StopError::Signal { id: record.id.to_string(), source };
        let pid = i32::try_from(record.owner_pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        let owner = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(self.clean_up(&record.dir)?),
            other => other.map_err(|error| failed(error.into()))?,
        };
        // The lock is still held, so the number still meant the owner when it was opened.
        if !record::is_held(&record.dir) {
            return Ok(());
        }
        let send = |signal| match rustix::process::pidfd_send_signal(&owner, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => other.map_err(|error| failed(error.into())),
        };
        send(Signal::TERM)?;
        if !released(record, &owner, patience(record, grace)) {
            send(Signal::KILL)?;
            released(record, &owner, Duration::from_secs(10));
            self.clean_up(&record.dir)?;
        }
        Ok(())
    }

    /// Forgets a sandbox that has ended: its record, log and kept changes.
    pub fn remove(&self, record: &Record) -> Result<(), StopError> {
        match record.state {
            RecordState::Running => Err(StopError::Running(record.id.to_string())),
            RecordState::Abandoned => Ok(self.clean_up(&record.dir)?),
            RecordState::Finished => record::delete(record)
                .map_err(|source| StopError::Remove { id: record.id.to_string(), source }),
        }
    }
}

/// How long the owner gets. The changes of a workspace end with the owner unless it has collected
/// them, which takes its time; who gives no time at all does not want them.
fn patience(record: &Record, grace: Duration) -> Duration {
    let workspace = record.workspace.as_ref();
    let kept = workspace.is_some_and(|workspace| workspace.mode == WorkspaceMode::CopyOnWrite);
    if kept && !grace.is_zero() { grace.max(COPY_PATIENCE) } else { grace }
}

/// Waits until the owner has let go of the record, which it does at its end if not before.
fn released(record: &Record, owner: &OwnedFd, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while record::is_held(&record.dir) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let pause = left.min(INTERVAL);
        if process::is_readable_within(owner, Some(pause)) && record::is_held(&record.dir) {
            // The owner is gone, and a process that it was about to start has a copy of its lock.
            std::thread::sleep(pause);
        }
    }
    true
}
