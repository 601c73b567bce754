//! Unpacks one layer of an image into a directory of its own, ready to be an overlay's lower layer.
//!
//! The archive is hostile. Every parent directory is resolved by the kernel beneath the layer's
//! directory without following any symlink, and whatever could matter outside the image is refused
//! or left out:
//!
//! * absolute names, `..`, NUL bytes, over-long and over-deep names: refused;
//! * entries whose path leads through a symlink of the same layer: refused;
//! * hard links to anything but a file or symlink of the same layer: refused;
//! * device nodes: refused, except directly in `dev/`, where they are left out because every ring
//!   mounts its own `/dev` over it; sparse files: refused;
//! * attributes `trusted.*` and `user.overlay.*`, which would steer overlayfs: refused; other
//!   attributes, file capabilities among them, are left out, as are set-user-id and set-group-id bits;
//! * more bytes, entries or compression than the limits allow for the whole image: refused.
//!
//! Whiteouts become what overlayfs understands in a user namespace (`userxattr`): `.wh.x` a character
//! device 0:0 named `x` (any user may make one, Linux 5.8), `.wh..wh..opq` the attribute
//! `user.overlay.opaque` = `y` on its directory.
//!
//! Layers are unpacked apart, as Docker's overlay2 and Podman do it. So where a lower layer has a
//! symlink `bin -> usr/bin` and a higher one an entry `bin/tool`, the higher layer has a real directory
//! `bin` that hides the symlink. Image builders write `usr/bin/tool` in that case; an archive put
//! together by hand that does not must name `usr/bin/tool`.

mod decompress;
mod name;
mod tree;

use std::io::{self, Read};
use std::path::Path;

pub(crate) use decompress::LayerReader;
use name::{EntryPath, Marker};
use tree::{Metadata, Tree};
pub(crate) use tree::{OPAQUE_ATTRIBUTE, open_beneath};

use crate::budget::{Bomb, Budget, Meter};
use crate::digest::Digest;
use crate::limits::UnpackLimits;
use crate::tar_stream::{ArchiveError, Entry, EntryKind, TarStream};

/// What unpacking a layer came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// Digest of the uncompressed archive.
    pub diff_id: Digest,
    /// Bytes of the uncompressed archive.
    pub archive_bytes: u64,
    /// Files, directories, links and whiteouts made.
    pub entries: u64,
    /// Device nodes in `dev/` that were left out.
    pub devices_left_out: u64,
}

/// Why a layer was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("refused the entry {entry:?}: {why}")]
    Refused { entry: String, why: Refusal },
    #[error(transparent)]
    Bomb(#[from] Bomb),
    #[error(transparent)]
    Archive(ArchiveError),
    #[error("cannot write {entry:?} of the layer")]
    Write { entry: String, source: io::Error },
    #[error("the layer's content is {found}, not {expected} as the image says")]
    WrongDiffId { expected: Digest, found: Digest },
}

/// What is wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("its name is empty")]
    EmptyName,
    #[error("its name is absolute")]
    AbsoluteName,
    #[error("its name contains '..'")]
    ParentDirectory,
    #[error("its name contains a NUL byte")]
    NulInName,
    #[error("its name is too long")]
    NameTooLong,
    #[error("its name has too many directories")]
    TooDeep,
    #[error("its path leads through a symbolic link")]
    ThroughSymlink,
    #[error("its path leads through something that is not a directory")]
    ParentNotDirectory,
    #[error("it is a device node")]
    Device,
    #[error("only a directory can be the root of a layer")]
    RootNotDirectory,
    #[error("it would replace a directory that is not empty")]
    ReplacesDirectory,
    #[error("the target of its link is empty, too long or contains a NUL byte")]
    BadLinkTarget,
    #[error("it is a hard link to {0:?}, which is no file of this layer")]
    HardLinkTarget(String),
    #[error("its owner {0} is above 65535")]
    OwnerTooLarge(u64),
    #[error("its attribute {0:?} would steer the overlay file system")]
    OverlayAttribute(String),
    #[error("it is a malformed whiteout")]
    BadWhiteout,
}

/// Unpacks a layer, compressed or not, into the empty directory `into`, as an image of its own.
///
/// On an error the directory holds part of the layer; it is for the caller to remove.
pub fn unpack_layer(
    layer: &[u8],
    into: &Path,
    limits: &UnpackLimits,
) -> Result<Unpacked, UnpackError> {
    let budget = Budget::new(*limits);
    unpack_within(layer, into, &budget.meter(layer.len() as u64))
}

/// Unpacks one layer of an image, for as long as the image's budget lasts.
pub(crate) fn unpack_within(
    layer: impl Read,
    into: &Path,
    meter: &Meter<'_>,
) -> Result<Unpacked, UnpackError> {
    let reader = LayerReader::new(layer, meter)
        .map_err(|error| UnpackError::Archive(ArchiveError::Read(error)))?;
    let tree = Tree::open(into, meter)
        .map_err(|source| UnpackError::Write { entry: String::new(), source })?;
    Unpacker { archive: TarStream::new(reader), tree, devices_left_out: 0 }.run()
}

/// Why one entry could not be placed; its name is added further up.
#[derive(Debug)]
enum PlaceError {
    Refused(Refusal),
    Bomb(Bomb),
    Read(io::Error),
    Write(io::Error),
}

impl From<Refusal> for PlaceError {
    fn from(refusal: Refusal) -> PlaceError {
        PlaceError::Refused(refusal)
    }
}

impl From<rustix::io::Errno> for PlaceError {
    fn from(errno: rustix::io::Errno) -> PlaceError {
        PlaceError::Write(errno.into())
    }
}

struct Unpacker<'a> {
    archive: TarStream<LayerReader<'a>>,
    tree: Tree<'a>,
    devices_left_out: u64,
}

impl Unpacker<'_> {
    fn run(mut self) -> Result<Unpacked, UnpackError> {
        while let Some(entry) = self.archive.next_entry().map_err(archive_error)? {
            self.place(&entry).map_err(|error| with_name(error, &entry.name))?;
        }
        self.archive.drain().map_err(archive_error)?;
        self.tree.finish().map_err(|error| with_name(error, b"a directory"))?;
        let entries = self.tree.entries();
        let (diff_id, archive_bytes) = self.archive.into_inner().finish();
        Ok(Unpacked { diff_id, archive_bytes, entries, devices_left_out: self.devices_left_out })
    }

    fn place(&mut self, entry: &Entry) -> Result<(), PlaceError> {
        let path = EntryPath::parse(&entry.name)?;
        check_attributes(entry)?;
        match Marker::of(&path)? {
            Marker::Bookkeeping => return Ok(()),
            Marker::Whiteout(hidden) => return self.tree.whiteout(&hidden),
            Marker::Opaque => return self.tree.opaque(&path),
            Marker::None => {}
        }
        if path.is_root() && entry.kind != EntryKind::Directory {
            return Err(Refusal::RootNotDirectory.into());
        }
        let metadata = Metadata::of(entry, self.tree.ownership())?;
        match entry.kind {
            EntryKind::Directory => self.tree.directory(&path, metadata),
            EntryKind::File => self.tree.file(&path, metadata, &mut self.archive),
            EntryKind::Fifo => self.tree.fifo(&path, metadata),
            EntryKind::Symlink => {
                let target = check_link_target(&entry.link_target)?;
                self.tree.symlink(&path, target, metadata)
            }
            EntryKind::HardLink => {
                let target = EntryPath::parse(&entry.link_target)
                    .map_err(|_| Refusal::HardLinkTarget(shown(&entry.link_target)))?;
                self.tree.hard_link(&path, &target)
            }
            EntryKind::Device if path.parent() == b"dev" => {
                self.devices_left_out += 1;
                Ok(())
            }
            EntryKind::Device => Err(Refusal::Device.into()),
        }
    }
}

fn check_attributes(entry: &Entry) -> Result<(), Refusal> {
    let steers_overlay =
        |name: &&Vec<u8>| name.starts_with(b"trusted.") || name.starts_with(b"user.overlay.");
    match entry.xattr_names.iter().find(steers_overlay) {
        Some(name) => Err(Refusal::OverlayAttribute(shown(name))),
        None => Ok(()),
    }
}

/// A symlink may say anything: it is only ever followed inside a ring, beneath the ring's root.
fn check_link_target(target: &[u8]) -> Result<&[u8], Refusal> {
    let good =
        !target.is_empty() && target.len() <= crate::limits::MAX_PATH_BYTES && !target.contains(&0);
    if good { Ok(target) } else { Err(Refusal::BadLinkTarget) }
}

fn archive_error(error: ArchiveError) -> UnpackError {
    match error {
        ArchiveError::Read(error) => read_error(error),
        other => UnpackError::Archive(other),
    }
}

/// A limit that was hit travels inside an IO error, because it is a reader that notices.
fn read_error(error: io::Error) -> UnpackError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Bomb>()) {
        Some(bomb) => UnpackError::Bomb(*bomb),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            UnpackError::Archive(ArchiveError::Truncated)
        }
        None => UnpackError::Archive(ArchiveError::Read(error)),
    }
}

fn with_name(error: PlaceError, name: &[u8]) -> UnpackError {
    match error {
        PlaceError::Refused(why) => UnpackError::Refused { entry: shown(name), why },
        PlaceError::Bomb(bomb) => UnpackError::Bomb(bomb),
        PlaceError::Read(error) => read_error(error),
        PlaceError::Write(source) => UnpackError::Write { entry: shown(name), source },
    }
}

/// Hostile bytes cut to what an error message can bear.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}
