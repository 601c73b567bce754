//! What this host can really raise, as the caller found out.

use ringwall_spec::{RingKind, Wall};
use serde::{Deserialize, Serialize};

use crate::strength::known_walls;

/// Walls that can be raised here; no other one can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    raisable: Vec<Wall>,
    missing: Vec<MissingWall>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MissingWall {
    wall: Wall,
    missing: Missing,
}

/// Why a wall cannot be had, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub feature: String,
    pub fix: String,
}

impl HostFacts {
    /// From what is known of each ring by itself: a wall can be raised where all its rings can.
    pub fn of_rings(mut ring: impl FnMut(RingKind) -> Option<Missing>) -> HostFacts {
        let missing: Vec<(RingKind, Missing)> = RingKind::ALL
            .into_iter()
            .filter_map(|kind| ring(kind).map(|missing| (kind, missing)))
            .collect();
        let mut facts = HostFacts::default();
        for wall in known_walls() {
            match missing.iter().find(|(kind, _)| wall.rings().contains(kind)) {
                None => facts.raisable.push(wall),
                Some((_, missing)) => {
                    facts.missing.push(MissingWall { wall, missing: missing.clone() });
                }
            }
        }
        facts
    }

    /// The same host, but for one wall.
    #[must_use]
    pub fn without(mut self, wall: &Wall, missing: Missing) -> HostFacts {
        self.raisable.retain(|raisable| raisable != wall);
        self.missing.push(MissingWall { wall: wall.clone(), missing });
        self
    }

    pub fn can_raise(&self, wall: &Wall) -> Result<(), Missing> {
        if self.raisable.contains(wall) {
            return Ok(());
        }
        let known = self.missing.iter().find(|missing| missing.wall == *wall);
        Err(known.map_or_else(
            || Missing {
                feature: format!("the wall {wall}"),
                fix: "see `ringwall doctor`".to_owned(),
            },
            |known| known.missing.clone(),
        ))
    }
}
