//! Figures of earlier runs, kept in docs/benchmarks with the machine that they were measured on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::promises::Promise;
use crate::results::Results;

/// Everything that one run leaves: what it measured, held against what is promised.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) results: Results,
    pub(crate) promises: Vec<Promise>,
}

/// An earlier run and the name that it was kept under.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) run: Run,
}

/// All kept runs, by name. A directory that is not there holds none.
pub(crate) fn read(directory: &Path) -> Result<Vec<Kept>> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(Vec::new());
    };
    let mut kept = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
        let run = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a kept run of this bench", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        kept.push(Kept { name, run });
    }
    kept.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(kept)
}

pub(crate) fn write(directory: &Path, name: &str, run: &Run) -> Result<()> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(run)? + "\n";
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_holds_no_runs() {
        assert!(read(Path::new("/does/not/exist")).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_no_run_is_named_in_the_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("odd.json"), "{}").unwrap();
        fs::write(directory.path().join("notes.md"), "not read").unwrap();
        let error = format!("{:#}", read(directory.path()).unwrap_err());
        assert!(error.contains("odd.json"), "{error}");
    }

    #[test]
    fn the_runs_in_the_repository_can_be_read() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
        assert!(read(&directory).is_ok());
    }
}
