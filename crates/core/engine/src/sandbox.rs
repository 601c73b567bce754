//! A raised wall with its state.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringwall_linux::cgroup::Group;
use ringwall_linux::process;
use ringwall_ring::{RaiseRingError, RaisedRing, RingPlan};
use ringwall_ring_vm::Monitor;
use ringwall_spec::{
    CheckedFact, Evidence, LimitMeans, Limits, SandboxId, SandboxSpec, Wall, WorkspaceMode,
};
use ringwall_wire::{Client, ClientError};
use ringwall_workspace::Periods;
use rustix::process::Signal;

use crate::attach::listen;
use crate::hiding::{Hiding, HidingError};
use crate::ledger::{self, CallEntry, Ledger, LedgerError};
use crate::network::{NetworkError, Whose};
use crate::place::Placement;
use crate::raise::RaiseError;
use crate::record::{HeldRecord, Record, RecordError};
use crate::rights::Held;
use crate::settle::{millis, open_dir};
use crate::standing::{Standing, mount_id};
use crate::tools::ToolHost;
use crate::vm::Door;
use crate::watchdog::Watchdog;

/// How long everything inside may take to end once it was killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lives until settled or dropped; either way nothing of it stays.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) record: Option<HeldRecord>,
    pub(crate) id: SandboxId,
    pub(crate) spec: SandboxSpec,
    pub(crate) placement: Placement,
    pub(crate) ring: RaisedRing,
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) scratch: Option<OwnedFd>,
    /// What a change of rights needs of the ring.
    pub(crate) held: Option<Held>,
    /// Which changes were made under which rights, once the rights have changed.
    pub(crate) periods: Option<Periods>,
    /// The user of the ring inside a guest that has the workspace.
    pub(crate) user_in_guest: Option<(u32, u32)>,
    /// The number of the mount of a workspace that is the host's own directory.
    pub(crate) covered: Option<u64>,
    /// How the ring was when it was raised, where it lives on.
    pub(crate) standing: Option<Arc<Standing>>,
    /// The workspace as the ring sees it, until it is watched.
    pub(crate) view: Option<OwnedFd>,
    pub(crate) hiding: Option<Hiding>,
    pub(crate) client: Option<Client>,
    /// The first process of a guest, where there is one.
    pub(crate) guest: Option<Client>,
    /// Runs tools in the wasm ring inside, where there is one.
    pub(crate) tools: Option<ToolHost>,
    /// The control socket of a guest's monitor.
    pub(crate) control: Option<UnixStream>,
    /// Where a guest that is reached by vsock comes in.
    pub(crate) door: Option<Door>,
    /// The guest's VMM, once the engine speaks with it.
    pub(crate) monitor: Option<Monitor>,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) watchdog: Option<Watchdog>,
    pub(crate) killer: Killer,
    pub(crate) begun: Instant,
    pub(crate) raised: Instant,
    /// When a guest had taken its adoption.
    pub(crate) answered: Option<Instant>,
    /// CPU time of the whole ring, where the kernel told us at its end.
    pub(crate) reaped_cpu: Option<Duration>,
    /// Where the end is written, if the beginning was.
    pub(crate) ledger: Option<Arc<Ledger>>,
    /// Whether the log has the evidence.
    pub(crate) told: AtomicBool,
    /// The call that the sandbox was raised for.
    pub(crate) entry: Option<CallEntry>,
    /// Why the wall did not come up.
    pub(crate) unraised: Option<String>,
    torn_down: bool,
    /// It was killed and has not ended: it may still write.
    pub(crate) still_there: bool,
}

/// Ends a sandbox from another thread.
#[derive(Debug, Clone)]
pub struct Killer {
    warden: Arc<OwnedFd>,
    stopped: Arc<AtomicBool>,
}

impl Killer {
    /// Kills the whole tree; the job ends as stopped.
    pub fn kill(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.kill_tree();
    }

    /// The kernel kills every process of a pid namespace with its first one.
    pub(crate) fn kill_tree(&self) {
        // It may be gone already, which is what we want.
        let _ = rustix::process::pidfd_send_signal(&*self.warden, Signal::KILL);
    }

    /// Whether a request has ended it before its time.
    pub fn was_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

impl Sandbox {
    pub(crate) fn new(
        record: HeldRecord,
        spec: &SandboxSpec,
        placement: Placement,
        ring: RaisedRing,
        group: Option<Group>,
        begun: Instant,
    ) -> Sandbox {
        let warden = ring.launched.pidfd.clone();
        Sandbox {
            id: record.record.id.clone(),
            record: Some(record),
            spec: spec.clone(),
            placement,
            ring,
            group: group.map(Arc::new),
            scratch: None,
            held: None,
            periods: None,
            user_in_guest: None,
            covered: None,
            standing: None,
            view: None,
            hiding: None,
            client: None,
            guest: None,
            tools: None,
            control: None,
            door: None,
            monitor: None,
            evidence: Vec::new(),
            watchdog: None,
            killer: Killer { warden, stopped: Arc::default() },
            begun,
            raised: begun,
            answered: None,
            reaped_cpu: None,
            ledger: None,
            told: AtomicBool::new(false),
            entry: None,
            unraised: None,
            torn_down: false,
            still_there: false,
        }
    }

    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    pub fn wall(&self) -> &Wall {
        &self.spec.wall
    }

    /// The checked facts of every ring, outermost first.
    pub fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }

    /// The process on this host that is the outermost ring: its warden, or a guest's monitor.
    pub fn host_process(&self) -> u32 {
        self.ring.launched.pid
    }

    /// When a guest answered for the first time, counted from the moment it was asked for. Its
    /// evidence was not checked yet.
    pub fn answered_after(&self) -> Option<Duration> {
        self.answered.map(|at| at.duration_since(self.begun))
    }

    /// What a person should know of its workspace.
    pub fn caution(&self) -> Option<&str> {
        self.placement.caution.as_deref()
    }

    /// File operations inside, by the warden of the innermost ring in which commands run.
    pub fn files(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// Calls tools in the wasm ring inside; none if the wall has no such ring.
    pub fn tools(&self) -> Option<&ToolHost> {
        self.tools.as_ref()
    }

    /// What it has used of the network so far, as its gateway counts it.
    pub fn network_usage(&self) -> Option<ringwall_egress::Usage> {
        self.placement.network.as_ref()?.usage()
    }

    pub fn killer(&self) -> Killer {
        self.killer.clone()
    }

    pub(crate) fn plan(&self) -> &RingPlan {
        &self.placement.plan
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.spec.limits
    }

    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        let stream = self.ring.stream.try_clone().map_err(|_| ClientError::Disconnected)?;
        Client::connect(stream).map_err(|_| ClientError::Disconnected)
    }

    /// The connection that was made while the wall was checked.
    pub(crate) fn connected(&self) -> Result<Client, RaiseRingError> {
        self.client.clone().ok_or(RaiseRingError::NoScratch)
    }

    /// The first process of the guest.
    pub(crate) fn guest(&self) -> Result<Client, RaiseRingError> {
        self.guest.clone().ok_or(RaiseRingError::NoScratch)
    }

    pub(crate) fn take_scratch(&mut self) -> Result<(), RaiseRingError> {
        let mount = self.plan().reports_workspace().then(|| self.ring.workspace()).transpose()?;
        self.scratch = Some(self.ring.scratch()?);
        let shared = self.spec.workspace.as_ref().map(|own| own.mode);
        if let (Some(WorkspaceMode::ReadWrite), Some(mount)) = (shared, &mount) {
            let id = mount_id(mount.as_fd()).map_err(RaiseRingError::Workspace)?;
            self.covered = Some(id);
        }
        self.held = Held::of(self, mount).map_err(RaiseRingError::Workspace)?;
        if self.placement.workspace.is_some() && self.placement.vm.is_none() {
            self.view = Some(self.ring.view()?);
        }
        Ok(())
    }

    /// What the jobs have written to the workspace in place of it.
    pub(crate) fn upper(&self) -> io::Result<OwnedFd> {
        let scratch = self.scratch.as_ref().ok_or(io::ErrorKind::NotFound)?;
        open_dir(scratch, "workspace")
    }

    /// Hides the files that have come to the workspace since the last look.
    pub(crate) fn hide_new(&self) -> Result<(), HidingError> {
        self.hiding.as_ref().map_or(Ok(()), |hiding| hiding.shared().settle())
    }

    /// Hands the sockets that were made in the ring to its gateway, if it has one.
    pub(crate) fn serve_network(&mut self, ledger: &Arc<Ledger>) -> Result<(), RaiseError> {
        let (ids, record) = (self.network_ids(), self.record.as_ref());
        if let (Some(network), Some(egress)) = (&mut self.placement.network, &self.spec.egress) {
            let record = with_dir(record)?;
            let sockets = self.ring.sockets(network.direct.len())?;
            network.serve(sockets, &Whose { record, egress, ids, ledger })?;
        }
        Ok(())
    }

    /// Serves the network of a guest, to whose innermost warden `client` speaks.
    pub(crate) fn serve_network_of_guest(
        &mut self,
        client: &Client,
        ledger: &Arc<Ledger>,
    ) -> Result<(), RaiseError> {
        let (ids, record) = (self.network_ids(), self.record.as_ref());
        let bare = self.wall().command_rings().len() == 1;
        if let (Some(network), Some(egress)) = (&mut self.placement.network, &self.spec.egress) {
            let record = with_dir(record)?;
            if bare {
                network.tell_guest(client)?;
            }
            network.serve_guest(client, &Whose { record, egress, ids, ledger })?;
        }
        Ok(())
    }

    /// What joins decisions about the network to the call, where there is one.
    fn network_ids(&self) -> ringwall_audit::Ids {
        match &self.entry {
            Some(entry) => entry.ids().clone(),
            None => ledger::ids(&self.id),
        }
    }

    /// What can be reached, for the evidence.
    pub(crate) fn network_fact(&self) -> Option<CheckedFact> {
        let egress = self.spec.egress.as_ref()?;
        self.placement.network.as_ref().map(|network| network.fact(egress))
    }

    pub(crate) fn set_raised(&mut self, innermost: Client, evidence: Vec<Evidence>) {
        let watched = self.placement.kept.iter().any(|kept| kept.means == LimitMeans::Watchdog);
        let (pid, most) = (self.ring.launched.pid, self.spec.limits.memory_bytes);
        if watched {
            let scratch = self.scratch.as_ref().and_then(|fd| fd.try_clone().ok());
            self.watchdog = Some(Watchdog::start(pid, scratch, most, self.killer.clone()));
        } else if matches!(
            self.wall().outermost(),
            ringwall_spec::RingKind::Process | ringwall_spec::RingKind::Container
        ) {
            self.watchdog = Some(Watchdog::of_connections(pid, most, self.killer.clone()));
        }
        self.client = Some(innermost);
        self.evidence = evidence;
        self.raised = Instant::now();
    }

    pub(crate) fn ring_failure(&self) -> Option<RaiseRingError> {
        self.ring.failure()
    }

    /// Kills everything inside and waits until the kernel has taken it apart.
    pub(crate) fn tear_down(&mut self) {
        if std::mem::replace(&mut self.torn_down, true) {
            return;
        }
        self.killer.kill_tree();
        self.held = None;
        if let Some(hiding) = self.hiding.as_mut() {
            hiding.finish();
        }
        // Both at once: the launcher takes as long to end as the ring does.
        self.ring.spawner.end_if_last();
        self.still_there = !process::is_readable_within(&self.ring.launched.pidfd, Some(PATIENCE));
        // If it is our child only we can take note of its end, and of the time that it and all
        // below it used.
        self.reaped_cpu = process::reap(self.ring.launched.pid);
        if let Some(watchdog) = self.watchdog.as_mut() {
            watchdog.finish();
        }
        if let Some(network) = self.placement.network.as_mut() {
            network.finish();
        }
    }

    /// Whether the control group is gone. If not, the record must stay for `gc` to find it.
    pub(crate) fn remove_group(&mut self) -> bool {
        self.group.take().is_none_or(|group| group.remove().is_ok())
    }

    pub(crate) fn save_defaults(&mut self) -> Result<(), RecordError> {
        let defaults = self.defaults();
        let Some(record) = self.record.as_mut() else {
            return Ok(());
        };
        record.record.defaults = defaults;
        record.save()
    }

    pub(crate) fn open_log(&self) -> io::Result<File> {
        let held = self.held()?;
        held.make_dir()?;
        File::create(held.record.log_path())
    }

    pub(crate) fn listen(&self) -> io::Result<UnixListener> {
        let held = self.held()?;
        held.make_dir()?;
        listen(&held.record.socket_path())
    }

    /// Writes down what the wardens showed, once.
    pub(crate) fn record_evidence(&self) -> Result<(), LedgerError> {
        match &self.ledger {
            Some(ledger) => ledger.record(self.unwritten_evidence(&self.evidence)),
            None => Ok(()),
        }
    }

    pub(crate) fn unwritten_evidence(&self, all: &[Evidence]) -> Vec<ringwall_audit::Record> {
        if self.told.swap(true, Ordering::SeqCst) {
            return Vec::new();
        }
        let raise_ms = millis(self.raised.duration_since(self.begun));
        ledger::raised(&self.id, &self.spec, all, raise_ms)
    }

    /// The record of a sandbox that was dropped unsettled.
    fn record_drop(&mut self) {
        let Some(ledger) = self.ledger.take() else {
            return;
        };
        let why = self.unraised.take().unwrap_or_else(|| "nobody waited for its end".to_owned());
        let mut records: Vec<_> =
            self.entry.take().map(|call| call.lost(&why)).into_iter().collect();
        records.push(ledger::not_raised(&self.id, &why));
        let _ = ledger.record(records);
    }

    fn held(&self) -> io::Result<&HeldRecord> {
        self.record.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.tear_down();
        self.record_drop();
        if !self.still_there
            && self.remove_group()
            && let Some(record) = self.record.take()
        {
            let _ = record.remove();
        }
    }
}

/// A record beside which something can be kept.
fn with_dir(held: Option<&HeldRecord>) -> Result<Option<&Record>, NetworkError> {
    let Some(held) = held else { return Ok(None) };
    held.make_dir().map_err(NetworkError::Start)?;
    Ok(Some(&held.record))
}
