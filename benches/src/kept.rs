//! Figures of earlier runs, kept in docs/benchmarks with the machine that they were measured on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::promises::Promise;
use crate::results::Machine;

/// Everything that one run leaves: what it measured, held against what is promised.
#[derive(Debug, Serialize)]
pub(crate) struct Run<Measured> {
    pub(crate) results: Measured,
    pub(crate) promises: Vec<Promise>,
}

/// An earlier run of the same part of the bench, as far as later ones can be compared with it.
#[derive(Debug, Deserialize)]
pub(crate) struct Kept {
    /// What it was kept under.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) results: Measured,
    pub(crate) promises: Vec<Promise>,
}

/// What all parts of the bench have measured. What else there is changes with the bench.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    pub(crate) machine: Machine,
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
        let run: Kept = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not a kept run of this bench", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        kept.push(Kept { name, ..run });
    }
    kept.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(kept)
}

pub(crate) fn write(directory: &Path, name: &str, run: &Value) -> Result<()> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(run)? + "\n";
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::promises::{Bound, promise};

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
        for part in ["", "tools", "vm"] {
            read(&directory.join(part)).unwrap();
        }
    }

    #[test]
    fn a_kept_run_is_read_with_its_machine_and_promises() {
        let directory = tempfile::tempdir().unwrap();
        let promises = vec![promise("start", Bound::AtMost(2.0), Some(1.5))];
        let results = json!({ "machine": Machine::look("0 0 0".to_owned()), "new": [1] });
        let run = serde_json::to_value(Run { results, promises }).unwrap();
        write(&directory.path().join("part"), "one", &run).unwrap();
        let kept = read(&directory.path().join("part")).unwrap();
        let [one] = kept.as_slice() else { panic!("{kept:?}") };
        assert_eq!((one.name.as_str(), one.promises[0].measured), ("one", Some(1.5)));
        assert_eq!(one.results.machine.load_before, "0 0 0");
    }
}
