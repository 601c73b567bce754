//! The helpers of the end-to-end tests: the same programs, used the same way.

pub(crate) use ringwall_testkit::{Finished, World, eventually, is_root, wait_for_end};
