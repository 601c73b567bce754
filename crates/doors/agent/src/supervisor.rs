//! The loop: the brain says what the model wants, and each call is admitted, done and written down
//! before the brain hears of it.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ringwall_agent_model::Call;
use ringwall_desk::{
    Allowance, Books, Caller, Desk, Hands, Kind, NewAgent, Refused, Rules, Step, Stepping, Task,
};
use ringwall_engine::{Engine, LedgerError};

use crate::bounds::{Bounds, Stop};
use crate::brain::BrainError;
use crate::conversation::Talk;
use crate::journal::{AgentId, Entry, Journal, JournalError};
use crate::options::Options;
use crate::output::Done;
use crate::registry::Wish;
use crate::site::{Site, SiteError};
use crate::state::{Doing, State};
use crate::token;
use crate::wasm::{WasmError, WasmTools};

/// How often a brain is raised again that ended without an answer.
const MOST_RESTARTS: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the journal of agent {0} does not begin as a journal does")]
    NoBeginning(AgentId),
    #[error("agent {0} has finished; there is nothing to go on with")]
    Finished(AgentId),
    #[error("agent {0} is a sub-agent of {1}; resume that one, and it goes on with its sub-agents")]
    SubAgent(AgentId, AgentId),
    #[error(transparent)]
    Desk(#[from] Refused),
    #[error(transparent)]
    Brain(#[from] BrainError),
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error(transparent)]
    Wasm(#[from] WasmError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("no name for an agent could be made")]
    Name(#[source] std::io::Error),
}

/// What all agents of one process share.
#[derive(Debug)]
pub struct World<'a> {
    pub engine: &'a Engine,
    pub books: &'a Arc<Books>,
    /// Ringwall's home.
    pub home: &'a Path,
    /// Where Ringwall's programs are.
    pub programs: &'a Path,
    pub wasm: &'a WasmTools,
}

impl<'a> World<'a> {
    pub(crate) fn desk(&self) -> Desk<'a> {
        Desk::new(self.engine, self.books)
    }
}

/// How an agent came to rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With the sandbox that has its changes, if one was raised.
    Finished {
        text: String,
        sandbox: Option<String>,
    },
    Stopped(Stop),
}

/// For whoever looks on.
#[derive(Debug)]
pub enum Happening<'a> {
    /// A piece of what the model says.
    Text(&'a str),
    /// It is in the journal now.
    Entry { agent: &'a AgentId, depth: u32, entry: &'a Entry, state: &'a State },
}

pub trait Watcher {
    fn saw(&mut self, happening: &Happening<'_>);
}

pub struct Supervisor<'a> {
    pub(crate) world: &'a World<'a>,
    pub(crate) rules: Rc<Rules>,
    pub(crate) caller: Caller,
    pub(crate) journal: Journal,
    pub(crate) state: State,
    pub(crate) site: Option<Site>,
    pub(crate) watcher: &'a mut dyn Watcher,
    pub(crate) depth: u32,
    /// Since when its time has not been written down.
    pub(crate) mark: Instant,
}

impl std::fmt::Debug for Supervisor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("id", &self.journal.id).finish_non_exhaustive()
    }
}

/// An agent that begins.
pub(crate) struct Beginning {
    pub(crate) id: AgentId,
    /// Whose sub-agent it is, and by which step.
    pub(crate) parent: Option<(AgentId, u64)>,
    pub(crate) options: Options,
    pub(crate) rules: Rc<Rules>,
    pub(crate) caller: Caller,
    pub(crate) depth: u32,
}

/// An agent that goes on.
pub(crate) struct Resuming<'b> {
    pub(crate) id: AgentId,
    pub(crate) rules: Rc<Rules>,
    pub(crate) depth: u32,
    pub(crate) bounds: &'b dyn Fn(Bounds) -> Bounds,
}

/// Why a call does not simply go on.
#[derive(Debug)]
pub(crate) enum Halt {
    /// It has its result.
    Done(Box<Done>),
    /// The agent stops here, and the call stays open.
    Stop(Stop),
    Fatal(Box<AgentError>),
}

impl Halt {
    pub(crate) fn done(done: Done) -> Halt {
        Halt::Done(Box::new(done))
    }
}

impl<E: Into<AgentError>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Fatal(Box::new(error.into()))
    }
}

impl<'a> Supervisor<'a> {
    /// A new agent, under the grant of this token or one of its own.
    pub fn begin(
        world: &'a World<'a>,
        options: Options,
        grant: Option<&str>,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Supervisor<'a>, AgentError> {
        let id = AgentId::fresh().map_err(AgentError::Name)?;
        let rules = Rc::new(rules(&options)?);
        let options = Options { granted: grant.is_some(), ..options };
        let caller = match grant {
            Some(token) => world.books.agent(token, Hands::Agent)?,
            None => {
                let (workspace, phases) = (options.workspace.as_deref(), &rules.phases());
                world.books.start_agent(NewAgent { id: id.as_str(), workspace, phases })?
            }
        };
        let beginning = Beginning { id, parent: None, options, rules, caller, depth: 0 };
        Supervisor::begin_as(world, beginning, watcher)
    }

    pub(crate) fn begin_as(
        world: &'a World<'a>,
        beginning: Beginning,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Supervisor<'a>, AgentError> {
        let Beginning { id, parent, mut options, rules, caller, depth } = beginning;
        options.bounds = options.bounds.within(world.books.allowance(&caller)?);
        may_begin(world, &caller, (&*rules, &options))?;
        let journal = Journal::create(world.home, id.clone())?;
        token::keep(world.home, &id, &token_of(&caller))?;
        let state = State::new(options.clone(), parent.clone());
        let policy = rules.files();
        let mark = Instant::now();
        let mut supervisor =
            Supervisor { world, rules, caller, journal, state, site: None, watcher, depth, mark };
        let grant = supervisor.grant();
        let options = Box::new(options);
        supervisor.write(Entry::Begun { options, parent, grant, policy }, true)?;
        Ok(supervisor)
    }

    /// Goes on with an agent that has stopped, or was killed, with these limits.
    pub fn resume(
        world: &'a World<'a>,
        id: AgentId,
        bounds: &dyn Fn(Bounds) -> Bounds,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Supervisor<'a>, AgentError> {
        let lines = Journal::read(world.home, &id)?;
        let state = State::of(&lines).ok_or_else(|| AgentError::NoBeginning(id.clone()))?;
        if let Some((parent, _)) = state.parent {
            return Err(AgentError::SubAgent(id, parent));
        }
        let rules = Rc::new(rules(&state.options)?);
        Supervisor::resume_as(world, Resuming { id, rules, depth: 0, bounds }, watcher)
    }

    pub(crate) fn resume_as(
        world: &'a World<'a>,
        resuming: Resuming<'_>,
        watcher: &'a mut dyn Watcher,
    ) -> Result<Supervisor<'a>, AgentError> {
        let Resuming { id, rules, depth, bounds } = resuming;
        let (journal, lines) = Journal::open(world.home, id.clone())?;
        let state = State::of(&lines).ok_or_else(|| AgentError::NoBeginning(id.clone()))?;
        if matches!(state.doing, Doing::Finished(_)) {
            return Err(AgentError::Finished(id));
        }
        let hands = if state.options.granted { Hands::Agent } else { Hands::OwnersAgent };
        let caller = world.books.agent(&token::kept(world.home, &id)?, hands)?;
        may_begin(world, &caller, (&*rules, &state.options))?;
        // What it used itself is not left any more.
        let (left, spent) = (world.books.allowance(&caller)?, state.spent_in_all());
        let with = |left: Option<u64>, spent: u64| left.map(|left| left.saturating_add(spent));
        let left = Allowance {
            tokens: with(left.tokens, spent.tokens()),
            money_micros: with(left.money_micros, spent.money_micros),
            ..left
        };
        let bounds = bounds(state.bounds).within(left);
        let mark = Instant::now();
        let mut supervisor =
            Supervisor { world, rules, caller, journal, state, site: None, watcher, depth, mark };
        let grant = supervisor.grant();
        supervisor.write(Entry::Resumed { bounds, grant }, true)?;
        Ok(supervisor)
    }

    pub fn id(&self) -> &AgentId {
        &self.journal.id
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Works until the task is done or a limit is reached. What was changed is kept either way.
    pub fn run(&mut self) -> Result<Ending, AgentError> {
        self.work()
    }

    pub(crate) fn work(&mut self) -> Result<Ending, AgentError> {
        let mut restarts = 0;
        loop {
            if let Some(stop) = self.answer_open()? {
                return self.stop(stop);
            }
            // An answer without calls is the end, also of an agent that was killed right after it.
            if let Some(ending) = self.finished()? {
                return Ok(ending);
            }
            if let Some(stop) = self.state.reached() {
                return self.stop(stop);
            }
            let turns = self.state.history.len();
            let lost = match self.talk()? {
                Talk::Ended(ending) => return Ok(ending),
                Talk::Lost(reason) => reason,
            };
            restarts = if self.state.history.len() > turns { 0 } else { restarts + 1 };
            if restarts > MOST_RESTARTS {
                return self.stop(Stop::Brain { reason: lost });
            }
        }
    }

    pub(crate) fn finished(&mut self) -> Result<Option<Ending>, AgentError> {
        let Some(ringwall_agent_model::Said::Assistant(turn)) = self.state.history.last() else {
            return Ok(None);
        };
        if !turn.calls.is_empty() {
            return Ok(None);
        }
        let text = turn.text.clone();
        if let (0, Some(id)) = (self.depth, self.state.sandbox.clone()) {
            // First, so that what has finished leaves no sandbox that lives, wherever it is killed.
            self.site = None;
            Site::end(self.world.engine, &id)?;
        }
        self.write(Entry::Finished { text: text.clone() }, true)?;
        Ok(Some(Ending::Finished { text, sandbox: self.state.sandbox.clone() }))
    }

    /// Does every call of the last turn that has no result yet, in order.
    pub(crate) fn answer_open(&mut self) -> Result<Option<Stop>, AgentError> {
        while let Some(open) = self.state.next_open().cloned() {
            let again = open.step.is_some();
            let step = match open.step {
                Some(step) => step,
                None => {
                    if let Some(stop) = self.state.reached() {
                        return Ok(Some(stop));
                    }
                    let step = self.state.steps + 1;
                    let Call { id, tool, input } = open.call.clone();
                    self.write(Entry::CallBegun { step, id, tool, input }, false)?;
                    step
                }
            };
            let begun = Instant::now();
            let done = match self.answer(step, &open.call, again) {
                Ok(done) => done,
                Err(Halt::Done(done)) => *done,
                Err(Halt::Stop(stop)) => return Ok(Some(stop)),
                Err(Halt::Fatal(error)) => return Err(*error),
            };
            let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.end_call(step, done, ms)?;
        }
        Ok(None)
    }

    /// `again`: it had begun when the agent was killed.
    fn answer(&mut self, step: u64, call: &Call, again: bool) -> Result<Done, Halt> {
        let wasm = self.world.wasm;
        let workspace = self.state.options.workspace.as_deref();
        let wish = Wish::of(&call.tool, &call.input, (workspace, &|name| wasm.has(name)));
        let wish = wish.map_err(|why| Halt::done(Done::failed(why)))?;
        let goes_on = match &wish {
            Wish::AskApproval { .. } => self.state.asked.contains_key(&step),
            Wish::SubAgent(_) => self.state.children.contains_key(&step),
            wish => wish.can_be_repeated(),
        };
        if again && !goes_on {
            return Ok(Done::failed(
                "it is not known whether this was done: the agent was killed while it was under \
                 way. Look before you do it again.",
            ));
        }
        self.perform(step, (&call.tool, wish), again)
    }

    fn end_call(&mut self, step: u64, done: Done, ms: u64) -> Result<(), AgentError> {
        let Done { content, failed, refused, place, taints } = done;
        if let Some(source) = taints {
            // First, so that no crash leaves a result that nobody knows to be tainted.
            self.take_in(step, source)?;
        }
        let active_ms = self.passed();
        let entry = Entry::CallEnded { step, content, failed, refused, place, ms, active_ms };
        self.write(entry, true)
    }

    pub(crate) fn stop(&mut self, stop: Stop) -> Result<Ending, AgentError> {
        self.write(Entry::Stopped { stop: stop.clone() }, true)?;
        Ok(Ending::Stopped(stop))
    }

    pub(crate) fn write(&mut self, entry: Entry, durable: bool) -> Result<(), AgentError> {
        self.journal.append(&entry, durable)?;
        self.state.apply(&entry);
        let (agent, depth, state) = (&self.journal.id, self.depth, &self.state);
        self.watcher.saw(&Happening::Entry { agent, depth, entry: &entry, state });
        Ok(())
    }

    /// The task as policy sees it at this moment.
    pub(crate) fn task(&self) -> Task {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.state.task(now)
    }

    pub(crate) fn stepping<'b>(&'b self, task: &'b Task) -> Stepping<'b> {
        Stepping { rules: &self.rules, task }
    }

    /// Whether grant and policy let a step be taken by the task as it is now.
    pub(crate) fn step(&self, step: Step<'_>) -> Result<(), Halt> {
        let task = self.task();
        let allowed = self.world.desk().step(&self.caller, self.stepping(&task), step);
        allowed.map_err(|refused| self.no(refused))
    }

    /// A refusal as the result of a call.
    pub(crate) fn no(&self, refused: Refused) -> Halt {
        match refused.kind {
            Kind::Internal => AgentError::Desk(refused).into(),
            Kind::DeniedByPolicy => Halt::done(Done::refused(self.with_taint(refused.why))),
            _ => Halt::done(Done::refused(refused.to_string())),
        }
    }

    /// The id of its grant.
    fn grant(&self) -> String {
        self.caller.holder().map(|holder| holder.id()).unwrap_or_default()
    }

    pub(crate) fn passed(&mut self) -> u64 {
        let since = std::mem::replace(&mut self.mark, Instant::now()).elapsed();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Time that no answer and no result accounts for.
    pub(crate) fn pass_time(&mut self) -> Result<(), AgentError> {
        let active_ms = self.passed();
        self.write(Entry::Waited { active_ms }, false)
    }
}

/// Before the model is asked anything.
fn may_begin(
    world: &World<'_>,
    caller: &Caller,
    (rules, options): (&Rules, &Options),
) -> Result<(), Refused> {
    let task = Task { trust: options.trust, ..Task::default() };
    world.desk().may_act_as(caller, Stepping { rules, task: &task })
}

fn rules(options: &Options) -> Result<Rules, Refused> {
    Rules::open(options.search(), options.workspace.as_deref())
}

pub(crate) fn token_of(caller: &Caller) -> String {
    caller.holder().map(|holder| holder.token_text()).unwrap_or_default()
}
