//! Raises a wall ring by ring and believes none of it before its facts were checked.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::time::{Duration, Instant, SystemTime};

use ringwall_linux::cgroup::{CgroupError, Controller, Group, GroupLimits};
use ringwall_linux::launch::{Parking, Spawner, encode_steps};
use ringwall_linux::step::Step;
use ringwall_permit::{Permit, PermitExpired};
use ringwall_ring::{
    EvidenceError, Expected, HostNamespaces, JobFilter, RaiseRingError, RaisedRing, RingPlan,
    SpawnerHandle, check, inner_process_plan,
};
use ringwall_ring_wasm::CacheError;
use ringwall_spec::{CheckedFact, Evidence, RingKind, SandboxId, SandboxSpec};
use ringwall_wire::{Client, ClientError, WriteHow};
use rustix::io::Errno;

use crate::config::Engine;
use crate::distrust::DistrustError;
use crate::hiding::Hiding;
use crate::keep::with_causes;
use crate::ledger::{self, CallEntry, LedgerError};
use crate::network::NetworkError;
use crate::place::{PlaceError, Placement, Purpose};
use crate::record::{Record, RecordError, RecordKind};
use crate::rights::ChangeRightsError;
use crate::sandbox::Sandbox;
use crate::tools::How;
use crate::vm::{Door, Restored, VmError};
use crate::{host, limits};

/// A warden that has not told its facts by then never will.
pub(crate) const FACTS_TIMEOUT: Duration = Duration::from_secs(10);

/// A warden that has not raised the next ring by then never will. Emulated, it takes a while.
pub(crate) const RAISE_TIMEOUT: Duration = Duration::from_secs(60);

/// A launcher that waits for the next ring with the same template.
#[derive(Debug)]
pub(crate) struct Parked {
    template: Vec<Step>,
    spawner: SpawnerHandle,
}

/// A ring on its way up, and the facts about it that were read from outside.
#[derive(Debug)]
struct Started {
    ring: RaisedRing,
    group: Option<Group>,
    /// Our end of a monitor's control socket.
    control: Option<UnixStream>,
    door: Option<Door>,
    outside: Result<Outside, RaiseError>,
    /// The number of the record that says that it is placed.
    placed: Option<u64>,
}

/// What can be read while the launcher is at work, without the warden.
#[derive(Debug)]
pub(crate) struct Outside {
    namespaces: HostNamespaces,
    group: Option<CheckedFact>,
}

/// How a sandbox is raised.
#[derive(Debug)]
pub(crate) struct Raising<'a> {
    pub(crate) id: SandboxId,
    pub(crate) kind: RecordKind,
    /// What it goes on from.
    pub(crate) from: Option<&'a Restored>,
}

/// A sandbox that is about to be raised.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) id: SandboxId,
    /// From when on its start is timed.
    pub(crate) at: Instant,
}

/// Losing a race this often in a row is no accident.
const MAX_GROUP_ATTEMPTS: usize = 16;

/// How many launchers stay parked; the oldest goes first.
const MAX_PARKED: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum RaiseError {
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Distrusted(#[from] DistrustError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Ring(#[from] RaiseRingError),
    #[error("the warden of the {ring} ring did not answer")]
    Warden { ring: RingKind, source: ClientError },
    #[error(transparent)]
    Vm(#[from] VmError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Rights(#[from] ChangeRightsError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("what comes to the workspace later could not be kept hidden")]
    Hiding(#[source] std::io::Error),
    #[error("/proc could not be read; Ringwall needs it")]
    Proc(#[source] std::io::Error),
    #[error("the plan of the inner ring could not be sent")]
    Encode(#[source] std::io::Error),
}

impl Engine {
    /// Raises the wall that a permit is for. The sandbox ends when the value is dropped.
    pub fn raise(&self, permit: &Permit) -> Result<Sandbox, RaiseError> {
        self.raise_for(permit, &[])
    }

    /// Raises a sandbox for a command that `ps` is to show.
    pub fn raise_for(&self, permit: &Permit, command: &[String]) -> Result<Sandbox, RaiseError> {
        let raising = Raising { id: host::new_id(), kind: RecordKind::Run, from: None };
        self.raise_as(permit, raising, command)
    }

    pub(crate) fn raise_as(
        &self,
        permit: &Permit,
        raising: Raising<'_>,
        command: &[String],
    ) -> Result<Sandbox, RaiseError> {
        let at = Instant::now();
        permit.check(SystemTime::now())?;
        self.refuse_distrusted(&permit.spec().wall)?;
        let Raising { id, kind, from } = raising;
        let purpose = from.map_or(Purpose::Raise, Purpose::Restore);
        let placement = self.place(permit, &id, purpose)?;
        self.raise_placed(placement, Begun { id, at }, kind, command)
    }

    /// Raises what has been planned already.
    pub(crate) fn raise_placed(
        &self,
        mut placement: Placement,
        begun: Begun,
        kind: RecordKind,
        command: &[String],
    ) -> Result<Sandbox, RaiseError> {
        let Begun { id, at } = begun;
        let permit = placement.permit.clone();
        placement.opening.push(ledger::placed(&id, &permit));
        let mut entry = None;
        if !command.is_empty() {
            let (call, started) = CallEntry::begin(&id, command);
            placement.opening.push(started);
            entry = Some(call);
        }
        let mut record = Record::new(id, permit.spec(), kind, &self.home);
        record.command = command.to_vec();
        record.decided = permit.decided().cloned();
        let is_guest = permit.spec().wall.outermost() == RingKind::Vm;
        let _turn = is_guest.then(|| self.guest_starts.take());
        let (mut sandbox, outside) = self.start_sandbox(record, permit.spec(), placement, at)?;
        sandbox.entry = entry;
        let checked = outside
            .and_then(|outside| self.check_wall(&mut sandbox, outside))
            .and_then(|()| Ok(self.set_first_rights(&mut sandbox)?))
            .and_then(|()| {
                let hiding = Hiding::start(&mut sandbox, &self.programs.launcher);
                sandbox.hiding = hiding.map_err(RaiseError::Hiding)?;
                Ok(())
            });
        match checked {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                let reason = sandbox.ring_failure().map_or(error, RaiseError::Ring);
                sandbox.unraised = Some(with_causes(&reason));
                self.forget_spawner(&sandbox.plan().template);
                Err(reason)
            }
        }
    }

    /// Starts the outermost ring. Nothing of it is believed yet.
    pub(crate) fn start_sandbox(
        &self,
        record: Record,
        spec: &SandboxSpec,
        placement: Placement,
        begun: Instant,
    ) -> Result<(Sandbox, Result<Outside, RaiseError>), RaiseError> {
        // Every ring of every kind comes by here, some long after they were planned.
        placement.permit.check(SystemTime::now())?;
        // The launcher prepares its template while we write the record and make the groups.
        let spawner = self.spawner(&placement.plan)?;
        let id = record.id.clone();
        let record = self.create_record(record)?;
        let started = self.start_ring(&id, &placement, &spawner);
        let Started { ring, group, control, door, outside, placed } = match started {
            Ok(started) => started,
            Err(error) => {
                self.forget_spawner(&placement.plan.template);
                // With its group still there the record has to stay, for `gc` to find both.
                if self.cgroups.find(id.as_str()).is_none() {
                    let _ = record.remove();
                }
                return Err(error);
            }
        };
        let mut placement = placement;
        placement.permit.is_recorded(placed);
        let mut sandbox = Sandbox::new(record, spec, placement, ring, group, begun);
        sandbox.control = control;
        sandbox.door = door;
        let opened = outside.is_ok() && !sandbox.placement.opening.is_empty();
        sandbox.ledger = opened.then(|| self.ledger.clone());
        Ok((sandbox, outside))
    }

    fn start_ring(
        &self,
        id: &SandboxId,
        placement: &Placement,
        spawner: &SpawnerHandle,
    ) -> Result<Started, RaiseError> {
        let spec = placement.permit.spec();
        let group = match self.cgroups.means() {
            Some(_) => {
                let limits = limits::group_limits(spec, &self.cgroups);
                Some(self.make_group(id, &limits)?)
            }
            None => None,
        };
        let (mut control, mut door, mut placed) = (None, None, None);
        let raised = group
            .as_ref()
            .map_or(Ok(Vec::new()), Group::join_fds)
            .map_err(RaiseError::from)
            .and_then(|mut files: Vec<OwnedFd>| {
                match &placement.vm {
                    Some(vm) if vm.has_door() => {
                        let identity = self.caller.identity().map_err(PlaceError::from)?;
                        let (ours, theirs) =
                            Door::open(&self.home, identity).map_err(RaiseRingError::Channel)?;
                        files.push(theirs);
                        door = Some(ours);
                    }
                    Some(vm) => {
                        let (ours, theirs) = UnixStream::pair().map_err(RaiseRingError::Channel)?;
                        files.push(theirs.into());
                        control = Some(ours);
                        let memory = vm.memory().map(OwnedFd::try_clone).transpose();
                        files.extend(memory.map_err(RaiseRingError::Channel)?);
                    }
                    None => {}
                }
                // While the launcher is at work.
                let look = || {
                    if !placement.opening.is_empty() {
                        let numbers = self.ledger.record_numbered(placement.opening.clone())?;
                        placed = ledger::number_of_placed(&placement.opening, &numbers);
                    }
                    self.look_from_outside(group.as_ref(), spec)
                };
                Ok(spawner.raise(&placement.plan, &files, look)?)
            });
        match (raised, group) {
            (Ok((ring, outside)), group) => {
                Ok(Started { ring, group, control, door, outside, placed })
            }
            (Err(error), group) => {
                // The child may have joined already. The first error is the one to tell, and `gc`
                // finds what could not be removed.
                let _ = group.map(|_| self.cgroups.remove_by_name(id.as_str()));
                Err(error)
            }
        }
    }

    /// All engines of a host share the parent of their groups, and whichever cleans up removes it
    /// when it is empty: perhaps just before we make the first group in it.
    fn make_group(&self, id: &SandboxId, limits: &GroupLimits) -> Result<Group, CgroupError> {
        let mut attempts = 0..MAX_GROUP_ATTEMPTS;
        loop {
            match self.cgroups.create(id.as_str(), limits) {
                Err(CgroupError::Io { source, .. })
                    if is_gone(&source) && attempts.next().is_some() => {}
                made => return made,
            }
        }
    }

    /// A parked launcher for this plan, or a new one. Where a limit is counted per user namespace,
    /// every sandbox needs its own.
    fn spawner(&self, plan: &RingPlan) -> Result<SpawnerHandle, RaiseRingError> {
        let counted_outside = self.cgroups.means_of(Controller::Pids).is_some();
        let parking = match self.serves.parking() {
            Parking::ForMore if !counted_outside => Parking::OneRing,
            parking => parking,
        };
        if parking != Parking::ForMore {
            return SpawnerHandle::prepare(self.launcher()?, plan, parking);
        }
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        // A killed spawner is of no use.
        parked.retain(|parked| parked.spawner.is_alive());
        if let Some(found) = parked.iter().find(|parked| parked.template == plan.template) {
            return Ok(found.spawner.clone());
        }
        let spawner = SpawnerHandle::prepare(self.launcher()?, plan, Parking::ForMore)?;
        if parked.len() >= MAX_PARKED {
            parked.remove(0);
        }
        let template = plan.template.clone();
        parked.push(Parked { template, spawner: spawner.clone() });
        Ok(spawner)
    }

    /// The launcher that was started early, or a new one.
    fn launcher(&self) -> Result<Spawner, RaiseRingError> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(waiting.map_or_else(|| Spawner::start(&self.programs.launcher), Ok)?)
    }

    /// Covers are mounted on files: in what a launcher made before, one may be gone with its file.
    pub(crate) fn forget_spawners(&self) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A launcher whose template failed must not be asked again.
    fn forget_spawner(&self, template: &[Step]) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|parked| parked.template != template);
    }

    /// Reads and checks the facts of every ring, raising the inner ones on the way.
    fn check_wall(&self, sandbox: &mut Sandbox, outside: Outside) -> Result<(), RaiseError> {
        if let Some(vm) = sandbox.placement.vm.clone() {
            return self.check_vm(sandbox, &vm, outside.group);
        }
        let outermost = sandbox.wall().outermost();
        let warden = |ring| move |source| RaiseError::Warden { ring, source };
        let Outside { namespaces, group } = outside;
        let client = sandbox.connect().map_err(warden(outermost))?;
        let facts = client.facts(FACTS_TIMEOUT).map_err(warden(outermost))?;
        let expected = sandbox.plan().expected.clone();
        let mut evidence = check(outermost, &expected, &namespaces, facts)?;
        evidence.checks.extend(group);
        sandbox.take_scratch()?;
        evidence.checks.extend(sandbox.network_fact());
        sandbox.serve_network(&self.ledger)?;
        let mut all = vec![evidence];
        let (innermost, expected) =
            self.raise_inner_rings(sandbox, (client, 1), (expected, &namespaces), &mut all)?;
        let tools = (&innermost, How::Confined { expected });
        self.raise_tools(sandbox, tools, &namespaces, &mut all)?;
        sandbox.set_raised(innermost, all);
        Ok(())
    }

    /// Raises the process rings of a wall from the given one on, each by the warden of the one
    /// before. Gives the innermost, and the facts that were expected of it.
    pub(crate) fn raise_inner_rings(
        &self,
        sandbox: &Sandbox,
        (mut innermost, first): (Client, usize),
        (mut expected, namespaces): (Expected, &HostNamespaces),
        all: &mut Vec<Evidence>,
    ) -> Result<(Client, Expected), RaiseError> {
        let warden = |ring| move |source| RaiseError::Warden { ring, source };
        let wall = sandbox.wall();
        for (number, ring) in wall.command_rings().iter().enumerate().skip(first) {
            let workspace = sandbox.spec.workspace.as_ref();
            let writable = workspace.map(|_| sandbox.plan().working_directory.clone());
            let filter = JobFilter::of(&sandbox.spec, number + 1 < wall.rings().len());
            let steps = encode_steps(&inner_process_plan(writable.as_slice(), filter))
                .map_err(|error| RaiseError::Encode(std::io::Error::other(error)))?;
            let soon = innermost.until(Instant::now() + RAISE_TIMEOUT);
            let tunnel = soon.raise(steps).map_err(warden(*ring))?;
            innermost = tunnel
                .connect()
                .map_err(|error| RaiseError::Encode(std::io::Error::other(error)))?;
            // Filters stack: each inner ring adds its own.
            let seccomp_filters = expected.seccomp_filters + 1;
            expected = Expected { own_namespaces: false, seccomp_filters, filter, ..expected };
            let facts = innermost.facts(FACTS_TIMEOUT).map_err(warden(*ring))?;
            let mut evidence = check(*ring, &expected, namespaces, facts)?;
            evidence.checks.push(try_forbidden_write(*ring, &innermost)?);
            all.push(evidence);
        }
        Ok((innermost, expected))
    }

    fn look_from_outside(
        &self,
        group: Option<&Group>,
        spec: &SandboxSpec,
    ) -> Result<Outside, RaiseError> {
        let namespaces = host::own_namespaces().map_err(RaiseError::Proc)?;
        let group = group.map(|group| self.check_group(group, spec)).transpose()?;
        Ok(Outside { namespaces, group })
    }

    /// The limits as the kernel reports them, read from outside where a job cannot lie.
    fn check_group(&self, group: &Group, spec: &SandboxSpec) -> Result<CheckedFact, RaiseError> {
        let asked = limits::group_limits(spec, &self.cgroups);
        Ok(limits::compare(spec.wall.outermost(), &asked, &group.read_back()?)?)
    }
}

/// In an inner ring, a write that only its own Landlock domain forbids must fail.
fn try_forbidden_write(ring: RingKind, client: &Client) -> Result<CheckedFact, EvidenceError> {
    let path = b"/.ringwall-forbidden";
    let result = client.write_file(path, 0o600, WriteHow::Replace, &mut std::io::empty());
    let layer = "Landlock".to_owned();
    match result {
        Err(ClientError::Remote(error)) if error.errno == Some(Errno::ACCESS.raw_os_error()) => {
            Ok(CheckedFact { layer, seen: "a forbidden write is denied".to_owned() })
        }
        other => Err(EvidenceError {
            ring,
            layer,
            expected: "a forbidden write is denied".to_owned(),
            seen: format!("{other:?}"),
        }),
    }
}

/// The directory was removed before, or while, it was written to.
fn is_gone(error: &std::io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NODEV].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| gone.contains(&number))
}
