//! What all requests share: engines, state, room, and what is under way.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ringwall_desk::{
    Action, Books, Caller, Desk, Elevated, Keeper, OWNER, Refused, Reservation, Share,
};
use ringwall_engine::{Attached, Engine, EngineConfig, OpenError, Record, RecordKind, RecordState};
use ringwall_safekeeping::{Hold, Lock, Wait, lock_within};
use ringwall_spec::Outcome;
use ringwall_store::{NewSandbox, SandboxRow, Store, StoreError, now_ms};
use ringwall_tool::{BuiltIns, ToolStore};
use serde_json::json;

use crate::admission::{Admission, Room, Slot};
use crate::engines::Engines;
use crate::held::Rooms;
use crate::lanes::{Lanes, Whose};
use crate::live::{LiveCall, LiveCalls, LiveRuns};
use crate::metrics::Metrics;
use crate::options::Options;
use crate::page::Pages;
use crate::problem::{Code, Problem};
use crate::routes::tools::KnownTools;
use crate::spending::SharedStore;
use crate::trace::{self, Context, TraceError, Tracer};
use crate::warm::Warm;

/// How long what has ended is remembered.
const MEMORY: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum OpenServiceError {
    #[error(transparent)]
    Engine(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tools(#[from] ringwall_tool::StoreError),
    #[error("another daemon serves {0}; end it first, or set RINGWALL_HOME to another directory")]
    Taken(String),
    #[error(transparent)]
    Books(#[from] Refused),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("the state directory {path} cannot be used")]
    Io { path: String, source: std::io::Error },
}

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) home: PathBuf,
    /// For all that is not one tenant's job: records, keepers, cleaning up.
    pub(crate) engine: Arc<Engine>,
    pub(crate) engines: Engines,
    pub(crate) store: Arc<Store>,
    pub(crate) tools: ToolStore,
    pub(crate) known_tools: KnownTools,
    pub(crate) admission: Admission,
    /// Threads for short work.
    work: Lanes,
    /// Threads for files on their way.
    pub(crate) transfers: Lanes,
    /// Memory for the bodies of requests.
    pub(crate) rooms: Rooms,
    pub(crate) calls: LiveCalls,
    pub(crate) runs: LiveRuns,
    pub(crate) metrics: Metrics,
    /// Where traces are asked for.
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub(crate) warm: Warm,
    pub(crate) pages: Pages,
    /// Grants, budgets and approvals.
    pub(crate) books: Arc<Books>,
    /// Whether other daemons may be on the same database.
    pub(crate) shared: bool,
    /// Connections to sandboxes that live, by id.
    attached: Mutex<HashMap<String, Arc<Living>>>,
    /// What living sandboxes take of the memory, by id.
    memory: Mutex<HashMap<String, Slot>>,
    /// Held shared from the making of a sandbox until it stands in the store.
    making: RwLock<()>,
    /// One daemon for each home.
    _lock: Lock,
}

/// A sandbox that lives, and the way to it.
#[derive(Debug)]
pub(crate) struct Living {
    pub(crate) record: Record,
    pub(crate) attached: Attached,
    tenant: String,
    task: String,
}

impl Service {
    pub(crate) fn open(
        config: EngineConfig,
        options: &Options,
    ) -> Result<Service, OpenServiceError> {
        let home = config.home.clone();
        let programs = config.programs.launcher.parent().map(PathBuf::from).unwrap_or_default();
        let engine = Arc::new(Engine::open(config.clone())?);
        let lock = take_lock(&home)?;
        let store = match &options.postgresql {
            Some(settings) => Store::postgresql(settings, &engine_name(&home))?,
            None => Store::sqlite(&home.join("daemon.db"), "local")?,
        };
        store.begin()?;
        store.forget_before(
            now_ms().saturating_sub(u64::try_from(MEMORY.as_millis()).unwrap_or(u64::MAX)),
        )?;
        let store = Arc::new(store);
        let shared = options.postgresql.is_some();
        let elsewhere = shared.then(|| Box::new(SharedStore(Arc::clone(&store))) as _);
        let books = Books::open_with(&home, elsewhere)?;
        // Better now than at the first call.
        books.spending()?.tenants().map_err(Refused::from)?;
        let room = Room {
            jobs: options.jobs.max(1),
            jobs_per_tenant: options.jobs_per_tenant.max(1),
            memory_bytes: options.memory_bytes.unwrap_or_else(host_memory),
        };
        let service = Service {
            tools: ToolStore::open(&home.join("tools"), BuiltIns::from_environment(&programs))?,
            known_tools: KnownTools::default(),
            engines: Engines::new(config),
            engine,
            store,
            admission: Admission::new(room),
            work: Lanes::for_work(),
            transfers: Lanes::for_transfers(),
            rooms: Rooms::default(),
            calls: LiveCalls::default(),
            runs: LiveRuns::default(),
            metrics: Metrics::default(),
            tracer: Tracer::from_environment()?,
            warm: Warm::new(&options.warm),
            pages: Pages::new(options.listen, options.tls.is_some()),
            books,
            shared,
            attached: Mutex::default(),
            memory: Mutex::default(),
            making: RwLock::new(()),
            _lock: lock,
            home,
        };
        Ok(service)
    }

    /// Compares what the store says with what lives, both ways.
    pub(crate) fn look_round(&self) -> Result<(), Problem> {
        self.books.record_ended()?;
        let nothing_is_half_made = self.making.try_write().ok();
        let records = self.engine.records()?;
        let by_id: HashMap<&str, &Record> =
            records.iter().map(|record| (record.id.as_str(), record)).collect();
        let rows = self.store.living()?;
        for row in &rows {
            match by_id.get(row.id.as_str()) {
                Some(record) if record.state == RecordState::Running => {
                    self.count_memory(record, &row.tenant);
                }
                _ if nothing_is_half_made.is_none() => {}
                found => {
                    let outcome = found.and_then(|record| record.outcome.as_ref());
                    self.ended(&row.id, outcome)?;
                }
            }
        }
        if nothing_is_half_made.is_none() {
            return Ok(());
        }
        let known: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        for record in records.iter().filter(|record| !known.contains(record.id.as_str())) {
            let lives = record.state == RecordState::Running && record.kind == RecordKind::Living;
            if lives && !record.ready && self.store.any_sandbox(record.id.as_str())?.is_none() {
                // Made by the command line: the owner's.
                self.remember(&Caller::Owner, record, record.name.as_ref().map(|it| it.as_str()))?;
            }
        }
        Ok(())
    }

    /// To be held while a sandbox is made and written down.
    pub(crate) fn making(&self) -> std::sync::RwLockReadGuard<'_, ()> {
        self.making.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remember(
        &self,
        caller: &Caller,
        record: &Record,
        name: Option<&str>,
    ) -> Result<(), Problem> {
        let spec = json!({
            "wall": record.wall,
            "image": record.image,
            "workspace": record.workspace,
            "limits": record.limits,
            "command": record.command,
        });
        self.store.add_sandbox(&NewSandbox {
            id: record.id.as_str(),
            tenant: caller.tenant(),
            task: caller.task(),
            name,
            spec: &spec.to_string(),
        })?;
        Ok(())
    }

    fn count_memory(&self, record: &Record, tenant: &str) {
        let mut memory = lock(&self.memory);
        if !memory.contains_key(record.id.as_str()) {
            let taken = self.admission.take_memory(tenant, record.limits.memory_bytes);
            memory.insert(record.id.to_string(), taken);
        }
    }

    /// A sandbox that was just made keeps the memory that it was let in with.
    pub(crate) fn hold_memory(&self, id: &str, slot: Slot) {
        let kept = slot.keep_memory();
        lock(&self.memory).insert(id.to_owned(), kept);
    }

    pub(crate) fn ended(&self, id: &str, outcome: Option<&Outcome>) -> Result<(), Problem> {
        let usage = outcome.map(|outcome| &outcome.usage);
        self.books.sandbox_ended(Keeper::Daemon, id, usage)?;
        self.store.end_sandbox(id, &serde_json::to_string(&outcome).unwrap_or_default())?;
        lock(&self.attached).remove(id);
        let taken = lock(&self.memory).remove(id);
        drop(taken);
        Ok(())
    }

    pub(crate) fn living_count(&self) -> usize {
        lock(&self.memory).len()
    }

    /// The sandbox that a caller means, if it is one that the caller may see, running or kept.
    pub(crate) fn record(&self, caller: &Caller, id: &str) -> Result<Record, Problem> {
        let row = self.row(caller, id)?;
        self.engine.find(&row.id).map_err(|_| {
            let why = format!("the sandbox {id} has ended, and nothing of it is kept");
            Problem::new(Code::NotRunning, why)
        })
    }

    pub(crate) fn row(&self, caller: &Caller, id: &str) -> Result<SandboxRow, Problem> {
        if let Some(row) = self.seen(caller, id)? {
            return Ok(row);
        }
        // It may have been made by the command line a moment ago.
        if matches!(caller, Caller::Owner) && self.engine.find(id).is_ok() {
            self.look_round()?;
            if let Some(row) = self.seen(caller, id)? {
                return Ok(row);
            }
        }
        Err(Problem::not_found("sandbox", id))
    }

    /// By its id, of whatever task the caller may see, or else by the name that the caller's own task gave it.
    fn seen(&self, caller: &Caller, id: &str) -> Result<Option<SandboxRow>, Problem> {
        if let Some(row) = self.store.any_sandbox(id)? {
            return Ok(Some(row).filter(|row| caller.sees(&row.tenant, &row.task)));
        }
        let named = self.store.sandbox(caller.tenant(), id)?;
        Ok(named.filter(|row| caller.sees(&row.tenant, &row.task)))
    }

    /// A connection to a sandbox that lives.
    pub(crate) fn attach(&self, caller: &Caller, id: &str) -> Result<Arc<Living>, Problem> {
        // By its whole id, and one that this caller may see: the store would say the same.
        if let Some(living) = lock(&self.attached).get(id)
            && caller.sees(&living.tenant, &living.task)
        {
            return Ok(Arc::clone(living));
        }
        let row = self.row(caller, id)?;
        if let Some(living) = lock(&self.attached).get(&row.id) {
            return Ok(Arc::clone(living));
        }
        let record = self
            .engine
            .find(&row.id)
            .map_err(|_| Problem::new(Code::NotRunning, format!("the sandbox {id} has ended")))?;
        let attached = self.engine.attach(&record)?;
        let living = Arc::new(Living { record, attached, tenant: row.tenant, task: row.task });
        lock(&self.attached).insert(row.id, Arc::clone(&living));
        Ok(living)
    }

    /// A sandbox that was kept ready comes with its connection.
    pub(crate) fn attached(&self, caller: &Caller, record: Record, attached: Attached) {
        let id = record.id.to_string();
        let (tenant, task) = (caller.tenant().to_owned(), caller.task().to_owned());
        let living = Arc::new(Living { record, attached, tenant, task });
        lock(&self.attached).insert(id, living);
    }

    /// After a connection that did not work: the next one is made anew.
    pub(crate) fn detach(&self, id: &str) {
        lock(&self.attached).remove(id);
    }

    /// Where it is decided what a caller may do.
    pub(crate) fn desk(&self) -> Desk<'_> {
        Desk::new(&self.engine, &self.books)
    }

    /// Whether the caller may do this with the sandbox; see [`Desk::enter`].
    pub(crate) fn enter(
        &self,
        caller: &Caller,
        record: &Record,
        action: Action<'_>,
    ) -> Result<Option<Elevated>, Problem> {
        let search = Desk::policy_of(record);
        let entered = self.desk().enter(caller, (record, &search), action);
        entered.map_err(|refused| self.told(refused))
    }

    /// Whether the caller may see what a call writes, or end it: it is the caller's, or in a sandbox that
    /// the caller may use.
    pub(crate) fn may_follow(&self, caller: &Caller, call: &LiveCall) -> Result<(), Problem> {
        if caller.is_above(&call.caller) {
            return Ok(());
        }
        let record = self.record(caller, &call.sandbox)?;
        self.enter(caller, &record, Action::Follow).map(drop)
    }

    /// A connection to a sandbox whose files the caller may use.
    pub(crate) fn files(&self, caller: &Caller, id: &str) -> Result<Arc<Living>, Problem> {
        let living = self.attach(caller, id)?;
        self.enter(caller, &living.record, Action::Files)?;
        Ok(living)
    }

    pub(crate) fn reserve(
        &self,
        caller: &Caller,
        name: &str,
        share: Share,
    ) -> Result<Reservation, Problem> {
        let reserved = self.desk().reserve_within(caller, (name, share));
        reserved.map_err(|refused| self.told(refused))
    }

    /// A refusal as an answer, with where a person decides about it.
    pub(crate) fn told(&self, refused: Refused) -> Problem {
        if let Some(part) = refused.part {
            self.metrics.spent(part);
        }
        let url = refused.asked.as_ref().and_then(|it| self.pages.place.of(it.id.as_str()));
        Problem::of(refused, url)
    }

    /// Does short work that blocks, on one of the threads for that.
    pub(crate) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        whose: Whose,
        work: impl FnOnce(&Arc<Service>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let lane = self.work.take(&whose).await?;
        self.block(move |service| {
            let _lane = lane;
            work(service)
        })
        .await
    }

    /// Does a job in its slot, which it has until it is over.
    pub(crate) async fn job<T: Send + 'static>(
        self: &Arc<Self>,
        slot: Slot,
        job: impl FnOnce(&Arc<Service>, Slot) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.block(move |service| job(service, slot)).await
    }

    /// Does the daemon's own work.
    pub(crate) async fn housekeep<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Service>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.block(work).await
    }

    /// Every caller counts the thread that this takes: see [`crate::lanes`].
    async fn block<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Service>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let (service, context) = (Arc::clone(self), trace::current());
        let working = move || Context::within(context, || work(&service));
        match tokio::task::spawn_blocking(working).await {
            Ok(done) => done,
            Err(_) => Err(Problem::new(Code::Ending, "the request was broken off")),
        }
    }
}

/// The tenant that names belong to in the engine itself.
pub(crate) fn engine_name_for(caller: &Caller, name: Option<&str>) -> Option<String> {
    // A name in the engine is seen by all: whether it is taken must not tell of other tenants.
    name.filter(|_| caller.tenant() == OWNER).map(str::to_owned)
}

fn take_lock(home: &std::path::Path) -> Result<Lock, OpenServiceError> {
    let path = home.join("daemon.lock");
    match lock_within(&path, Hold::Alone, Wait::Never) {
        Ok(lock) => lock.ok_or_else(|| OpenServiceError::Taken(home.display().to_string())),
        Err(error) => {
            Err(OpenServiceError::Io { path: path.display().to_string(), source: error.into() })
        }
    }
}

/// Which rows of a shared server are ours: the same after every start.
fn engine_name(home: &std::path::Path) -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.nodename().to_string_lossy(), home.display())
}

/// All of this machine's memory.
fn host_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(1 << 20).saturating_mul(1024)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
