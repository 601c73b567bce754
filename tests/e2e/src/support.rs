//! Runs the built programs as a person would, each test with a home of its own.
//!
//! The programs come from `$RINGWALL_BIN_DIR`, or from where `make build` puts them.

mod registry;

pub(crate) use registry::Registry;
pub(crate) use ringwall_testkit::{
    Finished, Terminal, User, World, busybox_layout, eventually, is_root, tool, wait_for_end,
};
