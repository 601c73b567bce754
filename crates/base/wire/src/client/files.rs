//! File operations inside a ring.

use std::io::{ErrorKind, Read, Write};

use super::exchange::Item;
use super::{Client, ClientError, unexpected_reply};
use crate::limits::MAX_DATA_BYTES;
use crate::message::{DirEntry, FileStat, Reply, Request, WriteHow};

/// What to do about missing parent directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    Create,
    MustExist,
}

/// What to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveWhat {
    /// A file or an empty directory.
    Single,
    WholeTree,
}

impl Client {
    /// Copies the file into `sink` and gives its size. A file of more than `max_bytes` is an error
    /// once that much has been copied, whatever the warden says about it.
    pub fn read_file(
        &self,
        path: &[u8],
        sink: &mut dyn Write,
        max_bytes: u64,
    ) -> Result<u64, ClientError> {
        // One byte more is asked for, so that a file that is too large shows.
        let request = Request::ReadFile {
            path: path.to_vec(),
            offset: 0,
            max_bytes: max_bytes.saturating_add(1),
        };
        self.download(&request, sink, max_bytes)
    }

    /// Copies what was changed in a guest's workspace into `sink`, as a tree.
    pub fn take_workspace(&self, sink: &mut dyn Write, max_bytes: u64) -> Result<u64, ClientError> {
        self.download(&Request::TakeWorkspace, sink, max_bytes)
    }

    /// The same while jobs are stopped for it, which go on afterwards.
    pub fn look_at_workspace(
        &self,
        sink: &mut dyn Write,
        max_bytes: u64,
    ) -> Result<u64, ClientError> {
        self.download(&Request::LookAtWorkspace, sink, max_bytes)
    }

    fn download(
        &self,
        request: &Request,
        sink: &mut dyn Write,
        max_bytes: u64,
    ) -> Result<u64, ClientError> {
        let exchange = self.open(request)?;
        let mut copied = 0u64;
        loop {
            match exchange.next(MAX_DATA_BYTES, self.deadline)? {
                Item::Data(_, bytes) => {
                    copied += bytes.len() as u64;
                    if copied > max_bytes {
                        return Err(ClientError::FileTooLarge { max_bytes });
                    }
                    sink.write_all(&bytes).map_err(ClientError::Local)?;
                }
                Item::Reply(_) => return Ok(copied),
            }
        }
    }

    /// Writes everything that `source` gives and says how much that was. If the source fails, the
    /// file is left as far as it was written.
    pub fn write_file(
        &self,
        path: &[u8],
        mode: u32,
        how: WriteHow,
        source: &mut dyn Read,
    ) -> Result<u64, ClientError> {
        self.upload(&Request::WriteFile { path: path.to_vec(), mode, how }, source)
    }

    /// Sends a workspace, as a tree, into a guest, where it belongs to `owner` and is seen at `at`.
    pub fn put_workspace(
        &self,
        owner: (u32, u32),
        at: &[u8],
        source: &mut dyn Read,
    ) -> Result<u64, ClientError> {
        self.upload(&Request::PutWorkspace { owner, at: at.to_vec() }, source)
    }

    pub(super) fn upload(
        &self,
        request: &Request,
        source: &mut dyn Read,
    ) -> Result<u64, ClientError> {
        let exchange = self.open(request)?;
        let outlet = exchange.outlet();
        let mut buffer = vec![0; MAX_DATA_BYTES];
        let mut written = 0u64;
        loop {
            let n = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(ClientError::Local(error)),
            };
            let mut piece = buffer.get(..n).unwrap_or_default();
            while !piece.is_empty() {
                match outlet.send_some(piece, self.deadline) {
                    Ok(n) => piece = piece.get(n..).unwrap_or_default(),
                    // The warden has said no before the end; its reply says why.
                    Err(ClientError::InputClosed) => {
                        return exchange.reply(self.deadline).map(|_| written);
                    }
                    Err(error) => return Err(error),
                }
            }
            written += n as u64;
        }
        outlet.end();
        exchange.reply(self.deadline)?;
        Ok(written)
    }

    /// The entries of a directory, in the warden's order. Their names are checked to be names.
    pub fn list(&self, path: &[u8]) -> Result<Vec<DirEntry>, ClientError> {
        let exchange = self.open(&Request::List { path: path.to_vec() })?;
        let mut all = Vec::new();
        while let Reply::Entries(entries) = exchange.reply(self.deadline)? {
            all.extend(entries);
        }
        Ok(all)
    }

    /// Does not follow a symbolic link at the end of the path.
    pub fn stat(&self, path: &[u8]) -> Result<FileStat, ClientError> {
        match self.ask(&Request::Stat { path: path.to_vec() })? {
            Reply::Stat(stat) => Ok(stat),
            _ => Err(unexpected_reply()),
        }
    }

    pub fn make_dir(&self, path: &[u8], mode: u32, parents: Parents) -> Result<(), ClientError> {
        let parents = parents == Parents::Create;
        self.ask(&Request::MakeDir { path: path.to_vec(), mode, parents }).map(drop)
    }

    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), ClientError> {
        self.ask(&Request::Rename { from: from.to_vec(), to: to.to_vec() }).map(drop)
    }

    pub fn remove(&self, path: &[u8], what: RemoveWhat) -> Result<(), ClientError> {
        let recursive = what == RemoveWhat::WholeTree;
        self.ask(&Request::Remove { path: path.to_vec(), recursive }).map(drop)
    }
}
