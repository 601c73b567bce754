//! The helpers of the other whole-program tests: the same programs, used the same way.

#![allow(dead_code, reason = "shared with other tests; only a part of it is used here")]

#[path = "../../api/src/support/client.rs"]
mod client;
#[path = "../../api/src/support/daemon.rs"]
mod daemon;
#[path = "../../e2e/src/support/finished.rs"]
mod finished;
#[path = "../../e2e/src/support/image.rs"]
mod image;
#[path = "../../e2e/src/support/patience.rs"]
mod patience;
#[path = "../../e2e/src/support/world.rs"]
mod world;

pub(crate) use client::Client;
pub(crate) use daemon::Daemon;
pub(crate) use finished::Finished;
pub(crate) use image::busybox_layout;
pub(crate) use patience::{eventually, wait_for_end};
pub(crate) use world::{User, World, is_root};

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
