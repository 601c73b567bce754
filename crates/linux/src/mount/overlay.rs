//! Overlays, on every kernel since 5.11: by descriptors where the kernel takes them, else by names
//! that no job can change.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags};

use super::{clone_tree, copy, finish};

/// Where an overlay is attached for a moment, in its own work directory. Overlayfs uses other
/// names there: `work` and `index`.
const PLACE: &str = "made-here";

/// mount(2) takes one page of options, with the zero byte at its end.
const MAX_OPTIONS: usize = 4095;

/// What stands in for an overlay that could not mark directories as replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum WithoutMarks {
    /// The overlay all the same: nobody can remove or replace directories of its lower layers.
    Overlay,
    /// A copy of the only lower layer, in the upper directory.
    Copy,
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

    /// In `/proc/self/fd` the number of a descriptor is its name. With that directory as the
    /// working directory the names need no path, which a ring on its way up does not have, and 127
    /// layers fit in one page. fsconfig(2) would take 255 bytes of names, and layers one by one only
    /// since Linux 6.7.
    fn by_name(&self, proc: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let names = rustix::fs::openat(proc, "self/fd", flags, Mode::empty())?;
        let before = rustix::fs::openat(CWD, ".", flags, Mode::empty())?;
        rustix::process::fchdir(names)?;
        let made = self.mount_from_here();
        rustix::process::fchdir(before)?;
        made
    }

    /// mount(2) makes no detached mount: it is attached in the work directory, copied and taken
    /// away.
    fn mount_from_here(&self) -> io::Result<OwnedFd> {
        let options = self.options()?;
        rustix::fs::mkdirat(&self.work, PLACE, Mode::RWXU)?;
        let place = format!("{}/{PLACE}", self.work.as_raw_fd());
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        let tree = rustix::mount::mount("none", &place, "overlay", flags, options.as_c_str())
            .map_err(io::Error::from)
            .and_then(|()| {
                let tree = clone_tree(self.work.as_fd(), Path::new(PLACE), false);
                rustix::mount::unmount(&place, UnmountFlags::DETACH)?;
                tree
            });
        rustix::fs::unlinkat(&self.work, PLACE, AtFlags::REMOVEDIR)?;
        tree
    }

    fn options(&self) -> io::Result<CString> {
        let lower: Vec<RawFd> = self.lower.iter().map(AsRawFd::as_raw_fd).collect();
        options(&lower, self.upper.as_raw_fd(), self.work.as_raw_fd())
    }
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
mod tests;
