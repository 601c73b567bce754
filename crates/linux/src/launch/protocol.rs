//! What the engine and the launcher say to each other, one message each.

use serde::{Deserialize, Serialize};

use crate::apply::StepFailure;
use crate::step::Step;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Applied once, by the spawner itself: its user namespace and mount template.
    Template {
        steps: Vec<Step>,
        /// More than one ring will be asked for: prepare ahead.
        parked: bool,
    },
    /// Applied by a fresh child in namespaces of its own. The first descriptor is the report
    /// socket, the others are slots.
    Spawn(Vec<Step>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Ready,
    /// With a pidfd.
    Spawned {
        pid: u32,
    },
    Failed(StepFailure),
}

/// Steps as bytes, for the request that asks a warden to raise the next ring.
pub fn encode_steps(steps: &[Step]) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_stdvec(steps)
}

pub(super) fn decode_steps(bytes: &[u8]) -> Result<Vec<Step>, postcard::Error> {
    postcard::from_bytes(bytes)
}
