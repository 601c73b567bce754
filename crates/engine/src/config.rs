//! Where an engine keeps its state and finds its programs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ringwall_image::Store;
use ringwall_linux::cgroup::Hierarchy;
use ringwall_linux::launch::{Parking, Spawner};
use ringwall_spec::CodeFor;

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
    #[error("the running program could not be found")]
    NoExecutable(#[source] std::io::Error),
    #[error(
        "the directory {path} cannot be used for state; set RINGWALL_HOME to one you can write"
    )]
    Home { path: String, source: std::io::Error },
}

/// The control plane of one process.
#[derive(Debug)]
pub struct Engine {
    pub(crate) home: PathBuf,
    pub(crate) programs: Programs,
    pub(crate) caller: Caller,
    pub(crate) cgroups: Hierarchy,
    pub(crate) parking: Parking,
    pub(crate) apparmor: Option<String>,
    pub(crate) ledger: Arc<Ledger>,
    /// A launcher that was started early and has no template yet.
    pub(crate) waiting: Mutex<Option<Spawner>>,
    /// Launchers that wait for the next ring of the same plan.
    pub(crate) parked: Mutex<Vec<Parked>>,
    /// Guests to go on from, by what they were made from, with the oldest first.
    pub(crate) templates: Mutex<Vec<(String, Arc<Start>)>>,
    /// A guest that starts keeps a processor busy; more of them only take its caches from each other.
    pub(crate) guest_starts: Turns,
}

impl EngineConfig {
    /// State in `RINGWALL_HOME`, else where root's or the user's state belongs; programs next to
    /// the running one, or in `RINGWALL_PROGRAMS`.
    pub fn from_environment() -> Result<EngineConfig, OpenError> {
        let home = match std::env::var_os("RINGWALL_HOME") {
            Some(home) if !home.is_empty() => PathBuf::from(home),
            _ => default_home()?,
        };
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
    /// engine looks round, and prepares nothing for another. The sandbox ends with this thread.
    pub fn open_for_one_sandbox(config: EngineConfig) -> Result<Engine, OpenError> {
        // If it cannot be started, raising tells why.
        let waiting = Spawner::start(&config.programs.launcher).ok();
        let mut engine = Engine::open_with(config, waiting)?;
        engine.parking = Parking::NotAtAll;
        // The ring is a child of ours: what it used is told when it ends.
        engine.cgroups = engine.cgroups.without_separate_accounting();
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
        host::make_private_dirs(&sandboxes)
            .map_err(|source| OpenError::Home { path: home.display().to_string(), source })?;
        Ok(Engine {
            ledger: Arc::new(Ledger::new(&home)),
            home,
            programs: config.programs,
            caller: Caller::read(),
            cgroups: Hierarchy::detect(),
            parking: Parking::ForMore,
            apparmor: host::sandbox_profile(),
            waiting: Mutex::new(waiting),
            parked: Mutex::new(Vec::new()),
            templates: Mutex::new(Vec::new()),
            guest_starts: Turns::by_processors(),
        })
    }

    /// Runs WASM tools, in wardens of its own.
    pub fn tools(&self) -> Result<ToolHost, ToolHostError> {
        self.tools_with(CodeFor::ThisProcessor)
    }

    /// The same, with code that other processors can run too: what tools in a guest need.
    pub fn tools_with(&self, code_for: CodeFor) -> Result<ToolHost, ToolHostError> {
        let config = EngineConfig { home: self.home.clone(), programs: self.programs.clone() };
        ToolHost::open(Engine::open(config)?, code_for)
    }

    /// The image store of this engine.
    pub fn images(&self) -> Result<Store, ringwall_image::StoreError> {
        Store::open(&self.home.join("images"))
    }
}
