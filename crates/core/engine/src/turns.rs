//! Whose turn it is, where more at once would only be in each other's way.

use std::sync::{Condvar, Mutex, PoisonError};

/// Lets so many go on at a time; the others wait.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Mutex<usize>,
    returned: Condvar,
}

/// Given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    pub(crate) fn new(at_once: usize) -> Turns {
        Turns { free: Mutex::new(at_once), returned: Condvar::new() }
    }

    /// As many as there are processors.
    pub(crate) fn by_processors() -> Turns {
        Turns::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    pub(crate) fn take(&self) -> Turn<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.returned.wait_while(free, |free| *free == 0);
        *taken.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_go_on_than_there_are_turns_and_everybody_has_one() {
        let (turns, (now, most)) = (Turns::new(2), (AtomicUsize::new(0), AtomicUsize::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let _turn = turns.take();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        assert_eq!(*turns.free.lock().unwrap(), 2);
    }
}
