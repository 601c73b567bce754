//! The container ring: an OCI image as read-only layers under a writable one, own everything.

mod plan;

pub use plan::ContainerRing;
