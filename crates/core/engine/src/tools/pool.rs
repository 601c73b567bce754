//! Wardens that stay up between calls.
//!
//! A call prefers a warden for itself. A new one is raised while there are few; then calls share.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ringwall_wire::MAX_TOOL_CALLS;

use super::dirs::GrantClass;
use super::warden::Warden;
use super::{Place, Rings, lock};
use crate::raise::RaiseError;

/// Wardens for each CPU. Beyond, more of them only take memory.
const PER_CPU: usize = 2;

/// Wardens in one sandbox, whose limits they share with its commands: one for each way to use the
/// workspace.
const INSIDE: usize = 3;

#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rings: Arc<Rings>,
    most: usize,
    /// For a caller and its warden at the same time.
    has_room: bool,
    state: Mutex<State>,
    /// A call has left its warden, or a warden has come.
    changed: Condvar,
    ready: AtomicUsize,
    /// Calls in all wardens.
    calls: AtomicUsize,
    started: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The one that was used last is at the end.
    wardens: Vec<Arc<Warden>>,
    /// On their way up.
    coming: Vec<GrantClass>,
}

/// A place in a warden.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) warden: Arc<Warden>,
    shared: Arc<Shared>,
    alone: bool,
    meetings: u64,
}

impl Pool {
    pub(super) fn new(rings: Arc<Rings>) -> Pool {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let inside = matches!(rings.place, Place::Inside(_));
        let shared = Shared {
            rings,
            most: if inside { INSIDE } else { PER_CPU * cpus },
            has_room: cpus > 1 && !inside,
            state: Mutex::default(),
            changed: Condvar::new(),
            ready: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            started: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        };
        Pool { shared: Arc::new(shared) }
    }

    pub(super) fn wardens(&self) -> Vec<Arc<Warden>> {
        lock(&self.shared.state).wardens.clone()
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.shared.started), count(&self.shared.lost))
    }

    pub(super) fn keep_ready(&self, wardens: usize) {
        self.shared.ready.store(wardens.min(self.shared.most), Ordering::SeqCst);
        Shared::refill(&self.shared);
    }

    /// A place in a warden of this class.
    pub(super) fn seat(&self, class: &GrantClass) -> Result<Seat, RaiseError> {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        // Each ends, outside of the lock, when the last call has left it.
        let mut stale = Vec::new();
        loop {
            state.wardens.retain(|warden| !warden.lost.load(Ordering::SeqCst));
            let is_stale = |warden: &mut Arc<Warden>| warden.class == *class && warden.is_stale();
            stale.extend(state.wardens.extract_if(.., is_stale));
            let calls = |warden: &Arc<Warden>| warden.calls.load(Ordering::SeqCst);
            let of_class = || state.wardens.iter().rev().filter(|warden| warden.class == *class);
            let best = of_class().min_by_key(|warden| calls(warden)).cloned();
            let full = state.wardens.len() + state.coming.len() >= shared.most;
            let is_coming = state.coming.contains(class);
            match best {
                Some(warden) if calls(&warden) == 0 => return Ok(shared.sit(&mut state, warden)),
                Some(warden) if full && calls(&warden) < MAX_TOOL_CALLS as usize => {
                    return Ok(shared.sit(&mut state, warden));
                }
                // Either way there will be a place soon.
                best if full && (best.is_some() || is_coming) => {
                    state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                _ => {}
            }
            let idle = state.wardens.iter().position(|warden| calls(warden) == 0);
            // Ended outside of the lock: that takes a while.
            let evicted = idle.filter(|_| full).map(|at| state.wardens.remove(at));
            state.coming.push(class.clone());
            drop(state);
            drop(evicted);
            stale.clear();
            let raised = shared.rings.raise_warden(class.clone());
            state = lock(&shared.state);
            state.arrived(class);
            shared.changed.notify_all();
            let warden = Arc::new(raised?);
            shared.started.fetch_add(1, Ordering::Relaxed);
            state.wardens.push(Arc::clone(&warden));
            return Ok(shared.sit(&mut state, warden));
        }
    }
}

impl Shared {
    fn sit(self: &Arc<Self>, state: &mut State, warden: Arc<Warden>) -> Seat {
        let alone = warden.calls.fetch_add(1, Ordering::SeqCst) == 0;
        // Two that keep a CPU busy each would only keep their wardens from running.
        warden.client.may_linger(self.calls.fetch_add(1, Ordering::Relaxed) == 0 && self.has_room);
        if !alone {
            warden.meetings.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(at) = state.wardens.iter().position(|known| Arc::ptr_eq(known, &warden)) {
            let used = state.wardens.remove(at);
            state.wardens.push(used);
        }
        let meetings = warden.meetings.load(Ordering::SeqCst);
        Seat { warden, shared: Arc::clone(self), alone, meetings }
    }

    /// Raises as many idle wardens as are missing, in the background.
    fn refill(self: &Arc<Self>) {
        let wanted = self.ready.load(Ordering::SeqCst);
        let mut state = lock(&self.state);
        let bare = |warden: &&Arc<Warden>| warden.class == GrantClass::default();
        let there = state.wardens.iter().filter(bare).count() + state.coming.len();
        for _ in there..wanted {
            state.coming.push(GrantClass::default());
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                let raised = shared.rings.raise_warden(GrantClass::default());
                let mut state = lock(&shared.state);
                state.arrived(&GrantClass::default());
                // If it cannot be raised, the next call finds out and says why.
                if let Ok(warden) = raised {
                    shared.started.fetch_add(1, Ordering::Relaxed);
                    state.wardens.insert(0, Arc::new(warden));
                }
                shared.changed.notify_all();
            });
        }
    }
}

impl State {
    fn arrived(&mut self, class: &GrantClass) {
        if let Some(at) = self.coming.iter().position(|coming| coming == class) {
            self.coming.remove(at);
        }
    }
}

impl Seat {
    /// Whether another call was in the warden at the same time.
    pub(super) fn was_shared(&self) -> bool {
        !self.alone || self.warden.meetings.load(Ordering::SeqCst) != self.meetings
    }

    /// No call gets the warden after this one.
    pub(super) fn retire(&self) {
        self.warden.kill();
        lock(&self.shared.state).wardens.retain(|known| !Arc::ptr_eq(known, &self.warden));
        self.shared.refill();
    }

    /// The warden is of no use any more.
    pub(super) fn give_up(&self) {
        if !self.warden.lost.load(Ordering::SeqCst) {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.retire();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.warden.calls.fetch_sub(1, Ordering::SeqCst);
        self.shared.calls.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }
}
