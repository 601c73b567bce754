//! The findings as data. The JSON keys are stable: programs read them.

use ringwall_guest::Flavour;
use ringwall_linux::host::{HostFacts, Place};
use ringwall_ring_vm::KvmVerdict;
use ringwall_spec::{LimitMeans, LimitName};
use serde::Serialize;

/// Raised when a key changes its meaning or goes away.
pub(super) const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    pub(super) host: Host,
    pub(super) features: Vec<Feature>,
    pub(super) walls: Vec<WallFinding>,
    pub(super) limits: Vec<LimitFinding>,
    pub(super) vm: Vm,
    pub(super) tools: Vec<Tool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Host {
    pub(super) kernel: String,
    pub(super) uid: u32,
    pub(super) cpus: u32,
    pub(super) memory_bytes: u64,
    pub(super) swap_bytes: u64,
    /// The surroundings of this process: `host`, `docker`, `podman`, `pod`, `github-actions`, `container`.
    pub(super) place: &'static str,
}

impl Host {
    pub(super) fn new(facts: &HostFacts, place: Place) -> Host {
        Host {
            place: place.name(),
            kernel: facts.kernel.release.clone(),
            uid: facts.uid,
            cpus: facts.cpus,
            memory_bytes: facts.memory_bytes,
            swap_bytes: facts.swap_bytes,
        }
    }
}

/// One thing that the host has or has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Feature {
    pub(super) name: &'static str,
    pub(super) state: State,
    /// The finding, in a few words.
    pub(super) seen: String,
    pub(super) purpose: &'static str,
    pub(super) needed_by: NeededBy,
    /// What a person can do. Absent when the state is ok, and when the feature only fails because
    /// another that it stands on does.
    pub(super) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Ok,
    /// Works, with less protection or by weaker means.
    Weaker,
    Missing,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Weaker => "weaker",
            State::Missing => "missing",
        }
    }
}

/// What cannot be had without a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NeededBy {
    EveryWall,
    /// A container wall, and a copy-on-write workspace in any wall.
    ContainerAndWorkspace,
    Wasm,
    Vm,
    Nothing,
}

/// What came of raising a wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WallFinding {
    pub(super) wall: &'static str,
    pub(super) result: Answer,
    /// Whether the result is yes.
    pub(super) possible: bool,
    /// The attempt, and its result.
    pub(super) seen: String,
    /// The obstacle, or the part that the wall must do without.
    pub(super) because: Option<String>,
    /// What a person can do, wherever something is in the way.
    pub(super) fix: Option<String>,
    /// How long it took to raise.
    pub(super) took_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It was raised, and its evidence was checked.
    Yes,
    No,
    /// It was not tried.
    Unknown,
}

impl Answer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Answer::Yes => "yes",
            Answer::No => "no",
            Answer::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LimitFinding {
    pub(super) limit: LimitName,
    pub(super) means: LimitMeans,
    pub(super) note: &'static str,
}

/// What microVMs are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Vm {
    pub(super) monitors: Vec<Monitor>,
    /// The one to boot first.
    pub(super) kernels: Vec<GuestKernel>,
    /// Why the kernels cannot be used, if so.
    pub(super) kernels_problem: Option<String>,
    /// What came of running a guest.
    pub(super) kvm: KvmVerdict,
    /// Why the verdict could not be kept for the engine, which then emulates; absent otherwise.
    pub(super) kvm_not_kept: Option<String>,
    /// What the `vm` ring would use. Absent when there is no monitor for it.
    pub(super) driver: Option<VmDriver>,
    /// Why there is none, if so.
    pub(super) driver_problem: Option<String>,
    /// Present when it was asked for.
    pub(super) start: Option<VmStart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Monitor {
    pub(super) program: &'static str,
    pub(super) state: MonitorState,
    pub(super) path: Option<String>,
    pub(super) version: Option<String>,
    /// Why it is not used, in a few words.
    pub(super) note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MonitorState {
    Usable,
    /// There, but it cannot run guests without KVM.
    NoKvm,
    /// Has a known hole, or does not say its version.
    Refused,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct GuestKernel {
    pub(super) flavour: Flavour,
    pub(super) release: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct VmDriver {
    pub(super) monitor: &'static str,
    pub(super) guests_run_by: RunBy,
    /// `RINGWALL_VM_DRIVER` asks for it.
    pub(super) was_wanted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunBy {
    Kvm,
    Emulation,
}

/// A start that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum VmStart {
    /// From the start of the monitor to a guest whose evidence was checked.
    TookMs(u64),
    Failed(String),
}

/// A program beside which, or instead of which, people use Ringwall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// Absent when it is not on the path.
    pub(super) path: Option<String>,
    pub(super) version: Option<String>,
}
