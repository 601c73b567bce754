//! Overlays, on every kernel since 5.11: by descriptors where the kernel takes them, else by names
//! that no job can change.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};

use super::{clone_tree, copy, finish};

/// Where an overlay is attached for a moment: in its own work directory, if it has one. Overlayfs
/// uses other names there: `work` and `index`.
pub(super) const PLACE: &str = "made-here";

/// mount(2) takes one page of options, with the zero byte at its end.
const MAX_OPTIONS: usize = 4095;

/// What stands in for an overlay that could not mark directories as replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WithoutMarks {
    /// The overlay all the same: nobody can remove or replace directories of its lower layers.
    Overlay,
    /// A copy of the only lower layer, in the upper directory.
    Copy,
    /// A copy in any case: the layer belongs to a user or group that the ring does not have. An
    /// overlay could copy nothing of it up (EOVERFLOW), so nothing in it could be changed.
    AlwaysCopy,
}

/// What an overlay is made of. Before Linux 6.15 all of it must be attached in the own mount
/// namespace.
#[derive(Debug)]
pub struct Layers {
    /// From bottom to top.
    pub lower: Vec<OwnedFd>,
    pub upper: OwnedFd,
    pub work: OwnedFd,
    pub without_marks: WithoutMarks,
}

impl Layers {
    /// The overlay, detached. `proc` opens a proc file system in which this process is; it is asked
    /// only where the kernel takes no descriptors.
    pub fn overlay(&self, proc: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<OwnedFd> {
        if self.without_marks == WithoutMarks::AlwaysCopy {
            return self.copy();
        }
        if let Some(tree) = self.by_descriptor()? {
            return Ok(tree);
        }
        match self.without_marks {
            WithoutMarks::Copy if !self.keeps_marks()? => self.copy(),
            _ => self.by_name(proc()?.as_fd()),
        }
    }

    /// Whether the upper directory has the attributes in which overlayfs keeps its marks. tmpfs has
    /// them since Linux 6.6.
    fn keeps_marks(&self) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let upper = rustix::fs::openat(&self.upper, ".", flags, Mode::empty())?;
        let mut value = [0_u8; 8];
        let mark = rustix::fs::fgetxattr(upper, "user.overlay.opaque", &mut value[..]);
        Ok(mark != Err(Errno::NOTSUP))
    }

    fn copy(&self) -> io::Result<OwnedFd> {
        for lower in &self.lower {
            copy::copy(lower.as_fd(), self.upper.as_fd(), self.work.as_fd())?;
        }
        clone_tree(self.upper.as_fd(), Path::new(""), false)
    }

    /// `None` where the kernel takes no descriptors: before Linux 6.13.
    fn by_descriptor(&self) -> io::Result<Option<OwnedFd>> {
        let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_flag(&context, "userxattr")?;
        // Overlay wants the topmost layer first.
        let lower = self.lower.iter().rev().map(|layer| ("lowerdir+", layer));
        let others = [("upperdir", &self.upper), ("workdir", &self.work)];
        for (key, layer) in lower.chain(others) {
            if rustix::mount::fsconfig_set_fd(&context, key, layer).is_err() {
                return Ok(None);
            }
        }
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        finish(&context, flags).map(Some)
    }

    fn by_name(&self, proc: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount_by_name(&self.options()?, &self.work, flags, proc)
    }

    fn options(&self) -> io::Result<CString> {
        let lower: Vec<RawFd> = self.lower.iter().map(AsRawFd::as_raw_fd).collect();
        options(&lower, self.upper.as_raw_fd(), self.work.as_raw_fd())
    }
}

/// In `/proc/self/fd` the number of a descriptor is its name. With that directory as the working
/// directory the names need no path, which a ring on its way up does not have, and 127 layers fit in
/// one page. fsconfig(2) would take 255 bytes of names, and layers one by one only since Linux 6.7.
pub(super) fn mount_by_name(
    options: &CStr,
    place: &OwnedFd,
    flags: MountFlags,
    proc: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let names = rustix::fs::openat(
        proc,
        "self/fd",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let below = |name: &str| format!("{}/{name}", place.as_raw_fd());
    in_directory(&names, || {
        // mount(2) makes no detached mount: it is attached for a moment, copied and taken away.
        rustix::fs::mkdirat(place, PLACE, Mode::RWXU)?;
        let at = below(PLACE);
        let tree = rustix::mount::mount("none", &at, "overlay", flags, options)
            .map_err(io::Error::from)
            .and_then(|()| {
                let tree = clone_tree(place.as_fd(), Path::new(PLACE), false);
                rustix::mount::unmount(&at, UnmountFlags::DETACH)?;
                tree
            });
        rustix::fs::unlinkat(place, PLACE, AtFlags::REMOVEDIR)?;
        tree
    })
}

/// With another working directory for as long as it takes.
pub(super) fn in_directory<T>(
    directory: &OwnedFd,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let before = rustix::fs::openat(CWD, ".", flags, Mode::empty())?;
    rustix::process::fchdir(directory)?;
    let done = work();
    rustix::process::fchdir(before)?;
    done
}

/// `lower` is from bottom to top; overlay wants the topmost first.
fn options(lower: &[RawFd], upper: RawFd, work: RawFd) -> io::Result<CString> {
    let names: Vec<String> = lower.iter().rev().map(RawFd::to_string).collect();
    let names = names.join(":");
    let text = format!("userxattr,lowerdir={names},upperdir={upper},workdir={work}");
    if text.len() > MAX_OPTIONS {
        // What is too long the kernel would cut without a word.
        let reason = format!("{} layers are too many before Linux 6.13", lower.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    CString::new(text).map_err(io::Error::other)
}

#[cfg(test)]
pub(super) mod tests;
