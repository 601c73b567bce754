//! A workspace that is copied: into a guest before the job, its changes out of it afterwards.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringwall_tree::{Bounds, OverlayKind, PackOptions, Packer, Progress, UnpackOptions, Unpacker};
use rustix::fs::{Mode, OFlags};

use crate::remove_tree::remove_tree;

/// Packed at once.
const PIECE: usize = 64 << 10;

/// The workspace as a stream, without its hidden files.
pub(crate) fn source(
    workspace: BorrowedFd<'_>,
    hidden: Vec<PathBuf>,
) -> io::Result<impl Read + use<>> {
    let options = PackOptions { skip: hidden, ..PackOptions::default() };
    let workspace = workspace.try_clone_to_owned()?;
    let tree = Packer::new(workspace, options).map_err(io::Error::other)?;
    Ok(Source { tree, piece: Vec::new(), read: 0, done: false })
}

/// A directory as the upper one of an overlay, filled from a stream.
#[derive(Debug)]
pub(crate) struct Sink {
    directory: PathBuf,
    tree: Option<Unpacker>,
}

impl Sink {
    /// `directory` must not exist.
    pub(crate) fn new(directory: &Path, max_bytes: u64, max_entries: u64) -> io::Result<Sink> {
        fs::create_dir(directory)?;
        let options = UnpackOptions { owner: None, whiteouts: Some(OverlayKind::User) };
        let bounds = Bounds { max_entries, max_bytes };
        let tree = Unpacker::new(open(directory)?, bounds, options).map_err(io::Error::other)?;
        Ok(Sink { directory: directory.to_owned(), tree: Some(tree) })
    }

    /// Whether the stream was whole. Gives the directory.
    pub(crate) fn finish(&mut self) -> io::Result<OwnedFd> {
        if let Some(tree) = self.tree.take() {
            tree.finish().map_err(io::Error::other)?;
        }
        open(&self.directory)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // `gc` looks for what could not be removed.
        let _ = remove_tree(&self.directory);
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let tree = self.tree.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        tree.feed(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Source {
    tree: Packer,
    piece: Vec<u8>,
    read: usize,
    done: bool,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == self.piece.len() && !self.done {
            self.piece.clear();
            self.read = 0;
            let progress = self.tree.fill(&mut self.piece, PIECE).map_err(io::Error::other)?;
            self.done = matches!(progress, Progress::Done);
        }
        let count = self.piece.get(self.read..).unwrap_or_default().read(buffer)?;
        self.read += count;
        Ok(count)
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}
