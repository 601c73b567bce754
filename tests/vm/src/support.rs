//! The helpers of the end-to-end tests: the same programs, used the same way.

pub(crate) use ringwall_testkit::{Finished, Terminal, busybox_layout, eventually, tool};
