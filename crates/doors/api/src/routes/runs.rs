//! Commands that are waited for: in a sandbox that lives, or behind a fresh wall.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ringwall_desk::{Action, Caller, Elevated, Exec, Input, Permit, Placed, Share, Used, Watched};
use ringwall_engine::{Job, Killer, Output, RunError, StartError};
use ringwall_spec::{Command, Ending, Limits, Outcome};
use ringwall_store::NewCall;
use ringwall_wire::ProcessInput;
use rustix::process::Signal;
use serde_json::json;

use super::{new_id, sandboxes};
use crate::body;
use crate::caller::Asker;
use crate::fields::{Body, CommandFields, CommandResult, LargeBody, SandboxFields, ending_word};
use crate::guard::Guard;
use crate::lanes::Whose;
use crate::live::Captured;
use crate::once::{Key, once};
use crate::problem::{Code, Problem, ProblemBody};
use crate::service::Service;
use crate::trace;

/// Run a command in a sandbox and wait for its end
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", tag = "calls", request_body = CommandFields,
    params(
        ("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same key does the same thing once"),
    ),
    responses(
        (status = 200, body = CommandResult),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn exec(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    Path(id): Path<String>,
    key: Key,
    request: Request,
) -> Result<Response, Problem> {
    may_exec(&service, (&caller, &id), request.headers()).await?;
    let Body(fields, held) = LargeBody::<CommandFields>::from_request(request, &service).await?;
    let work = {
        let (service, caller) = (Arc::clone(&service), caller.clone());
        let (id, fields) = (id.clone(), fields.clone());
        async move {
            let _held = held;
            exec_now(&service, &caller, &id, &fields).await
        }
    };
    let request = ("exec", &(&id, &fields));
    once(&service, &caller, key, request, (StatusCode::OK, work)).await
}

/// Checks before a large body is read that a holder may use this sandbox. For a sandbox that has ended there may
/// be an answer that was kept.
pub(crate) async fn may_exec(
    service: &Arc<Service>,
    (caller, id): (&Caller, &str),
    headers: &HeaderMap,
) -> Result<(), Problem> {
    if matches!(caller, Caller::Owner) || body::is_short(headers) {
        return Ok(());
    }
    let (whose, caller, id) = (Whose::of(caller), caller.clone(), id.to_owned());
    let may = move |service: &Arc<Service>| match service.attach(&caller, &id) {
        Ok(living) => Ok(service.desk().may_enter(&caller, &living.record, "exec")?),
        Err(problem) if problem.word() == "not-running" => Ok(()),
        Err(problem) => Err(problem),
    };
    service.work(whose, may).await
}

async fn exec_now(
    service: &Arc<Service>,
    caller: &Caller,
    id: &str,
    fields: &CommandFields,
) -> Result<CommandResult, Problem> {
    let slot = service.admission.enter(caller.tenant(), 0).await?;
    let (caller, id, fields) = (caller.clone(), id.to_owned(), fields.clone());
    let guard = Guard::default();
    let _watch = guard.watch();
    service
        .job(slot, move |service, _slot| {
            let mut output = Captured::default();
            let started = |job: &Job| {
                let input = job.input();
                guard.arm(move || input.signal(Signal::KILL.as_raw()));
            };
            let ended = exec_in(service, &caller, (&id, &new_id()), &fields, started, &mut output)?;
            guard.disarm();
            let result = CommandResult::new(&ended.call, ended.ending, output);
            Ok(CommandResult { stopped_by: ended.stopped_by, ..result })
        })
        .await
}

/// How a command in a sandbox ended.
pub(crate) struct Ended {
    pub(crate) call: String,
    pub(crate) ending: Ending,
    pub(crate) stopped_by: Option<String>,
    /// Those that it had.
    pub(crate) limits: Limits,
}

impl Ended {
    /// As the store keeps it.
    pub(crate) fn summary(&self) -> String {
        json!({
            "ending": ending_word(self.ending),
            "exit_code": self.ending.exit_code(),
            "stopped_by": self.stopped_by,
        })
        .to_string()
    }
}

/// Runs a command in a sandbox that lives, with all that is written down and spent for it.
pub(crate) fn exec_in(
    service: &Service,
    caller: &Caller,
    (id, call): (&str, &str),
    fields: &CommandFields,
    started: impl FnOnce(&Job),
    output: &mut dyn Output,
) -> Result<Ended, Problem> {
    let command = fields.command()?;
    let living = service.attach(caller, id)?;
    let sandbox = living.record.id.as_str();
    let asked = Exec {
        kind: fields.kind.as_deref(),
        command: &command,
        input: Input::of(&command, fields.stdin.as_deref()),
        timeout: fields.timeout_ms.map(Duration::from_millis),
    };
    let elevated = service.enter(caller, &living.record, Action::Exec(&asked))?;
    let limits = &living.record.limits;
    let left = elevated.as_ref().map_or(Duration::MAX, Elevated::left);
    let timeout = asked.timeout.unwrap_or(limits.timeout).min(limits.timeout).min(left);
    let timeout = timeout.min(caller.life()).max(Duration::from_millis(1));
    // The sandbox pays for what runs in it.
    let reservation = service.reserve(caller, call, Share::of_command())?;
    let words = command.words().join(" ");
    let new = NewCall {
        id: call,
        tenant: caller.tenant(),
        task: caller.task(),
        sandbox: Some(sandbox),
        kind: "exec",
        what: shortened(&words),
    };
    let mut span = trace::span("exec");
    span.note("ringwall.sandbox", sandbox);
    span.note("ringwall.call", call);
    let ran = living.attached.start(&command, timeout).map_err(Problem::from);
    // The audit log knew of it before it started; here it is written down while it runs.
    service.store.begin_call(&new)?;
    let ran = ran.and_then(|job| {
        let killed = job.input();
        let _lease = service.books.lease(
            caller,
            Watched {
                what: format!("a command in {sandbox}"),
                end: Box::new(move || killed.signal(Signal::KILL.as_raw())),
            },
        );
        started(&job);
        feed(&job.input(), fields.stdin.as_deref());
        Ok(job.wait(output)?)
    });
    let ending = match ran {
        Ok(ending) => ending,
        Err(problem) => {
            span.fail(&problem);
            service.detach(sandbox);
            service.metrics.call("exec", "error");
            let failed = json!({ "failed": problem.word() }).to_string();
            service.store.end_call(&new, &failed)?;
            return Err(problem);
        }
    };
    span.note("ringwall.exit_code", ending.exit_code());
    drop(span);
    service.metrics.call("exec", if ending.exit_code() == 0 { "ok" } else { "failed" });
    reservation.settle(Used::default())?;
    let limits = Limits { timeout, ..limits.clone() };
    let ended = Ended { call: call.to_owned(), ending, stopped_by: None, limits };
    service.store.end_call(&new, &ended.summary())?;
    Ok(ended)
}

/// Standard input is sent beside the waiting: a command may write before it reads.
fn feed(input: &ProcessInput, text: Option<&str>) {
    let Some(text) = text else { return };
    let (input, text) = (input.clone(), text.to_owned());
    let sent = std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // A command that does not want it has closed it.
        let _ = input.write_all(text.as_bytes());
        input.close();
    });
    // Without a thread the command sees that nothing comes.
    drop(sent);
}

/// Commands can be as long as a script; a list shows how they begin.
pub(crate) fn shortened(text: &str) -> &str {
    const MOST: usize = 200;
    text.char_indices().nth(MOST).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Run a command behind a fresh wall and wait for its end
#[utoipa::path(post, path = "/v1/runs", tag = "calls", request_body = SandboxFields,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key does the same thing once")),
    responses(
        (status = 200, body = CommandResult),
        (status = "default", body = ProblemBody, content_type = "application/problem+json"),
    ))]
pub(crate) async fn run(
    State(service): State<Arc<Service>>,
    Asker(caller): Asker,
    key: Key,
    Body(fields, held): LargeBody<SandboxFields>,
) -> Result<Response, Problem> {
    let work = {
        let (service, caller, fields) = (Arc::clone(&service), caller.clone(), fields.clone());
        async move {
            let _held = held;
            run_now(&service, &caller, &fields).await
        }
    };
    let request = ("run", &fields);
    once(&service, &caller, key, request, (StatusCode::OK, work)).await
}

async fn run_now(
    service: &Arc<Service>,
    caller: &Caller,
    fields: &SandboxFields,
) -> Result<CommandResult, Problem> {
    let slot = service.admission.enter(caller.tenant(), fields.memory()).await?;
    let (caller, fields) = (caller.clone(), fields.clone());
    let guard = Guard::default();
    let _watch = guard.watch();
    service
        .job(slot, move |service, _slot| {
            let mut output = Captured::default();
            let raised = |_: &Permit, killer: &Killer| {
                let killer = killer.clone();
                guard.arm(move || killer.kill());
            };
            let stdin = fields.command.as_ref().and_then(|command| command.stdin.as_deref());
            let started = |job: &Job, _: &Killer| feed(&job.input(), stdin);
            let hooks = (&raised as _, &started as _, &mut output as _);
            let ran = run_behind_wall(service, &caller, &fields, hooks);
            guard.disarm();
            let Ran { call, outcome, stopped_by, .. } = ran?;
            let result = CommandResult::new(&call, outcome.ending, output);
            let outcome = serde_json::to_value(&outcome);
            let outcome = Some(outcome.map_err(|error| Problem::internal(&error))?);
            Ok(CommandResult { stopped_by, outcome, ..result })
        })
        .await
}

/// What is done when the wall stands, when the command runs in it, and with what that writes.
pub(crate) type Hooks<'a> =
    (&'a dyn Fn(&Permit, &Killer), &'a dyn Fn(&Job, &Killer), &'a mut dyn Output);

/// A run that has ended.
pub(crate) struct Ran {
    pub(crate) call: String,
    pub(crate) outcome: Outcome,
    pub(crate) stopped_by: Option<String>,
    pub(crate) limits: Limits,
}

/// Runs a command behind a fresh wall, with all that is written down and spent for it.
pub(crate) fn run_behind_wall(
    service: &Service,
    caller: &Caller,
    fields: &SandboxFields,
    hooks: Hooks<'_>,
) -> Result<Ran, Problem> {
    let ran = run_and_write_down(service, caller, fields, hooks);
    let word = match &ran {
        Ok(ran) if ran.outcome.ending.exit_code() == 0 => "ok",
        Ok(_) => "failed",
        Err(_) => "error",
    };
    service.metrics.call("run", word);
    ran
}

fn run_and_write_down(
    service: &Service,
    caller: &Caller,
    fields: &SandboxFields,
    hooks: Hooks<'_>,
) -> Result<Ran, Problem> {
    let wanted = fields.command.as_ref();
    let no_command = || Problem::new(Code::BadRequest, "a run needs a `command`");
    let described = wanted.ok_or_else(no_command)?;
    let command = described.command()?;
    let mut wanted = fields.clone();
    // The sandbox is gone when the answer is there: nobody could use a name.
    wanted.name = None;
    let call = new_id();
    if let Some(timeout) = described.timeout_ms {
        wanted.limits.cap_timeout(Duration::from_millis(timeout.max(1)));
    }
    let placed = sandboxes::place((service, caller), &wanted, (Limits::default(), &call))?;
    let line = command.words().join(" ");
    let new = NewCall {
        id: &call,
        tenant: caller.tenant(),
        task: caller.task(),
        sandbox: None,
        kind: "run",
        what: shortened(&line),
    };
    service.store.begin_call(&new)?;
    let mut stood = false;
    let ran = raise_and_run(service, caller, (&placed.permit, &command), hooks, &mut stood);
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(problem) => {
            let failed = json!({ "failed": problem.word() }).to_string();
            service.store.end_call(&new, &failed)?;
            if !stood {
                placed.reservation.give_back()?;
            }
            return Err(problem);
        }
    };
    let Placed { permit, reservation, .. } = placed;
    let used = Used::of_sandbox(&outcome.usage);
    let sent = reservation.sent_all(used).then(|| "budget:egress_bytes".to_owned());
    let stopped_by = reservation.stopped_by(outcome.ending == Ending::Timeout).or(sent);
    reservation.settle(used)?;
    let limits = permit.spec().limits.clone();
    let ended = Ended { call: call.clone(), ending: outcome.ending, stopped_by, limits };
    service.store.end_call(&new, &ended.summary())?;
    let Ended { stopped_by, limits, .. } = ended;
    Ok(Ran { call, outcome, stopped_by, limits })
}

fn raise_and_run(
    service: &Service,
    caller: &Caller,
    (permit, command): (&Permit, &Command),
    (raised_hook, started_hook, output): Hooks<'_>,
    stood: &mut bool,
) -> Result<Outcome, Problem> {
    let crew = service.engines.of(caller.tenant()).map_err(|error| Problem::internal(&error))?;
    let raised = trace::part("start", |span| {
        let raised = crew.engine.raise_for(permit, &command.words())?;
        span.note("ringwall.sandbox", raised.id().as_str());
        Ok::<_, Problem>(raised)
    })?;
    *stood = true;
    let killer = raised.killer();
    let _listed = service.runs.add(raised.id(), caller, &killer);
    let ended = killer.clone();
    let what = format!("the run {}", raised.id());
    let watched = Watched { what, end: Box::new(move || ended.kill()) };
    let _lease = service.books.lease(caller, watched);
    raised_hook(permit, &killer);
    let mut reaching = permit.spec().egress.is_some().then(|| trace::span("egress"));
    let ending = trace::part("exec", |span| {
        let started: Result<Job, StartError> = raised.start(command);
        let job = started?;
        started_hook(&job, &killer);
        let waited: Result<Ending, RunError> = job.wait(output);
        let ending = waited?;
        span.note("ringwall.exit_code", ending.exit_code());
        Ok(ending)
    });
    match ending {
        Ok(ending) => {
            let outcome = raised.settle(ending)?;
            if let Some(span) = &mut reaching {
                span.note("ringwall.sent_bytes", outcome.usage.sent_bytes);
                span.note("ringwall.received_bytes", outcome.usage.received_bytes);
            }
            Ok(outcome)
        }
        // Whoever ended it did so before the command had begun.
        Err(_) if killer.was_stopped() => Ok(raised.settle(Ending::Stopped)?),
        Err(problem) => {
            // The first error says what went wrong; taking the wall down is tidying up.
            let _ = raised.settle(Ending::Stopped);
            Err(problem)
        }
    }
}
