//! Walls that did not hold when they were attacked. Nothing is raised behind them until they do, or
//! until a person takes the risk.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use ringwall_safekeeping::{self as safekeeping, Content, Trust, if_there, replace};
use ringwall_spec::Wall;

use crate::config::Engine;

/// Below the engine's home: a wall in each line. Missing where all hold.
const FILE: &str = "distrusted-walls";
/// More walls than there are fit in it.
const MAX_BYTES: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum DistrustError {
    #[error(
        "the wall {0} did not hold when it was attacked; `ringwall verify --wall {0}` shows where. Mend that, or take the risk with `ringwall verify --accept-risk {0} --reason WHY`"
    )]
    DidNotHold(String),
    #[error(
        "whether this wall held when it was attacked cannot be read from {path}; run `ringwall verify` again"
    )]
    Unknown { path: String, source: io::Error },
}

impl Engine {
    /// Keeps what an attack on each wall has shown: whether it held. Other walls stay as they were.
    pub fn trust_by(&self, results: &[(Wall, bool)]) -> Result<(), DistrustError> {
        let path = path(&self.home);
        let mut distrusted = read(&path)?;
        for (wall, held) in results {
            match held {
                true => distrusted.remove(&name(wall)),
                false => distrusted.insert(name(wall)),
            };
        }
        let unknown = |source| DistrustError::Unknown { path: path.display().to_string(), source };
        if distrusted.is_empty() {
            return match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unknown(error)),
                Ok(()) | Err(_) => Ok(()),
            };
        }
        let text: String = distrusted.iter().map(|wall| format!("{wall}\n")).collect();
        replace(&path, Content::durable(text.as_bytes())).map_err(|error| unknown(error.into()))
    }

    pub(crate) fn refuse_distrusted(&self, wall: &Wall) -> Result<(), DistrustError> {
        let name = name(wall);
        match read(&path(&self.home))?.contains(&name) {
            true => Err(DistrustError::DidNotHold(name)),
            false => Ok(()),
        }
    }
}

fn path(home: &Path) -> PathBuf {
    home.join(FILE)
}

/// A tool's ring inside makes the rings round it no better.
fn name(wall: &Wall) -> String {
    wall.command_rings().iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

fn read(path: &Path) -> Result<BTreeSet<String>, DistrustError> {
    let found = if_there(safekeeping::read(path, Trust::Own, MAX_BYTES));
    let text = found
        .map_err(io::Error::from)
        .and_then(|text| String::from_utf8(text.unwrap_or_default()).map_err(io::Error::other));
    match text {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(source) => Err(DistrustError::Unknown { path: path.display().to_string(), source }),
    }
}
