//! Between the engine and the launcher: a spawner per plan, parked in its user namespace and
//! mount template, that turns short step lists into running wardens.

mod client;
mod inner;
mod protocol;
mod server;

pub use client::{LaunchError, Launched, Spawner};
pub use inner::{EncodedPlan, InnerRing, adjust, raise_inner, raise_planned};
pub use protocol::{Parking, encode_steps};
pub use server::serve_stdin;
