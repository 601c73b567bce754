//! What the engine and the launcher say to each other, one message each.

use serde::{Deserialize, Serialize};

use crate::apply::StepFailure;
use crate::step::Step;

/// What a launcher does after its first ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parking {
    /// It ends. The ring becomes a child of the engine, and dies with the thread that started the
    /// launcher.
    NotAtAll,
    /// It waits for the ring to end: there will be no other.
    OneRing,
    /// It keeps the next ring ready, as far as that can be done ahead.
    ForMore,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Applied once, by the spawner itself: its user namespace and mount template.
    Template { steps: Vec<Step>, parking: Parking },
    /// A ring: applied by a child in namespaces of its own. The first descriptor is the report
    /// socket, the others are slots; both are there only for the last steps.
    Spawn {
        /// May be applied before anybody asks for the ring.
        ahead: Vec<Step>,
        last: Vec<Step>,
    },
    /// A change to a ring that is up: applied by the launcher itself, which ends with the first that
    /// fails. The descriptors are slots, which the next such order finds as they are.
    Adjust { steps: Vec<Step> },
}

/// To [`Order::Spawn`] and [`Order::Adjust`]. A template that failed is told in the answer to the
/// first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// With a pidfd.
    Spawned {
        pid: u32,
    },
    Adjusted,
    Failed(StepFailure),
}

/// Steps as bytes, for the request that asks a warden to raise the next ring.
pub fn encode_steps(steps: &[Step]) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_stdvec(steps)
}

pub(super) fn decode_steps(bytes: &[u8]) -> Result<Vec<Step>, postcard::Error> {
    postcard::from_bytes(bytes)
}
