//! The process ring: no image, the host's own programs and libraries read-only, nothing of its
//! homes, services or devices; a private /tmp and the workspace.

mod plan;

pub use plan::{ProcessRing, visible};
