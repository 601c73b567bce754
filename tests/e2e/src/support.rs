//! Runs the built programs as a person would, each test with a home of its own.
//!
//! The programs come from `$RINGWALL_BIN_DIR`, or from where `make build` puts them.

mod finished;
mod image;
mod patience;
mod registry;
mod terminal;
pub(crate) mod tool;
mod world;

pub(crate) use finished::Finished;
pub(crate) use image::busybox_layout;
pub(crate) use patience::{eventually, wait_for_end};
pub(crate) use registry::Registry;
pub(crate) use terminal::Terminal;
pub(crate) use world::{User, World, is_root};
