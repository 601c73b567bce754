//! Snapshots as people ask for them: of a living sandbox, and new sandboxes from one.
//!
//! Invariant: a copy may do no more than its sandbox might when it was kept, nor than the policy allows
//! when the copy is made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringwall_policy::{LoadError, Task, Work};
use ringwall_spec::{
    Decided, EgressSpec, Invalid, SandboxId, SandboxName, SandboxSpec, WorkspaceMode, WriteRights,
    validate,
};
use ringwall_wire::ClientError;

use crate::admit::{AdmitError, Asked, Decision, Issue, deciding};
use crate::attach::AttachError;
use crate::config::Engine;
use crate::egress::EgressError;
use crate::gate::Gate;
use crate::host;
use crate::keep::{KeepError, Restore};
use crate::network::{Basis, network_as_it_is_now};
use crate::policy_files::PolicySearch;
use crate::record::Record;
use crate::rights::History;
use crate::sandbox::Sandbox;
use crate::vm::{Restored, Snapshot, SnapshotError, number_of};

/// Memory is copied to disk, which may be slow.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a snapshot waits for files that are being copied in or out.
const REST_PATIENCE: Duration = Duration::from_secs(2);
/// More copies at once are an accident.
const MOST_COPIES: u32 = 64;

#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The keeper's own words.
    #[error("{0}")]
    Refused(String),
    #[error("the shim of the sandbox did not answer")]
    Keeper(#[source] ClientError),
    #[error("{0} copies at once; ask for 1 to {MOST_COPIES}")]
    Count(u32),
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error(
        "the owner chose the network of this snapshot before there was a policy; create a new sandbox"
    )]
    PolicySince,
    #[error("the snapshot {id} may not become a sandbox: {source}")]
    NotAdmitted { id: SandboxId, source: Box<AdmitError> },
    #[error(
        "the policy now allows snapshot {0} fewer write paths than it had; create a new sandbox"
    )]
    NarrowerSince(SandboxId),
}

/// What a snapshot is to become.
struct Copies {
    for_fork: bool,
    count: u32,
    /// The name, if there is one copy and it has one.
    name: Option<SandboxName>,
}

impl Engine {
    /// Keeps a living sandbox with its memory. It goes on.
    pub fn snapshot(
        &self,
        record: &Record,
        name: Option<&SandboxName>,
    ) -> Result<Snapshot, ForkError> {
        let id = self.order_snapshot(record, name, false)?;
        Ok(self.find_snapshot(id.as_str())?)
    }

    /// A new living sandbox that goes on from a snapshot.
    pub fn restore(
        &self,
        snapshot: &Snapshot,
        name: Option<SandboxName>,
        issue: Issue<'_>,
    ) -> Result<Record, ForkError> {
        let wanted = Copies { for_fork: false, count: 1, name };
        let mut made = self.copies(snapshot, wanted, issue)?;
        made.pop().ok_or(ForkError::Count(0))
    }

    /// Copies of a living sandbox, which goes on. They share its memory until they write to it.
    pub fn fork(
        &self,
        record: &Record,
        count: u32,
        issue: Issue<'_>,
    ) -> Result<Vec<Record>, ForkError> {
        if count == 0 || count > MOST_COPIES {
            return Err(ForkError::Count(count));
        }
        let id = self.order_snapshot(record, None, true)?;
        let snapshot = self.read_fork(&id);
        let made = snapshot.map_err(ForkError::from).and_then(|snapshot| {
            let wanted = Copies { for_fork: true, count, name: None };
            self.copies(&snapshot, wanted, issue)
        });
        // The copies hold what they need.
        let _ = self.forget_snapshot(&id, true);
        made
    }

    fn order_snapshot(
        &self,
        record: &Record,
        name: Option<&SandboxName>,
        for_fork: bool,
    ) -> Result<SandboxId, ForkError> {
        let id = host::new_id();
        let attached = self.attach(record)?;
        match attached.snapshot((&id, name), for_fork, PATIENCE) {
            Ok(()) => Ok(id),
            Err(ClientError::Remote(error)) => Err(ForkError::Refused(error.message)),
            Err(error) => Err(ForkError::Keeper(error)),
        }
    }

    /// All of them or none, each by the same permit.
    fn copies(
        &self,
        snapshot: &Snapshot,
        wanted: Copies,
        issue: Issue<'_>,
    ) -> Result<Vec<Record>, ForkError> {
        let Copies { for_fork, count, name } = wanted;
        let decided = self.admit_copies(snapshot)?;
        let egress = self.network_of_copies(snapshot)?;
        let spec = validate(SandboxSpec { name, egress, ..snapshot.spec.clone() })?;
        let permit = issue(Decision { spec, decided });
        // Held until every keeper has taken them over.
        let (memory, state) = self.open_snapshot(snapshot, for_fork)?;
        let make = || {
            let restore = Restore {
                id: snapshot.id.clone(),
                for_fork,
                parent: std::process::id(),
                memory: number_of(&memory),
                state: number_of(&state),
            };
            self.create_from(&permit, restore)
        };
        // At once: each waits for a monitor most of its time.
        let made: Vec<Result<Record, KeepError>> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..count).map(|_| scope.spawn(make)).collect();
            let gone = || Err(KeepError::Refused("a copy could not be made".to_owned()));
            started.into_iter().map(|copy| copy.join().unwrap_or_else(|_| gone())).collect()
        });
        if made.iter().any(Result::is_err) {
            for record in made.iter().flatten() {
                let _ = self.stop(record, Duration::ZERO);
                let _ = self.find(record.id.as_str()).map(|ended| self.remove(&ended));
            }
        }
        Ok(made.into_iter().collect::<Result<_, _>>()?)
    }

    /// Copies are admitted as new sandboxes are, by the policy of now. Gives the decision to be recorded.
    /// Elevations were for the sandbox that was kept, and not for its copies.
    fn admit_copies(&self, snapshot: &Snapshot) -> Result<Option<Decided>, ForkError> {
        let (spec, before) = (&snapshot.spec, snapshot.decided.as_ref());
        let task = before.and_then(|decided| decided.task.as_deref());
        let task: Task = match task.map(serde_json::from_str).transpose() {
            Ok(task) => task.unwrap_or_default(),
            Err(source) => return Err(SnapshotError::Rights(source.into()).into()),
        };
        let phase = before.and_then(|decided| decided.phase.clone());
        let phase = phase.filter(|phase| !phase.is_empty());
        let workspace = spec.workspace.as_ref();
        let search = match Basis::of(before).map_err(SnapshotError::Rights)? {
            Some(basis) => basis.search,
            None => PolicySearch {
                written_by_sandbox: workspace
                    .filter(|workspace| workspace.mode == WorkspaceMode::ReadWrite)
                    .map(|workspace| workspace.path.clone()),
                ..PolicySearch::from_environment(workspace.map(|workspace| workspace.path.clone()))
            },
        };
        let asked = Asked {
            // The network of a copy is decided by itself.
            spec: SandboxSpec { egress: None, ..spec.clone() },
            wall: Some(spec.wall.clone()),
            task: Task { phase, elevated: BTreeSet::new(), ..task },
            work: Work { tool: None, kind: before.and_then(|decided| decided.kind.clone()) },
            notes: BTreeMap::from([("snapshot".to_owned(), snapshot.id.to_string())]),
            network_at_most: None,
            search: None,
        };
        let refused =
            |error| ForkError::NotAdmitted { id: snapshot.id.clone(), source: Box::new(error) };
        let admitted = self.admit(asked, &|_| spec.limits.clone(), &search).map_err(refused)?;
        let everywhere = WriteRights::everywhere();
        let of =
            |rights: &Option<WriteRights>| rights.clone().unwrap_or_else(|| everywhere.clone());
        if !of(&admitted.spec().rights).covers(&of(&spec.rights)) {
            return Err(ForkError::NarrowerSince(snapshot.id.clone()));
        }
        let Some(now) = admitted.decided else { return Ok(before.cloned()) };
        let Some(before) = before.cloned() else { return Ok(Some(now)) };
        // Whose it is, and what it may have at most, stays as it was.
        let mut inputs = before.inputs;
        inputs.extend(now.inputs);
        Ok(Some(Decided {
            inputs,
            at_most: before.at_most,
            network: before.network,
            egress: before.egress,
            ..now
        }))
    }

    /// What copies reach: what the policy gives them now.
    fn network_of_copies(&self, snapshot: &Snapshot) -> Result<Option<EgressSpec>, ForkError> {
        let Some(egress) = &snapshot.spec.egress else { return Ok(None) };
        if let Some(basis) = Basis::of(snapshot.decided.as_ref()).map_err(SnapshotError::Rights)? {
            let phase = snapshot.decided.as_ref().and_then(|decided| decided.phase.clone());
            return deciding(|| Ok(basis.decide(&basis.search.load()?, phase)?));
        }
        let workspace = snapshot.spec.workspace.as_ref().map(|workspace| workspace.path.clone());
        match PolicySearch::from_environment(workspace).read()?.is_empty() {
            true => Ok(Some(egress.clone())),
            false => Err(ForkError::PolicySince),
        }
    }

    /// What a sandbox was made with, after all that has been changed and ordered since.
    pub(crate) fn as_it_is_now(
        &self,
        sandbox: &Sandbox,
    ) -> Result<(SandboxSpec, Option<Decided>), SnapshotError> {
        let mut spec = SandboxSpec { name: None, ..sandbox.spec.clone() };
        let Some(record) = sandbox.record.as_ref().map(|held| &held.record) else {
            return Ok((spec, None));
        };
        let mut decided = record.decided.clone();
        if record.rights_path().exists() {
            spec.rights = Some(History::load(record).map_err(SnapshotError::Rights)?.now);
        }
        if let Some(decided) = &mut decided {
            decided.phase = self.phase(record);
        }
        if sandbox.placement.network.is_some() {
            if decided.as_ref().is_some_and(|decided| decided.inputs.contains_key("grant")) {
                return Err(SnapshotError::Granted);
            }
            network_as_it_is_now(record, &mut spec, decided.as_mut())
                .map_err(SnapshotError::Rights)?;
        }
        Ok((spec, decided))
    }

    /// The body of an order, in the keeper.
    pub(crate) fn snapshot_of(
        &self,
        sandbox: &mut Sandbox,
        gate: &Gate,
        (id, name): (&str, Option<&str>),
        for_fork: bool,
    ) -> Result<(), SnapshotError> {
        let wrong = |text: &str| SnapshotError::NotFound(text.to_owned());
        let id: SandboxId = id.parse().map_err(|_| wrong(id))?;
        let name: Option<SandboxName> =
            name.map(|name| name.parse().map_err(|_| wrong(name))).transpose()?;
        let _closed = gate.close(REST_PATIENCE).ok_or(SnapshotError::Busy)?;
        self.keep_snapshot(sandbox, (&id, name.as_ref()), for_fork)
    }

    /// In the keeper of a copy: what it goes on from.
    pub(crate) fn take_over_snapshot(&self, restore: &Restore) -> Result<Restored, SnapshotError> {
        let snapshot = match restore.for_fork {
            true => self.read_fork(&restore.id)?,
            false => self.find_snapshot(restore.id.as_str())?,
        };
        self.take_restored(&snapshot, restore)
    }
}
