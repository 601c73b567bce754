//! What runs under a grant ends with it. A [`Lease`] is held for as long as something runs or is streamed;
//! one thread looks at the grants of all leases, ends what has lost its own, and writes it down.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::books::Books;
use crate::caller::{Caller, Holder};
use crate::refused::{Kind, Refused};

/// How long something may go on after its grant has ended.
pub(crate) const LOOK_AT_GRANTS: Duration = Duration::from_millis(500);

type End = Box<dyn FnOnce() + Send>;

/// Something that runs under a grant. It is watched no more when this goes.
pub struct Lease {
    books: Arc<Books>,
    number: Option<u64>,
}

/// What is watched.
pub struct Watched {
    /// For the record, such as `exec in ID`.
    pub what: String,
    /// Ends it; called once, from another thread.
    pub end: End,
}

#[derive(Default)]
pub(crate) struct Leases(Mutex<All>);

#[derive(Default)]
struct All {
    next: u64,
    watching: bool,
    under_way: Vec<(u64, Arc<Holder>, Watched)>,
}

impl Books {
    /// Ends this when the caller's grant is revoked or expires. The owner's is never ended.
    pub fn lease(self: &Arc<Self>, caller: &Caller, watched: Watched) -> Lease {
        let books = Arc::clone(self);
        let Caller::Holder(holder) = caller else { return Lease { books, number: None } };
        let mut all = self.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.next += 1;
        let number = all.next;
        all.under_way.push((number, Arc::clone(holder), watched));
        if !all.watching {
            let weak = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name("grants".to_owned());
            // Without a thread nobody would end it, so nothing goes ahead.
            all.watching = thread.spawn(move || watch(&weak)).is_ok();
            if !all.watching {
                drop(all);
                self.end_where(&|_| Some("its grant cannot be watched".to_owned()));
            }
        }
        Lease { books, number: Some(number) }
    }

    /// Ends what has lost its grant.
    fn look_at_grants(&self) {
        self.end_where(&|holder| self.is_good(holder).err().map(|why| why.why));
    }

    fn end_where(&self, lost: &dyn Fn(&Holder) -> Option<String>) {
        let under_way: Vec<(u64, Arc<Holder>)> = {
            let all = self.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.under_way.iter().map(|(number, holder, _)| (*number, Arc::clone(holder))).collect()
        };
        for (number, holder) in under_way {
            if let Some(why) = lost(&holder) {
                self.end(number, &holder, &why);
            }
        }
    }

    fn end(&self, number: u64, holder: &Holder, why: &str) {
        let Some(watched) = self.take(number) else { return };
        (watched.end)();
        // It has ended; a log that cannot be written stops whatever comes next.
        let _ = self.write(holder.denied("go on", &watched.what, why));
    }

    fn take(&self, number: u64) -> Option<Watched> {
        let mut all = self.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.under_way.iter().position(|(it, ..)| *it == number)?;
        Some(all.under_way.swap_remove(at).2)
    }
}

/// Looks until nothing is under way, or the books are gone.
fn watch(books: &Weak<Books>) {
    loop {
        std::thread::sleep(LOOK_AT_GRANTS);
        let Some(books) = books.upgrade() else { return };
        {
            let mut all = books.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.under_way.is_empty() {
                all.watching = false;
                return;
            }
        }
        books.look_at_grants();
    }
}

impl Lease {
    /// Looks at the grant now. If it has ended, this ends as at the next look at all grants.
    pub fn look(&self) -> Result<(), Refused> {
        let Some(number) = self.number else { return Ok(()) };
        let holder = {
            let all = self.books.leases.0.lock().unwrap_or_else(PoisonError::into_inner);
            let own = all.under_way.iter().find(|(it, ..)| *it == number);
            own.map(|(_, holder, _)| Arc::clone(holder))
        };
        let over = || Refused::new(Kind::Unauthenticated, "the grant has ended");
        // A lease that is not watched any more has lost its grant already.
        let holder = holder.ok_or_else(over)?;
        let Err(why) = self.books.is_good(&holder) else { return Ok(()) };
        self.books.end(number, &holder, &why.why);
        Err(why)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            drop(self.books.take(number));
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("number", &self.number).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("what", &self.what).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").finish_non_exhaustive()
    }
}
