//! The sandbox in which a model's wishes are done. There is one at a time; when a call needs a
//! stronger wall, or the task has become tainted, it moves to another with all that it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use ringwall_desk::{Permit, SystemCaller, system_permit};
use ringwall_engine::{
    AdmitError, Asked, AttachError, Attached, Engine, KeepError, LedgerError, NetworkBounds,
    Output, PolicySearch, Record, RecordError, RecordState, RunError, StartError, StopError,
};
use ringwall_policy::{PlaceRequest, Stack, Task, Work};
use ringwall_spec::{
    Command, EgressSpec, Ending, Limits, RingKind, SandboxSpec, Wall, WorkspaceMode, WorkspaceSpec,
};
use ringwall_wire::Client;

use crate::carry::{self, CarryError};
use crate::gate::Holder;
use crate::gate::search_for;
use crate::options::Options;

/// How long a sandbox lives where no policy says otherwise.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// What a command may say at most; more is cut.
const MOST_OUTPUT: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Stop(#[from] StopError),
    #[error(transparent)]
    Carry(#[from] CarryError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("the sandbox {0} was lost with what was changed in it")]
    Lost(String),
}

/// A living sandbox, and the way to it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) record: Record,
    pub(crate) attached: Attached,
    /// Commands in it could have had something from the network.
    pub(crate) has_network: bool,
    /// As it was admitted.
    tainted: bool,
    elevated: BTreeSet<String>,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ending: Ending,
    pub(crate) output: String,
}

/// Who asks for a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Asker<'a> {
    pub(crate) options: &'a Options,
    pub(crate) task: Task,
    /// For the audit log.
    pub(crate) agent: &'a str,
    pub(crate) holder: &'a Holder,
}

impl Site {
    pub(crate) fn wall(&self) -> &Wall {
        &self.record.wall
    }

    pub(crate) fn files(&self) -> &Client {
        self.attached.files()
    }

    /// The directory in which the model's paths begin.
    pub(crate) fn root(&self) -> &Path {
        self.record.working_directory()
    }

    /// Attaches to a sandbox that was raised before, if it lives. `tainted`: the task was by then.
    pub(crate) fn find(
        engine: &Engine,
        id: &str,
        (options, tainted): (&Options, bool),
    ) -> Result<Option<Site>, SiteError> {
        let record = engine.find(id)?;
        if record.state != RecordState::Running {
            return Ok(None);
        }
        let attached = engine.attach(&record)?;
        let has_network = match &record.decided {
            Some(decided) => !decided.egress.is_empty(),
            None => options.network.is_some() && !tainted,
        };
        // What was lifted then is not known; where something is now, it moves.
        let elevated = BTreeSet::new();
        Ok(Some(Site { attached, has_network, tainted, elevated, record }))
    }

    /// Whether it is still there.
    pub(crate) fn lives(&self, engine: &Engine) -> bool {
        let state = engine.find(self.record.id.as_str()).map(|record| record.state);
        matches!(state, Ok(RecordState::Running))
    }

    /// Whether work of this kind may be done here as the task is now.
    pub(crate) fn fits(
        &self,
        engine: &Engine,
        policy: Option<&Stack>,
        (task, kind, with_image): (&Task, &str, bool),
    ) -> bool {
        if task.tainted != self.tainted || task.elevated != self.elevated {
            return false;
        }
        let Some(stack) = policy else { return true };
        let request = PlaceRequest {
            task: task.clone(),
            work: Work { tool: None, kind: Some(kind.to_owned()) },
            wall: Some(self.record.wall.clone()),
            limits: None,
            reuse: true,
        };
        stack.place(&request, &engine.host_facts(with_image)).plan().is_ok()
    }

    /// A fresh sandbox, with what was changed in another so far.
    pub(crate) fn raise(
        engine: &Engine,
        (permit, task): (&Permit, &Task),
        from: Option<&Record>,
    ) -> Result<Site, SiteError> {
        let has_network = permit.spec().egress.is_some();
        let record = engine.create(permit, None)?;
        let attached = engine.attach(&record)?;
        let (tainted, elevated) = (task.tainted, task.elevated.clone());
        let site = Site { record, attached, has_network, tainted, elevated };
        match from.map(|from| carry::carry(engine, from, &site)).transpose() {
            Ok(_) => Ok(site),
            Err(error) => {
                // The one before still has everything.
                let _ = engine.stop(&site.record, STOP_PATIENCE);
                Err(error.into())
            }
        }
    }

    /// Ends it and keeps what was changed.
    pub(crate) fn end(engine: &Engine, id: &str) -> Result<Record, SiteError> {
        engine.stop(&engine.find(id)?, STOP_PATIENCE)?;
        let record = engine.find(id)?;
        match record.state {
            RecordState::Finished => Ok(record),
            _ => Err(SiteError::Lost(id.to_owned())),
        }
    }

    /// Runs a command to its end, or to the end of its time.
    pub(crate) fn run(&self, command: &Command, timeout: Duration) -> Result<Ran, SiteError> {
        let timeout = timeout.min(self.record.limits.timeout);
        let job = self.attached.start(command, timeout)?;
        let mut said = Said::default();
        let ending = job.wait(&mut said)?;
        let mut output = String::from_utf8_lossy(&said.bytes).into_owned();
        if said.cut {
            output.push_str("\n[more was said]");
        }
        Ok(Ran { ending, output })
    }
}

/// Both streams in the order in which they came.
#[derive(Debug, Default)]
struct Said {
    bytes: Vec<u8>,
    cut: bool,
}

impl Said {
    fn keep(&mut self, bytes: &[u8]) {
        let room = MOST_OUTPUT.saturating_sub(self.bytes.len());
        self.cut |= bytes.len() > room;
        self.bytes.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }
}

impl Output for Said {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.keep(bytes);
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.keep(bytes);
        Ok(())
    }
}

/// Has policy, or the person's order, decide about a sandbox.
pub(crate) fn admit(
    engine: &Engine,
    policy: Option<&Stack>,
    asker: &Asker<'_>,
    kind: &str,
) -> Result<Permit, SiteError> {
    let options = asker.options;
    let path = options.workspace.clone();
    let workspace = path.map(|path| WorkspaceSpec { path, mode: WorkspaceMode::CopyOnWrite });
    let mut spec = SandboxSpec {
        image: options.image.clone(),
        workspace,
        limits: Limits { timeout: LIFETIME, ..options.limits.clone() },
        egress: options.network.clone(),
        ..SandboxSpec::new(ordered_wall(options))
    };
    asker.holder.narrow_writing(&mut spec);
    let network_at_most = options.granted.then(|| asker.holder.network());
    let Some(stack) = policy else {
        // Nobody has written down what a tainted task may keep: it keeps no network.
        let egress = spec.egress.filter(|_| !asker.task.tainted);
        spec.egress = egress.and_then(|egress| within(egress, network_at_most.as_ref()));
        spec.wall = with_tools(engine, &spec.wall);
        let asked = asked(spec, None, (Task::default(), Work::default()), BTreeMap::new());
        let decision = engine.admit(asked, &|limits| limits, &PolicySearch::default())?;
        return Ok(system_permit(SystemCaller::Agent, decision));
    };
    let work = Work { tool: None, kind: Some(kind.to_owned()) };
    let all = asker.holder.all_ids();
    let notes = [("task", asker.agent), ("grant", asker.holder.id.as_str()), ("grants", &all)];
    let notes: BTreeMap<String, String> =
        notes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let limits = |most: Limits| narrower(&most, &options.limits);
    let admit = |wall: Option<Wall>| {
        let who = (asker.task.clone(), work.clone());
        let mut asked = asked(spec.clone(), wall, who, notes.clone());
        // So that its network follows the policy while it lives.
        asked.search = Some(search_for(options));
        asked.network_at_most.clone_from(&network_at_most);
        let decision = engine.admit_by(stack, asked, &limits)?;
        Ok::<_, SiteError>(system_permit(SystemCaller::Agent, decision))
    };
    let plain = admit(options.wall.clone())?;
    let wanted = with_tools(engine, &plain.spec().wall);
    if wanted == plain.spec().wall {
        return Ok(plain);
    }
    // Tools then see the same files as commands. Where policy does not want that, they run alone.
    Ok(admit(Some(wanted)).unwrap_or(plain))
}

fn asked(
    spec: SandboxSpec,
    wall: Option<Wall>,
    (task, work): (Task, Work),
    notes: BTreeMap<String, String>,
) -> Asked {
    Asked { spec, wall, task, work, notes, network_at_most: None, search: None }
}

/// What a person ordered, as far as the grant goes.
fn within(mut egress: EgressSpec, most: Option<&NetworkBounds>) -> Option<EgressSpec> {
    if let Some(most) = most {
        egress.layers.extend(most.layers.iter().cloned());
        egress.secrets.retain(|name| most.secrets.contains(name));
    }
    Some(egress).filter(|egress| !egress.is_nothing())
}

fn ordered_wall(options: &Options) -> Wall {
    let fitting = if options.image.is_some() { RingKind::Container } else { RingKind::Process };
    options.wall.clone().unwrap_or_else(|| Wall::single(fitting))
}

/// The wall with a ring for tools inside, where this machine can have one.
fn with_tools(engine: &Engine, wall: &Wall) -> Wall {
    let inside = format!("{wall}/wasm").parse::<Wall>().ok();
    let can =
        |wall: &Wall| wall.has_tools_inside() && engine.host_facts(true).can_raise(wall).is_ok();
    inside.filter(can).unwrap_or_else(|| wall.clone())
}

/// No more than policy gives; it lives as long as policy lets it.
fn narrower(most: &Limits, asked: &Limits) -> Limits {
    Limits {
        timeout: most.timeout,
        memory_bytes: most.memory_bytes.min(asked.memory_bytes),
        cpu_milli: most.cpu_milli.min(asked.cpu_milli),
        pids: most.pids.min(asked.pids),
        disk_bytes: most.disk_bytes.min(asked.disk_bytes),
        disk_inodes: most.disk_inodes.min(asked.disk_inodes),
        output_bytes: most.output_bytes.min(asked.output_bytes),
        open_files: most.open_files.min(asked.open_files),
    }
}
