//! What requests and answers are made of.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use ringwall_desk::Caller;
use ringwall_engine::{Asked, PolicySearch};
use ringwall_policy::{Task, Work};
use ringwall_spec::{
    Command, EgressSpec, Ending, Limits, RingKind, RuleSet, SandboxSpec, TerminalSize, Wall,
    WorkspaceMode, WorkspaceSpec,
};
use ringwall_store::{CallRow, SandboxRow};
use ringwall_workspace::{WorkspaceError, names_secret, open_workspace, resolve_shown};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::live::Captured;
use crate::problem::{Code, Problem};
use crate::service::engine_name_for;

pub(crate) use crate::body::{Body, LargeBody, Params};

/// Limits that differ from the defaults
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitFields {
    /// How long a run takes at most, or how long a sandbox lives
    timeout_ms: Option<u64>,
    memory_bytes: Option<u64>,
    /// Thousandths of a CPU
    cpu_milli: Option<u32>,
    pids: Option<u32>,
    disk_bytes: Option<u64>,
    disk_inodes: Option<u64>,
    output_bytes: Option<u64>,
    open_files: Option<u32>,
}

impl LimitFields {
    pub(crate) fn cap_timeout(&mut self, most: Duration) {
        let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        let asked = self.over(Limits::default()).timeout.as_millis();
        if u128::from(most) < asked {
            self.timeout_ms = Some(most);
        }
    }

    pub(crate) fn over(&self, default: Limits) -> Limits {
        let timeout = self.timeout_ms.map(Duration::from_millis);
        Limits {
            timeout: timeout.unwrap_or(default.timeout),
            memory_bytes: self.memory_bytes.unwrap_or(default.memory_bytes),
            cpu_milli: self.cpu_milli.unwrap_or(default.cpu_milli),
            pids: self.pids.unwrap_or(default.pids),
            disk_bytes: self.disk_bytes.unwrap_or(default.disk_bytes),
            disk_inodes: self.disk_inodes.unwrap_or(default.disk_inodes),
            output_bytes: self.output_bytes.unwrap_or(default.output_bytes),
            open_files: self.open_files.unwrap_or(default.open_files),
        }
    }
}

/// A directory of the host that the job sees
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceFields {
    /// Absolute. A grant must allow to read it
    pub(crate) path: String,
    /// Writes go straight to the host: no diff, no disk limit, nothing protected. For the owner only
    #[serde(default)]
    pub(crate) read_write: bool,
}

/// What a sandbox may reach; a policy decides first, and this narrows it
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NetworkFields {
    /// `presets`, `allow` and `deny`, as `ringwall run --net-rules` takes them
    #[schema(value_type = Option<Object>)]
    rules: Option<serde_json::Value>,
    /// Names of secrets that may be used at the endpoints to which they are bound
    secrets: Vec<String>,
    /// Serve programs that know no proxy, too
    transparent: bool,
}

impl NetworkFields {
    fn egress(&self) -> Result<EgressSpec, Problem> {
        let rules = self.rules.clone().map(serde_json::from_value::<RuleSet>).transpose();
        let wrong = |error: serde_json::Error| {
            Problem::new(Code::BadRequest, format!("the rules of the network are wrong: {error}"))
        };
        Ok(EgressSpec {
            layers: rules.map_err(wrong)?.into_iter().collect(),
            secrets: self.secrets.clone(),
            transparent: self.transparent,
            model: None,
            sent_bytes: None,
        })
    }
}

/// The sandbox that is asked for
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SandboxFields {
    /// The rings round the job, outermost first: `process`, `container`, `vm/container`
    wall: Option<String>,
    /// The image of a container or vm ring
    image: Option<String>,
    workspace: Option<WorkspaceFields>,
    /// More paths of the host, shown read-only. A grant must allow to read them
    read_only: Vec<String>,
    /// Without it, what the policy gives
    network: Option<NetworkFields>,
    /// The tenant's own name for it
    pub(crate) name: Option<String>,
    pub(crate) limits: LimitFields,
    /// The kind of work, for the policy: `compute`, `files`, `build` or `untrusted`
    kind: Option<String>,
    /// The phase that the task is in, for the policy
    phase: Option<String>,
    /// Whose policy counts, too, with those of the directories above it, where there is no workspace; for
    /// the owner
    policy_directory: Option<String>,
    /// What to run: for a run, or in the background of a sandbox that lives on
    pub(crate) command: Option<CommandFields>,
}

/// What a request is let in with, before any thread is taken for it.
pub(crate) const LIFETIME: Duration = Duration::from_secs(3600);

impl SandboxFields {
    /// What is kept ready: nothing but a wall.
    pub(crate) fn plain(wall: &str, image: Option<&str>) -> SandboxFields {
        let (wall, image) = (Some(wall.to_owned()), image.map(str::to_owned));
        SandboxFields { wall, image, ..SandboxFields::default() }
    }

    /// Whether it is this wall and image that was admitted.
    pub(crate) fn asks_for(&self, spec: &SandboxSpec) -> bool {
        self.wall.as_deref() == Some(spec.wall.to_string().as_str()) && self.image == spec.image
    }

    pub(crate) fn memory(&self) -> u64 {
        self.limits.over(Limits::default()).memory_bytes
    }

    /// The paths of the host that it would see, and whether it would write straight to them.
    pub(crate) fn paths(&self) -> Result<Vec<(PathBuf, bool)>, Problem> {
        let workspace = self.workspace.iter().map(|it| (&it.path, it.read_write));
        let shown = self.read_only.iter().map(|path| (path, false));
        workspace.chain(shown).map(|(path, writes)| Ok((absolute(path)?, writes))).collect()
    }

    pub(crate) fn asked(
        &self,
        caller: &Caller,
        default: Limits,
    ) -> Result<(Asked, PolicySearch), Problem> {
        let named = self.wall.as_deref().map(str::parse::<Wall>).transpose()?;
        let fitting = if self.image.is_some() { RingKind::Container } else { RingKind::Process };
        let workspace = match &self.workspace {
            None => None,
            Some(fields) => Some(workspace(fields)?),
        };
        let read_only = self.read_only.iter().map(|path| {
            // Resolved once. What does not exist is told later, to those who may know.
            let path = absolute(path)?;
            refuse_names_of_secrets(&path)?;
            match resolve_shown(&path) {
                Ok(real) => Ok(real),
                // The grant of a holder decides about where the link leads.
                Err(WorkspaceError::LinkOutside { .. }) if caller.holder().is_some() => {
                    Ok(path.canonicalize().unwrap_or(path))
                }
                Err(error @ WorkspaceError::LinkOutside { .. }) => Err(error.into()),
                Err(_) => Ok(path),
            }
        });
        let read_only = read_only.collect::<Result<_, Problem>>();
        // Checked whoever asks: it is the engine's name only for the owner.
        let name =
            self.name.as_deref().map(str::parse::<ringwall_spec::SandboxName>).transpose()?;
        let own = engine_name_for(caller, self.name.as_deref()).is_some();
        let spec = SandboxSpec {
            wall: named.clone().unwrap_or_else(|| Wall::single(fitting)),
            image: self.image.clone(),
            workspace,
            rights: None,
            read_only_paths: read_only?,
            limits: self.limits.over(default),
            name: name.filter(|_| own),
            egress: self.network.as_ref().map(NetworkFields::egress).transpose()?,
            own_filters: false,
        };
        let shared = spec.workspace.as_ref().filter(|it| it.mode == WorkspaceMode::ReadWrite);
        if self.policy_directory.is_some() {
            caller.must_be_owner()?;
        }
        let from = spec.workspace.as_ref().map(|it| Ok(it.path.clone()));
        let from = from.or_else(|| self.policy_directory.as_deref().map(absolute)).transpose()?;
        let search = PolicySearch {
            written_by_sandbox: shared.map(|it| it.path.clone()),
            ..PolicySearch::from_environment(from)
        };
        let task = Task { phase: self.phase.clone(), ..Task::default() };
        let work = Work { tool: None, kind: self.kind.clone() };
        let asked = Asked {
            spec,
            wall: named,
            task,
            work,
            notes: BTreeMap::new(),
            network_at_most: None,
            search: Some(search.clone()),
        };
        Ok((asked, search))
    }
}

fn workspace(fields: &WorkspaceFields) -> Result<WorkspaceSpec, Problem> {
    let path = absolute(&fields.path)?;
    let mode = match fields.read_write {
        true => WorkspaceMode::ReadWrite,
        false => WorkspaceMode::CopyOnWrite,
    };
    Ok(WorkspaceSpec { path: open_workspace(&path)?.path().to_owned(), mode })
}

/// The owner's paths may have links in them, and what these are called is forgotten once they are resolved.
pub(crate) fn refuse_names_of_secrets(path: &Path) -> Result<(), Problem> {
    if !names_secret(path) {
        return Ok(());
    }
    let why = format!(
        "{path:?} cannot be shown: a link with the name of a secret leads there, so it is hidden from sandboxes; to let a sandbox use a key, give it a secret of the policy"
    );
    Err(Problem::new(Code::Refused, why))
}

pub(crate) fn absolute(path: &str) -> Result<PathBuf, Problem> {
    if path.contains('\0') || !Path::new(path).is_absolute() {
        let why = format!("{path:?} must be an absolute path: the daemon has its own directory");
        return Err(Problem::new(Code::BadRequest, why));
    }
    Ok(PathBuf::from(path))
}

/// A command
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandFields {
    /// The program and its arguments
    pub(crate) argv: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// The working directory inside the sandbox
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    /// What the command gets as standard input
    #[serde(default)]
    pub(crate) stdin: Option<String>,
    /// When it is killed, if before the sandbox's own limit
    #[serde(default)]
    pub(crate) timeout_ms: Option<u64>,
    /// The kind of work: the policy must let it run behind the sandbox's wall
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// Of a terminal that was opened for it.
    #[serde(skip)]
    #[schema(ignore)]
    pub(crate) terminal: Option<TerminalSize>,
    /// Whether standard input comes from a client that is attached to it.
    #[serde(skip)]
    #[schema(ignore)]
    pub(crate) input: Option<bool>,
}

impl CommandFields {
    pub(crate) fn command(&self) -> Result<Command, Problem> {
        let wrong = |why: &str| Problem::new(Code::BadRequest, why);
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(wrong("argv must name a program"));
        }
        let pairs = self.env.iter().flat_map(|(key, value)| [key, value]);
        let all = self.argv.iter().chain(pairs).chain(&self.cwd);
        if all.into_iter().any(|text| text.contains('\0')) {
            return Err(wrong("no text may have a byte of zero in it"));
        }
        if self.env.keys().any(|key| key.is_empty() || key.contains('=')) {
            return Err(wrong("the name of a variable is not empty and has no `=`"));
        }
        Ok(Command {
            argv: self.argv.iter().map(Into::into).collect(),
            env: self.env.iter().map(|(key, value)| (key.into(), value.into())).collect(),
            cwd: self.cwd.as_ref().map(Into::into),
            terminal: self.terminal,
            stdin: self.input.unwrap_or(self.stdin.is_some() || self.terminal.is_some()),
        })
    }

    /// For a client that is attached to it.
    pub(crate) fn attached(self, stdin: bool, terminal: Option<TerminalSize>) -> CommandFields {
        CommandFields { stdin: None, input: Some(stdin), terminal, ..self }
    }
}

/// How a command ended, and what it wrote
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommandResult {
    pub(crate) call: String,
    /// As a shell would report it; 124 for a time limit, 137 for another
    pub(crate) exit_code: u8,
    /// `exited`, `signaled`, `timeout`, `oom`, `output-limit`, `stopped` or `guest-lost`
    pub(crate) ending: String,
    /// What ended it before its own time, such as `budget:wall_seconds`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped_by: Option<String>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The bytes, where they are no text
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stderr_base64: Option<String>,
    /// There was more than is kept for an answer; follow a call to see all
    pub(crate) output_truncated: bool,
    /// Of a run: its evidence, limits and usage, as `ringwall run -o json` prints them
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) outcome: Option<Value>,
}

impl CommandResult {
    pub(crate) fn new(call: &str, ending: Ending, output: Captured) -> CommandResult {
        let encoded = |bytes: &[u8]| {
            let whole = std::str::from_utf8(bytes).is_err();
            whole.then(|| base64::engine::general_purpose::STANDARD.encode(bytes))
        };
        CommandResult {
            call: call.to_owned(),
            exit_code: ending.exit_code(),
            ending: ending_word(ending),
            stopped_by: None,
            stdout_base64: encoded(&output.stdout),
            stderr_base64: encoded(&output.stderr),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            output_truncated: output.truncated,
            outcome: None,
        }
    }
}

pub(crate) fn ending_word(ending: Ending) -> String {
    let word = match ending {
        Ending::Exited { .. } => "exited",
        Ending::Signaled { .. } => "signaled",
        Ending::Timeout => "timeout",
        Ending::Oom => "oom",
        Ending::OutputLimit => "output-limit",
        Ending::Stopped => "stopped",
        Ending::GuestLost => "guest-lost",
    };
    word.to_owned()
}

/// A sandbox
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Empty for the owner's
    tenant: String,
    task: String,
    /// `running` or `ended`
    state: String,
    created_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_unix_ms: Option<u64>,
    /// Its wall, image, workspace and limits
    #[schema(value_type = Object)]
    spec: Value,
    /// How it ended, where that is known
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    outcome: Option<Value>,
    /// Of one that was just made: what people should know of what it can reach
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warning: Option<String>,
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

impl From<SandboxRow> for Sandbox {
    fn from(row: SandboxRow) -> Sandbox {
        let outcome = row.outcome.as_deref().map(parsed).filter(|value| !value.is_null());
        Sandbox {
            id: row.id,
            name: row.name,
            tenant: row.tenant,
            task: row.task,
            state: row.state.word().to_owned(),
            created_unix_ms: row.created_ms,
            ended_unix_ms: row.ended_ms,
            spec: parsed(&row.spec),
            outcome,
            warning: None,
        }
    }
}

/// A command or tool that was run
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Call {
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    task: String,
    /// `exec`, `run` or `tool`
    kind: String,
    what: String,
    /// `running`, `ended`, or `lost` if the daemon ended before it did
    state: String,
    started_unix_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_unix_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    result: Option<Value>,
}

impl From<CallRow> for Call {
    fn from(row: CallRow) -> Call {
        Call {
            id: row.id,
            sandbox: row.sandbox,
            task: row.task,
            kind: row.kind,
            what: row.what,
            state: row.state.word().to_owned(),
            started_unix_ms: row.started_ms,
            ended_unix_ms: row.ended_ms,
            result: row.result.as_deref().map(parsed).filter(|value| !value.is_null()),
        }
    }
}

/// Which page of a list
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// At most so many, 1 to 500
    #[serde(default = "page_size")]
    #[param(default = 100, minimum = 1, maximum = 500)]
    limit: u32,
    /// `next` of the page before
    cursor: Option<u64>,
}

fn page_size() -> u32 {
    100
}

impl Page {
    pub(crate) fn bounds(&self) -> Result<(Option<u64>, u32), Problem> {
        if !(1..=500).contains(&self.limit) {
            return Err(Problem::new(Code::BadRequest, "limit must be 1 to 500"));
        }
        Ok((self.cursor, self.limit))
    }
}

/// The cursor behind a page that is full; one that is not is the last.
pub(crate) fn next_cursor<R>(rows: &[R], most: u32, number: impl Fn(&R) -> u64) -> Option<u64> {
    rows.last().filter(|_| rows.len() == most as usize).map(number)
}
