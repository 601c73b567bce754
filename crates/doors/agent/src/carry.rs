//! Brings what was changed in one sandbox to the next, file by file, through its warden.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_engine::{Engine, Record};
use ringwall_spec::{Command, Ending};
use ringwall_wire::{ClientError, ErrorCode, Parents, RemoteError, RemoveWhat, WriteHow};
use ringwall_workspace::{After, Change, LoadError};

use crate::site::Site;

const PATIENCE: Duration = Duration::from_secs(120);
const LINK_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    #[error("what was changed in the sandbox {0} so far cannot be read")]
    Load(String, #[source] LoadError),
    #[error("{path:?} cannot be brought to the next sandbox, which may not write it: {why}")]
    Write { path: PathBuf, why: String },
}

/// Makes the workspace of `to` as it was when `from` ended.
pub(crate) fn carry(engine: &Engine, from: &Record, to: &Site) -> Result<(), CarryError> {
    if from.workspace.is_none() {
        return Ok(());
    }
    let changes = match engine.changes(from) {
        // Nothing was changed, so nothing was kept.
        Err(LoadError::Missing { .. }) => return Ok(()),
        changes => changes.map_err(|error| CarryError::Load(from.id.to_string(), error))?,
    };
    for change in changes.entries() {
        let content = changes.content_of(change);
        one(to, change, content.as_deref())
            .map_err(|why| CarryError::Write { path: change.path.as_path().to_owned(), why })?;
    }
    Ok(())
}

fn one(to: &Site, change: &Change, content: Option<&Path>) -> Result<(), String> {
    let place = to.root().join(change.path.as_path());
    let path = place.as_os_str().as_bytes();
    let client = to.files().until(Instant::now() + PATIENCE);
    let told = |error: ClientError| error.to_string();
    let there = matches!(
        (&change.before, &change.after),
        (Some(ringwall_workspace::Before::Directory { .. }), Some(After::Directory { .. }))
    );
    let replaces = change.before.is_some() && !there;
    match &change.after {
        None => remove(&client, path).map_err(told),
        Some(After::Directory { mode }) if !there => {
            if replaces {
                remove(&client, path).map_err(told)?;
            }
            client.make_dir(path, *mode, Parents::Create).map_err(told)
        }
        Some(After::File { mode, .. }) => match content {
            Some(content) => {
                // A link or directory in its place would be written through.
                if replaces {
                    remove(&client, path).map_err(told)?;
                }
                let mut file = File::open(content).map_err(|error| error.to_string())?;
                let written = client.write_file(path, *mode, WriteHow::CreateNew, &mut file);
                written.map(drop).map_err(told)
            }
            None => {
                run(to, ["chmod", &format!("{:o}", mode & 0o777), "--"].map(OsStr::new), &[&place])
            }
        },
        Some(After::Directory { mode }) => {
            run(to, ["chmod", &format!("{:o}", mode & 0o777), "--"].map(OsStr::new), &[&place])
        }
        Some(After::Symlink { target }) => {
            if replaces {
                remove(&client, path).map_err(told)?;
            }
            let target = Path::new(OsStr::from_bytes(target.as_bytes()));
            run(to, ["ln", "-s", "--"].map(OsStr::new), &[target, &place])
        }
    }
}

/// What is not there need not be removed.
fn remove(client: &ringwall_wire::Client, path: &[u8]) -> Result<(), ClientError> {
    match client.remove(path, RemoveWhat::WholeTree) {
        Err(ClientError::Remote(RemoteError { code: ErrorCode::NotFound, .. })) => Ok(()),
        other => other,
    }
}

/// For what wardens have no request for.
fn run(to: &Site, words: [&OsStr; 3], paths: &[&Path]) -> Result<(), String> {
    let paths = paths.iter().map(|path| path.as_os_str());
    let argv = words.into_iter().chain(paths).map(OsStr::to_owned).collect();
    let command = Command { argv, ..Command::default() };
    let ran = to.run(&command, LINK_PATIENCE).map_err(|error| error.to_string())?;
    match ran.ending {
        Ending::Exited { code: 0 } => Ok(()),
        _ => Err(ran.output),
    }
}
