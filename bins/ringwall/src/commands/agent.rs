//! `ringwall agent`: run, resume, list, show and replay agents.

mod lines;
mod live;
mod show;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use ringwall_agent::{
    AgentId, Ending, Happening, Journal, ModelOptions, Options, Stop, Supervisor, WasmTools,
    Watcher, World, price_of, replay,
};
use ringwall_agent_model::Provider;
use ringwall_desk::{Books, Rules};
use ringwall_engine::{Engine, EngineConfig, PolicySearch};
use ringwall_spec::Limits;
use ringwall_workspace::check_workspace;

use crate::args::{AgentFormat, AgentRunArgs, AgentVerb, ApplyArgs, BoundArgs, OutputArgs};
use crate::questions::Questions;
use crate::{granted, report, screen, spec};
use lines::Lines;
use live::Live;

/// The agent came to rest before its task was done.
const STOPPED: u8 = 3;
/// Rules are evaluated on the supervisor's own thread.
const STACK_BYTES: usize = 32 << 20;

/// What every agent of this process stands on.
struct Ground {
    engine: Engine,
    books: Arc<Books>,
    home: PathBuf,
    programs: PathBuf,
}

/// The view of the agent's work.
enum Eyes {
    Lines(Lines),
    Live(Live),
}

pub(super) fn run(verb: AgentVerb) -> anyhow::Result<ExitCode> {
    let format = match &verb {
        AgentVerb::Run(args) => Some(args.format),
        AgentVerb::Resume { format, .. } => Some(*format),
        _ => None,
    };
    if format.is_some_and(is_live) {
        screen::watch_signals()?;
    }
    match verb {
        AgentVerb::Run(args) => on_own_thread(|| run_new(*args)),
        AgentVerb::Resume { id, bounds, apply, format } => {
            on_own_thread(|| resume(id, &bounds, apply, format))
        }
        AgentVerb::Show { id, output } => {
            let home = EngineConfig::from_environment()?.home;
            show::one(&home, &id, output.json())?;
            Ok(ExitCode::SUCCESS)
        }
        AgentVerb::Ls(output) => {
            let home = EngineConfig::from_environment()?.home;
            show::list(&home, output.json())?;
            Ok(ExitCode::SUCCESS)
        }
        AgentVerb::Replay { id, policy, output } => on_own_thread(|| replayed(&id, policy, output)),
    }
}

fn on_own_thread(
    work: impl FnOnce() -> anyhow::Result<ExitCode> + Send,
) -> anyhow::Result<ExitCode> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).context("no thread can be started")?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Ground {
    fn open() -> anyhow::Result<Ground> {
        let config = EngineConfig::from_environment()?;
        let home = config.home.clone();
        let programs = config.programs.launcher.parent().unwrap_or(Path::new("/")).to_owned();
        let books = Books::open(&home)?;
        Ok(Ground { engine: Engine::open(config)?, books, home, programs })
    }

    fn tools(&self, wanted: &[String]) -> anyhow::Result<WasmTools> {
        let places = (self.home.as_path(), self.programs.as_path());
        Ok(WasmTools::open(&self.engine, places, wanted, super::tool::note_compiling)?)
    }

    fn world<'a>(&'a self, wasm: &'a WasmTools) -> World<'a> {
        let Ground { engine, books, home, programs } = self;
        World { engine, books, home, programs, wasm }
    }
}

fn run_new(args: AgentRunArgs) -> anyhow::Result<ExitCode> {
    let ground = Ground::open()?;
    let options = options(&args, &ground.home)?;
    let wasm = ground.tools(&options.tools)?;
    let world = ground.world(&wasm);
    let mut eyes = Eyes::open(args.format, &world, &options)?;
    let grant = args.policy.grant.as_deref().map(granted::read_token).transpose()?;
    let grant = grant.map(|token| token.to_text().to_string());
    let mut supervisor = Supervisor::begin(&world, options, grant.as_deref(), &mut eyes)?;
    let ending = supervisor.run()?;
    let id = supervisor.id().clone();
    drop(supervisor);
    let ending = go_on(&world, &id, ending, &mut eyes)?;
    conclude(&world, &id, &ending, (args.apply, eyes))
}

/// While a person looks on, a question is answered at once, and the agent goes on.
fn go_on(
    world: &World<'_>,
    id: &AgentId,
    mut ending: Ending,
    eyes: &mut Eyes,
) -> anyhow::Result<Ending> {
    while let (Ending::Stopped(Stop::Approval { id: question, .. }), Eyes::Live(live)) =
        (&ending, &mut *eyes)
    {
        if !live.answered(world.home, question)? {
            break;
        }
        ending = Supervisor::resume(world, id.clone(), &|bounds| bounds, eyes)?.run()?;
    }
    Ok(ending)
}

impl Eyes {
    fn open(format: AgentFormat, world: &World<'_>, options: &Options) -> anyhow::Result<Eyes> {
        if !is_live(format) {
            return Ok(Eyes::Lines(Lines::new(format)));
        }
        let questions = Questions::new(world.home.to_owned(), options.search());
        Ok(Eyes::Live(Live::open(questions)?))
    }
}

impl Watcher for Eyes {
    fn saw(&mut self, happening: &Happening<'_>) {
        match self {
            Eyes::Lines(lines) => lines.show(happening),
            Eyes::Live(live) => live.saw(happening),
        }
    }
}

/// Whether a person at a terminal is shown a picture.
fn is_live(format: AgentFormat) -> bool {
    format == AgentFormat::Text && screen::is_there()
}

fn resume(
    id: AgentId,
    bounds: &BoundArgs,
    apply: bool,
    format: AgentFormat,
) -> anyhow::Result<ExitCode> {
    let ground = Ground::open()?;
    let journal = Journal::read(&ground.home, &id)?;
    let state = ringwall_agent::State::of(&journal).context("the journal has no beginning")?;
    let wasm = ground.tools(&state.options.tools)?;
    let world = ground.world(&wasm);
    let mut eyes = Eyes::open(format, &world, &state.options)?;
    let raised = |before| bounds.or(before);
    let ending = Supervisor::resume(&world, id.clone(), &raised, &mut eyes)?.run()?;
    let ending = go_on(&world, &id, ending, &mut eyes)?;
    conclude(&world, &id, &ending, (apply, eyes))
}

/// Says how it ended, shows its changes, and takes them over if the person wants that.
fn conclude(
    world: &World<'_>,
    id: &AgentId,
    ending: &Ending,
    (apply, eyes): (bool, Eyes),
) -> anyhow::Result<ExitCode> {
    let engine = world.engine;
    let mut lines = match eyes {
        Eyes::Lines(lines) => lines,
        Eyes::Live(live) => {
            // The picture is gone before anything is said that is to stay.
            drop(live);
            let state = ringwall_agent::State::of(&Journal::read(world.home, id)?);
            let used = state.map(|state| lines::spent(&state.spent_in_all()));
            Lines::after_picture(id, &used.unwrap_or_default())
        }
    };
    lines.ended(id, ending)?;
    let (text, sandbox) = match ending {
        Ending::Finished { text, sandbox } => (text, sandbox),
        Ending::Stopped(stop) => {
            report::note(&format!("{stop}; go on with `ringwall agent resume {id}`"));
            return Ok(ExitCode::from(STOPPED));
        }
    };
    lines.answer(text)?;
    let Some(sandbox) = sandbox else { return Ok(ExitCode::SUCCESS) };
    let record = engine.find(sandbox)?;
    let changes = record.outcome.as_ref().and_then(|outcome| outcome.changes);
    if changes.is_none_or(|summary| summary.is_empty()) {
        engine.remove(&record)?;
        return Ok(ExitCode::SUCCESS);
    }
    engine.changes(&record)?.write_status(&mut std::io::stderr())?;
    if apply {
        let args = ApplyArgs {
            allow_protected: Vec::new(),
            except: Vec::new(),
            force: false,
            strict: false,
            output: OutputArgs::TEXT,
            sandbox: sandbox.clone(),
            paths: Vec::new(),
        };
        super::apply::take_over(engine, &args)?;
        report::note("the changes were written to the workspace");
    } else if let Some(hint) = report::hint_at_changes(&record.id, changes) {
        report::note(&hint);
    }
    Ok(ExitCode::SUCCESS)
}

fn options(args: &AgentRunArgs, home: &Path) -> anyhow::Result<Options> {
    let provider = match args.model.provider {
        crate::args::ProviderName::Anthropic => Provider::Anthropic,
        crate::args::ProviderName::Openai => Provider::Openai,
        crate::args::ProviderName::OpenaiResponses => Provider::OpenaiResponses,
    };
    let base_url = args.model.base_url.clone();
    let base_url = base_url.unwrap_or_else(|| provider.usual_url().to_owned());
    let base_url = base_url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
    if args.task.trim().is_empty() {
        bail!("the task is empty; say what is to be done");
    }
    let path = args.workspace.as_deref().map(check_workspace).transpose()?;
    Ok(Options {
        task: args.task.clone(),
        model: ModelOptions {
            provider,
            name: args.model.model.clone(),
            price: price_of(&args.model.model, &base_url, home, args.model.allow_unpriced)?,
            base_url,
            key: args.model.key_secret.clone(),
            max_output_tokens: args.model.max_output_tokens,
        },
        workspace: path.map(|checked| checked.path().to_owned()),
        wall: args.policy.wall.clone(),
        image: args.policy.image.clone(),
        trust: args.policy.trust,
        risk: args.policy.risk,
        phase: args.policy.phase.clone(),
        kind: args.policy.kind,
        policy: args.policy.policy.clone(),
        network: spec::network(&args.network)?,
        granted: args.policy.grant.is_some(),
        limits: args
            .limits
            .or(Limits { timeout: std::time::Duration::from_secs(300), ..Limits::default() }),
        tools: match (args.no_tools, args.tools.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => vec!["*".to_owned()],
            (false, false) => args.tools.clone(),
        },
        bounds: args.bounds.or(ringwall_agent::Bounds::default()),
    })
}

fn replayed(id: &AgentId, policy: Option<PathBuf>, output: OutputArgs) -> anyhow::Result<ExitCode> {
    let config = EngineConfig::from_environment()?;
    let lines = Journal::read(&config.home, id)?;
    let state = ringwall_agent::State::of(&lines).context("the journal has no beginning")?;
    let search = match policy {
        Some(file) => PolicySearch { named: Some(file), ..PolicySearch::default() },
        None => PolicySearch::from_environment(state.options.workspace.clone()),
    };
    search.load()?;
    let rules = Rules::open(search, state.options.workspace.as_deref())?;
    let engine = Engine::open(config)?;
    let calls = replay(&lines, &rules, &engine.host_facts(state.options.image.is_some()));
    let refused = show::replayed(&calls, output.json())?;
    Ok(if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether a person looks on.
fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}
