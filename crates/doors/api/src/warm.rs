//! Sandboxes that are there before somebody asks: raised ahead, checked like all others, and given to
//! one caller each. None that was given away ever comes back here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringwall_desk::{Caller, OWNER, Permit, SystemCaller};
use ringwall_engine::{Attached, Record};
use ringwall_spec::{Decided, Limits};
use tokio::sync::Notify;

use crate::admission::Slot;
use crate::fields::{LIFETIME, SandboxFields};
use crate::options::WarmKind;
use crate::problem::Problem;
use crate::routes::sandboxes;
use crate::service::Service;

/// More that nobody uses are an accident.
pub(crate) const MOST: usize = 64;
/// What a decision says of who asked; in the rest, two for the same sandbox are the same.
const OF_ASKER: [&str; 4] = ["task", "tenant", "grant", "grants"];

#[derive(Debug, Default)]
pub(crate) struct Warm {
    kinds: Vec<Kind>,
    taken: AtomicU64,
    missed: AtomicU64,
    /// Something was taken, or could be.
    pub(crate) wanted: Notify,
}

#[derive(Debug)]
struct Kind {
    fields: SandboxFields,
    count: usize,
    ready: Mutex<Vec<Ready>>,
}

/// A sandbox that is nobody's. It ends with its connection.
#[derive(Debug)]
struct Ready {
    permit: Permit,
    record: Record,
    attached: Attached,
    _memory: Slot,
}

impl Warm {
    pub(crate) fn new(kinds: &[WarmKind]) -> Warm {
        let kind = |kind: &WarmKind| Kind {
            fields: SandboxFields::plain(&kind.wall, kind.image.as_deref()),
            count: kind.count.min(MOST),
            ready: Mutex::default(),
        };
        Warm { kinds: kinds.iter().map(kind).collect(), ..Warm::default() }
    }

    /// How many wait, how many were taken, and how often none was there that would have done.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let waiting: usize = self.kinds.iter().map(|kind| kind.lock().len()).sum();
        let [taken, missed] = [&self.taken, &self.missed].map(|it| it.load(Ordering::Relaxed));
        [waiting as u64, taken, missed]
    }

    /// One that is what the permit is for, if there is one. It is the caller's from now on.
    pub(crate) fn take(&self, permit: &Permit) -> Option<(Record, Attached)> {
        let fitting = |kind: &&Kind| kind.lock().iter().any(|ready| ready.is_for(permit));
        while let Some(kind) = self.kinds.iter().find(fitting) {
            let ready = {
                let mut all = kind.lock();
                let place = all.iter().position(|ready| ready.is_for(permit))?;
                all.swap_remove(place)
            };
            self.wanted.notify_one();
            // One that does not answer is gone; the next may be there.
            if ready.attached.take(permit).is_ok() {
                self.taken.fetch_add(1, Ordering::Relaxed);
                return Some((ready.record, ready.attached));
            }
        }
        if self.kinds.iter().any(|kind| kind.fields.asks_for(permit.spec())) {
            self.missed.fetch_add(1, Ordering::Relaxed);
            self.wanted.notify_one();
        }
        None
    }

    /// Makes those that are missing, as far as there is room, and lets go of those that the policy
    /// would not give any more. True if one was made and more may be missing.
    pub(crate) fn refill(&self, service: &Service) -> Result<bool, Problem> {
        for kind in &self.kinds {
            let default = Limits { timeout: LIFETIME, ..Limits::default() };
            let asking = (service, &Caller::System(SystemCaller::Warm));
            let placed = sandboxes::place(asking, &kind.fields, (default, "warm"))?;
            let permit = placed.permit;
            kind.lock().retain(|ready| ready.is_for(&permit));
            if kind.lock().len() >= kind.count {
                continue;
            }
            let memory = permit.spec().limits.memory_bytes;
            // Whoever waits for memory comes first.
            let Some(memory) = service.admission.spare_memory(OWNER, memory) else { continue };
            let _making = service.making();
            let record = service.engine.create_ready(&permit)?;
            let attached = service.engine.attach(&record)?;
            kind.lock().push(Ready { permit, record, attached, _memory: memory });
            return Ok(true);
        }
        Ok(false)
    }
}

impl Kind {
    fn lock(&self) -> MutexGuard<'_, Vec<Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ready {
    fn is_for(&self, permit: &Permit) -> bool {
        let same = |ours: Option<&Decided>, theirs: Option<&Decided>| {
            let plain = |decided: &Decided| {
                let mut plain = decided.clone();
                plain.inputs.retain(|name, _| !OF_ASKER.contains(&name.as_str()));
                plain
            };
            ours.map(plain) == theirs.map(plain)
        };
        self.permit.spec() == permit.spec() && same(self.permit.decided(), permit.decided())
    }
}
