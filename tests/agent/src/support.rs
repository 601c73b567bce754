//! What the tests have in common: a place with everything of one agent in it, and a model server.

#[path = "../../net/src/support/finished.rs"]
mod finished;
mod model;
mod place;
#[path = "../../e2e/src/support/programs.rs"]
mod programs;

pub(crate) use finished::Finished;
pub(crate) use model::{Asked, Model, Reply, call, calls, say};
pub(crate) use place::{KEY, Place, entries, of_kind};
