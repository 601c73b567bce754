//! Ends what runs for a client that has gone away.

use std::sync::{Arc, Mutex, PoisonError};

type End = Box<dyn FnOnce() + Send>;

/// Shared by the request, which may be dropped at any moment, and the thread that runs the job.
#[derive(Clone, Default)]
pub(crate) struct Guard(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    end: Option<End>,
    gone: bool,
}

impl Guard {
    /// From now on the job can be ended; at once if the client has gone already.
    pub(crate) fn arm(&self, end: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.gone {
            drop(state);
            end();
        } else {
            state.end = Some(Box::new(end));
        }
    }

    pub(crate) fn disarm(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).end = None;
    }

    /// To be held by the request.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.clone())
    }
}

pub(crate) struct Watch(Guard);

impl Drop for Watch {
    fn drop(&mut self) {
        let end = {
            let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.gone = true;
            state.end.take()
        };
        if let Some(end) = end {
            end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_job_ends_with_its_client_whichever_comes_first() {
        let ends = Arc::new(AtomicU32::new(0));
        let count = || {
            let ends = Arc::clone(&ends);
            move || {
                ends.fetch_add(1, Ordering::SeqCst);
            }
        };
        let guard = Guard::default();
        let watch = guard.watch();
        guard.arm(count());
        drop(watch);
        assert_eq!(ends.load(Ordering::SeqCst), 1);
        guard.arm(count());
        assert_eq!(ends.load(Ordering::SeqCst), 2);
        let done = Guard::default();
        let watch = done.watch();
        done.arm(count());
        done.disarm();
        drop(watch);
        assert_eq!(ends.load(Ordering::SeqCst), 2);
    }
}
