//! What an agent is at this moment: all of it follows from its journal.

use std::collections::{BTreeMap, BTreeSet};

use ringwall_agent_model::{Call, CallResult, Said, Tokens, Turn};
use ringwall_desk::Task;
use ringwall_spec::Wall;
use serde_json::Value;

use crate::bounds::{Bounds, Spent, Stop};
use crate::journal::{AgentId, Entry, Line};
use crate::options::Options;
use crate::repetition::Repetition;

/// What strangers wrote came in by this step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub step: u64,
    pub source: String,
}

/// What it is at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Doing {
    #[default]
    Going,
    Stopped(Stop),
    Finished(String),
}

/// A call of the last turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Open {
    pub(crate) call: Call,
    /// Its step, once it has begun.
    pub(crate) step: Option<u64>,
    pub(crate) result: Option<CallResult>,
}

#[derive(Debug, Clone)]
pub struct State {
    pub options: Options,
    pub parent: Option<(AgentId, u64)>,
    pub bounds: Bounds,
    pub spent: Spent,
    pub doing: Doing,
    pub taint: Option<Taint>,
    pub plan: Vec<String>,
    pub phase: Option<String>,
    /// The sandbox in which things are done now.
    pub sandbox: Option<String>,
    pub(crate) sandbox_wall: Option<Wall>,
    /// Whether the task was tainted when that one was raised.
    pub(crate) sandbox_tainted: bool,
    pub(crate) history: Vec<Said>,
    pub(crate) open: Vec<Open>,
    pub(crate) errors: u32,
    pub(crate) repetition: Repetition,
    pub(crate) steps: u64,
    /// Elevations with when they end.
    elevated: BTreeMap<String, u64>,
    /// Questions to people, by step: the approval and the elevation.
    pub(crate) asked: BTreeMap<u64, (String, String)>,
    pub(crate) children: BTreeMap<u64, AgentId>,
    child_spent: BTreeMap<AgentId, Spent>,
}

impl State {
    /// The agent that these lines tell of; none if they do not begin as a journal does.
    pub fn of(lines: &[Line]) -> Option<State> {
        let (first, rest) = lines.split_first()?;
        let Entry::Begun { options, parent, .. } = &first.entry else { return None };
        let mut state = State::new((**options).clone(), parent.clone());
        for line in rest {
            state.apply(&line.entry);
        }
        Some(state)
    }

    pub(crate) fn new(options: Options, parent: Option<(AgentId, u64)>) -> State {
        State {
            bounds: options.bounds,
            history: vec![Said::User(options.task.clone())],
            repetition: Repetition::looking_back(options.bounds.repeats),
            phase: options.phase.clone(),
            options,
            parent,
            spent: Spent::default(),
            doing: Doing::Going,
            taint: None,
            plan: Vec::new(),
            sandbox: None,
            sandbox_wall: None,
            sandbox_tainted: false,
            open: Vec::new(),
            errors: 0,
            steps: 0,
            elevated: BTreeMap::new(),
            asked: BTreeMap::new(),
            children: BTreeMap::new(),
            child_spent: BTreeMap::new(),
        }
    }

    pub(crate) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Begun { .. } | Entry::Brain { .. } => {}
            Entry::Resumed { bounds, .. } => {
                self.bounds = *bounds;
                self.doing = Doing::Going;
                self.errors = 0;
                self.repetition.forget();
            }
            Entry::Sandbox { id, wall, .. } => {
                self.sandbox = Some(id.clone());
                self.sandbox_wall = Some(wall.clone());
                self.sandbox_tainted = self.taint.is_some();
            }
            Entry::Turn { turn, tokens, money_micros, active_ms } => {
                self.spent.active_ms = self.spent.active_ms.saturating_add(*active_ms);
                self.pay(*tokens, *money_micros);
                self.take_turn(turn);
            }
            Entry::Read { tokens, money_micros } => self.pay(*tokens, *money_micros),
            Entry::Waited { active_ms } => {
                self.spent.active_ms = self.spent.active_ms.saturating_add(*active_ms);
            }
            Entry::CallBegun { step, id, .. } => {
                self.steps = *step;
                self.spent.steps = self.spent.steps.saturating_add(1);
                let waiting = |open: &&mut Open| open.call.id == *id && open.step.is_none();
                if let Some(open) = self.open.iter_mut().find(waiting) {
                    open.step = Some(*step);
                }
            }
            Entry::CallEnded { step, content, failed, ms, active_ms, .. } => {
                self.spent.tool_ms = self.spent.tool_ms.saturating_add(*ms);
                self.spent.active_ms = self.spent.active_ms.saturating_add(*active_ms);
                self.end_call(*step, content, *failed);
            }
            Entry::Tainted { step, source } => self.take_taint(*step, source),
            Entry::Planned { plan, .. } => self.plan.clone_from(plan),
            Entry::Phase { to, .. } => self.phase = Some(to.clone()),
            Entry::Asked { step, approval, elevation } => {
                self.asked.insert(*step, (approval.clone(), elevation.clone()));
            }
            Entry::Elevated { elevation, until_unix, .. } => {
                self.elevated.insert(elevation.clone(), *until_unix);
            }
            Entry::Child { step, id } => {
                self.children.insert(*step, id.clone());
            }
            Entry::ChildSpent { step, id, spent, tainted } => {
                self.child_spent.insert(id.clone(), *spent);
                if let Some(source) = tainted {
                    self.take_taint(*step, source);
                }
            }
            Entry::Stopped { stop } => self.doing = Doing::Stopped(stop.clone()),
            Entry::Finished { text } => self.doing = Doing::Finished(text.clone()),
        }
    }

    fn pay(&mut self, tokens: Tokens, money_micros: u64) {
        self.spent = self.spent.and(Spent {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            money_micros,
            ..Spent::default()
        });
    }

    fn take_turn(&mut self, turn: &Turn) {
        self.history.push(Said::Assistant(turn.clone()));
        let open = |call: &Call| Open { call: call.clone(), step: None, result: None };
        self.open = turn.calls.iter().map(open).collect();
    }

    fn end_call(&mut self, step: u64, content: &str, failed: bool) {
        self.errors = if failed { self.errors.saturating_add(1) } else { 0 };
        let Some(open) = self.open.iter_mut().find(|open| open.step == Some(step)) else { return };
        let id = open.call.id.clone();
        open.result = Some(CallResult { id, content: content.to_owned(), failed });
        self.repetition.add(&open.call.tool, &open.call.input, crate::output::essence(content));
        if self.open.iter().all(|open| open.result.is_some()) {
            let results = self.open.drain(..).filter_map(|open| open.result).collect();
            self.history.push(Said::Results(results));
        }
    }

    fn take_taint(&mut self, step: u64, source: &str) {
        // The first counts: it is the reason for all that follows.
        self.taint.get_or_insert_with(|| Taint { step, source: source.to_owned() });
    }

    /// With what its sub-agents have used.
    pub fn spent_in_all(&self) -> Spent {
        let of_children =
            self.child_spent.values().fold(Spent::default(), |sum, one| sum.and(*one));
        // Its own time ran on while they worked.
        self.spent.and(Spent { active_ms: 0, tool_ms: 0, ..of_children })
    }

    /// The limit that is reached, if one is.
    pub(crate) fn reached(&self) -> Option<Stop> {
        let stop = self.bounds.reached(&self.spent_in_all(), self.errors);
        stop.or_else(|| self.repetition.noticed(self.bounds.repeats))
    }

    /// The results of the last turn, if all of them are there.
    pub(crate) fn last_results(&self) -> Option<Vec<CallResult>> {
        match self.history.last() {
            Some(Said::Results(results)) if self.open.is_empty() => Some(results.clone()),
            _ => None,
        }
    }

    /// As the policy sees it.
    pub(crate) fn task(&self, now_unix: u64) -> Task {
        let holding = self.elevated.iter().filter(|(_, until)| **until > now_unix);
        Task {
            trust: self.options.trust,
            risk: self.options.risk,
            phase: self.phase.clone(),
            tainted: self.taint.is_some(),
            elevated: holding.map(|(name, _)| name.clone()).collect::<BTreeSet<_>>(),
        }
    }

    /// The next call of the last turn that has no result yet.
    pub(crate) fn next_open(&self) -> Option<&Open> {
        self.open.iter().find(|open| open.result.is_none())
    }

    /// What was asked for with this step.
    pub fn input_of(&self, step: u64) -> Option<&Value> {
        self.open.iter().find(|open| open.step == Some(step)).map(|open| &open.call.input)
    }
}
