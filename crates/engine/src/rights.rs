//! Changes where the jobs of a living sandbox may write in its workspace.
//!
//! What counts now is kept in a file beside the record, which belongs to the keeper. Whoever
//! changes the rights holds that file's lock.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use ringwall_linux::launch::{LaunchError, Spawner};
use ringwall_ring::rights_steps;
use ringwall_spec::{NamespaceKind, RightsError, RingKind, WorkspaceMode, WriteRights};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::record::{Record, RecordState, rewrite};
use crate::sandbox::Sandbox;

/// Each lays mounts over those that are there.
const MAX_CHANGES: u32 = 100;

/// The longest file of rights that is read back.
const MAX_RIGHTS_BYTES: u64 = 1 << 20;

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
    #[error("the ring of sandbox {0} is not the one that was raised; nothing was changed")]
    OtherRing(String),
    #[error("where sandbox {id} may write could not be changed")]
    Launch { id: String, source: LaunchError },
    #[error("where sandbox {id} may write could not be read or kept")]
    Io { id: String, source: io::Error },
}

/// Finds the outermost ring of a sandbox again, from another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingHandle {
    pid: u32,
    /// Checked, because a number of a process can come to mean another one.
    mount_namespace: u64,
    user: (u32, u32),
    workspace: PathBuf,
}

impl RingHandle {
    pub(crate) fn of(sandbox: &Sandbox) -> Option<RingHandle> {
        if sandbox.wall().outermost() == RingKind::Vm || sandbox.spec.workspace.is_none() {
            return None;
        }
        let pid = sandbox.ring.launched.pid;
        let plan = sandbox.plan();
        Some(RingHandle {
            pid,
            mount_namespace: open_namespace(pid, NamespaceKind::Mount).ok()?.1,
            user: plan.expected.user,
            workspace: plan.working_directory.clone(),
        })
    }

    fn open(&self) -> io::Result<Option<[OwnedFd; 2]>> {
        let (user, _) = open_namespace(self.pid, NamespaceKind::User)?;
        let (mounts, id) = open_namespace(self.pid, NamespaceKind::Mount)?;
        Ok((id == self.mount_namespace).then_some([user, mounts]))
    }
}

fn open_namespace(pid: u32, kind: NamespaceKind) -> io::Result<(OwnedFd, u64)> {
    let file = File::open(format!("/proc/{pid}/ns/{}", kind.proc_name()))?;
    let id = file.metadata()?.ino();
    Ok((file.into(), id))
}

/// What a sandbox may write, and ever might.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) now: WriteRights,
    /// Changes made under any of these are taken over.
    pub(crate) ever: Vec<WriteRights>,
    changes: u32,
    /// Those that were changed to, in their order.
    #[serde(default)]
    pub(crate) phases: Vec<String>,
}

impl History {
    /// A sandbox whose rights were never changed has no such file.
    fn unchanged() -> History {
        let everywhere = WriteRights::everywhere();
        History { now: everywhere.clone(), ever: vec![everywhere], changes: 0, phases: Vec::new() }
    }

    pub(crate) fn load(record: &Record) -> io::Result<History> {
        match File::open(record.rights_path()) {
            Ok(mut file) => History::read(&mut file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(History::unchanged()),
            Err(error) => Err(error),
        }
    }

    fn read(file: &mut File) -> io::Result<History> {
        let mut text = Vec::new();
        file.take(MAX_RIGHTS_BYTES).read_to_end(&mut text)?;
        if text.is_empty() { Ok(History::unchanged()) } else { Ok(serde_json::from_slice(&text)?) }
    }

    fn change_to(&mut self, rights: &WriteRights) {
        self.now = rights.clone();
        if !self.ever.contains(rights) {
            self.ever.push(rights.clone());
        }
    }

    fn write(&self, file: &File) -> io::Result<()> {
        rewrite(file, &serde_json::to_vec(self)?)
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

    /// The same, because the task is in another phase.
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
        let wrong = |source| ChangeRightsError::Io { id: id(), source };
        let mut file = open_locked(record).map_err(wrong)?;
        let mut history = History::read(&mut file).map_err(wrong)?;
        if history.changes >= MAX_CHANGES {
            return Err(ChangeRightsError::TooOften(id()));
        }
        history.changes += 1;
        let changed = self.adjust(record, record.ring.as_ref(), rights);
        match &changed {
            Ok(()) => {
                history.change_to(rights);
                history.phases.extend(phase.map(str::to_owned));
            }
            // Half done, nothing can be written.
            Err(ChangeRightsError::Launch { .. }) => history.now = WriteRights::nowhere(),
            Err(_) => {}
        }
        history.write(&file).map_err(wrong)?;
        changed
    }

    /// What the spec says about it, before the first job.
    pub(crate) fn set_first_rights(&self, sandbox: &Sandbox) -> Result<(), ChangeRightsError> {
        let (Some(rights), Some(held)) = (&sandbox.spec.rights, &sandbox.record) else {
            return Ok(());
        };
        let wrong = |source| ChangeRightsError::Io { id: held.record.id.to_string(), source };
        held.make_dir().map_err(wrong)?;
        let ever = vec![rights.clone()];
        let history = History { now: rights.clone(), ever, changes: 1, phases: Vec::new() };
        history.write(&open_locked(&held.record).map_err(wrong)?).map_err(wrong)?;
        self.adjust(&held.record, RingHandle::of(sandbox).as_ref(), rights)
    }

    /// A guest shares no file with the host, so what a job writes there counts only when it comes
    /// out: then the history is asked.
    fn adjust(
        &self,
        record: &Record,
        ring: Option<&RingHandle>,
        rights: &WriteRights,
    ) -> Result<(), ChangeRightsError> {
        let id = || record.id.to_string();
        if record.wall.outermost() == RingKind::Vm {
            return Ok(());
        }
        let ring = ring.ok_or_else(|| ChangeRightsError::NotRunning(id()))?;
        let namespaces =
            ring.open().map_err(|source| ChangeRightsError::Io { id: id(), source })?;
        let [user, mounts] = namespaces.ok_or_else(|| ChangeRightsError::OtherRing(id()))?;
        let steps = rights_steps(&ring.workspace, ring.user, rights);
        Spawner::start(&self.programs.launcher)
            .and_then(|launcher| launcher.adjust(steps, &[user.as_fd(), mounts.as_fd()]))
            .map_err(|source| match source {
                LaunchError::Step(failure) if failure.errno == Some(BUSY) => {
                    ChangeRightsError::Busy(id())
                }
                source => ChangeRightsError::Launch { id: id(), source },
            })
    }
}

fn open_locked(record: &Record) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(record.rights_path())?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
