//! Keeps hidden what comes to a workspace while a sandbox sees it.
//!
//! What must not be seen is looked for when a sandbox is made. Its owner may save a `.env` an hour
//! later, and an editor that saves by rename takes a cover away with the old file. So the host's
//! directory is watched, and what comes is hidden: before every command that is started in a
//! sandbox that lives on, and as soon as the kernel tells of it. What cannot be hidden ends the
//! sandbox.
//!
//! A job that tries to open such a file all the time can win against the watch. Nothing on Linux
//! would keep a name from being looked up that does not exist yet.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringwall_linux::launch::{LaunchError, Spawner};
use ringwall_linux::process::with_file_owner;
use ringwall_linux::step::FileId;
use ringwall_ring::cover_steps;
use ringwall_spec::{NamespaceKind, WorkspaceMode};
use ringwall_workspace::{HiddenWatch, HideError, HideRules, LiveView, PlantError, is_seen};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::record::RecordKind;
use crate::sandbox::{Killer, Sandbox};

/// How often everything is searched where the kernel tells of nothing.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// A job that writes to the directory itself can keep us busy no more than this lets it.
const PAUSE_BETWEEN_COVERS: Duration = Duration::from_millis(20);
/// A file that is saved again and again may be bare again by the time that its cover is there.
const COVER_TRIES: usize = 8;
/// A run that is over sooner is not watched.
const SHORT_RUN: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum HidingError {
    #[error(transparent)]
    Search(#[from] HideError),
    #[error(transparent)]
    WhiteOut(#[from] PlantError),
    #[error("a hidden file could not be covered")]
    Cover(#[from] LaunchError),
    #[error("it cannot be told whether a hidden file is covered")]
    Look(#[source] io::Error),
    #[error("{0:?} is hidden and cannot be covered")]
    Uncovered(PathBuf),
}

/// Ends with this value.
#[derive(Debug)]
pub(crate) struct Hiding {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    stop: OwnedFd,
    killer: Killer,
    pause: Duration,
}

#[derive(Debug)]
struct State {
    watch: HiddenWatch,
    /// Everything that was ever hidden.
    hidden: BTreeSet<PathBuf>,
    /// The workspace as the ring sees it.
    view: OwnedFd,
    cover: Cover,
}

#[derive(Debug)]
enum Cover {
    /// The view is an overlay, so the name itself goes.
    Whiteout { upper: OwnedFd, workspace: OwnedFd, owner: (u32, u32) },
    /// The view is the host's directory. Its files stay and something is mounted on them.
    Mount { launcher: PathBuf, namespaces: [OwnedFd; 2], user: (u32, u32) },
}

impl Hiding {
    /// Nothing to do where the workspace is not seen but copied.
    pub(crate) fn start(sandbox: &mut Sandbox, launcher: &Path) -> io::Result<Option<Hiding>> {
        let Some(view) = sandbox.view.take() else { return Ok(None) };
        let record = sandbox.record.as_ref().map(|held| held.record.kind);
        let delay = match record {
            Some(RecordKind::Living) => Duration::ZERO,
            _ => SHORT_RUN,
        };
        let placed = &sandbox.placement;
        let (Some(workspace), Some(asked)) = (&placed.workspace, &sandbox.spec.workspace) else {
            return Ok(None);
        };
        let rules = HideRules::of_directory(workspace.path());
        let (rules, cover) = match asked.mode {
            WorkspaceMode::CopyOnWrite => {
                let (workspace, upper) =
                    (workspace.as_fd().try_clone_to_owned()?, sandbox.upper()?);
                if FileId::of(&upper)? == FileId::of(&view)? {
                    // A copy, for want of an overlay: nothing comes to it.
                    return Ok(None);
                }
                let stat = rustix::fs::fstat(&upper)?;
                let owner = (stat.st_uid, stat.st_gid);
                (rules, Cover::Whiteout { upper, workspace, owner })
            }
            WorkspaceMode::ReadWrite => {
                let pid = sandbox.ring.launched.pid;
                let open = |kind: NamespaceKind| {
                    File::open(format!("/proc/{pid}/ns/{}", kind.proc_name())).map(OwnedFd::from)
                };
                let namespaces = [open(NamespaceKind::User)?, open(NamespaceKind::Mount)?];
                let user = sandbox.plan().expected.user;
                let rules = rules.by_name(placed.hidden.iter().cloned());
                (rules, Cover::Mount { launcher: launcher.to_owned(), namespaces, user })
            }
        };
        let pause = match cover {
            Cover::Whiteout { .. } => Duration::ZERO,
            Cover::Mount { .. } => PAUSE_BETWEEN_COVERS,
        };
        let state = State {
            watch: HiddenWatch::new(workspace.as_fd(), rules)?,
            hidden: placed.hidden.iter().cloned().collect(),
            view,
            cover,
        };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let killer = sandbox.killer();
        let shared = Arc::new(Shared { state: Mutex::new(state), stop, killer, pause });
        let kept = Arc::clone(&shared);
        let thread = std::thread::spawn(move || kept.keep_on(delay));
        Ok(Some(Hiding { shared, thread: Some(thread) }))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// All paths that were hidden at some time.
    pub(crate) fn hidden(&self) -> Vec<PathBuf> {
        self.shared.lock().hidden.iter().cloned().collect()
    }

    pub(crate) fn finish(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        let _ = thread.join();
    }
}

impl Drop for Hiding {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    /// Hides everything that has come until now. After an error the sandbox is gone.
    pub(crate) fn settle(&self) -> Result<(), HidingError> {
        let settled = self.lock().settle();
        if settled.is_err() {
            self.killer.kill();
        }
        settled
    }

    fn keep_on(&self, delay: Duration) {
        if self.is_stopped_within(delay) {
            return;
        }
        // The next command that is started is told of an error.
        while self.settle().is_ok() {
            if !self.wait_for_more() || self.is_stopped_within(self.pause) {
                return;
            }
        }
    }

    /// False if it is over.
    fn wait_for_more(&self) -> bool {
        let events = self.lock().watch.events().map(|fd| fd.try_clone_to_owned());
        let Some(Ok(events)) = events else {
            return !self.is_stopped_within(SEARCH_INTERVAL);
        };
        let mut polled =
            [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&events, PollFlags::IN)];
        let waited = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, None));
        waited.is_ok() && polled[0].revents().is_empty()
    }

    fn is_stopped_within(&self, time: Duration) -> bool {
        let mut polled = [PollFd::new(&self.stop, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        let waited = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, time.as_ref()));
        waited.is_err() || !polled[0].revents().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn settle(&mut self) -> Result<(), HidingError> {
        let found = self.watch.look()?;
        match &self.cover {
            Cover::Whiteout { upper, workspace, owner } => {
                let live = LiveView {
                    view: self.view.as_fd(),
                    upper: upper.as_fd(),
                    workspace: workspace.as_fd(),
                    as_owner: &|work| with_file_owner(owner.0, owner.1, work),
                };
                for path in &found {
                    live.white_out(path)?;
                }
            }
            Cover::Mount { launcher, namespaces: [users, mounts], user } => {
                for _ in 0..COVER_TRIES {
                    let bare = self.seen_of(&found)?;
                    if bare.is_empty() {
                        break;
                    }
                    let passed = [users.as_fd(), mounts.as_fd(), self.view.as_fd()];
                    Spawner::start(launcher)?
                        .adjust(cover_steps(user.0, user.1, &bare), &passed)?;
                }
                if let Some(bare) = self.seen_of(&found)?.pop() {
                    return Err(HidingError::Uncovered(bare));
                }
            }
        }
        self.hidden.extend(found);
        Ok(())
    }

    fn seen_of(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>, HidingError> {
        let mut seen = Vec::new();
        for path in paths {
            if is_seen(self.view.as_fd(), path).map_err(HidingError::Look)? {
                seen.push(path.clone());
            }
        }
        Ok(seen)
    }
}
