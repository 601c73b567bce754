//! Reaches a living sandbox through its keeper.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringwall_permit::{Permit, Purpose, SealError, SealKey, SealKeyError, SealedFor};
use ringwall_spec::{Command, SandboxId, SandboxName, ToolTotals};
use ringwall_wire::{
    Answer, CallInside, CallReport, Client, ClientError, ErrorCode, InsideDir, InsideReport,
    RemoteError,
};
use rustix::fs::{Mode, OFlags};

use crate::config::Engine;
use crate::job::{Defaults, Job, Reach, StartError};
use crate::ledger::{self, Ledger, LedgerError, OpenCall};
use crate::record::{Record, RecordKind, RecordState};
use crate::tools::{ToolCall, ToolError, ToolInput, ToolOutcome};

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("sandbox {0} is not running; `ringwall ps` lists those that are")]
    NotRunning(String),
    #[error(
        "sandbox {0} belongs to a `ringwall run` and takes no other commands; use `ringwall create`"
    )]
    NotLiving(String),
    #[error("sandbox {id} does not answer; `ringwall stop {id}` ends it")]
    Connect { id: String, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Key(#[from] SealKeyError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("the sandbox that was kept ready did not answer")]
    Keeper(#[from] ClientError),
}

const TAKE_PATIENCE: Duration = Duration::from_secs(5);

/// A living sandbox of which another process takes care.
#[derive(Debug)]
pub struct Attached {
    client: Client,
    defaults: Defaults,
    output_bytes: u64,
    id: SandboxId,
    ledger: Arc<Ledger>,
    /// Where the key is that seals permits.
    home: PathBuf,
}

impl Engine {
    pub fn attach(&self, record: &Record) -> Result<Attached, AttachError> {
        let id = record.id.to_string();
        if record.state != RecordState::Running {
            return Err(AttachError::NotRunning(id));
        }
        if record.kind != RecordKind::Living {
            return Err(AttachError::NotLiving(id));
        }
        let client = connect(&record.socket_path())
            .and_then(Client::connect)
            .map_err(|source| AttachError::Connect { id, source })?;
        Ok(Attached {
            client,
            defaults: record.defaults.clone(),
            output_bytes: record.limits.output_bytes,
            id: record.id.clone(),
            ledger: self.ledger.clone(),
            home: self.home.clone(),
        })
    }
}

impl Attached {
    /// Has the sandbox kept with its memory.
    pub(crate) fn snapshot(
        &self,
        (id, name): (&SandboxId, Option<&SandboxName>),
        for_fork: bool,
        patience: Duration,
    ) -> Result<(), ClientError> {
        let name = name.map(SandboxName::as_str);
        self.client.snapshot((id.as_str(), name), for_fork, patience)
    }

    /// Runs a command beside what runs there already. At the timeout it is killed with everything
    /// it started; the sandbox lives on.
    pub fn start(&self, command: &Command, timeout: Duration) -> Result<Job, StartError> {
        let (client, defaults) = (&self.client, &self.defaults);
        let call = OpenCall::begin(&self.ledger, &self.id, command)?;
        let reach = Reach::Process(Some(Box::new(call)));
        Job::start(client, command, defaults, timeout, self.output_bytes, reach)
    }

    /// Takes a sandbox that was kept ready, by a permit for the same spec.
    pub fn take(&self, permit: &Permit) -> Result<(), TakeError> {
        let used = SealedFor { sandbox: &self.id, purpose: Purpose::Take };
        let key = SealKey::open_or_make(&self.home)?;
        let numbers = self.ledger.record_numbered(vec![ledger::placed(&self.id, permit)])?;
        let mut permit = permit.clone();
        permit.is_recorded(numbers.first().copied());
        let sealed = key.seal(&permit, used, &())?;
        Ok(self.client.take(sealed, TAKE_PATIENCE)?)
    }

    pub fn files(&self) -> &Client {
        &self.client
    }

    /// Runs a tool in the wasm ring of the sandbox. It must have been compiled, with
    /// [`CodeFor::AnyProcessor`](ringwall_spec::CodeFor) if the sandbox is a guest.
    pub fn call_tool(&self, call: &ToolCall) -> Result<(ToolOutcome, ToolTotals), ToolError> {
        if call.network.is_some() {
            return Err(ToolError::no_network_inside());
        }
        let (args, input) = match &call.input {
            ToolInput::Component { json } => (None, json),
            ToolInput::Command { args, stdin } => (Some(args.clone()), stdin),
        };
        let dirs = call.dirs.iter().map(|dir| InsideDir {
            path: dir.host.as_os_str().as_bytes().to_vec(),
            guest: dir.guest.clone(),
            access: dir.access,
        });
        let limits = call.limits.capped();
        let request = CallInside {
            digest: call.digest,
            program: call.program.clone(),
            args,
            env: call.env.clone(),
            dirs: dirs.collect(),
            limits,
            seed: call.seed,
            wants_http: call.wants_http,
        };
        let most = usize::try_from(limits.output_bytes).unwrap_or(usize::MAX);
        let answer =
            self.client.unless(&call.stop).call_inside(request, input, most).map_err(|error| {
                match error {
                    _ if call.stop.is_stopped() => ToolError::Stopped,
                    ClientError::Remote(RemoteError { code: ErrorCode::NotFound, .. }) => {
                        ToolError::NotCompiled(call.digest)
                    }
                    ClientError::Remote(refusal) => ToolError::Sandbox(refusal.message),
                    other => ToolError::Sandbox(format!("the sandbox did not answer: {other}")),
                }
            })?;
        let Answer { report, output, errors } = answer;
        let InsideReport { called: CallReport { status, meter }, evidence, totals } = report;
        let evidence = Arc::new(evidence);
        Ok((ToolOutcome { status, output, errors, meter, evidence }, totals))
    }
}

/// Socket addresses are at most 108 bytes long, and state directories may be deeper than that: the
/// directory is opened and the socket named below its descriptor.
fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short_name(path, |short| UnixStream::connect(short))
}

pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    with_short_name(path, |short| UnixListener::bind(short))
}

fn with_short_name<T>(path: &Path, open: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty())?;
    open(&Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name))
}
