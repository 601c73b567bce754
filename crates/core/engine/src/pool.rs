//! Guests that are up before a caller wants them.
//!
//! Each was raised like any other sandbox: adopted with random numbers, clock and names of its own,
//! and its evidence checked. It has run nothing. A caller who takes one has it alone, and it never comes
//! back: a pool is filled with new ones only.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringwall_permit::Permit;
use ringwall_spec::RingKind;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::config::Engine;
use crate::raise::RaiseError;
use crate::sandbox::Sandbox;

/// More unused guests are an accident.
const MOST: usize = 64;
/// After a guest that could not be raised.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("a pool holds 1 to {MOST} guests, not {0}")]
    Size(usize),
    #[error(
        "a pool is for walls that begin with `vm`; others are raised as quickly as they are taken"
    )]
    Wall,
    #[error("a sandbox with a name or a workspace is somebody's already; a pool holds nobody's")]
    Personal,
    #[error("the pool could not be filled")]
    Thread(#[source] std::io::Error),
}

/// Ends its guests when it is dropped; those that were taken live on.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    filler: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    permit: Permit,
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Sandbox>,
    ending: bool,
}

impl Pool {
    /// Fills itself in the background.
    pub fn start(engine: Arc<Engine>, permit: Permit, size: usize) -> Result<Pool, PoolError> {
        let spec = permit.spec();
        if !(1..=MOST).contains(&size) {
            return Err(PoolError::Size(size));
        }
        if spec.wall.outermost() != RingKind::Vm {
            return Err(PoolError::Wall);
        }
        if spec.name.is_some() || spec.workspace.is_some() {
            return Err(PoolError::Personal);
        }
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { engine, permit, size, state, changed });
        let filled = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("pool".to_owned());
        let filler = thread.spawn(move || filled.fill()).map_err(PoolError::Thread)?;
        Ok(Pool { shared, filler: Some(filler) })
    }

    /// Gives a guest that is ready, or else one that is raised now.
    pub fn take(&self) -> Result<Sandbox, RaiseError> {
        let ready = {
            let mut state = self.shared.lock();
            loop {
                match state.ready.pop_front() {
                    // A killed guest is of no use to the caller.
                    Some(sandbox) if !is_alive(&sandbox) => drop(sandbox),
                    found => break found,
                }
            }
        };
        self.shared.changed.notify_all();
        ready.map_or_else(|| self.shared.engine.raise(&self.shared.permit), Ok)
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Whether so many were ready by then.
    pub fn wait_ready(&self, count: usize, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut state = self.shared.lock();
        while state.ready.len() < count {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Shared {
    fn fill(&self) {
        loop {
            let mut state = self.lock();
            while !state.ending && state.ready.len() >= self.size {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ending {
                return;
            }
            drop(state);
            let raised = self.engine.raise(&self.permit);
            let mut state = self.lock();
            match raised {
                Ok(sandbox) if !state.ending => state.ready.push_back(sandbox),
                Ok(_) => return,
                // A caller who takes one is told why there is none, by trying.
                Err(_) => {
                    let waited = self.changed.wait_timeout(state, PAUSE);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                }
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.changed.notify_all();
        if let Some(filler) = self.filler.take() {
            let _ = filler.join();
        }
        self.shared.lock().ready.clear();
    }
}

/// Tells whether the guest's VMM still runs.
fn is_alive(sandbox: &Sandbox) -> bool {
    let mut polled = [PollFd::new(&*sandbox.ring.launched.pidfd, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&at_once)).is_ok_and(|ended| ended == 0)
}
