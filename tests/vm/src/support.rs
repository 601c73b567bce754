//! The helpers of the end-to-end tests: the same programs, used the same way.

#![allow(dead_code, reason = "shared with the end-to-end tests; only a part of it is used here")]

#[path = "../../e2e/src/support/finished.rs"]
mod finished;
#[path = "../../e2e/src/support/image.rs"]
mod image;
#[path = "../../e2e/src/support/patience.rs"]
mod patience;
#[path = "../../e2e/src/support/terminal.rs"]
mod terminal;
#[path = "../../e2e/src/support/tool.rs"]
pub(crate) mod tool;
#[path = "../../e2e/src/support/world.rs"]
mod world;

pub(crate) use finished::Finished;
pub(crate) use image::busybox_layout;
pub(crate) use patience::eventually;
pub(crate) use terminal::Terminal;
pub(crate) use world::{User, World, is_root};
