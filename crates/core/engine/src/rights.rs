//! Changes where the jobs of a living sandbox may write in its workspace.
//!
//! The keeper of the sandbox makes the change: it holds what the ring was raised with. What counts
//! now, and what counted before, is kept in a file beside the record.
//!
//! Invariant: nothing here is found by a path that a job can change.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringwall_linux::launch::{LaunchError, Spawner, encode_steps};
use ringwall_linux::step::Step;
use ringwall_ring::{EvidenceError, RightsChange};
use ringwall_safekeeping::{self as safekeeping, Content, Trust, if_there};
use ringwall_spec::{NamespaceKind, RightsError, RingKind, WorkspaceMode, WriteRights};
use ringwall_wire::ClientError;
use ringwall_workspace::{Periods, Told};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::attach::AttachError;
use crate::config::Engine;
use crate::keep::with_causes;
use crate::record::{Record, RecordKind, RecordState};
use crate::sandbox::Sandbox;
use crate::settle::{COPY_PATIENCE, SettleError};

/// Each lays mounts over those that are there.
const MAX_CHANGES: u32 = 100;

/// The longest file of rights that is read back.
const MAX_RIGHTS_BYTES: u64 = 1 << 20;

/// A keeper that has not made a change by then never will. A guest copies its changes out first.
const CHANGE_PATIENCE: Duration = Duration::from_secs(150);

/// The kernel's clock for files ticks at least 100 times a second. So every write after a change of
/// rights has a later time than every write before it.
const ONE_TICK: Duration = Duration::from_millis(20);

const BUSY: i32 = Errno::BUSY.raw_os_error();

#[derive(Debug, thiserror::Error)]
pub enum ChangeRightsError {
    #[error("sandbox {0} is not running; only a sandbox that lives on has rights to change")]
    NotRunning(String),
    #[error("sandbox {0} has no workspace of its own, so there is nothing to write to")]
    NoWorkspace(String),
    #[error("the rights of sandbox {0} were changed {MAX_CHANGES} times already; create another")]
    TooOften(String),
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(
        "sandbox {0} has files open for writing where it may not write any more; end those jobs, then try again"
    )]
    Busy(String),
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The keeper's own words.
    #[error("{0}")]
    Refused(String),
    #[error("the shim of sandbox {id} did not answer")]
    Keeper { id: String, source: ClientError },
    #[error("cannot change the write paths of sandbox {id}, so they stay as they are: {why}")]
    Unchanged { id: String, why: String },
    #[error(
        "cannot change the write paths of sandbox {id}, so its workspace is read-only now: stop it and create another"
    )]
    Launch { id: String, source: LaunchError },
    #[error(
        "cannot change the write paths of sandbox {id}, so its workspace is read-only now: stop it and create another"
    )]
    Guest { id: String, source: ClientError },
    #[error(
        "what sandbox {id} has changed so far could not be read; nothing can be written there now"
    )]
    Look { id: String, source: Box<SettleError> },
    #[error("sandbox {id} was stopped: {source}")]
    Evidence { id: String, source: EvidenceError },
    #[error("where sandbox {id} may write could not be read or kept")]
    Io { id: String, source: io::Error },
}

impl ChangeRightsError {
    /// The error number and reason of the failed step, where launcher or guest told them.
    fn failed_step(&self) -> Option<(Option<i32>, String)> {
        match self {
            ChangeRightsError::Launch { source: LaunchError::Step(failure), .. } => {
                Some((failure.errno, failure.to_string()))
            }
            ChangeRightsError::Guest { source: ClientError::Remote(refusal), .. } => {
                Some((refusal.errno, refusal.message.clone()))
            }
            _ => None,
        }
    }
}

/// What an attached caller asks of a keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RightsOrder {
    rights: WriteRights,
    /// The phase that the task is in from now on.
    phase: Option<String>,
}

#[cfg(feature = "weakened")]
impl RightsOrder {
    pub(crate) fn of(rights: &WriteRights) -> RightsOrder {
        RightsOrder { rights: rights.clone(), phase: None }
    }
}

/// What a change needs, kept from the moment when the ring was raised and no job had run.
#[derive(Debug)]
pub(crate) struct Held {
    /// The workspace on the host.
    host: OwnedFd,
    /// Not of a guest, whose first process holds the same.
    ring: Option<HeldRing>,
}

#[derive(Debug)]
struct HeldRing {
    /// The workspace as the ring sees it. All later mounts of it lie on top.
    workspace: OwnedFd,
    user: OwnedFd,
    mounts: OwnedFd,
}

impl Held {
    /// `None` for a sandbox whose rights never change. `mount` is that of the workspace in its ring.
    pub(crate) fn of(sandbox: &Sandbox, mount: Option<OwnedFd>) -> io::Result<Option<Held>> {
        let record = sandbox.record.as_ref().map(|held| held.record.kind);
        let own = sandbox.spec.workspace.as_ref();
        let Some(own) = own.filter(|own| own.mode == WorkspaceMode::CopyOnWrite) else {
            return Ok(None);
        };
        if record != Some(RecordKind::Living) && sandbox.spec.rights.is_none() {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let host = rustix::fs::open(&own.path, flags, Mode::empty())?;
        let ring = mount.map(|mount| HeldRing::of(sandbox, mount)).transpose()?;
        Ok(Some(Held { host, ring }))
    }

    /// The mount of the workspace in its ring, as it was made.
    fn mount(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(|ring| ring.workspace.as_fd())
    }
}

impl HeldRing {
    fn of(sandbox: &Sandbox, workspace: OwnedFd) -> io::Result<HeldRing> {
        let launched = &sandbox.ring.launched;
        let open = |kind: NamespaceKind| {
            File::open(format!("/proc/{}/ns/{}", launched.pid, kind.proc_name()))
        };
        let (user, mounts) = (open(NamespaceKind::User)?, open(NamespaceKind::Mount)?);
        // The number was the warden's all the while, if the warden is still there.
        let mut polled = [PollFd::new(&*launched.pidfd, PollFlags::IN)];
        if rustix::event::poll(&mut polled, Some(&Timespec::default()))? > 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(HeldRing { workspace, user: user.into(), mounts: mounts.into() })
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.workspace.as_fd(), self.user.as_fd(), self.mounts.as_fd()]
    }
}

/// The rights of a time, and the phase that the task was in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Period {
    pub(crate) rights: WriteRights,
    /// `None` is the phase that the sandbox began in.
    pub(crate) phase: Option<String>,
}

/// What a sandbox may write, and might before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) now: WriteRights,
    /// In their order; the last one counts now.
    #[serde(default)]
    pub(crate) periods: Vec<Period>,
    changes: u32,
    /// The phases that were changed to, in their order.
    #[serde(default)]
    pub(crate) phases: Vec<String>,
}

impl History {
    fn of(first: WriteRights, changes: u32) -> History {
        let periods = vec![Period { rights: first.clone(), phase: None }];
        History { now: first, periods, changes, phases: Vec::new() }
    }

    /// A sandbox whose rights were never changed has no such file.
    pub(crate) fn load(record: &Record) -> io::Result<History> {
        let path = record.rights_path();
        match if_there(safekeeping::read(&path, Trust::Own, MAX_RIGHTS_BYTES))? {
            Some(text) => Ok(serde_json::from_slice(&text)?),
            None => Ok(History::of(WriteRights::everywhere(), 0)),
        }
    }

    fn change_to(&mut self, rights: &WriteRights, phase: Option<&str>) {
        let before = self.periods.last().and_then(|period| period.phase.clone());
        let phase = phase.map(str::to_owned);
        self.phases.extend(phase.clone());
        self.periods.push(Period { rights: rights.clone(), phase: phase.or(before) });
        self.now = rights.clone();
    }

    fn write(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        Ok(safekeeping::replace(&record.rights_path(), Content::quick(&text))?)
    }
}

impl Engine {
    /// Where the jobs of a sandbox may write.
    pub fn rights(&self, record: &Record) -> Result<WriteRights, ChangeRightsError> {
        let wrong = |source| ChangeRightsError::Io { id: record.id.to_string(), source };
        Ok(History::load(record).map_err(wrong)?.now)
    }

    /// Changes that, for jobs that run already as for those to come. While a file is open for
    /// writing where that shall end, nothing is changed.
    pub fn change_rights(
        &self,
        record: &Record,
        rights: &WriteRights,
    ) -> Result<(), ChangeRightsError> {
        self.change_rights_for(record, rights, None)
    }

    /// Changes the rights because the task is in another phase.
    pub(crate) fn change_rights_for(
        &self,
        record: &Record,
        rights: &WriteRights,
        phase: Option<&str>,
    ) -> Result<(), ChangeRightsError> {
        rights.validate()?;
        let id = || record.id.to_string();
        if record.state != RecordState::Running {
            return Err(ChangeRightsError::NotRunning(id()));
        }
        let workspace = record.workspace.as_ref().map(|workspace| workspace.mode);
        if workspace != Some(WorkspaceMode::CopyOnWrite) {
            return Err(ChangeRightsError::NoWorkspace(id()));
        }
        let order = RightsOrder { rights: rights.clone(), phase: phase.map(str::to_owned) };
        let order = serde_json::to_vec(&order)
            .map_err(|error| ChangeRightsError::Io { id: id(), source: error.into() })?;
        let changed = self.attach(record)?.files().change_rights(order, CHANGE_PATIENCE);
        changed.map_err(|error| match error {
            ClientError::Remote(refusal) => ChangeRightsError::Refused(refusal.message),
            source => ChangeRightsError::Keeper { id: id(), source },
        })
    }

    /// The body of an order, in the keeper.
    pub(crate) fn change_rights_of(
        &self,
        sandbox: &mut Sandbox,
        order: &RightsOrder,
    ) -> Result<(), ChangeRightsError> {
        order.rights.validate()?;
        let id = sandbox.id.to_string();
        let wrong = |source| ChangeRightsError::Io { id: id.clone(), source };
        let gone = || ChangeRightsError::NotRunning(id.clone());
        let record = sandbox.record.as_ref().ok_or_else(gone)?.record.clone();
        let mut history = History::load(&record).map_err(wrong)?;
        if history.changes >= MAX_CHANGES {
            return Err(ChangeRightsError::TooOften(id));
        }
        history.changes += 1;
        let standing = sandbox.standing.clone();
        // No command is checked against mounts that are half changed.
        let mut checked = standing.as_ref().map(|standing| standing.lock());
        let changed = self.adjust(sandbox, &history.now, &order.rights);
        match &changed {
            Ok(()) => history.change_to(&order.rights, order.phase.as_deref()),
            Err(Undone::Nothing(_)) => {}
            Err(Undone::Half(_)) => history.change_to(&WriteRights::nowhere(), None),
        }
        history.write(&record).map_err(wrong)?;
        let mount = sandbox.held.as_ref().and_then(Held::mount);
        if let (Some(checked), Some(mount)) = (&mut checked, mount) {
            let evidence = checked.expect_rights(mount, &history.now);
            evidence.map_err(|source| ChangeRightsError::Evidence { id, source })?;
        }
        changed.map_err(Undone::into_error)
    }

    /// What the spec says about it, before the first job.
    pub(crate) fn set_first_rights(&self, sandbox: &mut Sandbox) -> Result<(), ChangeRightsError> {
        let (Some(rights), Some(held)) = (sandbox.spec.rights.clone(), &sandbox.record) else {
            return Ok(());
        };
        let wrong = |source| ChangeRightsError::Io { id: held.record.id.to_string(), source };
        held.make_dir().map_err(wrong)?;
        History::of(rights.clone(), 1).write(&held.record).map_err(wrong)?;
        // A copy of a guest has the mounts of the one that it was made from.
        if sandbox.placement.vm.as_ref().is_some_and(|vm| vm.restored) {
            return Ok(());
        }
        let mut hands = Hands::of(self, sandbox)?;
        let changed = hands.forbid(sandbox).and_then(|()| hands.allow(sandbox, &rights));
        changed.map_err(Undone::into_error)
    }

    /// Ends the period of the rights `before`, and begins that of others.
    fn adjust(
        &self,
        sandbox: &mut Sandbox,
        before: &WriteRights,
        rights: &WriteRights,
    ) -> Result<(), Undone> {
        let mut hands = Hands::of(self, sandbox).map_err(Undone::Nothing)?;
        let forbidden = match hands.forbid(sandbox) {
            Err(Undone::Nothing(error)) => return Err(Undone::Nothing(error)),
            forbidden => forbidden,
        };
        let told = if sandbox.guest.is_some() { Told::ByContent } else { Told::ByInode };
        let periods = sandbox.periods.take();
        let mut periods = periods.unwrap_or_else(|| Periods::new(before.clone(), told));
        let looked = sandbox.look_at_changes(&mut periods).map_err(|source| {
            let (id, source) = (sandbox.id.to_string(), Box::new(source));
            Undone::Half(ChangeRightsError::Look { id, source })
        });
        std::thread::sleep(ONE_TICK);
        // In force until the others are: nothing can be written.
        let allowed = forbidden.and(looked).and_then(|()| hands.allow(sandbox, rights));
        periods.begin(if allowed.is_ok() { rights.clone() } else { WriteRights::nowhere() });
        sandbox.periods = Some(periods);
        allowed
    }
}

/// A change that was not made.
enum Undone {
    /// All is as it was.
    Nothing(ChangeRightsError),
    /// Nothing can be written any more.
    Half(ChangeRightsError),
}

impl Undone {
    fn into_error(self) -> ChangeRightsError {
        match self {
            Undone::Nothing(error) | Undone::Half(error) => error,
        }
    }
}

/// What changes the mounts.
struct Hands {
    change: RightsChange,
    /// One of ours, which serves both orders. A guest starts its own for each.
    launcher: Option<Spawner>,
    entered: bool,
}

impl Hands {
    fn of(engine: &Engine, sandbox: &Sandbox) -> Result<Hands, ChangeRightsError> {
        if sandbox.wall().outermost() == RingKind::Vm {
            let in_ring = sandbox.user_in_guest.map(|(uid, gid)| RightsChange::InRing { uid, gid });
            let change = in_ring.unwrap_or(RightsChange::Here);
            return Ok(Hands { change, launcher: None, entered: false });
        }
        let (uid, gid) = sandbox.plan().expected.user;
        let launcher = Spawner::start(&engine.programs.launcher);
        let id = sandbox.id.to_string();
        let launcher = launcher.map_err(|error| {
            let why = with_causes(&error);
            ChangeRightsError::Unchanged { id, why }
        })?;
        let change = RightsChange::InRing { uid, gid };
        Ok(Hands { change, launcher: Some(launcher), entered: false })
    }

    fn forbid(&mut self, sandbox: &Sandbox) -> Result<(), Undone> {
        let id = || sandbox.id.to_string();
        self.apply(sandbox, RightsChange::forbid()).map_err(|error| match error.failed_step() {
            Some((Some(BUSY), _)) => Undone::Nothing(ChangeRightsError::Busy(id())),
            Some((_, why)) => Undone::Nothing(ChangeRightsError::Unchanged { id: id(), why }),
            // The guest did not answer, so it may have carried this out.
            None => Undone::Half(error),
        })
    }

    fn allow(&mut self, sandbox: &Sandbox, rights: &WriteRights) -> Result<(), Undone> {
        let hidden = &sandbox.placement.hidden;
        let shown = |path: &&PathBuf| !hidden.iter().any(|it| path.starts_with(it));
        let paths: Vec<_> = rights.read_only.iter().filter(shown).cloned().collect();
        let host = sandbox.held.as_ref().map(|held| held.host.as_fd());
        let present = host.map(|host| ringwall_workspace::present(host, &paths));
        let steps = RightsChange::allow(rights, &present.unwrap_or_default());
        self.apply(sandbox, steps).map_err(Undone::Half)
    }

    fn apply(&mut self, sandbox: &Sandbox, steps: Vec<Step>) -> Result<(), ChangeRightsError> {
        let id = || sandbox.id.to_string();
        let entering = if self.entered { Vec::new() } else { self.change.enter() };
        let steps = [entering, steps].concat();
        let Some(launcher) = &self.launcher else {
            let wrong = |source| ChangeRightsError::Guest { id: id(), source };
            let encoded = encode_steps(&steps)
                .map_err(|error| wrong(ClientError::Local(io::Error::other(error))))?;
            let guest = sandbox.guest.as_ref().ok_or_else(|| wrong(ClientError::Disconnected))?;
            return guest.until(Instant::now() + COPY_PATIENCE).adjust(encoded).map_err(wrong);
        };
        self.entered = true;
        let ring = sandbox.held.as_ref().and_then(|held| held.ring.as_ref());
        let ring = ring.ok_or_else(|| ChangeRightsError::NotRunning(id()))?;
        let adjusted = launcher.adjust(steps, &ring.descriptors());
        adjusted.map_err(|source| ChangeRightsError::Launch { id: id(), source })
    }
}
