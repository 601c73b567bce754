//! Raises one planned ring: a spawner for its template, a child for its run.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, TryLockError};

use ringwall_linux::launch::{LaunchError, Launched, Parking, Spawner};

use crate::plan::RingPlan;

#[derive(Debug, thiserror::Error)]
pub enum RaiseRingError {
    #[error("the ring could not be raised")]
    Launch(#[from] LaunchError),
    #[error("cannot open the channel to the first process of the ring")]
    Channel(#[source] std::io::Error),
    #[error("the ring was raised without its workspace")]
    NoWorkspace,
    #[error("the workspace of the ring could not be held")]
    Workspace(#[source] std::io::Error),
    #[error("the ring was raised without its scratch space")]
    NoScratch,
    #[error("the ring was raised without a view of its workspace")]
    NoView,
    #[error("the ring was raised without the sockets of its network")]
    NoSockets,
}

/// A parked launcher, shared by the rings that it started.
#[derive(Debug, Clone)]
pub struct SpawnerHandle(Arc<std::sync::Mutex<Spawner>>);

impl SpawnerHandle {
    /// Lets a launcher apply a plan's template. The work goes on while the caller does something
    /// else.
    pub fn prepare(
        spawner: Spawner,
        plan: &RingPlan,
        parking: Parking,
    ) -> Result<SpawnerHandle, RaiseRingError> {
        spawner.prepare(plan.template.clone(), parking)?;
        Ok(SpawnerHandle(Arc::new(std::sync::Mutex::new(spawner))))
    }

    /// Ends the launcher at once if no other sandbox uses it.
    pub fn end_if_last(&self) {
        if Arc::strong_count(&self.0) == 1 {
            self.lock().kill();
        }
    }

    /// Whether the launcher can still be asked for rings.
    pub fn is_alive(&self) -> bool {
        match self.0.try_lock() {
            Ok(mut spawner) => spawner.is_alive(),
            // Another thread is talking to it and will find out; this one does not wait for the answer.
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(spawner)) => spawner.into_inner().is_alive(),
        }
    }

    /// Raises one ring. `cgroup_files` are the join files of its control groups; `meanwhile` is done
    /// while the launcher is at work.
    pub fn raise<T>(
        &self,
        plan: &RingPlan,
        cgroup_files: &[OwnedFd],
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(RaisedRing, T), RaiseRingError> {
        let (ours, theirs) = UnixStream::pair().map_err(RaiseRingError::Channel)?;
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![theirs.as_fd()];
        descriptors.extend(cgroup_files.iter().map(AsFd::as_fd));
        let (ahead, last) = (plan.ahead.clone(), plan.last.clone());
        let (launched, done) = self.lock().spawn(ahead, last, &descriptors, meanwhile)?;
        Ok((RaisedRing { stream: ours, launched, spawner: self.clone() }, done))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Spawner> {
        // A panic while holding the lock leaves the spawner itself intact: it is a socket.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A ring whose warden is starting or running.
#[derive(Debug)]
pub struct RaisedRing {
    pub stream: UnixStream,
    pub launched: Launched,
    /// The ring lives no longer than its launcher.
    pub spawner: SpawnerHandle,
}

impl RaisedRing {
    /// The mount of the workspace in a process or container ring that has one, as it was made: no job
    /// ran yet. To be asked for before the scratch space.
    pub fn workspace(&self) -> Result<OwnedFd, RaiseRingError> {
        self.launched.reported()?.ok_or(RaiseRingError::NoWorkspace)
    }

    /// The scratch space of the ring, readable from outside.
    pub fn scratch(&self) -> Result<OwnedFd, RaiseRingError> {
        self.launched.reported()?.ok_or(RaiseRingError::NoScratch)
    }

    /// The workspace of a ring that has one, as [`run_slots::VIEW`](crate::run_slots::VIEW) says. To be
    /// asked for after the scratch space.
    pub fn view(&self) -> Result<OwnedFd, RaiseRingError> {
        self.launched.reported()?.ok_or(RaiseRingError::NoView)
    }

    /// The sockets of a ring with a way to the network: the proxy, DNS over UDP and over TCP, and
    /// `direct` more for connections to any address. To be asked for last.
    pub fn sockets(&self, direct: usize) -> Result<Vec<OwnedFd>, RaiseRingError> {
        let next = |_| self.launched.reported()?.ok_or(RaiseRingError::NoSockets);
        (0..3 + direct).map(next).collect()
    }

    /// Why the warden never spoke: the launcher's word, if it left one.
    pub fn failure(&self) -> Option<RaiseRingError> {
        loop {
            match self.launched.reported() {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => return Some(error.into()),
            }
        }
    }
}
