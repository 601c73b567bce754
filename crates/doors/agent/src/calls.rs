//! What comes of each wish: put to the reference monitor, then done in the sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use ringwall_desk::{
    Action, CallWish, Exec as Order, Input, Job, Placed, Refused, Reservation, Share, Taken, Task,
    Used, Watched, WorkKind,
};
use ringwall_engine::AskedCall;
use ringwall_spec::{Command, Ending, Limits, RingKind, ToolMeter, Wall};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bounds::Stop;
use crate::journal::Entry;
use crate::output::{Done, Place};
use crate::registry::{Exec, Wish};
use crate::site::{self, Asker, Ran, Site, SiteError};
use crate::supervisor::{Halt, Supervisor};

/// The kind of work that files are.
pub(crate) const FILES: &str = "files";

impl Supervisor<'_> {
    /// `again`: it goes on from before the agent was killed.
    pub(crate) fn perform(
        &mut self,
        step: u64,
        (tool, wish): (&str, Wish),
        again: bool,
    ) -> Result<Done, Halt> {
        if let Wish::Wasm { tool, input } = wish {
            return self.call_tool(step, &tool, &input);
        }
        let desk = self.world.desk();
        desk.may_use_tool(&self.caller, tool).map_err(|it| self.no(it))?;
        // A command pays for itself.
        if !again && !matches!(wish, Wish::Exec(_)) {
            desk.pay_call(&self.caller, &self.account(step)).map_err(|it| self.no(it))?;
        }
        match wish {
            Wish::Exec(exec) => self.exec(step, &exec),
            Wish::Read { path, from_line, lines } => self.read(&path, from_line, lines),
            Wish::Write { path, content } => self.write_file(&path, &content),
            Wish::Edit { path, old, new, all } => self.edit(&path, (&old, &new), all),
            Wish::List { path } => self.list(&path),
            Wish::Search { text, path } => self.search(&text, &path),
            Wish::Plan { steps } => {
                self.write(Entry::Planned { step, plan: steps }, false)?;
                Ok(Done::said("The plan is written down."))
            }
            Wish::Phase { to } => self.change_phase(step, &to),
            Wish::AskApproval { elevation, reason } => self.ask(step, &elevation, &reason),
            Wish::SubAgent(task) => self.sub_agent(step, &task),
            Wish::Extract { path, schema, question } => self.extract(&path, &schema, &question),
            Wish::Wasm { tool, input } => self.call_tool(step, &tool, &input),
        }
    }

    /// What the ledger calls a step.
    fn account(&self, step: u64) -> String {
        format!("{} {step}", self.journal.id)
    }

    /// Whether this may be done in the sandbox that is there.
    fn enter(&self, action: Action<'_>) -> Result<(), Halt> {
        let there = (&self.site()?.record, self.rules.search());
        let entered = self.world.desk().enter(&self.caller, there, action);
        entered.map(drop).map_err(|it| self.no(it))
    }

    /// A refusal of a tainted task says by which step it became so.
    pub(crate) fn with_taint(&self, why: String) -> String {
        match &self.state.taint {
            Some(taint) => {
                format!("{why} (the task is tainted by step {}: {})", taint.step, taint.source)
            }
            None => why,
        }
    }

    /// What a tool may take of the time that is left.
    fn time_left(&self) -> Duration {
        let rest = self.state.bounds.rest(&self.state.spent_in_all());
        Duration::from_secs(rest.tool_seconds.min(rest.seconds).max(1))
    }

    fn exec(&mut self, step: u64, exec: &Exec) -> Result<Done, Halt> {
        // Whoever started the agent answers for all of its commands, the policy for some. The riskier counts.
        let floor = self.state.options.kind.max(self.rules.kind_of_command(&exec.command));
        let kind = exec.counts_as(floor, self.state.taint.is_some()).to_string();
        let asked = exec.timeout_seconds.map(Duration::from_secs);
        let usual = self.state.options.limits.timeout;
        let timeout = asked.unwrap_or(usual).min(usual).min(self.time_left());
        let argv = ["/bin/sh", "-c", &exec.command].map(Into::into).to_vec();
        let command = Command { argv, ..Command::default() };
        let (kind_of_work, input) = (Some(kind.as_str()), Input::Nothing);
        let order = Order { kind: kind_of_work, command: &command, input, timeout: Some(timeout) };
        self.ensure_site(&kind, Action::Exec(&order))?;
        let ran = self.pay_and_run(step, (&command, &kind), timeout)?;
        let shown = self.shown_source()?;
        let site = self.site()?;
        let mut done =
            Done::output(place(site), how(ran.ending), &ran.output, is_failure(ran.ending));
        // The command may have made itself what it read.
        done.taints = shown.map(|pattern| could_read("a command", &pattern));
        Ok(done)
    }

    fn pay_and_run(
        &mut self,
        step: u64,
        (command, kind): (&Command, &str),
        timeout: Duration,
    ) -> Result<Ran, Halt> {
        let site = self.site()?;
        let share = Share::of_sandbox(&Limits { timeout, ..site.record.limits.clone() }, None);
        let paid = self.world.desk().reserve_within(&self.caller, (&self.account(step), share));
        let paid = paid.map_err(|it| self.no(it))?;
        // Before it runs: however it ends, it may have left copies of what it read.
        if let Some(source) = self.taint_of_command(kind)? {
            self.take_in(step, source)?;
        }
        let site = self.site()?;
        site.worked_in.set(true);
        let ran = site.start(command, paid.share().time).and_then(|job| {
            let (what, input) = (format!("exec in {}", site.record.id), job.input());
            let end = Box::new(move || input.signal(Signal::KILL.as_raw()));
            let _lease = self.world.books.lease(&self.caller, Watched { what, end });
            Ran::of(job)
        });
        // The usage of a command that was lost is not known, so nothing is given back.
        let ran = ran.map_err(|error| failed(&error))?;
        paid.settle(Used::of_sandbox(&ran.usage)).map_err(|it| self.no(it))?;
        Ok(ran)
    }

    fn taint_of_command(&self, kind: &str) -> Result<Option<String>, Halt> {
        let of_kind: Option<WorkKind> = kind.parse().ok();
        if of_kind.is_some_and(|kind| self.rules.taints(Taken::OutputOf(kind))) {
            return Ok(Some(format!("output of {kind} work")));
        }
        if self.site()?.has_network && self.rules.taints(Taken::Network) {
            return Ok(Some("output of a command that could reach the network".to_owned()));
        }
        Ok(self.shown_source()?.map(|pattern| could_read("a command", &pattern)))
    }

    /// The sandbox that is there by now.
    pub(crate) fn site(&self) -> Result<&Site, Halt> {
        self.site.as_ref().ok_or_else(|| Halt::done(Done::failed("there is no sandbox")))
    }

    /// Sees to a sandbox in which this kind of work may be done, as the task is now. In one that is there this
    /// action must be allowed; one that is placed for it needs no second decision.
    pub(crate) fn ensure_site(&mut self, kind: &str, action: Action<'_>) -> Result<(), Halt> {
        let (engine, task) = (self.world.engine, self.task());
        let options = self.state.options.clone();
        if self.site.is_none()
            && let Some(id) = &self.state.sandbox
        {
            self.site = Site::find(engine, id, (&options, self.state.sandbox_tainted))?;
        }
        let desk = self.world.desk();
        if let Some(site) = &self.site
            && site.lives(engine)
            && site.tainted == task.tainted
            && desk.fits(self.stepping(&task), &site.record, kind)
        {
            return self.enter(action);
        }
        let agent = self.journal.id.to_string();
        let (options, caller, rules) = (&options, &self.caller, &*self.rules);
        let asker = Asker { engine, desk, options, task, agent: &agent, caller, rules };
        let placed = site::place(&asker, kind);
        let task = asker.task;
        let placed = placed.map_err(|it| {
            let why = format!("{kind} work: {}", it.why);
            self.no(Refused { why, ..it })
        })?;
        if let Action::Exec(order) = action {
            // Nothing is raised for what nobody could pay for.
            let limits = placed.permit.spec().limits.clone();
            let timeout = order.timeout.unwrap_or(limits.timeout);
            let share = Share::of_sandbox(&Limits { timeout, ..limits }, None);
            let could = desk.reserve_within(&self.caller, (&agent, share));
            could.and_then(Reservation::give_back).map_err(|it| self.no(it))?;
        }
        self.move_to(placed, &task, kind)
    }

    /// Ends the sandbox that is there, if one is, and goes on in another with all that was changed.
    fn move_to(&mut self, placed: Placed, task: &Task, kind: &str) -> Result<(), Halt> {
        let engine = self.world.engine;
        self.site = None;
        let stuck = |error: SiteError| match error {
            SiteError::Ledger(error) => error.into(),
            error => Halt::Stop(Stop::Sandbox { reason: with_causes(&error) }),
        };
        let from = self.state.sandbox.clone();
        let from = from.map(|id| Site::end(engine, &id)).transpose().map_err(stuck)?;
        let site = match Site::raise(engine, (placed, task), from.as_ref()) {
            Err(error @ SiteError::Keep(_)) => return Err(failed(&error)),
            raised => raised.map_err(stuck)?,
        };
        let why = match (&self.state.taint, &from) {
            (_, None) => format!("for {kind} work"),
            (Some(taint), _) if !self.state.sandbox_tainted => {
                format!("the task is tainted by step {}", taint.step)
            }
            _ => {
                format!("for {kind} work, which the one before was not for, or no longer there for")
            }
        };
        let (id, wall) = (site.record.id.to_string(), site.wall().clone());
        let from_id = from.as_ref().map(|from| from.id.to_string());
        self.site = Some(site);
        self.write(Entry::Sandbox { id, wall, why, from: from_id }, true)?;
        if let Some(from) = from {
            // Its changes are in the next one; what is left is a record.
            let _ = engine.remove(&from);
        }
        Ok(())
    }

    fn change_phase(&mut self, step: u64, to: &str) -> Result<Done, Halt> {
        self.ensure_site(FILES, Action::Files)?;
        self.enter(Action::Phase(to))?;
        self.write(Entry::Phase { step, to: to.to_owned() }, true)?;
        Ok(Done::said(format!("The task is in the phase {to} now.")))
    }

    fn call_tool(&mut self, step: u64, tool: &str, input: &Value) -> Result<Done, Halt> {
        let (wasm, desk) = (self.world.wasm, self.world.desk());
        let needs_files = wasm.wants_files(tool) && self.state.options.workspace.is_some();
        if needs_files || !self.may_run_alone(tool, wasm.kind(tool)) {
            self.ensure_site(FILES, Action::Files)?;
        }
        let inside = self.site.as_ref().filter(|site| site.wall().has_tools_inside());
        // A tool that runs alone sees the workspace of the host itself, which no call of an agent writes.
        let whole = self.state.options.workspace.as_deref().filter(|_| inside.is_some());
        let may_write = whole.map(|path| desk.has_directory(&self.caller, path)).transpose();
        let may_write = may_write.map_err(|it| self.no(it))?.unwrap_or(false);
        // Outside of the sandbox it would write to the workspace itself, and not to the agent's copy.
        let in_copy = self.site.as_ref().is_some_and(|site| site.wall().has_tools_inside());
        let may_write = may_write && in_copy;
        let root = if needs_files { Some(self.site()?.root()) } else { None };
        let prepared = wasm.prepare(tool, input, (root, may_write));
        let mut prepared = prepared.map_err(|why| Halt::done(Done::failed(why)))?;
        let wall = inside.map_or(Wall::single(RingKind::Wasm), |site| site.wall().clone());
        if inside.is_some() {
            self.enter(Action::CallTool)?;
        }
        wasm.make_ready(self.world.engine, &prepared, &wall).map_err(|error| failed(&error))?;
        let (task, account) = (self.task(), self.account(step));
        let sandbox = inside.map(|site| &site.record.id);
        let asked = AskedCall { task: Some(&task), ..prepared.asked(&wall, sandbox) };
        let (gate, search, limits) = (self.rules.gate(), self.rules.search(), prepared.limits());
        let wish = CallWish { asked, gate, search, limits, account: &account };
        // Nobody is asked about a call of an agent: the model does that itself.
        let begun = desk.begin_call(&self.caller, wish, BTreeMap::new);
        let begun = begun.map_err(|it| self.no(it))?;
        prepared.limit(begun.limits);
        let (alone, sandbox) = (inside.is_none(), sandbox.map(ToString::to_string));
        // Before it runs: however it ends, it may have left copies of what it read.
        if let Some(source) = self.taint_of_tool(tool, needs_files, alone)? {
            self.take_in(step, source)?;
        }
        let inside = self.site.as_ref().filter(|site| site.wall().has_tools_inside());
        inside.inspect(|site| site.worked_in.set(true));
        let (what, stop) = (format!("a call of {tool}"), prepared.stop());
        let end = Box::new(move || stop.stop());
        let lease = self.world.books.lease(&self.caller, Watched { what, end });
        let called = wasm.call(&prepared, inside);
        drop(lease);
        let (status, meter) = match &called {
            Ok(outcome) => (Some(&outcome.status), outcome.meter),
            Err(_) => (None, ToolMeter::default()),
        };
        self.world.engine.end_tool(begun.entry, status, meter)?;
        // Of a call that was lost nothing is known, so nothing is given back.
        let outcome = called.map_err(|error| failed(&error))?;
        begun.reservation.settle(Used::of_tool(&meter)).map_err(|it| self.no(it))?;
        let facts = serde_json::to_vec(&*outcome.evidence).unwrap_or_default();
        let evidence = blake3::hash(&facts).to_hex().chars().take(16).collect();
        let (text, failed) = match prepared.result(&outcome) {
            Ok(value) => (value.to_string(), false),
            Err(why) => (why, true),
        };
        let place = Place { wall, sandbox, evidence: Some(evidence) };
        let mut done = Done::output(place, json!({ "tool": tool }), &text, failed);
        done.taints = self.taint_of_tool(tool, needs_files, alone)?;
        Ok(done)
    }

    /// `alone`: outside of the sandbox, with the workspace as the host has it.
    fn taint_of_tool(
        &self,
        tool: &str,
        sees_files: bool,
        alone: bool,
    ) -> Result<Option<String>, Halt> {
        if self.rules.taints(Taken::Tool(tool)) {
            return Ok(Some(format!("output of the tool {tool}")));
        }
        let shown = match (sees_files, alone) {
            (false, _) => None,
            (true, false) => self.shown_source()?,
            (true, true) => self.shown_source()?.or_else(|| self.source_on_host()),
        };
        Ok(shown.map(|pattern| could_read(&format!("the tool {tool}"), &pattern)))
    }

    /// Whether policy lets the tool run outside the sandbox, in a ring of its own.
    fn may_run_alone(&self, tool: &str, kind: &str) -> bool {
        let wall = Wall::single(RingKind::Wasm);
        let job = Job { tool: Some(tool), kind, wall: Some(&wall), reuse: false };
        self.rules.no_wall(&self.task(), job, &self.world.engine.host_facts(true)).is_none()
    }
}

pub(crate) fn refused(why: impl Into<String>) -> Halt {
    Halt::done(Done::refused(why))
}

fn could_read(what: &str, pattern: &str) -> String {
    format!("output of {what} that could read path:{pattern}")
}

/// Something did not work; the model may try something else.
pub(crate) fn failed(error: &(dyn std::error::Error + 'static)) -> Halt {
    Halt::done(Done::failed(with_causes(error)))
}

fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    ringwall_engine::with_causes(error)
}

pub(crate) fn place(site: &Site) -> Place {
    let sandbox = Some(site.record.id.to_string());
    Place { wall: site.wall().clone(), sandbox, evidence: None }
}

fn how(ending: Ending) -> Value {
    match ending {
        Ending::Exited { code } => json!({ "exit_code": code }),
        other => json!({ "ended": format!("{other:?}") }),
    }
}

/// A command that says no is no failure of the call; one that was ended is.
fn is_failure(ending: Ending) -> bool {
    !matches!(ending, Ending::Exited { .. })
}
