//! Room for jobs: so many at once, so many of each tenant, and no more memory than there is.
//!
//! Who finds no room waits in the line of its tenant; lines are served in turn, so one tenant's
//! thousand requests stand before nobody else's first. Lines have an end, and waiting has one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::problem::{Code, Problem};

/// In one tenant's line, and in all of them.
const MOST_WAITING_OF_TENANT: usize = 256;
const MOST_WAITING: usize = 1024;
/// After that a client is better off to ask again.
const PATIENCE: Duration = Duration::from_secs(30);
/// A request that needs much memory lets smaller ones pass for so long.
const COURTESY: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) jobs: usize,
    pub(crate) jobs_per_tenant: usize,
    pub(crate) memory_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    room: Room,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    running_of: HashMap<String, usize>,
    memory: u64,
    lines: HashMap<String, VecDeque<Waiter>>,
    /// Tenants that wait, whose turn it is first.
    turns: VecDeque<String>,
    waiting: usize,
}

#[derive(Debug)]
struct Waiter {
    memory: u64,
    since: Instant,
    slot: oneshot::Sender<Slot>,
}

/// Room for one job, until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    shared: Arc<Shared>,
    tenant: String,
    memory: u64,
    /// A job runs; else only the memory is taken.
    job: bool,
}

impl Slot {
    /// The job is over and the sandbox lives on: its memory stays taken.
    pub(crate) fn keep_memory(mut self) -> Slot {
        let kept = Slot {
            shared: Arc::clone(&self.shared),
            tenant: self.tenant.clone(),
            memory: std::mem::take(&mut self.memory),
            job: false,
        };
        drop(self);
        kept
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.memory = state.memory.saturating_sub(self.memory);
        if self.job {
            state.running = state.running.saturating_sub(1);
            if let Some(running) = state.running_of.get_mut(&self.tenant) {
                *running -= 1;
                if *running == 0 {
                    state.running_of.remove(&self.tenant);
                }
            }
        }
        let given = self.shared.serve_lines(&mut state);
        drop(state);
        // Outside the lock: whoever has gone drops a slot here.
        for (waiter, slot) in given {
            let _ = waiter.send(slot);
        }
    }
}

impl Admission {
    pub(crate) fn new(room: Room) -> Admission {
        Admission { shared: Arc::new(Shared { room, state: Mutex::default() }) }
    }

    pub(crate) async fn enter(&self, tenant: &str, memory: u64) -> Result<Slot, Problem> {
        let _span = crate::trace::span("admission");
        let waiting = {
            let mut state = lock(&self.shared.state);
            if memory > self.shared.room.memory_bytes {
                let most = self.shared.room.memory_bytes;
                let why = format!(
                    "a memory limit of {memory} bytes is more than the {most} that all sandboxes may have; ask for less"
                );
                return Err(Problem::new(Code::Refused, why));
            }
            let nobody_before = !state.lines.contains_key(tenant);
            if nobody_before && state.has_room(&self.shared.room, tenant, memory) {
                return Ok(self.shared.give(&mut state, tenant, memory));
            }
            let line = state.lines.get(tenant).map_or(0, VecDeque::len);
            if line >= MOST_WAITING_OF_TENANT || state.waiting >= MOST_WAITING {
                return Err(busy("too many requests are waiting"));
            }
            let (slot, given) = oneshot::channel();
            let waiter = Waiter { memory, since: Instant::now(), slot };
            if line == 0 {
                state.turns.push_back(tenant.to_owned());
            }
            state.lines.entry(tenant.to_owned()).or_default().push_back(waiter);
            state.waiting += 1;
            given
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(busy("there was no room for too long")),
        }
    }

    /// For a sandbox that is there already: its memory is taken, room or not.
    pub(crate) fn take_memory(&self, tenant: &str, memory: u64) -> Slot {
        lock(&self.shared.state).memory += memory;
        let shared = Arc::clone(&self.shared);
        Slot { shared, tenant: tenant.to_owned(), memory, job: false }
    }

    /// For a sandbox that nobody asked for yet: only if there is room, and nobody waits for it.
    pub(crate) fn spare_memory(&self, tenant: &str, memory: u64) -> Option<Slot> {
        let mut state = lock(&self.shared.state);
        let room = state.memory.saturating_add(memory) <= self.shared.room.memory_bytes;
        if !room || state.waiting > 0 {
            return None;
        }
        state.memory += memory;
        let shared = Arc::clone(&self.shared);
        Some(Slot { shared, tenant: tenant.to_owned(), memory, job: false })
    }

    /// Jobs that run, requests that wait, and memory that is taken.
    pub(crate) fn counts(&self) -> (usize, usize, u64) {
        let state = lock(&self.shared.state);
        (state.running, state.waiting, state.memory)
    }
}

fn busy(why: &str) -> Problem {
    Problem::new(Code::Busy, format!("{why}; ask again after a moment"))
}

impl State {
    fn has_room(&self, room: &Room, tenant: &str, memory: u64) -> bool {
        self.running < room.jobs
            && self.running_of.get(tenant).copied().unwrap_or(0) < room.jobs_per_tenant
            && self.memory.saturating_add(memory) <= room.memory_bytes
    }
}

impl Shared {
    fn give(self: &Arc<Self>, state: &mut State, tenant: &str, memory: u64) -> Slot {
        state.running += 1;
        state.memory += memory;
        *state.running_of.entry(tenant.to_owned()).or_default() += 1;
        Slot { shared: Arc::clone(self), tenant: tenant.to_owned(), memory, job: true }
    }

    /// Gives room to those whose turn it is, as far as it goes.
    fn serve_lines(self: &Arc<Self>, state: &mut State) -> Vec<(oneshot::Sender<Slot>, Slot)> {
        let mut given = Vec::new();
        let mut passed = 0;
        while passed < state.turns.len() && state.running < self.room.jobs {
            let Some(tenant) = state.turns.pop_front() else { break };
            let Some(line) = state.lines.get_mut(&tenant) else { continue };
            while line.front().is_some_and(|waiter| waiter.slot.is_closed()) {
                line.pop_front();
                state.waiting -= 1;
            }
            let Some(first) = line.front() else {
                state.lines.remove(&tenant);
                continue;
            };
            let (memory, since) = (first.memory, first.since);
            if !state.has_room(&self.room, &tenant, memory) {
                let wants_memory = state.memory.saturating_add(memory) > self.room.memory_bytes;
                state.turns.push_back(tenant);
                if wants_memory && since.elapsed() > COURTESY {
                    // Its turn comes before all others now.
                    state.turns.rotate_right(1);
                    break;
                }
                passed += 1;
                continue;
            }
            let Some(line) = state.lines.get_mut(&tenant) else { continue };
            let Some(waiter) = line.pop_front() else { continue };
            state.waiting -= 1;
            if line.is_empty() {
                state.lines.remove(&tenant);
            } else {
                state.turns.push_back(tenant.clone());
            }
            given.push((waiter.slot, self.give(state, &tenant, memory)));
            passed = 0;
        }
        given
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(jobs: usize, jobs_per_tenant: usize, memory_bytes: u64) -> Arc<Admission> {
        Arc::new(Admission::new(Room { jobs, jobs_per_tenant, memory_bytes }))
    }

    /// Waits until so many stand in line.
    async fn until_waiting(admission: &Admission, count: usize) {
        while admission.counts().1 != count {
            tokio::task::yield_now().await;
        }
    }

    fn queue(
        admission: &Arc<Admission>,
        tenant: &'static str,
        order: &Arc<Mutex<Vec<&'static str>>>,
    ) -> tokio::task::JoinHandle<()> {
        let (admission, order) = (Arc::clone(admission), Arc::clone(order));
        tokio::spawn(async move {
            let slot = admission.enter(tenant, 0).await.unwrap();
            lock(&order).push(tenant);
            drop(slot);
        })
    }

    #[tokio::test]
    async fn tenants_are_served_in_turn_whoever_came_with_more() {
        let admission = admission(1, 1, 0);
        let first = admission.enter("a", 0).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for count in 1..=3 {
            tasks.push(queue(&admission, "a", &order));
            until_waiting(&admission, count).await;
        }
        tasks.push(queue(&admission, "b", &order));
        until_waiting(&admission, 4).await;
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*lock(&order), ["a", "b", "a", "a"]);
        assert_eq!(admission.counts(), (0, 0, 0));
    }

    #[tokio::test]
    async fn one_tenant_cannot_have_all_the_room() {
        let admission = admission(3, 2, 0);
        let _one = admission.enter("a", 0).await.unwrap();
        let _two = admission.enter("a", 0).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let third = queue(&admission, "a", &order);
        until_waiting(&admission, 1).await;
        let other = admission.enter("b", 0).await.unwrap();
        drop(other);
        assert!(lock(&order).is_empty());
        drop(_one);
        third.await.unwrap();
    }

    #[tokio::test]
    async fn memory_is_taken_until_the_sandbox_ends_and_too_much_is_refused() {
        let admission = admission(8, 8, 100);
        assert!(admission.enter("a", 101).await.is_err());
        let living = admission.enter("a", 60).await.unwrap().keep_memory();
        assert_eq!(admission.counts(), (0, 0, 60));
        let order = Arc::new(Mutex::new(Vec::new()));
        let (waiting, seen) = (Arc::clone(&admission), Arc::clone(&order));
        let big = tokio::spawn(async move {
            let _permit = waiting.enter("b", 60).await.unwrap();
            lock(&seen).push("big");
        });
        until_waiting(&admission, 1).await;
        drop(admission.enter("c", 40).await.unwrap());
        assert!(lock(&order).is_empty());
        drop(living);
        big.await.unwrap();
        assert_eq!(admission.counts(), (0, 0, 0));
    }

    #[tokio::test]
    async fn a_line_has_an_end_and_who_left_it_takes_no_room() {
        let admission = admission(1, 1, 0);
        let first = admission.enter("a", 0).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> =
            (0..MOST_WAITING_OF_TENANT).map(|_| queue(&admission, "a", &order)).collect();
        until_waiting(&admission, MOST_WAITING_OF_TENANT).await;
        let refused = admission.enter("a", 0).await.unwrap_err();
        assert_eq!(refused.status(), 429);
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        drop(first);
        let _again = admission.enter("a", 0).await.unwrap();
        assert_eq!(admission.counts(), (1, 0, 0));
    }
}
