//! Waiting with an end.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::finished::code;

/// Far longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Asks until `question` gives something.
#[track_caller]
pub fn eventually<T>(what: &str, question: impl FnMut() -> Option<T>) -> T {
    within(PATIENCE, what, question)
}

/// Asks for as long as `patience` says.
#[track_caller]
pub(crate) fn within<T>(
    patience: Duration,
    what: &str,
    mut question: impl FnMut() -> Option<T>,
) -> T {
    let give_up = Instant::now() + patience;
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < give_up, "did not happen in {patience:?}: {what}");
        sleep(PAUSE);
    }
}

/// The exit code of a child that is about to end.
#[track_caller]
pub fn wait_for_end(child: &mut Child) -> i32 {
    eventually("the end of the program", || child.try_wait().ok().flatten().map(code))
}
