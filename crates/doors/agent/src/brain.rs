//! The brain's ring: raised with nothing but the model in reach, told what it needs, listened to.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ringwall_agent_model::{FromBrain, MAX_LINE_BYTES, Provider, ToBrain, write_line};
use ringwall_desk::{
    Caller, Desk, Input, Placed, Placing, Refused, Rules, SystemCaller, Task, Work,
};
use ringwall_engine::{Asked, Engine, Output, RaiseError, RunError, Sandbox, StartError};
use ringwall_spec::{
    Command, EgressSpec, Ending, Limits, ModelEndpoint, ModelShape, RingKind, SandboxSpec, Wall,
};
use ringwall_wire::{ClientError, ProcessInput, WriteHow};

use crate::options::Options;

/// Beside the other programs.
const PROGRAM: &str = "ringwall-agent";
/// Where it is put in its ring.
const INSIDE: &str = "/tmp/ringwall-agent";
/// Where the gateway's proxy listens in every ring.
pub(crate) const PROXY: &str = "127.0.0.1:3128";

const MEMORY_BYTES: u64 = 256 << 20;
const DISK_BYTES: u64 = 32 << 20;
const PIDS: u32 = 16;
const OUTPUT_BYTES: u64 = 4 << 30;
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// Lines that wait to be read.
const MOST_WAITING: usize = 64;
const MOST_ERRORS: usize = 4 << 10;

#[derive(Debug, thiserror::Error)]
pub enum BrainError {
    #[error(
        "the program {0:?} is missing next to ringwall; install all of Ringwall's programs in one directory"
    )]
    NoProgram(PathBuf),
    #[error(transparent)]
    Desk(#[from] Refused),
    #[error(transparent)]
    Raise(#[from] RaiseError),
    #[error("cannot copy the planner's program into its ring")]
    Put(#[source] ClientError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("no thread can be started")]
    Thread(#[source] io::Error),
    #[error("the planner does not answer any more")]
    Deaf,
}

/// What came from a brain.
#[derive(Debug)]
pub(crate) enum Heard {
    Said(Box<FromBrain>),
    /// It said what no brain says.
    Nonsense(String),
    /// It has ended, in this way, with these last words.
    Ended {
        how: Result<Ending, String>,
        errors: String,
    },
    /// Nothing came in time.
    Silence,
}

enum Piece {
    Line(Vec<u8>),
    TooLong,
    Ended(Result<Ending, RunError>, Vec<u8>),
}

/// What a brain is raised for.
pub(crate) struct Raising<'a> {
    pub(crate) desk: Desk<'a>,
    pub(crate) rules: &'a Rules,
    pub(crate) task: &'a Task,
    pub(crate) options: &'a Options,
    pub(crate) agent: &'a str,
    pub(crate) programs: &'a Path,
    /// The most that its model may use.
    pub(crate) tokens: u64,
    pub(crate) seconds: u64,
}

/// A brain in its ring. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct Brain {
    input: ProcessInput,
    pieces: Receiver<Piece>,
    sandbox: Sandbox,
    /// Tokens that its gateway had counted when last asked.
    counted: (u64, u64),
}

impl Brain {
    /// Raises a ring for it and starts it there.
    pub(crate) fn raise(engine: &Engine, raising: &Raising<'_>) -> Result<Brain, BrainError> {
        let program = raising.programs.join(PROGRAM);
        let mut file = File::open(&program).map_err(|_| BrainError::NoProgram(program.clone()))?;
        let (agent, placed) = (raising.agent, raising.place()?);
        let words = [PROGRAM.to_owned(), agent.to_owned()];
        let sandbox = engine.raise_for(&placed.permit, &words)?;
        let client = sandbox.files().ok_or(BrainError::Put(ClientError::Disconnected))?;
        let soon = client.until(Instant::now() + WRITE_PATIENCE);
        soon.write_file(INSIDE.as_bytes(), 0o755, WriteHow::Replace, &mut file)
            .map_err(BrainError::Put)?;
        let command = Command { argv: vec![INSIDE.into()], stdin: true, ..Command::default() };
        let job = sandbox.start(&command)?;
        let input = job.input();
        let (sender, pieces) = sync_channel(MOST_WAITING);
        let thread = std::thread::Builder::new().name("brain".to_owned());
        let listen = move || {
            let mut lines = Lines { sender, line: Vec::new(), errors: Vec::new() };
            let ended = job.wait(&mut lines);
            let errors = std::mem::take(&mut lines.errors);
            let _ = lines.sender.send(Piece::Ended(ended, errors));
        };
        thread.spawn(listen).map_err(BrainError::Thread)?;
        Ok(Brain { input, pieces, sandbox, counted: (0, 0) })
    }

    pub(crate) fn wall(&self) -> &Wall {
        self.sandbox.wall()
    }

    pub(crate) fn sandbox_id(&self) -> &str {
        self.sandbox.id().as_str()
    }

    pub(crate) fn tell(&self, word: &ToBrain) -> Result<(), BrainError> {
        let mut line = Vec::new();
        write_line(&mut line, word).map_err(|_| BrainError::Deaf)?;
        self.input.write_all(&line).map_err(|_| BrainError::Deaf)
    }

    /// Waits for what it says next.
    pub(crate) fn hear(&self, until: Instant) -> Heard {
        let left = until.saturating_duration_since(Instant::now());
        match self.pieces.recv_timeout(left) {
            Ok(Piece::Line(line)) => match serde_json::from_slice(&line) {
                Ok(said) => Heard::Said(said),
                Err(error) => Heard::Nonsense(error.to_string()),
            },
            Ok(Piece::TooLong) => Heard::Nonsense("a line that is too long".to_owned()),
            Ok(Piece::Ended(how, errors)) => Heard::Ended {
                how: how.map_err(|error| error.to_string()),
                errors: String::from_utf8_lossy(&errors).trim().to_owned(),
            },
            Err(RecvTimeoutError::Timeout) => Heard::Silence,
            Err(RecvTimeoutError::Disconnected) => {
                Heard::Ended { how: Err("it was let go".to_owned()), errors: String::new() }
            }
        }
    }

    /// What its gateway has counted since this was last asked: input and output.
    pub(crate) fn count_tokens(&mut self) -> Option<(u64, u64)> {
        let usage = self.sandbox.network_usage()?;
        let now = (usage.input_tokens, usage.output_tokens);
        let before = std::mem::replace(&mut self.counted, now);
        // A gateway that was started again begins at nothing.
        let since = |now: u64, before: u64| if now < before { now } else { now - before };
        Some((since(now.0, before.0), since(now.1, before.1)))
    }
}

impl Drop for Brain {
    fn drop(&mut self) {
        self.sandbox.killer().kill();
        // Whoever waits to hand over a line is let go.
        while self.pieces.recv_timeout(Duration::from_secs(5)).is_ok() {}
    }
}

fn spec(options: &Options, tokens: u64, seconds: u64) -> SandboxSpec {
    let model = ModelEndpoint {
        shape: match options.model.provider {
            Provider::Anthropic => ModelShape::Anthropic,
            Provider::Openai | Provider::OpenaiResponses => ModelShape::OpenAi,
        },
        base_url: options.model.base_url.clone(),
        key: options.model.key.clone(),
        models: vec![options.model.name.clone()],
        tokens,
    };
    SandboxSpec {
        limits: Limits {
            timeout: Duration::from_secs(seconds.clamp(60, 7 * 24 * 3600)),
            memory_bytes: MEMORY_BYTES,
            disk_bytes: DISK_BYTES,
            pids: PIDS,
            output_bytes: OUTPUT_BYTES,
            ..Limits::default()
        },
        egress: Some(EgressSpec { model: Some(model), ..EgressSpec::default() }),
        ..SandboxSpec::new(Wall::single(RingKind::Process))
    }
}

impl Raising<'_> {
    /// It computes nothing and writes nothing; what it handles are the task's texts.
    fn place(&self) -> Result<Placed, BrainError> {
        let spec = spec(self.options, self.tokens, self.seconds);
        let own = spec.limits.clone();
        let limits = |most: Limits| Limits {
            timeout: most.timeout.min(own.timeout),
            memory_bytes: most.memory_bytes.min(own.memory_bytes),
            disk_bytes: most.disk_bytes.min(own.disk_bytes),
            pids: most.pids.min(own.pids),
            ..most
        };
        self.rules.allow_model(self.task, &self.options.model.base_url)?;
        let notes = BTreeMap::from([("task".to_owned(), self.agent.to_owned())]);
        let (task, work) = (Task::default(), Work::default());
        let plain =
            Asked { spec, wall: None, task, work, notes, network_at_most: None, search: None };
        let asked = match self.rules.is_there() {
            false => plain,
            true => {
                let Task { trust, risk, .. } = *self.task;
                Asked {
                    spec: SandboxSpec { image: self.options.image.clone(), ..plain.spec },
                    task: Task { trust, risk, ..Task::default() },
                    work: Work { tool: None, kind: Some("files".to_owned()) },
                    ..plain
                }
            }
        };
        let placing = Placing {
            asked,
            search: self.rules.search(),
            limits: &limits,
            command: None,
            input: Input::Nothing,
            name: None,
            account: self.agent,
        };
        Ok(self.desk.place(&Caller::System(SystemCaller::Agent), placing)?)
    }
}

/// Cuts what a brain says into lines.
struct Lines {
    sender: SyncSender<Piece>,
    line: Vec<u8>,
    /// The end of what it said on standard error.
    errors: Vec<u8>,
}

impl Lines {
    fn send(&self, piece: Piece) -> io::Result<()> {
        self.sender.send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Output for Lines {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() > MAX_LINE_BYTES {
                self.send(Piece::TooLong)?;
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.line.extend_from_slice(part);
            if part.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                self.send(Piece::Line(line))?;
            }
        }
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.errors.extend_from_slice(bytes);
        let too_many = self.errors.len().saturating_sub(MOST_ERRORS);
        self.errors.drain(..too_many);
        Ok(())
    }
}
