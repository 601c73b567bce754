//! Commands and code: started, followed, cancelled; and the sandboxes that they run in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Event, encoded};
use crate::server::{Done, arguments};
use crate::session::{CallError, Made, Session, wall_of};

/// What an answer carries of each stream; a model reads no more with profit.
pub(crate) const MOST_OUTPUT: usize = 64 << 10;
/// How often a client hears of what is being written.
const BETWEEN_NEWS: Duration = Duration::from_millis(200);
const MOST_NEWS: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    workspace: Option<String>,
    #[serde(default)]
    wall: Option<String>,
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    lifetime_seconds: Option<u64>,
    #[serde(default)]
    memory_mib: Option<u64>,
}

/// The wall and image that count: a person's, if one was settled.
fn walled(
    session: &Session,
    (wall, image): (Option<String>, Option<String>),
) -> Result<(Option<String>, Option<String>), CallError> {
    let settled = |given: Option<String>, settled: &Option<String>, what: &str| match settled {
        None => Ok(given),
        Some(ours) if given.as_ref().is_none_or(|given| given == ours) => Ok(Some(ours.clone())),
        Some(ours) => {
            Err(CallError::Bounds(format!("the {what} of this session is {ours}, and no other")))
        }
    };
    let settings = &session.settings;
    Ok((settled(wall, &settings.wall, "wall")?, settled(image, &settings.image, "image")?))
}

pub(crate) async fn create(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: Create = arguments(given)?;
    session.has_room()?;
    let workspace = session.workspace(asked.workspace.as_deref())?;
    let (wall, image) = walled(session, (asked.wall, asked.image))?;
    let mut limits = json!({});
    if let Some(seconds) = asked.lifetime_seconds {
        limits["timeout_ms"] = json!(seconds.saturating_mul(1000));
    }
    if let Some(mib) = asked.memory_mib {
        limits["memory_bytes"] = json!(mib.saturating_mul(1 << 20));
    }
    let body = json!({
        "wall": wall,
        "image": image,
        "workspace": workspace.as_ref().map(|path| json!({"path": path})),
        "name": asked.name,
        "kind": asked.kind,
        "limits": limits,
    });
    let row = session.api.post("/v1/sandboxes", &body).await?;
    let id = row.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let wall = wall_of(&row);
    let workspace = workspace.map(|path| path.display().to_string());
    let made = Made {
        name: asked.name.clone(),
        wall: wall.clone(),
        workspace: workspace.clone(),
        stopped: false,
    };
    session.remember(&id, made);
    let value = json!({"sandbox": id, "wall": wall, "workspace": workspace, "name": asked.name});
    Ok(Done::ours(value, &wall))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    sandbox: String,
    #[serde(default = "yes")]
    keep: bool,
}

fn yes() -> bool {
    true
}

pub(crate) async fn stop(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: Stop = arguments(given)?;
    let (id, wall) = session.sandbox(&asked.sandbox).await?;
    let path = format!("/v1/sandboxes/{}?keep={}", encoded(&id), asked.keep);
    session.api.delete(&path).await?;
    session.stopped(&id);
    Ok(Done::ours(json!({"sandbox": id, "kept": asked.keep, "wall": wall}), &wall))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exec {
    sandbox: String,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    argv: Option<Vec<String>>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    timeout_seconds: Option<u64>,
    #[serde(default)]
    kind: Option<String>,
}

pub(crate) async fn exec(
    session: &Arc<Session>,
    given: Value,
    context: &RequestContext<RoleServer>,
) -> Result<Done, CallError> {
    let asked: Exec = arguments(given)?;
    let argv = match (asked.command, asked.argv) {
        (Some(line), None) => vec!["sh".to_owned(), "-c".to_owned(), line],
        (None, Some(argv)) => argv,
        _ => return Err(CallError::Arguments("give either `command` or `argv`".to_owned())),
    };
    let command = json!({
        "argv": argv,
        "env": asked.env,
        "cwd": asked.cwd,
        "stdin": asked.stdin,
        "kind": asked.kind,
        "timeout_ms": asked.timeout_seconds.map(|seconds| seconds.saturating_mul(1000)),
    });
    run_in(session, &asked.sandbox, &command, context).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCode {
    language: Language,
    code: String,
    #[serde(default)]
    sandbox: Option<String>,
    #[serde(default)]
    wall: Option<String>,
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    timeout_seconds: Option<u64>,
    #[serde(default)]
    kind: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Language {
    Python,
    Javascript,
    Shell,
}

impl Language {
    fn argv(self, code: String) -> [String; 3] {
        let (program, flag) = match self {
            Language::Python => ("python3", "-c"),
            Language::Javascript => ("node", "-e"),
            Language::Shell => ("sh", "-c"),
        };
        [program.to_owned(), flag.to_owned(), code]
    }
}

pub(crate) async fn run_code(
    session: &Arc<Session>,
    given: Value,
    context: &RequestContext<RoleServer>,
) -> Result<Done, CallError> {
    let asked: RunCode = arguments(given)?;
    let command = json!({
        "argv": asked.language.argv(asked.code),
        "stdin": asked.stdin,
        "kind": asked.kind,
        "timeout_ms": asked.timeout_seconds.map(|seconds| seconds.saturating_mul(1000)),
    });
    if let Some(sandbox) = asked.sandbox {
        if asked.wall.is_some() || asked.image.is_some() {
            let why = "a sandbox has its wall and image already; leave them out";
            return Err(CallError::Arguments(why.to_owned()));
        }
        return run_in(session, &sandbox, &command, context).await;
    }
    let (wall, image) = walled(session, (asked.wall, asked.image))?;
    let workspace = session.workspace(None)?;
    let body = json!({
        "wall": wall,
        "image": image,
        "workspace": workspace.map(|path| json!({"path": path})),
        "kind": asked.kind,
        "command": command,
    });
    // Whoever drops the request ends the run.
    let result = tokio::select! {
        result = session.api.post("/v1/runs", &body) => result?,
        () = context.ct.cancelled() => return Err(CallError::Cancelled),
    };
    let wall = result.pointer("/outcome/wall").and_then(Value::as_str).unwrap_or("unknown");
    let field = |name: &str| result.get(name).cloned().unwrap_or(Value::Null);
    let text = |name: &str| field(name).as_str().map(str::to_owned).unwrap_or_default();
    let mut output = Output::default();
    output.wrote("stdout", text("stdout").as_bytes());
    output.wrote("stderr", text("stderr").as_bytes());
    output.truncated |= field("output_truncated").as_bool().unwrap_or(false);
    let ended = json!({"exit_code": field("exit_code"), "ending": field("ending"),
        "stopped_by": field("stopped_by")});
    Ok(Done::theirs(output.result(&ended, (&text("call"), None), wall), wall))
}

/// What a command wrote, as far as an answer carries it.
#[derive(Debug, Default)]
struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    total: usize,
    truncated: bool,
}

impl Output {
    fn wrote(&mut self, stream: &str, bytes: &[u8]) {
        self.total += bytes.len();
        let kept = if stream == "stderr" { &mut self.stderr } else { &mut self.stdout };
        let room = MOST_OUTPUT.saturating_sub(kept.len());
        self.truncated |= bytes.len() > room;
        kept.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
    }

    fn result(&self, ended: &Value, (call, sandbox): (&str, Option<&str>), wall: &str) -> Value {
        let field = |name: &str| ended.get(name).cloned().unwrap_or(Value::Null);
        json!({
            "exit_code": field("exit_code"),
            "ending": field("ending"),
            "stopped_by": field("stopped_by"),
            "stdout": String::from_utf8_lossy(&self.stdout),
            "stderr": String::from_utf8_lossy(&self.stderr),
            "output_truncated": self.truncated,
            "call": call,
            "sandbox": sandbox,
            "wall": wall,
        })
    }
}

/// Starts a command and follows it to its end, or ends it when the client has had enough.
async fn run_in(
    session: &Arc<Session>,
    sandbox: &str,
    command: &Value,
    context: &RequestContext<RoleServer>,
) -> Result<Done, CallError> {
    let (id, wall) = session.sandbox(sandbox).await?;
    // Not to be cancelled: whoever does not know the call's name cannot kill it.
    let path = format!("/v1/sandboxes/{}/calls", encoded(&id));
    let begun = session.api.post(&path, command).await?;
    let call = begun.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let running = session.begun(&call);
    let followed = tokio::select! {
        followed = follow(session, &call, context) => followed,
        () = context.ct.cancelled() => {
            session.api.delete(&format!("/v1/calls/{call}")).await?;
            running.over();
            return Err(CallError::Cancelled);
        }
    };
    let (output, ended) = followed?;
    running.over();
    if let Some(failed) = ended.pointer("/failed/detail").and_then(Value::as_str) {
        return Err(CallError::Bounds(failed.to_owned()));
    }
    Ok(Done::theirs(output.result(&ended, (&call, Some(&id)), &wall), &wall))
}

async fn follow(
    session: &Session,
    call: &str,
    context: &RequestContext<RoleServer>,
) -> Result<(Output, Value), CallError> {
    let mut events = session.api.events(&format!("/v1/calls/{call}/events")).await?;
    let (mut output, mut last_news) = (Output::default(), None::<Instant>);
    while let Some(event) = events.next().await? {
        match event.kind.as_str() {
            "stdout" | "stderr" => {
                let bytes = written(&event);
                output.wrote(&event.kind, &bytes);
                if last_news.is_none_or(|last| last.elapsed() >= BETWEEN_NEWS) {
                    last_news = Some(Instant::now());
                    news(context, output.total, &bytes).await;
                }
            }
            "missed" => output.truncated = true,
            "ended" => return Ok((output, serde_json::from_str(&event.data).unwrap_or_default())),
            _ => {}
        }
    }
    Err(crate::api::Failure::Unreachable("it ended before the command did".to_owned()).into())
}

/// The bytes of one event.
pub(crate) fn written(event: &Event) -> Vec<u8> {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    let text = data.get("base64").and_then(Value::as_str).unwrap_or_default();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default()
}

/// Tells a client that wants to know how far the command is: how much it wrote, and its last line.
async fn news(context: &RequestContext<RoleServer>, total: usize, bytes: &[u8]) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(MOST_NEWS).collect();
    #[allow(clippy::cast_precision_loss, reason = "a count of bytes for people")]
    let param = ProgressNotificationParam::new(token, total as f64).with_message(line);
    // A client that is gone ends the call by itself.
    let _ = context.peer.notify_progress(param).await;
}
