//! Sub-agents: each has a brain, a journal and a smaller grant of its own, and works in the sandbox of
//! whoever started it. What it uses counts there.

use std::rc::Rc;

use ringwall_desk::SubAgent;

use crate::bounds::{Bounds, Stop};
use crate::calls::refused;
use crate::journal::{AgentId, Entry, Journal};
use crate::options::Options;
use crate::output::{Done, untrusted};
use crate::registry::{READ_ONLY, SubTask};
use crate::state::{Doing, State};
use crate::supervisor::{AgentError, Beginning, Ending, Halt, Resuming, Supervisor, World};
use crate::wasm::fits;

impl Supervisor<'_> {
    pub(crate) fn sub_agent(&mut self, step: u64, asked: &SubTask) -> Result<Done, Halt> {
        if self.state.bounds.depth == 0 {
            return Err(refused("sub-agents may have no sub-agents here (--max-depth)"));
        }
        let rest = self.state.bounds.rest(&self.state.spent_in_all());
        let steps = asked.max_steps.map_or(rest.steps, |most| most.min(rest.steps));
        let bounds = Bounds { steps, ..rest };
        let world = self.world;
        // It works where we do.
        let (site, sandbox) = (self.site.take(), self.state.sandbox.clone());
        let mut child = match self.state.children.get(&step).cloned() {
            Some(id) => match self.ended_child(&id) {
                Some((state, text)) => {
                    self.site = site;
                    self.settle_child(step, &id, &state)?;
                    return Ok(result(&id, &text));
                }
                None => self.resume_child(world, id, bounds)?,
            },
            None => self.begin_child(world, step, asked, bounds)?,
        };
        if let (Some(id), Some(site)) = (sandbox, &site)
            && child.state.sandbox.as_ref() != Some(&id)
        {
            let (wall, why) = (site.wall().clone(), "that of the agent that started it".to_owned());
            child.write(Entry::Sandbox { id, wall, why, from: None }, false)?;
        }
        child.site = site;
        let worked = child.work();
        let (site, id, state) = (child.site.take(), child.journal.id.clone(), child.state.clone());
        drop(child);
        self.site = site;
        self.settle_child(step, &id, &state)?;
        told(worked?, &id)
    }

    /// Takes over what a sub-agent used, read and moved to.
    fn settle_child(&mut self, step: u64, id: &AgentId, child: &State) -> Result<(), Halt> {
        let source = child.taint.as_ref().filter(|_| self.state.taint.is_none());
        let tainted =
            source.map(|taint| format!("sub-agent {id}, step {}: {}", taint.step, taint.source));
        let spent = child.spent_in_all();
        self.write(Entry::ChildSpent { step, id: id.clone(), spent, tainted }, true)?;
        match (&child.sandbox, &child.sandbox_wall) {
            (Some(now), Some(wall)) if self.state.sandbox.as_ref() != Some(now) => {
                let why = format!("where sub-agent {id} went on");
                let (id, wall) = (now.clone(), wall.clone());
                Ok(self.write(Entry::Sandbox { id, wall, why, from: None }, true)?)
            }
            _ => Ok(()),
        }
    }

    /// A sub-agent that had come to its end when its parent was killed.
    fn ended_child(&self, id: &AgentId) -> Option<(State, String)> {
        let state = State::of(&Journal::read(self.world.home, id).ok()?)?;
        match state.doing.clone() {
            Doing::Finished(text) => Some((state, text)),
            _ => None,
        }
    }
}

fn told(ending: Ending, id: &AgentId) -> Result<Done, Halt> {
    match ending {
        Ending::Finished { text, .. } => Ok(result(id, &text)),
        // Whoever has to be asked, the whole task waits.
        Ending::Stopped(stop @ Stop::Approval { .. }) => Err(Halt::Stop(stop)),
        Ending::Stopped(stop) => Ok(Done::failed(format!("sub-agent {id} stopped: {stop}"))),
    }
}

fn result(id: &AgentId, text: &str) -> Done {
    Done::said(format!("sub-agent {id} is done and says:\n{}", untrusted(text)))
}

impl<'a> Supervisor<'a> {
    fn begin_child<'b>(
        &'b mut self,
        world: &'b World<'a>,
        step: u64,
        asked: &SubTask,
        bounds: Bounds,
    ) -> Result<Supervisor<'b>, Halt>
    where
        'a: 'b,
    {
        let id = AgentId::fresh().map_err(AgentError::Name)?;
        let tools = self.tools_for(asked);
        let (tools, read_only) = (tools.as_deref(), asked.read_only);
        let sub = SubAgent { id: id.as_str(), tools, read_only };
        let caller = world.books.start_sub_agent(&self.caller, sub).map_err(|it| self.no(it))?;
        self.write(Entry::Child { step, id: id.clone() }, true)?;
        let options = Options { task: asked.task.clone(), bounds, ..self.state.options.clone() };
        let parent = Some((self.journal.id.clone(), step));
        let (rules, depth) = (Rc::clone(&self.rules), self.depth + 1);
        let beginning = Beginning { id, parent, options, rules, caller, depth };
        let mut child = Supervisor::begin_as(world, beginning, &mut *self.watcher)?;
        child.take_over(&self.state)?;
        Ok(child)
    }

    fn resume_child<'b>(
        &'b mut self,
        world: &'b World<'a>,
        id: AgentId,
        bounds: Bounds,
    ) -> Result<Supervisor<'b>, Halt>
    where
        'a: 'b,
    {
        let (rules, depth) = (Rc::clone(&self.rules), self.depth + 1);
        // What it had used before counts in its own journal.
        let own = |before: Bounds| Bounds { steps: before.steps, tokens: before.tokens, ..bounds };
        let resuming = Resuming { id, rules, depth, bounds: &own };
        Ok(Supervisor::resume_as(world, resuming, &mut *self.watcher)?)
    }

    /// The tools of a sub-agent: those that were named, and of these only what reads if it is to.
    fn tools_for(&self, asked: &SubTask) -> Option<Vec<String>> {
        if !asked.read_only {
            return asked.tools.clone();
        }
        let reading = READ_ONLY.into_iter().chain(self.world.wasm.names());
        let named = |tool: &&str| match &asked.tools {
            Some(tools) => tools.iter().any(|wish| fits(wish, tool)),
            None => true,
        };
        Some(reading.filter(named).map(str::to_owned).collect())
    }

    /// A task that is tainted has no sub-agent that is not.
    fn take_over(&mut self, parent: &State) -> Result<(), AgentError> {
        match &parent.taint {
            Some(taint) => {
                let source = format!("the task, step {}: {}", taint.step, taint.source);
                self.write(Entry::Tainted { step: 0, source }, false)
            }
            None => Ok(()),
        }
    }
}
