//! Tools that run as WebAssembly: listed, looked at, called.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ringwall_desk::{Action, BegunCall, CallWish, Caller, Used, Watched, tools_permit};
use ringwall_engine::{PolicySearch, ToolCall, ToolGate, ToolNetwork, ToolOutcome, deciding};
use ringwall_spec::{CodeFor, DirAccess, EgressSpec, RingKind, ToolMeter, ToolStatus, Wall};
use ringwall_store::NewCall;
use ringwall_tool::{Failure, Kind, LimitWishes, Stdout, Tool, ToolName, limits_for};
use ringwall_tool_host::{Allowed, Host, asked};
use ringwall_workspace::{WorkspaceError, resolve_shown};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::new_id;
use crate::admission::Slot;
use crate::caller::Asker;
use crate::fields::{Body, LargeBody, absolute, refuse_names_of_secrets};
use crate::lanes::Whose;
use crate::once::{Key, once};
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::{Living, Service};
use crate::trace;

/// A tool that was installed anew is seen after that time.
const FRESH: Duration = Duration::from_secs(2);
const MOST_KNOWN: usize = 256;

/// Tools that are ready to be called, by name.
#[derive(Debug, Default)]
pub(crate) struct KnownTools {
    by_name: Mutex<HashMap<String, (Instant, Arc<Tool>)>>,
    /// The policy, by the hash of its files.
    gate: Mutex<Option<(blake3::Hash, Arc<ToolGate>)>>,
}

impl KnownTools {
    fn get(&self, name: &str) -> Option<Arc<Tool>> {
        let known = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, tool) = known.get(name)?;
        (since.elapsed() < FRESH).then(|| Arc::clone(tool))
    }

    fn put(&self, name: &str, tool: &Arc<Tool>) {
        let mut known = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(name.to_owned(), (Instant::now(), Arc::clone(tool)));
    }
}

/// A tool
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolEntry {
    name: String,
    version: String,
    digest: String,
    pinned: bool,
    size_bytes: u64,
}

/// List the tools that are installed or built in, and that the caller may call
#[utoipa::path(get, path = "/v1/tools", tag = "tools", responses(
    (status = 200, body = Vec<ToolEntry>),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn list(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
) -> Result<Json<Vec<ToolEntry>>, Problem> {
    // What is built in may have to be compiled first.
    let slot = service.admission.enter(caller.tenant(), 0).await?;
    let entries = service
        .job(slot, move |service, _slot| {
            let crew = crew(service, &caller)?;
            let mut entries = Vec::new();
            for entry in service.tools.list(crew.tools()?)? {
                if service.desk().has_tool(&caller, &entry.name)? {
                    entries.push(entry);
                }
            }
            Ok(entries)
        })
        .await?;
    let entries = entries.into_iter().map(|entry| ToolEntry {
        name: entry.name,
        version: entry.version,
        digest: entry.digest.to_string(),
        pinned: entry.pinned,
        size_bytes: entry.bytes,
    });
    Ok(Json(entries.collect()))
}

fn crew(service: &Service, caller: &Caller) -> Result<Arc<crate::engines::Crew>, Problem> {
    service.engines.of(caller.tenant()).map_err(|error| Problem::internal(&error))
}

fn find(service: &Service, host: &Host, name: &str) -> Result<Arc<Tool>, Problem> {
    if let Some(tool) = service.known_tools.get(name) {
        return Ok(tool);
    }
    let parsed: ToolName = name.parse()?;
    let entry = service.tools.find(&parsed, host)?;
    let tool = Arc::new(service.tools.open_tool(&entry, host)?);
    service.known_tools.put(name, &tool);
    Ok(tool)
}

/// What a tool says of itself
#[utoipa::path(get, path = "/v1/tools/{name}", tag = "tools", params(("name" = String, Path)), responses(
    (status = 200, body = Object),
    (status = "default", body = ProblemBody, content_type = "application/problem+json"),
))]
pub(crate) async fn inspect(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let slot = service.admission.enter(caller.tenant(), 0).await?;
    service
        .job(slot, move |service, _slot| {
            let tool = find(service, crew(service, &caller)?.tools()?, &name)?;
            let manifest = serde_json::to_value(tool.manifest());
            let manifest = manifest.map_err(|error| Problem::internal(&error))?;
            Ok(Json(json!({ "digest": tool.digest, "manifest": manifest })))
        })
        .await
}

/// A directory that the tool may use
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirFields {
    /// Where the tool sees it
    guest: String,
    /// Of the host, or of the sandbox. A grant must allow to read a directory of the host
    path: String,
    /// Let the tool write there. On the host it is for the owner only
    #[serde(default)]
    write: bool,
}

/// Limits that differ from the tool's own wishes
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolLimitFields {
    time_ms: Option<u64>,
    memory_bytes: Option<u64>,
    output_bytes: Option<u64>,
    fuel: Option<u64>,
}

/// One call
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ToolFields {
    /// As the tool's schema says; an empty object if nothing is said
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// The same seed and input give the same output
    seed: Option<u64>,
    dirs: Vec<DirFields>,
    env: BTreeMap<String, String>,
    limits: ToolLimitFields,
    /// A sandbox whose wall ends in `wasm`, to call it in
    sandbox: Option<String>,
    /// Whose policy counts, too, with those of the directories above it; for the owner
    policy_directory: Option<String>,
    /// Show what was checked of the ring that it ran in
    evidence: bool,
}

/// What came of a call
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolResult {
    call: String,
    tool: String,
    version: String,
    digest: String,
    /// What the tool gave, if it gave something
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    output: Option<Value>,
    /// Why it gave nothing: `code` and `message`
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    /// As `ringwall tool call` exits
    exit_code: u8,
    /// What ended it before its own time, such as `budget:fuel`
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<String>,
    /// How the call ended, such as `returned` or `timeout`
    #[schema(value_type = Object)]
    status: Value,
    /// Standard error, and what the tool logged
    log: String,
    /// The output has all of the log already
    log_is_output: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    evidence: Option<Value>,
    /// Time, fuel, memory and bytes
    #[schema(value_type = Object)]
    meter: Value,
}

/// Call a tool
#[utoipa::path(post, path = "/v1/tools/{name}/call", tag = "tools", request_body = ToolFields,
    params(
        ("name" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key does the same thing once"),
    ),
    responses(
        (status = 200, body = ToolResult),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn call(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(name): Path<String>,
    key: Key,
    request: Request,
) -> Result<Response, Problem> {
    // Before anything of the body is read: it can be large.
    let (asking, parsed) = (caller.clone(), name.parse::<ToolName>()?);
    let may_use =
        move |service: &Arc<Service>| Ok(service.desk().may_use_tool(&asking, parsed.name())?);
    service.work(Whose::of(&caller), may_use).await?;
    let Body(fields, held) = LargeBody::<ToolFields>::from_request(request, &service).await?;
    let request = ("tool", &(&name, &fields));
    let work = {
        let (service, caller) = (Arc::clone(&service), caller.clone());
        let (name, fields) = (name.clone(), fields.clone());
        async move {
            let _held = held;
            let slot = service.admission.enter(caller.tenant(), 0).await?;
            let call = move |service: &Arc<Service>, _slot: Slot| {
                let result = call_now(service, &caller, &name, fields);
                let word = match &result {
                    Ok(result) if result.error.is_none() => "ok",
                    Ok(_) => "failed",
                    Err(_) => "error",
                };
                service.metrics.call("tool", word);
                result
            };
            service.job(slot, call).await
        }
    };
    once(&service, &caller, key, request, (StatusCode::OK, work)).await
}

fn call_now(
    service: &Service,
    caller: &Caller,
    name: &str,
    fields: ToolFields,
) -> Result<ToolResult, Problem> {
    let crew = crew(service, caller)?;
    let host = crew.tools()?;
    let tool = find(service, host, name)?;
    service.desk().may_use_tool(caller, tool.identity())?;
    let place = fields.sandbox.as_deref().map(|id| service.attach(caller, id)).transpose()?;
    if let Some(living) = &place {
        service.enter(caller, &living.record, Action::CallTool)?;
    }
    if place.as_ref().is_some_and(|living| living.record.wall.outermost() == RingKind::Vm) {
        // Code for guests is compiled apart.
        let host = Host::new(crew.engine.tools_with(CodeFor::AnyProcessor, &tools_permit)?);
        let (entry, guests) = (service.tools.find(&name.parse()?, &host)?, &host);
        service.tools.open_tool(&entry, guests)?;
    }
    let (gate, evidence) = (gate(service, caller, &fields)?, fields.evidence);
    // For the person who may be asked; the owner is refused nothing that a person could allow.
    let shown = matches!(caller, Caller::Holder(_)).then(|| fields.clone()).unwrap_or_default();
    let mut call = prepare(service, caller, (&tool, place.is_some()), fields)?;
    let alone = Wall::single(RingKind::Wasm);
    let (wall, sandbox) = match &place {
        Some(living) => (&living.record.wall, Some(&living.record.id)),
        None => (&alone, None),
    };
    let id = new_id();
    let engine = &service.engine;
    let wanted = &tool.manifest().wants.http;
    // Tools in a sandbox reach nothing.
    let egress = match sandbox {
        None => {
            let network = service.desk().network_of_tool(caller, (&gate, wanted), None);
            network.map_err(|refused| service.told(refused))?
        }
        Some(_) => None,
    };
    let parameters = parameters(&tool, &shown, (wall, egress.as_ref()))?;
    let search = PolicySearch::from_environment(None);
    let wish = CallWish {
        asked: asked(&tool, &call, (wall, sandbox)),
        gate: &gate,
        search: &search,
        limits: call.limits,
        account: &id,
    };
    let begun = service.desk().begin_call(caller, wish, || parameters);
    let begun = begun.map_err(|refused| service.told(refused))?;
    let BegunCall { entry, limits, reservation, elevated: _elevated } = begun;
    call.limits = limits;
    let variables = tool.manifest().wants.env.clone();
    call.network = egress.map(|egress| ToolNetwork { egress, variables, entry: entry.clone() });
    let new = NewCall {
        id: &id,
        tenant: caller.tenant(),
        task: caller.task(),
        sandbox: sandbox.map(|id| id.as_str()),
        kind: "tool",
        what: tool.name(),
    };
    service.store.begin_call(&new)?;
    let called = trace::part("tool call", |span| {
        span.note("ringwall.tool", tool.name());
        span.note("ringwall.call", id.as_str());
        let called = call_there((service, caller), (host, place.as_deref()), &call);
        span.note("ringwall.fuel", called.as_ref().map_or(0, |outcome| outcome.meter.fuel));
        called
    });
    let (status, meter) = match &called {
        Ok(outcome) => (Some(&outcome.status), outcome.meter),
        Err(_) => (None, ToolMeter::default()),
    };
    engine.end_tool(entry, status, meter)?;
    let ran_out = matches!(status, Some(ToolStatus::OutOfFuel | ToolStatus::Timeout));
    let stopped_by = reservation.stopped_by(ran_out);
    // Of a call that was lost nothing is known, so nothing is given back.
    if called.is_ok() {
        reservation.settle(Used::of_tool(&meter))?;
    }
    let summary = json!({ "status": status, "meter": meter }).to_string();
    service.store.end_call(&new, &summary)?;
    Ok(ToolResult { stopped_by, ..result(&id, &tool, &called?, evidence) })
}

/// All of what a person would allow by letting this tool be called.
fn parameters(
    tool: &Tool,
    fields: &ToolFields,
    (wall, egress): (&Wall, Option<&EgressSpec>),
) -> Result<BTreeMap<String, String>, Problem> {
    let text = |value: serde_json::Result<String>| value.map_err(|error| Problem::internal(&error));
    let parameters = [
        ("digest", tool.digest.to_string()),
        ("wall", wall.to_string()),
        ("input", text(serde_json::to_string(&fields.input))?),
        ("directories", text(serde_json::to_string(&fields.dirs))?),
        ("variables", text(serde_json::to_string(&fields.env))?),
        ("limits", text(serde_json::to_string(&fields.limits))?),
        ("network", text(serde_json::to_string(&egress))?),
        ("seed", text(serde_json::to_string(&fields.seed))?),
    ];
    Ok(parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The policy that counts for a call, as it is at this moment.
fn gate(service: &Service, caller: &Caller, fields: &ToolFields) -> Result<Arc<ToolGate>, Problem> {
    if let Some(directory) = &fields.policy_directory {
        caller.must_be_owner()?;
        let search = PolicySearch::from_environment(Some(absolute(directory)?));
        return Ok(Arc::new(deciding(|| ToolGate::open(&search))?));
    }
    let search = PolicySearch::from_environment(None);
    // The files are read for every call, and made sense of only when they have changed.
    let found = blake3::hash(format!("{:?}", search.read()?).as_bytes());
    let mut known = service.known_tools.gate.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((hash, gate)) if *hash == found => Ok(Arc::clone(gate)),
        _ => {
            let gate = Arc::new(deciding(|| ToolGate::open(&search))?);
            *known = Some((found, Arc::clone(&gate)));
            Ok(gate)
        }
    }
}

/// The call ends when the grant of its caller does.
fn call_there(
    (service, caller): (&Service, &Caller),
    (host, place): (&Host, Option<&Living>),
    call: &ToolCall,
) -> Result<ToolOutcome, Problem> {
    let (what, stop) = (format!("a call of {}", call.program), call.stop.clone());
    let _lease = service.books.lease(caller, Watched { what, end: Box::new(move || stop.stop()) });
    match place {
        None => Ok(host.tools.call(call)?),
        Some(living) => Ok(living.attached.call_tool(call)?.0),
    }
}

/// The owner's paths may have links in them.
fn canonical(path: &std::path::Path) -> Result<PathBuf, Problem> {
    refuse_names_of_secrets(path)?;
    resolve_shown(path).map_err(|error| match error {
        WorkspaceError::LinkOutside { .. } => error.into(),
        _ => Problem::new(Code::NotGranted, format!("{path:?} cannot be used")),
    })
}

/// Checks what the call brings and wants.
fn prepare(
    service: &Service,
    caller: &Caller,
    (tool, in_sandbox): (&Tool, bool),
    fields: ToolFields,
) -> Result<ToolCall, Problem> {
    let refused = |failure: Failure| Problem::new(Code::BadRequest, failure.message);
    let input = fields.input.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let bytes = input.to_string().len();
    let request = tool.request_of(input, bytes).map_err(refused)?;
    let mut dirs = Vec::new();
    for dir in fields.dirs {
        let mut host = absolute(&dir.path)?;
        if !in_sandbox {
            service.desk().may_use_path(caller, &host, dir.write)?;
            // Resolved once: what is decided about is what the tool gets.
            host = canonical(&host)?;
        }
        let access = if dir.write { DirAccess::Write } else { DirAccess::Read };
        dirs.push(ringwall_tool::DirGrant { guest: dir.guest, host, access });
    }
    let manifest = tool.manifest();
    let env = fields.env.into_iter().collect();
    let grants = manifest.wants.narrow(ringwall_tool::Grants { dirs, env })?;
    let asked = LimitWishes {
        time_ms: fields.limits.time_ms,
        memory_bytes: fields.limits.memory_bytes,
        output_bytes: fields.limits.output_bytes,
        fuel: fields.limits.fuel,
    };
    let limits = limits_for(&manifest.limits, &asked)?;
    Ok(Allowed { grants, limits, seed: fields.seed }.call_of(tool, request))
}

fn result(id: &str, tool: &Tool, outcome: &ToolOutcome, evidence: bool) -> ToolResult {
    let status: &ToolStatus = &outcome.status;
    let given = tool.result(status, &outcome.output, &outcome.errors);
    // A program's exit code is part of what it returned; the call itself went well.
    let exit_code = match (&given, status) {
        (Ok(_), _) => 0,
        (Err(_), ToolStatus::Returned | ToolStatus::Exited { .. }) => 1,
        (Err(_), other) => other.exit_code(),
    };
    let manifest = tool.manifest();
    let shown = |value: serde_json::Result<Value>| value.unwrap_or(Value::Null);
    let (output, error) = match given {
        Ok(output) => (Some(output), None),
        Err(failure) => (None, Some(json!({ "code": failure.code, "message": failure.message }))),
    };
    ToolResult {
        call: id.to_owned(),
        tool: tool.name().to_owned(),
        version: tool.manifest().version.clone(),
        digest: tool.digest.to_string(),
        output,
        error,
        exit_code,
        stopped_by: None,
        status: shown(serde_json::to_value(status)),
        evidence: evidence.then(|| shown(serde_json::to_value(&*outcome.evidence))),
        log: String::from_utf8_lossy(&outcome.errors).into_owned(),
        log_is_output: manifest.kind == Kind::Command
            && manifest.command.as_ref().is_some_and(|command| command.stdout == Stdout::Text),
        meter: shown(serde_json::to_value(outcome.meter)),
    }
}
