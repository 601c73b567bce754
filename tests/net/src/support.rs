//! What the tests have in common: a site with servers, and the walls that its clients are behind.

mod image;
mod programs;
mod servers;
mod site;

pub(crate) use ringwall_testkit::Ended;
pub(crate) use servers::Servers;
pub(crate) use site::{Site, Wall, at_every_wall, is_root};
