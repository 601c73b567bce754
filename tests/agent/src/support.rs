//! What the tests have in common: a place with everything of one agent in it, and a model server.

#[path = "../../net/src/support/finished.rs"]
mod finished;
#[path = "../../e2e/src/support/image.rs"]
mod image;
mod model;
mod place;
#[path = "../../e2e/src/support/programs.rs"]
mod programs;
mod terminal;

pub(crate) use finished::Finished;
pub(crate) use image::busybox_layout;
pub(crate) use model::{Asked, Model, Reply, call, calls, say};
pub(crate) use place::{KEY, Place, entries, of_kind};
pub(crate) use terminal::Terminal;

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
