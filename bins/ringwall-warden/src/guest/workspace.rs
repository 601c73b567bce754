//! The workspace of a guest: copied in before the job, what was changed copied out after it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use ringwall_tree::{
    Bounds, OverlayKind, PackOptions, Packer, Progress as Packed, UnpackOptions, Unpacker,
};
use ringwall_wire::{Channel, Connection, ErrorCode, RemoteError, StreamId};

use super::limits::{JobGroup, Stopped};
use super::root::{self, Root, WorkspaceMount};
use crate::error::refused;
use crate::files::Progress;

/// The scratch space has its own bounds; these only end what makes no sense.
const BOUNDS: Bounds = Bounds { max_entries: 10_000_000, max_bytes: 1 << 40 };
/// Packed at once.
const PIECE: usize = 64 << 10;

/// A workspace on its way in.
#[derive(Debug)]
pub(crate) struct Unpacking {
    tree: Option<Unpacker>,
    scratch: OwnedFd,
    /// Where it will be seen.
    at: PathBuf,
    mount: WorkspaceMount,
}

impl Unpacking {
    pub(crate) fn begin(
        root: &Root,
        owner: (u32, u32),
        at: Vec<u8>,
    ) -> Result<Unpacking, RemoteError> {
        let at = PathBuf::from(OsString::from_vec(at));
        let begun = root.begin_workspace(owner).and_then(|directory| {
            let options = UnpackOptions { owner: Some(owner), whiteouts: None };
            let tree = Unpacker::new(directory, BOUNDS, options).map_err(io::Error::other)?;
            let (scratch, mount) = (root.scratch().try_clone()?, root.workspace());
            Ok(Unpacking { tree: Some(tree), scratch, at, mount })
        });
        begun.map_err(|error| told("cannot make room for the workspace", &error))
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), RemoteError> {
        let tree = self.tree.as_mut().ok_or_else(|| told("the workspace", &"is there already"))?;
        tree.feed(bytes).map_err(|error| told("cannot copy the workspace in", &error))
    }

    pub(crate) fn finish(&mut self) -> Result<(), RemoteError> {
        let tree = self.tree.take().ok_or_else(|| told("the workspace", &"is there already"))?;
        tree.finish().map_err(|error| told("cannot copy the workspace in", &error))?;
        let shown = root::show_workspace(&self.scratch, &self.at)
            .map_err(|error| told("cannot show the workspace", &error))?;
        self.mount.set(shown).map_err(|_| told("the workspace", &"is there already"))
    }
}

/// What was changed, on its way out.
#[derive(Debug)]
pub(crate) struct TakeWorkspace {
    /// Jobs that are stopped until all was read.
    _stopped: Option<Stopped>,
    tree: Packer,
    piece: Vec<u8>,
    done: bool,
}

impl TakeWorkspace {
    /// Ends all jobs first: what is copied must not change on the way.
    pub(crate) fn begin(root: &Root, jobs: &JobGroup) -> Result<TakeWorkspace, RemoteError> {
        jobs.kill().map_err(|error| told("jobs could not be ended", &error))?;
        TakeWorkspace::of(root, None)
    }

    /// Stops all jobs first. They go on when everything was read, or nobody reads any more.
    pub(crate) fn look(root: &Root, jobs: &JobGroup) -> Result<TakeWorkspace, RemoteError> {
        let stopped =
            Stopped::begin(jobs).map_err(|error| told("jobs could not be stopped", &error))?;
        TakeWorkspace::of(root, Some(stopped))
    }

    fn of(root: &Root, stopped: Option<Stopped>) -> Result<TakeWorkspace, RemoteError> {
        let wrong = |error: io::Error| told("there is no workspace to read", &error);
        let options = PackOptions { overlay: Some(OverlayKind::Trusted), ..PackOptions::default() };
        let tree = Packer::new(root.changed().map_err(wrong)?, options)
            .map_err(|error| told("cannot read what was changed", &error))?;
        Ok(TakeWorkspace { _stopped: stopped, tree, piece: Vec::new(), done: false })
    }

    pub(crate) fn step(&mut self, connection: &mut Connection, stream: StreamId) -> Progress {
        if self.piece.is_empty() && !self.done {
            match self.tree.fill(&mut self.piece, PIECE) {
                Ok(Packed::More) => {}
                Ok(Packed::Done) => self.done = true,
                Err(error) => {
                    let error = told("cannot read what was changed", &error);
                    return Progress::Finished(Err(error));
                }
            }
        }
        let room = connection.sendable(stream).min(self.piece.len()).min(PIECE);
        if room == 0 {
            return match self.done && self.piece.is_empty() {
                true => Progress::Finished(Ok(())),
                false => Progress::Waiting,
            };
        }
        let rest = self.piece.split_off(room);
        connection.send(stream, Channel::Bytes, &self.piece);
        self.piece = rest;
        Progress::Again
    }
}

fn told(doing: &str, error: &dyn std::fmt::Display) -> RemoteError {
    refused(ErrorCode::System, &format!("{doing}: {error}"))
}
