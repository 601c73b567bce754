//! Rings and the walls made of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One isolation boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingKind {
    /// OS policy round the host's own read-only view.
    Process,
    /// An OCI image with its own namespaces.
    Container,
    /// WASM tools, in a process that sees only what they were granted.
    Wasm,
    /// A microVM with its own kernel.
    Vm,
}

impl RingKind {
    pub const ALL: [RingKind; 4] =
        [RingKind::Process, RingKind::Container, RingKind::Wasm, RingKind::Vm];

    pub fn name(self) -> &'static str {
        match self {
            RingKind::Process => "process",
            RingKind::Container => "container",
            RingKind::Wasm => "wasm",
            RingKind::Vm => "vm",
        }
    }
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The ordered list of rings round a job, outermost first: `container/process`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Wall(Vec<RingKind>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WallError {
    #[error("a wall needs at least one ring; say process, container, vm or vm/container")]
    Empty,
    #[error("unknown ring {0:?} in wall; the rings are process, container, wasm and vm")]
    UnknownRing(String),
    #[error("wall has {0} rings; at most {max} can be nested", max = Wall::MAX_DEPTH)]
    TooDeep(usize),
}

impl Wall {
    pub const MAX_DEPTH: usize = 4;

    pub fn single(ring: RingKind) -> Self {
        Wall(vec![ring])
    }

    /// Never empty.
    pub fn rings(&self) -> &[RingKind] {
        &self.0
    }

    /// The first ring that is made from an image.
    pub fn image_ring(&self) -> Option<RingKind> {
        let of_image = [RingKind::Container, RingKind::Vm];
        self.0.iter().copied().find(|ring| of_image.contains(ring))
    }

    pub fn outermost(&self) -> RingKind {
        self.0.first().copied().unwrap_or(RingKind::Process)
    }

    /// Whether tools run in a wasm ring inside the ring in which commands run.
    pub fn has_tools_inside(&self) -> bool {
        self.0.len() > 1 && self.0.last() == Some(&RingKind::Wasm)
    }

    /// How many rings are raised by the warden of a process or container ring, inside it.
    pub fn rings_in_ring(&self) -> usize {
        let outer = self.0.iter().take_while(|ring| **ring == RingKind::Vm).count();
        self.0.len().saturating_sub(outer + 1)
    }

    /// The rings round a command: all of them, but for a wasm ring, in which only tools run.
    pub fn command_rings(&self) -> &[RingKind] {
        match self.0.split_last() {
            Some((RingKind::Wasm, outer)) => outer,
            _ => &self.0,
        }
    }
}

impl FromStr for Wall {
    type Err = WallError;

    fn from_str(text: &str) -> Result<Self, WallError> {
        if text.is_empty() {
            return Err(WallError::Empty);
        }
        let rings = text
            .split('/')
            .map(|part| {
                RingKind::ALL
                    .into_iter()
                    .find(|ring| ring.name() == part)
                    .ok_or_else(|| WallError::UnknownRing(part.to_owned()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        if rings.len() > Self::MAX_DEPTH {
            return Err(WallError::TooDeep(rings.len()));
        }
        Ok(Wall(rings))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, ring) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            f.write_str(ring.name())?;
        }
        Ok(())
    }
}

impl From<Wall> for String {
    fn from(wall: Wall) -> String {
        wall.to_string()
    }
}

impl TryFrom<String> for Wall {
    type Error = WallError;

    fn try_from(text: String) -> Result<Self, WallError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_reads_back_as_it_was_written() {
        for text in ["process", "container", "container/process", "wasm", "vm/container/wasm"] {
            assert_eq!(text.parse::<Wall>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn commands_run_round_the_wasm_ring_and_tools_inside_it() {
        let wall = |text: &str| text.parse::<Wall>().unwrap();
        assert!(wall("vm/container/wasm").has_tools_inside());
        assert_eq!(wall("vm/container/wasm").command_rings(), [RingKind::Vm, RingKind::Container]);
        assert!(!wall("vm/container").has_tools_inside());
        assert_eq!(wall("vm/container").command_rings(), [RingKind::Vm, RingKind::Container]);
        assert!(!wall("wasm").has_tools_inside());
        assert!(wall("wasm").command_rings().is_empty());
    }

    #[test]
    fn empty_unknown_and_too_deep_walls_are_refused() {
        assert_eq!("".parse::<Wall>(), Err(WallError::Empty));
        assert_eq!("moat".parse::<Wall>(), Err(WallError::UnknownRing("moat".into())));
        assert_eq!("container/".parse::<Wall>(), Err(WallError::UnknownRing(String::new())));
        let deep = ["process"; 5].join("/");
        assert_eq!(deep.parse::<Wall>(), Err(WallError::TooDeep(5)));
    }
}
