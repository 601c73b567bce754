//! The sandbox in which a model's wishes are done. There is one at a time; when a call needs a
//! stronger wall, or the task has become tainted, it moves to another with all that it changed.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use ringwall_desk::{Caller, Desk, Input, Keeper, Placed, Placing, Refused, Rules, Task, Work};
use ringwall_engine::{
    Asked, AttachError, Attached, Engine, Finished, Job, KeepError, LedgerError, Output, Record,
    RecordError, RecordState, RunError, StartError, StopError,
};
use ringwall_spec::{
    Command, Ending, Limits, RingKind, SandboxSpec, Usage, Wall, WorkspaceMode, WorkspaceSpec,
};
use ringwall_wire::Client;

use crate::carry::{self, CarryError};
use crate::options::Options;

/// How long a sandbox lives where no policy says otherwise.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// What a command may say at most; more is cut.
const MOST_OUTPUT: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    #[error(transparent)]
    Desk(#[from] Refused),
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
    /// Whether the task was when it was placed.
    pub(crate) tainted: bool,
    /// Whether a command or a tool of the agent may have written here.
    pub(crate) worked_in: Cell<bool>,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ending: Ending,
    pub(crate) usage: Usage,
    pub(crate) output: String,
}

/// Who asks for a sandbox.
#[derive(Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) desk: Desk<'a>,
    pub(crate) caller: &'a Caller,
    pub(crate) rules: &'a Rules,
    pub(crate) options: &'a Options,
    pub(crate) task: Task,
    /// For the audit log.
    pub(crate) agent: &'a str,
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
        // The journal does not say whether commands have run in it.
        let worked_in = Cell::new(true);
        Ok(Some(Site { attached, has_network, tainted, worked_in, record }))
    }

    /// Whether it is still there.
    pub(crate) fn lives(&self, engine: &Engine) -> bool {
        let state = engine.find(self.record.id.as_str()).map(|record| record.state);
        matches!(state, Ok(RecordState::Running))
    }

    /// A fresh sandbox, with what was changed in another so far.
    pub(crate) fn raise(
        engine: &Engine,
        (placed, task): (Placed, &Task),
        from: Option<&Record>,
    ) -> Result<Site, SiteError> {
        let has_network = placed.permit.spec().egress.is_some();
        let record = engine.create(&placed.permit, None)?;
        placed.leave_to(Keeper::Itself, &record.id)?;
        let attached = engine.attach(&record)?;
        // Changes of the sandbox before are carried into this one.
        let worked_in = Cell::new(from.is_some());
        let site = Site { record, attached, has_network, tainted: task.tainted, worked_in };
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

    /// Starts a command, which is ended when its time is over.
    pub(crate) fn start(&self, command: &Command, timeout: Duration) -> Result<Job, SiteError> {
        let timeout = timeout.min(self.record.limits.timeout);
        Ok(self.attached.start(command, timeout)?)
    }

    /// Runs a command to its end, or to the end of its time.
    pub(crate) fn run(&self, command: &Command, timeout: Duration) -> Result<Ran, SiteError> {
        Ran::of(self.start(command, timeout)?)
    }
}

impl Ran {
    /// Waits for the end.
    pub(crate) fn of(job: Job) -> Result<Ran, SiteError> {
        let mut said = Said::default();
        let Finished { ending, usage } = job.finish(&mut said)?;
        let mut output = String::from_utf8_lossy(&said.bytes).into_owned();
        if said.cut {
            output.push_str("\n[more was said]");
        }
        Ok(Ran { ending, usage, output })
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

/// Has the reference monitor decide about a sandbox for this kind of work.
pub(crate) fn place(asker: &Asker<'_>, kind: &str) -> Result<Placed, Refused> {
    let plain = place_behind(asker, kind, asker.options.wall.clone())?;
    if asker.options.tools.is_empty() {
        return Ok(plain);
    }
    let wall = &plain.permit.spec().wall;
    let wanted = with_tools(asker.engine, wall);
    if wanted == *wall {
        return Ok(plain);
    }
    // Tools then see the same files as commands. Where that is not allowed, they run alone.
    Ok(place_behind(asker, kind, Some(wanted)).unwrap_or(plain))
}

fn place_behind(asker: &Asker<'_>, kind: &str, wall: Option<Wall>) -> Result<Placed, Refused> {
    let options = asker.options;
    let path = options.workspace.clone();
    let workspace = path.map(|path| WorkspaceSpec { path, mode: WorkspaceMode::CopyOnWrite });
    let spec = SandboxSpec {
        image: options.image.clone(),
        workspace,
        limits: Limits { timeout: LIFETIME, ..options.limits.clone() },
        egress: options.network.clone(),
        ..SandboxSpec::new(wall.clone().unwrap_or_else(|| ordered_wall(options)))
    };
    let asked = Asked {
        spec,
        wall,
        task: asker.task.clone(),
        work: Work { tool: None, kind: Some(kind.to_owned()) },
        notes: BTreeMap::from([("agent".to_owned(), asker.agent.to_owned())]),
        network_at_most: None,
        search: None,
    };
    let placing = Placing {
        asked,
        search: asker.rules.search(),
        limits: &|most| narrower(&most, &options.limits),
        command: None,
        input: Input::Nothing,
        name: None,
        account: asker.agent,
    };
    asker.desk.place(asker.caller, placing)
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
