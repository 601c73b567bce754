//! What comes of each wish: held against grant and policy, then done in the sandbox.

use std::time::{Duration, Instant};

use ringwall_desk::{Permit, Share};
use ringwall_engine::{AdmitError, PolicySearch};
use ringwall_grant::Ask;
use ringwall_policy::{Action, Kind, PlaceRequest, Task, Work};
use ringwall_spec::{Command, Ending, Limits, RingKind, Wall};
use serde_json::{Value, json};

use crate::bounds::Stop;
use crate::journal::Entry;
use crate::output::{Done, Place};
use crate::registry::{Exec, Wish};
use crate::site::{self, Asker, Site, SiteError};
use crate::supervisor::{Halt, Supervisor};
use crate::wasm::WasmError;

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
        if !again {
            self.gate.count_call(&self.holder)?.map_err(refused)?;
        }
        self.may(Ask::Tool { name: tool.to_owned() })?;
        match wish {
            Wish::Exec(exec) => self.exec(&exec),
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
            Wish::Wasm { tool, input } => self.call_tool(&tool, &input),
        }
    }

    pub(crate) fn may(&self, ask: Ask) -> Result<(), Halt> {
        self.gate.may(&self.holder, ask)?.map_err(refused)
    }

    pub(crate) fn decide(&self, action: &Action, what: &str) -> Result<(), Halt> {
        let decided = self.gate.decide(&self.holder, &self.task(), action, what)?;
        decided.map_err(|why| refused(self.with_taint(why)))
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

    fn exec(&mut self, exec: &Exec) -> Result<Done, Halt> {
        let floor = self.state.options.kind;
        let kind = exec.counts_as(floor, self.state.taint.is_some()).to_string();
        self.ensure_site(&kind)?;
        let asked = exec.timeout_seconds.map(Duration::from_secs);
        let usual = self.state.options.limits.timeout;
        let timeout = asked.unwrap_or(usual).min(usual).min(self.time_left());
        let argv = ["/bin/sh", "-c", &exec.command].map(Into::into).to_vec();
        let command = Command { argv, ..Command::default() };
        let site = self.site()?;
        let limits = Limits { timeout, ..site.record.limits.clone() };
        let work = Share::of_sandbox(&limits, None);
        let paid = self.gate.reserve_work(&self.holder, work)?.map_err(refused)?;
        let begun = Instant::now();
        let ran = site.run(&command, paid.share.time);
        self.gate.settle(&self.holder, paid.ran_for(begun.elapsed()))?;
        let ran = ran.map_err(|error| failed(&error))?;
        let mut done =
            Done::output(place(site), how(ran.ending), &ran.output, is_failure(ran.ending));
        done.taints = self.taint_of_command(&kind);
        Ok(done)
    }

    fn taint_of_command(&self, kind: &str) -> Option<String> {
        let of_kind: Option<Kind> = kind.parse().ok();
        if of_kind.is_some_and(|kind| self.gate.output_taints(kind)) {
            return Some(format!("output of {kind} work"));
        }
        let reaches = self.site.as_ref().is_some_and(|site| site.has_network);
        (reaches && self.gate.network_taints())
            .then(|| "output of a command that could reach the network".to_owned())
    }

    /// The sandbox that is there by now.
    pub(crate) fn site(&self) -> Result<&Site, Halt> {
        self.site.as_ref().ok_or_else(|| Halt::done(Done::failed("there is no sandbox")))
    }

    /// Sees to a sandbox in which this kind of work may be done, as the task is now.
    pub(crate) fn ensure_site(&mut self, kind: &str) -> Result<(), Halt> {
        let (engine, task) = (self.world.engine, self.task());
        let options = self.state.options.clone();
        if self.site.is_none()
            && let Some(id) = &self.state.sandbox
        {
            self.site = Site::find(engine, id, (&options, self.state.sandbox_tainted))?;
        }
        let with_image = options.image.is_some();
        if let Some(site) = &self.site
            && site.lives(engine)
            && site.fits(engine, self.gate.policy(), (&task, kind, with_image))
        {
            let wall = site.wall().to_string();
            return self.may(Ask::Place { kind: kind.to_owned(), wall });
        }
        let agent = self.journal.id.to_string();
        if let Some(workspace) = &options.workspace {
            // Commands see all of it.
            self.may(Ask::Read { path: workspace.display().to_string() })?;
        }
        let asker = Asker { options: &options, task, agent: &agent, holder: &self.holder };
        let permit = match site::admit(engine, self.gate.policy(), &asker, kind) {
            Err(SiteError::Admit(AdmitError::Ledger(error))) => return Err(error.into()),
            Err(SiteError::Admit(error)) => {
                let why = format!("{kind} work: {error}");
                return Err(refused(self.with_taint(why)));
            }
            permit => permit?,
        };
        let wall = permit.spec().wall.to_string();
        self.may(Ask::Place { kind: kind.to_owned(), wall })?;
        self.move_to(&permit, &asker.task, kind)
    }

    /// Ends the sandbox that is there, if one is, and goes on in another with all that was changed.
    fn move_to(&mut self, permit: &Permit, task: &Task, kind: &str) -> Result<(), Halt> {
        let engine = self.world.engine;
        self.site = None;
        let stuck = |error: SiteError| match error {
            SiteError::Ledger(error) => error.into(),
            error => Halt::Stop(Stop::Sandbox { reason: with_causes(&error) }),
        };
        let from = self.state.sandbox.clone();
        let from = from.map(|id| Site::end(engine, &id)).transpose().map_err(stuck)?;
        let site = match Site::raise(engine, (permit, task), from.as_ref()) {
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
        self.may(Ask::Phase { name: to.to_owned() })?;
        self.decide(&Action::ChangePhase(to.to_owned()), &format!("the phase {to}"))?;
        self.ensure_site(FILES)?;
        let options = &self.state.options;
        let search = PolicySearch {
            named: options.policy.clone(),
            ..PolicySearch::from_environment(options.workspace.clone())
        };
        let record = &self.site()?.record;
        let by = self.journal.id.to_string();
        self.world
            .engine
            .change_phase(record, (to, &by), (&search, None))
            .map_err(|error| refused(error.to_string()))?;
        self.write(Entry::Phase { step, to: to.to_owned() }, true)?;
        Ok(Done::said(format!("The task is in the phase {to} now.")))
    }

    fn call_tool(&mut self, tool: &str, input: &Value) -> Result<Done, Halt> {
        let wasm = self.world.wasm;
        let kind = wasm.kind(tool);
        let needs_files = wasm.wants_files(tool) && self.state.options.workspace.is_some();
        if needs_files || !self.may_run_alone(tool, kind) {
            self.ensure_site(FILES)?;
        }
        let whole = self.state.options.workspace.as_ref().map(|path| path.display().to_string());
        let may_write = whole.is_some_and(|path| {
            self.gate.has_right(&self.holder, Ask::Write { path: path.clone() })
        });
        let root = if needs_files { Some(self.site()?.root()) } else { None };
        let prepared = wasm.prepare(tool, input, (root, may_write));
        let mut prepared = prepared.map_err(|why| Halt::done(Done::failed(why)))?;
        let action = Action::Call {
            tool: tool.to_owned(),
            kind: Some(kind.to_owned()),
            read_only: !prepared.writes,
        };
        self.decide(&action, &format!("the tool {tool}"))?;
        let work = Share::of_tool(prepared.limits());
        let paid = self.gate.reserve_work(&self.holder, work)?.map_err(refused)?;
        (prepared.limits().time, prepared.limits().fuel) = (paid.share.time, paid.share.fuel);
        let called = wasm.call(self.world.engine, &prepared, self.site.as_ref());
        // Of a call that was lost nothing is known, so nothing is given back.
        if let Ok((_, outcome, _)) = &called {
            self.gate.settle(&self.holder, paid.metered(&outcome.meter))?;
        }
        let (result, outcome, wall) = match called {
            Err(WasmError::Ledger(error)) => return Err(error.into()),
            Err(error) => return Err(failed(&error)),
            Ok(called) => called,
        };
        let inside = self.site.as_ref().filter(|_| wall.has_tools_inside());
        let facts = serde_json::to_vec(&*outcome.evidence).unwrap_or_default();
        let evidence = blake3::hash(&facts).to_hex().chars().take(16).collect();
        let sandbox = inside.map(|site| site.record.id.to_string());
        let place = Place { wall, sandbox, evidence: Some(evidence) };
        let (text, failed) = match result {
            Ok(value) => (value.to_string(), false),
            Err(why) => (why, true),
        };
        let mut done = Done::output(place, json!({ "tool": tool }), &text, failed);
        done.taints = self.gate.tool_taints(tool).then(|| format!("output of the tool {tool}"));
        Ok(done)
    }

    /// Whether policy lets the tool run outside the sandbox, in a ring of its own.
    fn may_run_alone(&self, tool: &str, kind: &str) -> bool {
        let Some(stack) = self.gate.policy() else { return true };
        let request = PlaceRequest {
            task: self.task(),
            work: Work { tool: Some(tool.to_owned()), kind: Some(kind.to_owned()) },
            wall: Some(Wall::single(RingKind::Wasm)),
            limits: None,
            reuse: false,
        };
        stack.place(&request, &self.world.engine.host_facts(true)).plan().is_ok()
    }
}

pub(crate) fn refused(why: impl Into<String>) -> Halt {
    Halt::done(Done::refused(why))
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
