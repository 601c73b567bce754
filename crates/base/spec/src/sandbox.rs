//! What a caller asks for, before anyone has said yes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{EgressSpec, Limits, SandboxName, Wall, WriteRights};

/// A sandbox as asked for. Only admission turns it into something that can be raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub wall: Wall,
    /// OCI image reference; needed by, and only by, a wall with a container ring.
    pub image: Option<String>,
    pub workspace: Option<WorkspaceSpec>,
    /// Where in the workspace a job may write, if not everywhere.
    #[serde(default)]
    pub rights: Option<WriteRights>,
    /// Host paths shown read-only at the same place inside, on top of the ring's own view.
    pub read_only_paths: Vec<PathBuf>,
    pub limits: Limits,
    pub name: Option<SandboxName>,
    /// What can be reached of the network; without it nothing.
    #[serde(default)]
    pub egress: Option<EgressSpec>,
    /// Whether programs may put filters of their own in force: seccomp, socket filters, Landlock.
    #[serde(default)]
    pub own_filters: bool,
}

impl SandboxSpec {
    pub fn new(wall: Wall) -> Self {
        SandboxSpec {
            wall,
            image: None,
            workspace: None,
            rights: None,
            read_only_paths: Vec::new(),
            limits: Limits::default(),
            name: None,
            egress: None,
            own_filters: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSpec {
    /// A directory of the host.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    pub mode: WorkspaceMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// The sandbox sees its own changes; the host sees none until they are applied.
    CopyOnWrite,
    /// Writes go straight to the host directory: no diff, no disk limit, nothing protected.
    ReadWrite,
}

/// Paths in JSON: text where they are text, else their bytes.
mod raw_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Raw {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let raw = match path.to_str() {
            Some(text) => Raw::Text(text.to_owned()),
            None => Raw::Bytes(path.as_os_str().as_bytes().to_vec()),
        };
        raw.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Raw::deserialize(from)? {
            Raw::Text(text) => PathBuf::from(text),
            Raw::Bytes(bytes) => PathBuf::from(OsString::from_vec(bytes)),
        })
    }
}
