//! Snapshots of living guests: memory and devices at a moment when the guest has said that it waits.
//!
//! The guest's memory is its monitor's own, so the monitor hands it over itself: a second one, in a
//! jail like the first, takes the whole machine over a socket into memory that we see. What it holds
//! then is kept and the second monitor ends. The guest goes on where it was, and each copy is adopted
//! like any other guest before it answers a caller.
//!
//! Invariant: a snapshot has its final name only when it is whole.

mod store;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::config::Serves;
use ringwall_ring::RingPlan;
use ringwall_ring_vm::{Memory, Monitor, MonitorError, VmRing};
use ringwall_safekeeping::{Access, new_file};
use ringwall_spec::{Decided, RingKind, SandboxId, SandboxName, SandboxSpec};
use ringwall_wire::{AdoptError, ClientError, Taking};
use serde::{Deserialize, Serialize};

use super::template::{self, Start};
use super::{BOOT_PATIENCE, VmPlacement};
use crate::config::Engine;
use crate::place::Placement;
use crate::raise::RaiseError;
use crate::record::RecordError;
use crate::sandbox::Sandbox;
use store::fingerprint;
pub(crate) use store::{number_of, sweep};

/// The warden has nothing to do but to answer.
const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(10);

/// A machine to go on from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub id: SandboxId,
    pub name: Option<SandboxName>,
    /// The sandbox that it was taken of.
    pub of: SandboxId,
    pub created_unix_ms: u64,
    pub spec: SandboxSpec,
    /// What admitted the sandbox, with all that changed since.
    #[serde(default)]
    pub(crate) decided: Option<Decided>,
    /// How long the sandbox did not answer.
    pub paused_ms: u64,
    kernel_release: String,
    /// What the machine consists of: a monitor goes on only with the same.
    devices: String,
    memory_hash: String,
    state_hash: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(
        "a sandbox that reaches the network under a grant cannot be kept: its copies would be on no budget and would not end with the grant; create it without --grant, or with --net none"
    )]
    Granted,
    #[error("what the sandbox may do now cannot be read")]
    Rights(#[source] io::Error),
    #[error(
        "only a sandbox whose wall is `vm` alone can be kept with its memory; this one's is {0}"
    )]
    Wall(String),
    #[error(
        "this guest was not started from a template, so its memory cannot be handed over; make it anew"
    )]
    Booted,
    #[error("commands are running in the sandbox; wait for them to end, or stop them")]
    Busy,
    #[error("the guest did not come to rest")]
    Checkpoint(#[source] ClientError),
    #[error(transparent)]
    Loader(#[from] RaiseError),
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("the guest did not go on after its snapshot; it was ended")]
    Lost(#[source] AdoptError),
    #[error("the snapshot could not be kept; is there room in {path}?")]
    Keep { path: String, source: io::Error },
    #[error("no snapshot {0:?}; `ringwall snapshot ls` lists what there is")]
    NotFound(String),
    #[error("{0:?} fits more than one snapshot; give more of the id")]
    Ambiguous(String),
    #[error(
        "the name {0} is taken by another snapshot; choose another or `ringwall snapshot rm {0}`"
    )]
    NameTaken(String),
    #[error(
        "snapshot {0} was changed by somebody else than Ringwall, or is damaged; remove it with `ringwall snapshot rm {0}`"
    )]
    Tampered(String),
    #[error("snapshots in {path} cannot be read")]
    Read { path: String, source: io::Error },
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// What a guest that goes on from a snapshot is made from.
#[derive(Debug, Clone)]
pub(crate) struct Restored {
    pub(crate) start: Arc<Start>,
    pub(crate) kernel_release: String,
    pub(crate) devices: String,
}

/// How memory comes out of a guest.
#[derive(Debug, Clone)]
pub(crate) struct Loader {
    plan: RingPlan,
    memory_bytes: u64,
    devices: String,
}

impl Loader {
    /// A sandbox of a single run is never kept.
    pub(super) fn of(
        ring: &VmRing,
        serves: Serves,
        plan: impl FnOnce(&VmRing) -> Option<RingPlan>,
    ) -> Option<Loader> {
        if serves == Serves::OneRun {
            return None;
        }
        let mut ring = ring.clone();
        ring.machine.memory = Memory::Received;
        let (memory_bytes, devices) = (ring.machine.memory_bytes, devices(&ring));
        Some(Loader { plan: plan(&ring)?, memory_bytes, devices })
    }
}

/// The machine as its monitor knows it. The kernel is in its memory already.
pub(super) fn devices(ring: &VmRing) -> String {
    let mut machine = ring.machine.clone();
    machine.memory = Memory::Copied;
    let arguments = ring.monitor.driver.arguments(&machine).join("\n");
    let text = format!("{}\n{:?}\n{arguments}", ring.monitor.version, machine.root_image);
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

impl Engine {
    /// Keeps a sandbox with its memory. It does not answer for a moment and then goes on.
    pub(crate) fn keep_snapshot(
        &self,
        sandbox: &mut Sandbox,
        (id, name): (&SandboxId, Option<&SandboxName>),
        hidden: bool,
    ) -> Result<(), SnapshotError> {
        if sandbox.wall().rings() != [RingKind::Vm] {
            return Err(SnapshotError::Wall(sandbox.wall().to_string()));
        }
        let (spec, decided) = self.as_it_is_now(sandbox)?;
        let vm = sandbox.placement.vm.clone().ok_or(SnapshotError::Booted)?;
        let loader = vm.loader.as_deref().cloned().ok_or(SnapshotError::Booted)?;
        if let Some(name) = name {
            self.check_snapshot_name(name)?;
        }
        let all = self.snapshots_dir();
        let failed = |source| SnapshotError::Keep { path: all.display().to_string(), source };
        let making = all.join(format!(".making-{id}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&making).map_err(failed)?;
        let kept = self.hand_over(sandbox, &vm, &loader).and_then(|handed| {
            let paused = handed.paused;
            let (memory_hash, state_hash) = handed.keep(&making).map_err(failed)?;
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let snapshot = Snapshot {
                id: id.clone(),
                name: name.cloned(),
                of: sandbox.id.clone(),
                created_unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
                spec,
                decided,
                paused_ms: u64::try_from(paused.as_millis()).unwrap_or(u64::MAX),
                kernel_release: vm.kernel_release.clone(),
                devices: loader.devices.clone(),
                memory_hash,
                state_hash,
            };
            self.describe(&making, &snapshot).map_err(failed)?;
            fs::rename(&making, self.snapshot_dir(id, hidden)).map_err(failed)
        });
        if kept.is_err() {
            let _ = fs::remove_dir_all(&making);
        }
        kept
    }

    fn hand_over(
        &self,
        sandbox: &mut Sandbox,
        vm: &VmPlacement,
        loader: &Loader,
    ) -> Result<HandedOver, SnapshotError> {
        let (mut receiver, memory) = self.start_loader(vm, loader, sandbox)?;
        let control = receiver.control.take().ok_or(SnapshotError::Booted)?;
        let mut receiving = Monitor::open(control, BOOT_PATIENCE)?;
        let guest = sandbox.guest.clone().ok_or(SnapshotError::Booted)?;
        let sending = sandbox.monitor.as_mut().ok_or(SnapshotError::Booted)?;
        let begun = Instant::now();
        let rest = guest.checkpoint(CHECKPOINT_PATIENCE).map_err(|error| match error {
            ClientError::Remote(_) => SnapshotError::Busy,
            other => SnapshotError::Checkpoint(other),
        })?;
        let sent = sending.send_to(&mut receiving);
        let stopped = Instant::now();
        // Whatever came of it, the guest itself goes on.
        let went_on = sending.go_on();
        let adoption = super::adoption(&sandbox.id, &sandbox.spec.limits, Taking::Again);
        let again = super::take_over(&sandbox.ring.stream, &adoption, true);
        let frozen = rest.frozen;
        drop(rest);
        if went_on.is_err() || again.is_err() {
            sandbox.killer.kill_tree();
        }
        went_on?;
        again.map_err(SnapshotError::Lost)?;
        let before = sent?;
        // Without processes nothing stood still but the machine itself, in the end.
        let paused = if frozen { begun.elapsed() } else { before + stopped.elapsed() };
        Ok(HandedOver { receiver, receiving, memory, paused })
    }

    /// A machine that waits to be told what it is.
    fn start_loader(
        &self,
        vm: &VmPlacement,
        loader: &Loader,
        sandbox: &Sandbox,
    ) -> Result<(Sandbox, OwnedFd), SnapshotError> {
        let wrong = |source| SnapshotError::Keep { path: "memory".to_owned(), source };
        let memory = template::new_memory(loader.memory_bytes).map_err(wrong)?;
        let shared = Arc::new(memory.try_clone().map_err(wrong)?);
        let vm = VmPlacement { start: None, shared: Some(shared), loader: None, ..vm.clone() };
        let kept = sandbox.placement.kept.clone();
        let permit = sandbox.placement.permit.clone();
        let placement = Placement::of_guest(loader.plan.clone(), kept, permit, vm);
        Ok((self.start_unadopted(placement)?, memory))
    }
}

/// A machine that was handed over, in a monitor of its own.
struct HandedOver {
    receiver: Sandbox,
    receiving: Monitor,
    memory: OwnedFd,
    paused: Duration,
}

impl HandedOver {
    /// Writes memory and devices, and gives their hashes.
    fn keep(mut self, directory: &Path) -> io::Result<(String, String)> {
        let state = new_file(&directory.join("state"), Access::Change)?;
        self.receiving.save(state.as_fd()).map_err(io::Error::other)?;
        // The VMM no longer writes to the guest's memory.
        self.receiver.tear_down();
        let kept = new_file(&directory.join("memory"), Access::Change)?;
        template::copy_data(self.memory.as_fd(), &kept)?;
        let memory = File::from(self.memory);
        Ok((fingerprint(&memory)?, fingerprint(&state)?))
    }
}
