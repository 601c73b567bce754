//! What the tests have in common: a place with everything of one agent in it, and a model server.

mod model;
mod place;
mod terminal;

pub(crate) use model::{Asked, Model, Reply, call, calls, say};
pub(crate) use place::{KEY, Place, entries, of_kind};
pub(crate) use ringwall_testkit::{Ended, busybox_layout, is_root};
pub(crate) use terminal::Terminal;
