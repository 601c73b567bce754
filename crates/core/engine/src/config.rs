//! Where an engine keeps its state and finds its programs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use ringwall_image::{Image, Store};
use ringwall_linux::cgroup::Hierarchy;
use ringwall_linux::launch::{Parking, Spawner};
use ringwall_safekeeping::{Directory, Trust};
use ringwall_spec::CodeFor;

use crate::admit::Issue;
use crate::home;
use crate::host::{self, Caller};
use crate::ledger::Ledger;
use crate::raise::Parked;
use crate::tools::{ToolHost, ToolHostError};
use crate::turns::Turns;
use crate::vm::Start;

/// The two programs that an engine starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    pub launcher: PathBuf,
    pub warden: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sandbox records, kept changes and images.
    pub home: PathBuf,
    pub programs: Programs,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("no home directory is known; set RINGWALL_HOME to a directory for Ringwall's state")]
    NoHome,
    #[error(
        "the program {0} is missing next to ringwall; install all of Ringwall's programs in one directory"
    )]
    ProgramMissing(String),
    #[error(
        "the state directory {path} is not safe: {reason}; another user who can change it decides what `apply` writes, so make it yours alone, or set RINGWALL_HOME to another directory"
    )]
    Unsafe { path: String, reason: String },
    #[error("the running program could not be found")]
    NoExecutable(#[source] std::io::Error),
    #[error(
        "the directory {path} cannot be used for state; set RINGWALL_HOME to one you can write"
    )]
    Home { path: String, source: std::io::Error },
}

/// A launcher that starts while its caller finds out what to ask it for.
#[derive(Debug)]
pub struct EarlyLauncher {
    program: PathBuf,
    spawner: Spawner,
}

impl EarlyLauncher {
    /// `None` if it cannot be started: raising a sandbox tells why.
    pub fn start(config: &EngineConfig) -> Option<EarlyLauncher> {
        let program = config.programs.launcher.clone();
        let spawner = Spawner::start(&program).ok()?;
        Some(EarlyLauncher { program, spawner })
    }
}

/// What an engine is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// One sandbox, whose only command ends it.
    OneRun,
    /// One sandbox that lives on.
    OneLivingSandbox,
    /// As many as its process is asked for.
    Many,
}

impl Serves {
    /// What its launchers do after their first ring.
    pub(crate) fn parking(self) -> Parking {
        match self {
            Serves::OneRun | Serves::OneLivingSandbox => Parking::NotAtAll,
            Serves::Many => Parking::ForMore,
        }
    }
}

/// The control plane of one process.
#[derive(Debug)]
pub struct Engine {
    pub(crate) home: PathBuf,
    pub(crate) programs: Programs,
    pub(crate) caller: Caller,
    pub(crate) cgroups: Hierarchy,
    pub(crate) serves: Serves,
    pub(crate) apparmor: Option<String>,
    pub(crate) ledger: Arc<Ledger>,
    /// A launcher that was started early and has no template yet.
    pub(crate) waiting: Mutex<Option<Spawner>>,
    /// The image that the one run was found to need, so that it is chosen once.
    pub(crate) found_image: Mutex<Option<(String, Image)>>,
    /// Launchers that wait for the next ring of the same plan.
    pub(crate) parked: Mutex<Vec<Parked>>,
    /// Guests to go on from, by what they were made from, with the oldest first.
    pub(crate) templates: Mutex<Vec<(String, Arc<Start>)>>,
    /// A guest that starts keeps a processor busy; more of them only take its caches from each other.
    pub(crate) guest_starts: LazyLock<Turns>,
}

impl EngineConfig {
    /// State in `RINGWALL_HOME`, else where root's or the user's state belongs; programs next to
    /// the running one, or in `RINGWALL_PROGRAMS`.
    ///
    /// A process finds and checks them once: `ringwall run` asks in four places.
    pub fn from_environment() -> Result<EngineConfig, OpenError> {
        static FOUND: OnceLock<EngineConfig> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found.clone());
        }
        let found = EngineConfig::found_in_environment()?;
        Ok(FOUND.get_or_init(|| found).clone())
    }

    fn found_in_environment() -> Result<EngineConfig, OpenError> {
        let home = match std::env::var_os("RINGWALL_HOME") {
            Some(home) if !home.is_empty() => PathBuf::from(home),
            _ => default_home()?,
        };
        home::check(&home)
            .map_err(|reason| OpenError::Unsafe { path: home.display().to_string(), reason })?;
        let programs = match std::env::var_os("RINGWALL_PROGRAMS") {
            Some(dir) if !dir.is_empty() => PathBuf::from(dir),
            _ => {
                let own = std::env::current_exe().map_err(OpenError::NoExecutable)?;
                own.parent().map(Path::to_owned).unwrap_or_default()
            }
        };
        let programs = Programs {
            launcher: programs.join("ringwall-launcher"),
            warden: programs.join("ringwall-warden"),
        };
        Ok(EngineConfig { home, programs })
    }
}

fn default_home() -> Result<PathBuf, OpenError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/ringwall"));
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(data) = set("XDG_DATA_HOME") {
        return Ok(PathBuf::from(data).join("ringwall"));
    }
    let home = set("HOME").ok_or(OpenError::NoHome)?;
    Ok(PathBuf::from(home).join(".local/share/ringwall"))
}

impl Engine {
    pub fn open(config: EngineConfig) -> Result<Engine, OpenError> {
        Engine::open_with(config, None)
    }

    /// For a process that raises one sandbox and ends: the launcher starts at once, while the
    /// engine looks round, and prepares nothing for another. The sandbox ends with this thread,
    /// which must be the one that started `early`.
    pub fn open_for_one_sandbox(
        config: EngineConfig,
        early: Option<EarlyLauncher>,
    ) -> Result<Engine, OpenError> {
        let early = early.filter(|early| early.program == config.programs.launcher);
        let mut engine = Engine::open_serving(Serves::OneRun, config, early)?;
        // The ring is a child of ours: what it used is told when it ends.
        engine.cgroups = engine.cgroups.without_separate_accounting();
        Ok(engine)
    }

    /// For the keeper of one living sandbox: its launcher ends when the ring is up, so that no more
    /// processes stay than are needed. The sandbox ends with this thread.
    pub fn open_for_keeper(config: EngineConfig) -> Result<Engine, OpenError> {
        Engine::open_serving(Serves::OneLivingSandbox, config, None)
    }

    /// With a launcher that starts now, unless one was started early.
    fn open_serving(
        serves: Serves,
        config: EngineConfig,
        early: Option<EarlyLauncher>,
    ) -> Result<Engine, OpenError> {
        let early = early.or_else(|| EarlyLauncher::start(&config));
        let mut engine = Engine::open_with(config, early.map(|early| early.spawner))?;
        engine.serves = serves;
        Ok(engine)
    }

    fn open_with(config: EngineConfig, waiting: Option<Spawner>) -> Result<Engine, OpenError> {
        for program in [&config.programs.launcher, &config.programs.warden] {
            if !program.is_file() {
                return Err(OpenError::ProgramMissing(program.display().to_string()));
            }
        }
        let home = config.home;
        let sandboxes = home.join("sandboxes");
        Directory::make(&sandboxes, Trust::Own).map_err(|error| OpenError::Home {
            path: home.display().to_string(),
            source: error.into(),
        })?;
        Ok(Engine {
            ledger: Arc::new(Ledger::new(&home)),
            home,
            programs: config.programs,
            caller: Caller::read(),
            cgroups: Hierarchy::detect(),
            serves: Serves::Many,
            apparmor: host::sandbox_profile(),
            waiting: Mutex::new(waiting),
            found_image: Mutex::default(),
            parked: Mutex::new(Vec::new()),
            templates: Mutex::new(Vec::new()),
            guest_starts: LazyLock::new(Turns::by_processors),
        })
    }

    /// Runs WASM tools, in wardens of its own.
    pub fn tools(&self, issue: Issue<'_>) -> Result<ToolHost, ToolHostError> {
        self.tools_with(CodeFor::ThisProcessor, issue)
    }

    /// Runs WASM tools, with code that other processors can run too: tools in a guest need that.
    pub fn tools_with(
        &self,
        code_for: CodeFor,
        issue: Issue<'_>,
    ) -> Result<ToolHost, ToolHostError> {
        let config = EngineConfig { home: self.home.clone(), programs: self.programs.clone() };
        ToolHost::open(Engine::open(config)?, code_for, issue)
    }

    /// The image store of this engine.
    pub fn images(&self) -> Result<Store, ringwall_image::StoreError> {
        Store::open(&self.home.join("images"))
    }
}
