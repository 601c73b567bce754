//! The sandbox of a round: in the care of a keeper, as `ringwall create` makes it. A wall with one protection
//! missing, for tests, is held by this process instead, and some orders cannot be given to it.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use ringwall_desk::Permit;
use ringwall_engine::{Engine, Job, PolicySearch, Record, RecordState, Sandbox, with_causes};
use ringwall_spec::{Command, Ending, SandboxId, WriteRights};

use crate::raising::Raising;

const PATIENCE: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(2);

/// What the engine answers: done, or refused with a word why.
pub(crate) type Answer<T> = Result<T, String>;

pub(crate) struct Kept<'a> {
    engine: &'a Engine,
    raising: &'a dyn Raising,
    pub(crate) id: SandboxId,
    /// Where there is no keeper.
    own: Option<Sandbox>,
    /// Where that one may write by now.
    own_rights: WriteRights,
}

fn said<T, E: Error>(answer: Result<T, E>) -> Answer<T> {
    answer.map_err(|error| with_causes(&error))
}

impl<'a> Kept<'a> {
    pub(crate) fn raise(
        engine: &'a Engine,
        raising: &'a dyn Raising,
        permit: &Permit,
    ) -> Answer<Kept<'a>> {
        let rights = permit.spec().rights.clone();
        let own_rights = rights.unwrap_or_else(WriteRights::everywhere);
        let (id, own) = if raising.has_keeper() {
            (said(engine.create(permit, None))?.id, None)
        } else {
            let sandbox = said(raising.raise(engine, permit))?;
            (sandbox.id().clone(), Some(sandbox))
        };
        Ok(Kept { engine, raising, id, own, own_rights })
    }

    pub(crate) fn record(&self) -> Answer<Record> {
        said(self.engine.find(self.id.as_str()))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.record().is_ok_and(|record| record.state == RecordState::Running)
    }

    pub(crate) fn start(&self, argv: Vec<std::ffi::OsString>) -> Answer<Job> {
        let command = Command { argv, ..Command::default() };
        if let Some(own) = &self.own {
            return said(own.exec(&command));
        }
        said(said(self.engine.attach(&self.record()?))?.start(&command, PATIENCE))
    }

    /// Where it may write by now.
    pub(crate) fn rights(&self) -> Answer<WriteRights> {
        match &self.own {
            Some(_) => Ok(self.own_rights.clone()),
            None => said(self.engine.rights(&self.record()?)),
        }
    }

    pub(crate) fn change_rights(&mut self, rights: &WriteRights) -> Answer<()> {
        if let Some(own) = &mut self.own {
            self.raising.change_rights(self.engine, own, rights)?;
            self.own_rights = rights.clone();
            return Ok(());
        }
        said(self.engine.change_rights(&self.record()?, rights))
    }

    pub(crate) fn change_phase(&self, to: &str, search: &PolicySearch) -> Answer<()> {
        said(self.engine.change_phase(
            &self.record()?,
            (to, "the adversary's owner"),
            (search, None),
        ))
    }

    /// What `diff` has to read before the sandbox has ended: nothing.
    pub(crate) fn changes_so_far(&self) -> Answer<usize> {
        let changes = said(self.engine.changes(&self.record()?))?;
        Ok(changes.entries().len())
    }

    pub(crate) fn snapshot_and_forget(&self) -> Answer<()> {
        let snapshot = said(self.engine.snapshot(&self.record()?, None))?;
        said(self.engine.remove_snapshot(snapshot.id.as_str()))
    }

    pub(crate) fn gc(&self) -> Answer<()> {
        said(self.engine.gc()).map(drop)
    }

    /// Ends it, keeping its changes.
    pub(crate) fn end(&mut self) -> Answer<()> {
        if let Some(own) = self.own.take() {
            return said(own.settle(Ending::Stopped)).map(drop);
        }
        said(self.engine.stop(&self.record()?, GRACE))
    }

    pub(crate) fn changes(&self) -> Answer<ringwall_workspace::Changes> {
        said(self.engine.changes(&self.record()?))
    }

    /// The files of its record that may hold something of a job's.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        self.record().ok().map(|record| record.log_path())
    }

    pub(crate) fn remove(&self) -> Answer<()> {
        said(self.engine.remove(&self.record()?))
    }

    /// No process of it may be left when the round is given up.
    pub(crate) fn abandon(&mut self) {
        let _ = self.end();
        let _ = self.remove();
        let _ = self.gc();
    }
}
