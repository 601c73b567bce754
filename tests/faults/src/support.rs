//! The helpers of the other whole-program tests: the same programs, used the same way.

pub(crate) use ringwall_testkit::{
    Client, Daemon, Finished, User, World, eventually, is_root, wait_for_end,
};

/// How often a fault at a random moment is tried: a few times, or more where somebody has the time.
pub(crate) fn rounds() -> usize {
    std::env::var("RINGWALL_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// A refusal in words: not a panic, not silence.
#[track_caller]
pub(crate) fn is_told(finished: &Finished) {
    let errors = finished.err();
    assert!(errors.contains("ringwall: ") && !errors.contains("panicked"), "{finished:?}");
}
