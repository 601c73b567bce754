//! Runs WASM tools: compiles them once, and calls them in jailed wardens that stay up.
//!
//! Invariant: no byte of a tool is parsed or run in this process. A compiler and wardens do that,
//! each in a ring that holds nothing but itself and its grants.

mod call;
mod compile;
mod dirs;
mod inside;
mod pool;
mod reaching;
mod warden;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringwall_permit::Permit;
use ringwall_ring::{Ring, RingInput};
use ringwall_ring_wasm::{Cache, CacheError, Entry, WasmRing};
use ringwall_spec::{
    CodeFor, Evidence, Invalid, Limits, RingKind, SandboxSpec, ToolDigest, ToolTotals, Wall,
};
use ringwall_wire::GuestDir;

use crate::admit::Issue;
use crate::config::{Engine, OpenError};
use crate::place::{PlaceError, Placement};
use crate::raise::{Begun, RaiseError};
use crate::record::RecordKind;
use crate::sandbox::Sandbox;
use crate::{host, limits};
pub use call::{ToolCall, ToolError, ToolInput, ToolNetwork, ToolOutcome};
pub use compile::{CompileError, Compiled};
pub use dirs::DirGrant;
use dirs::GrantClass;
pub(crate) use inside::{How, Inside};
use pool::Pool;
use warden::Warden;

/// Below the engine's home.
const CACHE: &str = "tools-cache";

#[derive(Debug, thiserror::Error)]
pub enum ToolHostError {
    #[error(transparent)]
    Engine(#[from] OpenError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("the limits of the rings for tools make no sense")]
    Limits(#[from] Invalid),
    #[error(
        "the program {0:?} is missing next to ringwall; install all programs of Ringwall in one directory"
    )]
    ProgramMissing(PathBuf),
}

/// Compiles and calls tools. Clones share wardens and the cache; all end with the last clone.
#[derive(Debug, Clone)]
pub struct ToolHost {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    rings: Arc<Rings>,
    pool: Pool,
    /// What has been verified and is open.
    known: Mutex<HashMap<ToolDigest, Arc<Entry>>>,
    totals: Mutex<ToolTotals>,
    reaching: reaching::Reaching,
}

/// What it takes to raise a ring for WASM.
#[derive(Debug)]
struct Rings {
    cache: Cache,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// Each ring is an outermost one.
    Host(Box<HostPlace>),
    /// Each ring is the innermost of a sandbox.
    Inside(Box<Inside>),
}

#[derive(Debug)]
struct HostPlace {
    engine: Engine,
    permits: ToolPermits,
    warden: PathBuf,
    compiler: PathBuf,
}

/// What a host of tools raises by: it has no sandbox of its own whose permit would do.
#[derive(Debug)]
struct ToolPermits {
    warden: Permit,
    compiler: Permit,
}

impl ToolPermits {
    fn issued(issue: Issue<'_>) -> Result<ToolPermits, ToolHostError> {
        let of = |limits: Limits| {
            let spec = SandboxSpec { limits, ..SandboxSpec::new(Wall::single(RingKind::Wasm)) };
            Ok::<_, ToolHostError>(issue(ringwall_spec::validate(spec)?.into()))
        };
        Ok(ToolPermits { warden: of(warden::limits())?, compiler: of(compile::limits())? })
    }
}

impl ToolHost {
    pub(crate) fn open(
        engine: Engine,
        code_for: CodeFor,
        issue: Issue<'_>,
    ) -> Result<ToolHost, ToolHostError> {
        let beside = |name: &str| {
            let path = engine.programs.warden.with_file_name(name);
            if path.is_file() { Ok(path) } else { Err(ToolHostError::ProgramMissing(path)) }
        };
        let (warden, compiler) =
            (beside("ringwall-wasm-warden")?, beside("ringwall-wasm-compiler")?);
        let cache = Cache::open(&engine.home.join(CACHE))?.with_code_for(code_for);
        let permits = ToolPermits::issued(issue)?;
        let host = HostPlace { engine, permits, warden, compiler };
        Ok(ToolHost::new(cache, Place::Host(Box::new(host))))
    }

    /// For the wasm ring of a sandbox, of which a first one is raised and checked.
    pub(crate) fn inside(home: &Path, inside: Inside) -> Result<ToolHost, RaiseError> {
        let code_for = inside.code_for();
        let cache = Cache::open(&home.join(CACHE))?.with_code_for(code_for);
        let host = ToolHost::new(cache, Place::Inside(Box::new(inside)));
        drop(host.inner.pool.seat(&GrantClass::default())?);
        Ok(host)
    }

    fn new(cache: Cache, place: Place) -> ToolHost {
        let rings = Arc::new(Rings { cache, place });
        let inner = Inner {
            pool: Pool::new(Arc::clone(&rings)),
            rings,
            known: Mutex::default(),
            totals: Mutex::default(),
            reaching: reaching::Reaching::default(),
        };
        ToolHost { inner: Arc::new(inner) }
    }

    /// The checked facts of one of its rings, and of those outside it.
    pub(crate) fn evidence(&self) -> Vec<Evidence> {
        self.inner.pool.wardens().first().map(|one| one.evidence.to_vec()).unwrap_or_default()
    }

    /// Keeps so many wardens without grants up and idle, from now on. They are raised in the
    /// background; until then calls raise what they need.
    pub fn keep_ready(&self, wardens: usize) {
        self.inner.pool.keep_ready(wardens);
    }

    /// The processes of its wardens, as numbered here outside; none of those inside a sandbox.
    pub fn wardens(&self) -> Vec<u32> {
        self.inner.pool.wardens().iter().filter_map(|warden| warden.pid()).collect()
    }

    pub fn calls_under_way(&self) -> usize {
        let calls = |warden: &Arc<Warden>| warden.calls.load(Ordering::SeqCst);
        self.inner.pool.wardens().iter().map(calls).sum()
    }

    pub fn totals(&self) -> ToolTotals {
        let (started, lost) = self.inner.pool.counts();
        ToolTotals { wardens_started: started, wardens_lost: lost, ..*lock(&self.inner.totals) }
    }
}

impl Rings {
    /// Looks at the directories that a call is granted, where they are.
    fn resolve(&self, grants: &[DirGrant]) -> Result<(GrantClass, Vec<GuestDir>), ToolError> {
        match &self.place {
            Place::Host(host) => dirs::resolve(grants, |grant| dirs::look(&host.engine, grant)),
            Place::Inside(inside) => dirs::resolve(grants, |grant| inside.look(grant)),
        }
    }

    fn raise_warden(&self, class: GrantClass) -> Result<Warden, RaiseError> {
        match &self.place {
            Place::Host(host) => Warden::raise(host, &self.cache, class),
            Place::Inside(inside) => Warden::raise_inside(inside, class),
        }
    }
}

impl HostPlace {
    /// Raises a ring in which `program` is the warden.
    fn raise(
        &self,
        program: &Path,
        ring: &WasmRing,
        permit: &Permit,
        what: &str,
    ) -> Result<Sandbox, RaiseError> {
        let begun = Begun { at: Instant::now(), id: host::new_id() };
        let placement = self.engine.place_wasm(program, ring, permit)?;
        let command = [what.to_owned()];
        self.engine.raise_placed(placement, begun, RecordKind::Run, &command)
    }
}

impl Engine {
    /// The ring of a warden without grants.
    pub(crate) fn place_tools(&self, permit: &Permit) -> Result<Placement, PlaceError> {
        let ring = WasmRing { grants: Vec::new(), cache: None };
        self.place_wasm(&self.wasm_warden_program()?, &ring, permit)
    }

    fn place_wasm(
        &self,
        program: &Path,
        ring: &WasmRing,
        permit: &Permit,
    ) -> Result<Placement, PlaceError> {
        let kept = limits::kept(permit.spec(), &self.cgroups)?;
        let input = RingInput {
            admitted: permit.valid_spec(),
            identity: self.caller.identity()?,
            warden: program.to_owned(),
            wasm_warden: None,
            shown: Vec::new(),
            masked: Vec::new(),
            workspace: None,
            host_links: Vec::new(),
            host_dirs: Vec::new(),
            in_parts: BTreeMap::new(),
            layers: Vec::new(),
            image_user: (0, 0),
            cgroup_files: self.cgroups.join_file_count(),
            without_cgroup: limits::without_cgroup(&kept),
            inherited_filters: self.caller.seccomp_filters,
            apparmor: self.apparmor.clone(),
            hostname: "ring-wasm".to_owned(),
            network: None,
            prepared: false,
        };
        let plan = ring.plan(&input)?;
        Ok(Placement::bare(plan, kept, permit.clone()))
    }
}

/// Nothing panics while holding one of these locks; if something did, the maps are still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
