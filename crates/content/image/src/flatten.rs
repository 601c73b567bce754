//! One read-only file system from an image's layers, to be the root of a guest.
//!
//! The result is what overlayfs shows of the same layers: the topmost layer that has a name decides,
//! directories of one path are merged, whiteouts and opaque directories hide what lies below. It is
//! written as the layers are walked, directory by directory, sorted by name; of the tree nothing is
//! in memory but the directories that are open.
//!
//! A layer has the owners of the image where root unpacked it. For an ordinary user all files are
//! that user's, whatever the image says; in the result they belong to root, who stands for that user
//! inside a ring too. Layers keep no attributes and no set-id bits, so the result has none.

mod layer;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::PathBuf;

use layer::{Directory, Layer, Lifted, entry_of};

use crate::erofs::{ErofsError, FileKind, Inode, Listing, Nid, Writer};
use crate::limits::ImageLimits;
use crate::progress::{Piece, Progress, Work};
use crate::unpack::shown;

/// Why there is no file system of some layers.
#[derive(Debug, thiserror::Error)]
pub enum FlattenError {
    #[error("its files take more than the {max} bytes that are allowed")]
    TooLarge { max: u64 },
    #[error("it has more than the {max} files and directories that are allowed")]
    TooManyFiles { max: u64 },
    #[error("cannot read {entry:?} of its layers")]
    Read { entry: String, source: io::Error },
    #[error("cannot write the file system")]
    Write(#[source] io::Error),
}

/// Writes the file system that `layers`, bottom to top, are together into the empty file `into`, and
/// gives its size. `id` becomes its UUID; the same layers and the same id give the same bytes.
///
/// On an error the file holds part of a file system without a superblock.
pub fn write_root_image(
    layers: &[PathBuf],
    into: &File,
    id: [u8; 16],
    limits: &ImageLimits,
    progress: &dyn Progress,
) -> Result<u64, FlattenError> {
    let work = Work::new(progress);
    let open = |path: &PathBuf| Layer::open(path).map_err(|error| reading(b"", error.into()));
    let mut flattener = Flattener {
        layers: layers.iter().rev().map(open).collect::<Result<_, _>>()?,
        writer: Writer::new(into, limits.max_root_image_bytes),
        links: HashMap::new(),
        entries: 0,
        max_entries: limits.unpack.max_entries,
        piece: work.begin("making the root file system".to_owned(), None),
    };
    let all: Vec<usize> = (0..layers.len()).collect();
    let root = match flattener.layers.first() {
        Some(top) => top.root_inode().map_err(|errno| reading(b"", errno.into()))?,
        None => EMPTY_ROOT,
    };
    let root = flattener.directory(&mut Vec::new(), &all, &root, None)?;
    flattener.finish(root, id)
}

/// What the root directory of an image without layers is like.
const EMPTY_ROOT: Inode = Inode {
    kind: FileKind::Directory,
    mode: 0o755,
    uid: 0,
    gid: 0,
    mtime: 0,
    mtime_nanoseconds: 0,
    size: 0,
};

struct Flattener<'a> {
    /// Top to bottom: a smaller number hides a larger one.
    layers: Vec<Layer>,
    writer: Writer<'a>,
    /// Files with several names, by layer and inode there.
    links: HashMap<(usize, u64), Linked>,
    entries: u64,
    max_entries: u64,
    piece: Piece<'a>,
}

struct Linked {
    nid: Nid,
    /// Names that are in the result, which may be fewer than in the layer.
    names: u32,
}

/// What is under one name.
struct Found {
    /// The topmost layer that has it.
    layer: usize,
    /// Nothing where that layer hides it.
    inode: Option<Inode>,
    /// Its inode in the layer, if it has other names there.
    linked_as: Option<u64>,
    /// For a directory: the layers to merge, top to bottom.
    parts: Vec<usize>,
    /// Whether layers further below can add to it.
    open_below: bool,
}

impl Found {
    fn new(layer: usize, inode: Option<Inode>, linked_as: Option<u64>) -> Found {
        let is_directory = inode.is_some_and(|inode| inode.kind == FileKind::Directory);
        let parts = if is_directory { vec![layer] } else { Vec::new() };
        Found { layer, inode, linked_as, parts, open_below: is_directory }
    }

    /// Whatever is no directory ends a directory's merging, a whiteout too.
    fn add_below(&mut self, layer: usize, inode: Option<Inode>) {
        match inode {
            Some(inode) if inode.kind == FileKind::Directory && self.open_below => {
                self.parts.push(layer);
            }
            _ => self.open_below = false,
        }
    }
}

/// What is in one directory of the result.
struct Merged {
    /// The directory in each layer that adds to it.
    open: Vec<(usize, Directory)>,
    found: BTreeMap<Vec<u8>, Found>,
    /// Must outlive the walk through whatever is below.
    lifted: Vec<Lifted>,
}

impl Flattener<'_> {
    fn directory(
        &mut self,
        path: &mut Vec<u8>,
        parts: &[usize],
        inode: &Inode,
        parent: Option<Nid>,
    ) -> Result<Nid, FlattenError> {
        let Merged { open, found, lifted } = self.list(path, parts)?;
        let mut visible: Vec<(Vec<u8>, Inode, Found)> = found
            .into_iter()
            .filter_map(|(name, found)| Some((name, found.inode?, found)))
            .collect();
        self.count(visible.len())?;
        let names = visible.iter().map(|(name, inode, _)| (name.clone(), inode.kind));
        let begun = self.writer.begin_directory(inode, Listing::new(names));
        let mut directory = begun.map_err(|error| writing(path, error))?;

        for (name, inode, found) in &visible {
            if inode.kind != FileKind::Directory {
                let nid = within(path, name, |path| self.leaf(path, name, inode, found, &open))?;
                directory.set(name, nid);
            }
        }
        // So that the number of open files does not grow with the depth of the tree.
        drop(open);
        visible.retain(|(_, inode, _)| inode.kind == FileKind::Directory);
        for (name, inode, found) in &visible {
            let own = Some(directory.nid);
            let nid = within(path, name, |path| self.directory(path, &found.parts, inode, own))?;
            directory.set(name, nid);
        }
        drop(lifted);
        self.writer.end_directory(&directory, parent).map_err(|error| writing(path, error))?;
        Ok(directory.nid)
    }

    fn list(&self, path: &[u8], parts: &[usize]) -> Result<Merged, FlattenError> {
        let mut merged = Merged { open: Vec::new(), found: BTreeMap::new(), lifted: Vec::new() };
        for &number in parts {
            let failed = |errno: rustix::io::Errno| reading(path, errno.into());
            let Some(layer) = self.layers.get(number) else { continue };
            merged.lifted.extend(layer.lift_directory(path).map_err(failed)?);
            let directory = layer.open_directory(path).map_err(failed)?;
            for name in directory.names().map_err(failed)? {
                let stat = directory.stat(&name).map_err(failed)?;
                let (inode, linked_as) = entry_of(&stat, layer.owners);
                merged
                    .found
                    .entry(name.into_bytes())
                    .and_modify(|found| found.add_below(number, inode))
                    .or_insert_with(|| Found::new(number, inode, linked_as));
            }
            let opaque = directory.is_opaque().map_err(failed)?;
            merged.open.push((number, directory));
            if opaque {
                break;
            }
        }
        Ok(merged)
    }

    fn leaf(
        &mut self,
        path: &[u8],
        name: &[u8],
        inode: &Inode,
        found: &Found,
        open: &[(usize, Directory)],
    ) -> Result<Nid, FlattenError> {
        let key = found.linked_as.map(|number| (found.layer, number));
        if let Some(linked) = key.and_then(|key| self.links.get_mut(&key)) {
            linked.names += 1;
            return Ok(linked.nid);
        }
        let gone = || reading(path, io::ErrorKind::NotFound.into());
        let (_, directory) =
            open.iter().find(|(layer, _)| *layer == found.layer).ok_or_else(gone)?;
        let failed = |errno: rustix::io::Errno| reading(path, errno.into());
        let added = match inode.kind {
            FileKind::File => {
                let mut file = directory.open_file(name, inode.mode).map_err(failed)?;
                self.writer.add(inode, &mut file)
            }
            FileKind::Symlink => {
                let target = directory.read_link(name).map_err(failed)?;
                let inode = Inode { size: target.len() as u64, ..*inode };
                self.writer.add(&inode, &mut target.as_slice())
            }
            _ => self.writer.add(inode, &mut io::empty()),
        };
        let nid = added.map_err(|error| writing(path, error))?;
        self.piece.advance(inode.size).map_err(|error| reading(path, error))?;
        if let Some(key) = key {
            self.links.insert(key, Linked { nid, names: 1 });
        }
        Ok(nid)
    }

    fn finish(mut self, root: Nid, id: [u8; 16]) -> Result<u64, FlattenError> {
        for linked in self.links.values().filter(|linked| linked.names > 1) {
            let set = self.writer.set_links(linked.nid, linked.names);
            set.map_err(|error| writing(b"", error))?;
        }
        self.writer.finish(root, id).map_err(|error| writing(b"", error))
    }

    fn count(&mut self, entries: usize) -> Result<(), FlattenError> {
        self.entries += entries as u64;
        if self.entries > self.max_entries {
            return Err(FlattenError::TooManyFiles { max: self.max_entries });
        }
        Ok(())
    }
}

/// Does something with the path of `name` in the directory `path`.
fn within<T>(path: &mut Vec<u8>, name: &[u8], act: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let length = path.len();
    if length > 0 {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    let result = act(path);
    path.truncate(length);
    result
}

fn reading(path: &[u8], source: io::Error) -> FlattenError {
    FlattenError::Read { entry: shown(path), source }
}

fn writing(path: &[u8], error: ErofsError) -> FlattenError {
    match error {
        ErofsError::Read(source) => reading(path, source),
        ErofsError::Write(source) => FlattenError::Write(source),
        ErofsError::TooLarge { max } => FlattenError::TooLarge { max },
    }
}
