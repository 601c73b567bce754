//! The log as the rest of Ringwall sees it: open it, append, and be sure that it is on the disk.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::event::{Event, Ids};
use crate::keys::AuditPaths;
use crate::note::VerifierKey;
use crate::writer::{AppendError, Durability, OpenError, Receipt, Record, Writer};

/// A log that is open for writing. Many threads, and many processes, may append at once.
#[derive(Debug)]
pub struct AuditLog {
    writer: Mutex<Writer>,
    verifier: VerifierKey,
    queue: Mutex<Queue>,
    written: Condvar,
}

/// Records that wait until the disk has taken the ones before them: they then go together.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(u64, Vec<Record>)>,
    /// What one of those that wait wants is good for all.
    durability: Option<Durability>,
    results: HashMap<u64, Result<Vec<Receipt>, AppendError>>,
    next_ticket: u64,
    /// Whether a thread is writing for all.
    led: bool,
}

impl AuditLog {
    /// Opens the log, and begins one where there is none. Reads no more of it than its end.
    pub fn open(paths: AuditPaths) -> Result<AuditLog, OpenError> {
        let writer = Writer::open(paths)?;
        let verifier = writer.signer().verifier().clone();
        let queue = Mutex::default();
        Ok(AuditLog { writer: Mutex::new(writer), verifier, queue, written: Condvar::new() })
    }

    /// Records one event. When this returns, it is on the disk and signed for.
    pub fn append(&self, ids: Ids, event: Event) -> Result<Receipt, AppendError> {
        let receipts = self.append_all(vec![(ids, event)])?;
        receipts.first().copied().ok_or(AppendError::Unsure)
    }

    /// Records events one after the other with nothing between them: all, or none. When this
    /// returns, they are on the disk.
    pub fn append_all(&self, records: Vec<Record>) -> Result<Vec<Receipt>, AppendError> {
        self.put(records, Durability::Disk)
    }

    /// Records frequent events: when this returns, the kernel has them, and whatever ends
    /// this process, they stay. Should the machine itself go down before its disk has them, the log
    /// says so from then on.
    pub fn note_all(&self, records: Vec<Record>) -> Result<Vec<Receipt>, AppendError> {
        self.put(records, Durability::Kernel)
    }

    /// Makes the disk have the older records, if the next [note](AuditLog::note_all) would have to
    /// wait for that. A caller who is about to write calls this while it does other work.
    pub fn freshen(&self) -> Result<(), AppendError> {
        self.writer().freshen()
    }

    fn put(
        &self,
        records: Vec<Record>,
        durability: Durability,
    ) -> Result<Vec<Receipt>, AppendError> {
        let mut queue = self.queue();
        queue.durability = queue.durability.max(Some(durability));
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.waiting.push((ticket, records));
        loop {
            if let Some(result) = queue.results.remove(&ticket) {
                return result;
            }
            if queue.led {
                queue = self.written.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.led = true;
            let (tickets, groups): (Vec<_>, Vec<_>) = queue.waiting.drain(..).unzip();
            let durability = queue.durability.take().unwrap_or(Durability::Disk);
            drop(queue);
            let results = self.writer().append(groups, durability);
            queue = self.queue();
            queue.results.extend(tickets.into_iter().zip(results));
            queue.led = false;
            self.written.notify_all();
        }
    }

    /// The newest signed checkpoint. Kept elsewhere, it proves that the log was not cut back.
    pub fn checkpoint(&self) -> Result<String, AppendError> {
        self.writer().checkpoint()
    }

    /// The key that an auditor needs.
    pub fn verifier_key(&self) -> &VerifierKey {
        &self.verifier
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests;
