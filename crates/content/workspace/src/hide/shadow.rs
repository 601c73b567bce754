//! Notices when a sandbox removes what it had put in the place of something hidden.
//!
//! An overlay shows a file of the host as soon as the sandbox's own at that name is gone, unless it leaves a
//! whiteout. It leaves none in a directory that it has not compared with the host's since that came. So the
//! upper directory is watched at these names and above them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

use crate::beneath;
use crate::path::RelPath;

/// Many events in one read. What they say does not matter.
const EVENT_BYTES: usize = 16 << 10;

/// The directories of an upper directory in which something may be removed that hides something.
#[derive(Debug)]
pub struct ShadowWatch {
    upper: OwnedFd,
    /// None until it is needed, or where this user has too many of them.
    inotify: Option<OwnedFd>,
}

impl ShadowWatch {
    pub fn new(upper: BorrowedFd<'_>) -> std::io::Result<ShadowWatch> {
        Ok(ShadowWatch { upper: upper.try_clone_to_owned()?, inotify: None })
    }

    /// Watches every directory above this path that is there, before the caller looks at it. A directory that
    /// cannot be watched is left to the caller's regular looks.
    pub fn watch_above(&mut self, path: &Path) {
        let Ok(path) = RelPath::new(path) else { return };
        if self.inotify.is_none() {
            self.inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        }
        let Some(inotify) = &self.inotify else { return };
        let above = std::iter::successors(path.parent(), RelPath::parent).map(Some);
        for directory in above.chain([None]) {
            let opened = beneath::open_dir(&self.upper, directory.as_ref());
            if let Ok(opened) = opened {
                watch(inotify, &opened);
            }
        }
    }

    /// Forgets what has happened until now.
    pub fn clear(&self) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [0u8; EVENT_BYTES];
        loop {
            match rustix::io::read(inotify, &mut buffer) {
                Ok(0) => return,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Becomes readable when something was removed.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }
}

/// A directory that is watched already stays so.
fn watch(inotify: &OwnedFd, directory: &OwnedFd) {
    let flags = WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    // By descriptor: the path may lead elsewhere by now.
    let opened = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let _ = inotify::add_watch(inotify, opened, flags);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn has_event(watch: &ShadowWatch) -> bool {
        let Some(events) = watch.events() else { return false };
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [rustix::event::PollFd::new(&events, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&none)).unwrap() > 0
    }

    #[test]
    fn what_is_removed_or_moved_away_at_or_above_a_name_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let upper = fs::File::open(dir.path()).unwrap();
        let mut watch = ShadowWatch::new(upper.as_fd()).unwrap();
        assert!(watch.events().is_none());
        fs::create_dir_all(dir.path().join("new/deep")).unwrap();
        fs::write(dir.path().join("new/deep/.env"), "own").unwrap();
        watch.watch_above(Path::new("new/deep/.env"));
        assert!(!has_event(&watch));
        fs::remove_file(dir.path().join("new/deep/.env")).unwrap();
        assert!(has_event(&watch));
        watch.clear();
        assert!(!has_event(&watch));
        fs::rename(dir.path().join("new"), dir.path().join("old")).unwrap();
        assert!(has_event(&watch));
        // A directory that is made later is watched after the next call.
        watch.watch_above(Path::new("new/deep/.env"));
        fs::create_dir(dir.path().join("new")).unwrap();
        watch.watch_above(Path::new("new/deep/.env"));
        watch.clear();
        fs::remove_dir(dir.path().join("new")).unwrap();
        assert!(has_event(&watch));
    }
}
