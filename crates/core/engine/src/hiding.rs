//! Keeps hidden what comes to a workspace while a sandbox sees it.
//!
//! What must not be seen is looked for when a sandbox is made. Its owner may save a `.env` an hour
//! later, and an editor that saves by rename takes a cover away with the old file. So the host's
//! directory is watched, and what comes is hidden: before every command that is started in a
//! sandbox that lives on, and as soon as the kernel tells of it. What cannot be hidden ends the
//! sandbox.
//!
//! A job may have a file of its own at such a name. In a directory that the job made, the kernel shows the
//! host's file once the job has removed its own and the kernel has forgotten the directory. So the job's
//! directories are watched at these names, too, and what it removes there gets a whiteout.
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
use ringwall_workspace::{
    HiddenWatch, HideError, HideRules, LiveView, PlantError, ShadowWatch, is_seen, present,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::record::RecordKind;
use crate::sandbox::{Killer, Sandbox};

/// How often everything is searched where the kernel tells of nothing.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
/// A job that writes to the directory itself can keep us busy no more than this lets it.
const PAUSE_BETWEEN_COVERS: Duration = Duration::from_millis(20);
/// A file that is saved again and again may be bare again by the time that its cover is there.
const COVER_TRIES: usize = 8;
/// Before the next try to hide a file whose directories a job is changing.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(2);
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
    /// Tells the thread that waits of something more to wait for, which a command's start has found.
    bell: OwnedFd,
    killer: Killer,
    pause: Duration,
}

#[derive(Debug)]
struct State {
    watch: HiddenWatch,
    /// Everything that was ever hidden.
    hidden: BTreeSet<PathBuf>,
    /// What the host has and the overlay did not know when it was mounted. The job may uncover it.
    late: BTreeSet<PathBuf>,
    /// False until the first look at the host's directory, which finds all that is hidden already.
    looked: bool,
    /// Where the job may remove what it has at such a name.
    shadows: Option<ShadowWatch>,
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

/// Why there is something to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    Stopped,
    /// The host's directory changed, or the next regular look is due.
    ByHost,
    /// The job removed something where it may uncover a hidden file.
    ByJob,
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
        let shadows = match &cover {
            Cover::Whiteout { upper, .. } => Some(ShadowWatch::new(upper.as_fd())?),
            Cover::Mount { .. } => None,
        };
        let state = State {
            watch: HiddenWatch::new(workspace.as_fd(), rules)?,
            hidden: placed.hidden.iter().cloned().collect(),
            late: BTreeSet::new(),
            looked: false,
            shadows,
            view,
            cover,
        };
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let killer = sandbox.killer();
        let shared = Arc::new(Shared { state: Mutex::new(state), stop, bell, killer, pause });
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
        let mut state = self.lock();
        let was_late = !state.late.is_empty();
        let settled = state.settle();
        if was_late == state.late.is_empty() {
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
        if settled.is_err() {
            self.killer.kill();
        }
        settled
    }

    fn keep_on(&self, delay: Duration) {
        if self.is_stopped_within(delay) {
            return;
        }
        let mut rest = Duration::ZERO;
        // The next command that is started is told of an error.
        while self.settle().is_ok() {
            if self.is_stopped_within(rest) {
                return;
            }
            rest = match self.wait_for_more() {
                Woken::Stopped => return,
                Woken::ByHost => Duration::ZERO,
                // What the job does is looked at soon, and then not all the time.
                Woken::ByJob => PAUSE_BETWEEN_COVERS,
            };
            if self.is_stopped_within(self.pause) {
                return;
            }
        }
    }

    fn wait_for_more(&self) -> Woken {
        let (events, shadows, interval) = {
            let state = self.lock();
            let events = state.watch.events().map(|fd| fd.try_clone_to_owned());
            let shadows = state.shadows.as_ref().and_then(ShadowWatch::events);
            let shadows = shadows.map(|fd| fd.try_clone_to_owned());
            (events, shadows, (!state.late.is_empty()).then_some(SEARCH_INTERVAL))
        };
        let Some(Ok(events)) = events else {
            let stopped = self.is_stopped_within(SEARCH_INTERVAL);
            return if stopped { Woken::Stopped } else { Woken::ByHost };
        };
        let shadows = shadows.and_then(Result::ok);
        let all = [Some(&self.stop), Some(&self.bell), Some(&events), shadows.as_ref()];
        let mut polled: Vec<_> =
            all.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let interval = interval.and_then(|interval| Timespec::try_from(interval).ok());
        let waited =
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, interval.as_ref()));
        let first = polled.iter().position(|one| !one.revents().is_empty());
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
        match first {
            _ if waited.is_err() || first == Some(0) => Woken::Stopped,
            Some(1 | 2) | None => Woken::ByHost,
            Some(_) => Woken::ByJob,
        }
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
                let planted = |path: &&PathBuf| !self.looked && self.hidden.contains(*path);
                self.late.extend(found.iter().filter(|path| !planted(path)).cloned());
                // Watched before the looks, so that nothing comes between.
                if let Some(shadows) = self.shadows.as_mut().filter(|_| !self.late.is_empty()) {
                    shadows.clear();
                    self.late.iter().for_each(|path| shadows.watch_above(path));
                }
                let live = LiveView {
                    view: self.view.as_fd(),
                    upper: upper.as_fd(),
                    workspace: workspace.as_fd(),
                    as_owner: &|work| with_file_owner(owner.0, owner.1, work),
                };
                for path in self.late.iter().chain(found.iter().filter(planted)) {
                    white_out(&live, path)?;
                }
                let late = self.late.iter().cloned().collect::<Vec<_>>();
                self.late = present(workspace.as_fd(), &late).into_iter().collect();
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
        self.looked = true;
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

/// A job that changes the directories above meanwhile makes single tries fail.
fn white_out(live: &LiveView<'_>, path: &Path) -> Result<(), PlantError> {
    for _ in 1..COVER_TRIES {
        if live.white_out(path).is_ok() {
            return Ok(());
        }
        std::thread::sleep(PAUSE_BETWEEN_TRIES);
    }
    live.white_out(path)
}
