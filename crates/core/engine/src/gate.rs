//! The door through which all requests of others come to a ring: who is inside, and whether it is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lets requests through to a ring, or none.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    inside: usize,
    /// How often a request has come in.
    entered: u64,
    closed: bool,
}

/// A request that is inside.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a Gate);

/// The gate while no request is inside and none comes in.
#[derive(Debug)]
pub(crate) struct Closed<'a>(&'a Gate);

impl Gate {
    /// Waits while the gate is closed.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let mut state = self.lock();
        while state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.inside += 1;
        state.entered += 1;
        if state.inside == 1 {
            // A watchdog that rests while no request is inside is woken before the request asks the ring.
            self.changed.notify_all();
        }
        Inside(self)
    }

    /// While no request is inside: how often one has come in.
    pub(crate) fn quiet_after(&self) -> Option<u64> {
        let state = self.lock();
        (state.inside == 0).then_some(state.entered)
    }

    /// Waits until another request has come in, no longer than `patience`, and not if it is over.
    pub(crate) fn wait_for_more(&self, entered: u64, patience: Duration, over: &AtomicBool) {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while state.entered == entered && !over.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has those who wait look again.
    pub(crate) fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// None if not all have left by then; the gate is open again.
    pub(crate) fn close(&self, patience: Duration) -> Option<Closed<'_>> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        state.closed = true;
        while state.inside > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.closed = false;
                self.changed.notify_all();
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(Closed(self))
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.lock().closed = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_closes_only_when_everybody_has_left() {
        let gate = Gate::default();
        let inside = gate.enter();
        assert!(gate.close(Duration::from_millis(5)).is_none());
        drop(gate.enter());
        drop(inside);
        let closed = gate.close(Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(gate.enter()));
            assert!(!waiting.is_finished());
            drop(closed);
        });
    }

    #[test]
    fn whoever_rests_is_woken_by_the_first_that_comes_in() {
        let (gate, over) = (Gate::default(), AtomicBool::new(false));
        let inside = gate.enter();
        assert_eq!(gate.quiet_after(), None);
        drop(inside);
        let entered = gate.quiet_after().unwrap();
        // A request between the look and the rest keeps the rest from beginning.
        drop(gate.enter());
        gate.wait_for_more(entered, Duration::from_secs(60), &over);
        let entered = gate.quiet_after().unwrap();
        std::thread::scope(|scope| {
            let resting =
                scope.spawn(|| gate.wait_for_more(entered, Duration::from_secs(60), &over));
            drop(gate.enter());
            resting.join().unwrap();
        });
        over.store(true, Ordering::SeqCst);
        gate.wait_for_more(gate.quiet_after().unwrap(), Duration::from_secs(60), &over);
    }
}
