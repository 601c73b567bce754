//! What the store of one call holds: its view of the world, and its limits.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use ringwall_spec::{DirAccess, ToolLimits};
use ringwall_wire::{CallTool, GuestDir};
use wasmtime::{CallHook, Error, ResourceLimiter, Result, Store, StoreContextMut, UpdateDeadline};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{FsPerms, WasiCtxBuilder, WasiCtxView, WasiView};

use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use crate::clock::{CoarseMonotonic, CoarseWall, Counting, FixedWall};
use crate::doors::Doors;
use crate::http::Http;
use crate::output::Output;

/// Where a ring with a root of its own has its granted directories, by number.
const GRANTS: &str = "/grants";

/// Open files, streams and the like of one call.
const MAX_RESOURCES: usize = 1024;
/// Bytes that one host call may hand over.
const MAX_HOST_CALL_BYTES: usize = 32 << 20;
/// Bytes of random numbers that one host call may ask for.
const MAX_RANDOM_BYTES: u64 = 1 << 20;

const MAX_INSTANCES: usize = 256;
const MAX_TABLES: usize = 64;
const MAX_MEMORIES: usize = 4;

pub(crate) struct Context {
    wasi: WasiP1Ctx,
    /// Used only by tools that were loaded with it.
    http: Http,
    pub(crate) limiter: Limiter,
    /// Standard error, and what is said to the host's log.
    pub(crate) log: Output,
    pub(crate) host_calls: HostCalls,
    pub(crate) timed_out: bool,
    /// When the monotonic clock of this call began.
    pub(crate) begun: Instant,
}

/// Counts memory and tables.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory_most: usize,
    memory: usize,
    elements_most: usize,
    elements: usize,
    pub(crate) peak_bytes: usize,
    pub(crate) refused: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct HostCalls {
    most: u64,
    pub(crate) made: u64,
}

/// What every call of this ring is made with.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) grants: Grants,
    pub(crate) doors: Doors,
}

/// Where the granted directories of this ring are.
#[derive(Debug, Clone)]
pub(crate) struct Grants(Option<Rc<[String]>>);

impl Grants {
    /// Inside another ring they are where that one has them.
    pub(crate) fn new(given: impl Iterator<Item = String>) -> Grants {
        let paths: Rc<[String]> = given.collect();
        Grants((!paths.is_empty()).then_some(paths))
    }

    fn path(&self, number: u16) -> Result<String> {
        match &self.0 {
            None => Ok(format!("{GRANTS}/{number}")),
            Some(paths) => {
                let path = paths.get(usize::from(number)).cloned();
                path.ok_or_else(|| Error::msg("the directory was not granted"))
            }
        }
    }
}

/// What a call gets to see, as a store that stops it at every limit.
pub(crate) fn store(
    Surroundings { engine, grants, doors }: &Surroundings,
    call: &CallTool,
    stdin: Vec<u8>,
    streams: (&Output, &Output),
    deadline: Instant,
) -> Result<Store<Context>> {
    let limits = &call.limits;
    let begun = Instant::now();
    let context = Context {
        wasi: world((call, grants), stdin, streams, begun)?,
        http: Http::new(doors, streams.1),
        limiter: Limiter::new(limits),
        log: streams.1.clone(),
        host_calls: HostCalls { most: limits.host_calls, made: 0 },
        timed_out: false,
        begun,
    };
    let mut store = Store::new(engine, context);
    store.data_mut().wasi.ctx().table.set_max_capacity(MAX_RESOURCES);
    store.limiter(|context| &mut context.limiter);
    store.set_fuel(limits.fuel)?;
    store.set_hostcall_fuel(MAX_HOST_CALL_BYTES);
    store.call_hook(count_host_calls);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |mut store| {
        // Ticks are not counted: they come late on a busy machine.
        if Instant::now() < deadline {
            return Ok(UpdateDeadline::Yield(1));
        }
        store.data_mut().timed_out = true;
        Ok(UpdateDeadline::Interrupt)
    });
    Ok(store)
}

fn world(
    (call, grants): (&CallTool, &Grants),
    stdin: Vec<u8>,
    (out, err): (&Output, &Output),
    begun: Instant,
) -> Result<WasiP1Ctx> {
    let mut builder = WasiCtxBuilder::new();
    builder
        // There is one thread; what blocks it for too long is ended from outside.
        .allow_blocking_current_thread(true)
        .stdin(MemoryInputPipe::new(stdin))
        .stdout(out.clone())
        .stderr(err.clone())
        .args(&call.args)
        .envs(&call.env)
        .max_random_size(MAX_RANDOM_BYTES);
    match call.seed {
        Some(seed) => builder
            .secure_random(StdRng::seed_from_u64(seed))
            .insecure_random(StdRng::seed_from_u64(!seed))
            .insecure_random_seed(seed.into())
            .wall_clock(FixedWall)
            .monotonic_clock(Counting::default()),
        None => builder.wall_clock(CoarseWall).monotonic_clock(CoarseMonotonic(begun)),
    };
    for GuestDir { number, guest, access } in &call.dirs {
        let access = match access {
            DirAccess::Read => FsPerms::ReadOnly,
            DirAccess::Write => FsPerms::ReadWrite,
        };
        builder.preopened_dir(grants.path(*number)?, guest, access)?;
    }
    Ok(builder.build_p1())
}

fn count_host_calls(mut store: StoreContextMut<'_, Context>, hook: CallHook) -> Result<()> {
    if hook.entering_host() {
        let calls = &mut store.data_mut().host_calls;
        calls.made += 1;
        if calls.made > calls.most {
            return Err(Error::msg("too many calls of the host"));
        }
    }
    Ok(())
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn wasi(&mut self) -> &mut WasiP1Ctx {
        &mut self.wasi
    }
}

impl WasiView for Context {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

impl WasiHttpView for Context {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.http.view(self.wasi.ctx().table)
    }
}

impl HostCalls {
    pub(crate) fn exhausted(self) -> bool {
        self.made > self.most
    }
}

impl Limiter {
    fn new(limits: &ToolLimits) -> Limiter {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Limiter {
            memory_most: size(limits.memory_bytes),
            memory: 0,
            elements_most: size(limits.table_elements.into()),
            elements: 0,
            peak_bytes: 0,
            refused: false,
        }
    }

    /// The new total, if it is within bounds.
    fn grown(&mut self, total: usize, most: usize, by: (usize, usize)) -> Option<usize> {
        let grown = total.saturating_add(by.1.saturating_sub(by.0));
        if grown > most {
            self.refused = true;
            return None;
        }
        Some(grown)
    }

    fn note_peak(&mut self) {
        let now = self.memory + self.elements * size_of::<usize>();
        self.peak_bytes = self.peak_bytes.max(now);
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, now: usize, then: usize, _most: Option<usize>) -> Result<bool> {
        let grown = self.grown(self.memory, self.memory_most, (now, then));
        self.memory = grown.unwrap_or(self.memory);
        self.note_peak();
        Ok(grown.is_some())
    }

    fn table_growing(&mut self, now: usize, then: usize, _most: Option<usize>) -> Result<bool> {
        let grown = self.grown(self.elements, self.elements_most, (now, then));
        self.elements = grown.unwrap_or(self.elements);
        self.note_peak();
        Ok(grown.is_some())
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

/// Ready to use as a limit of nothing but time: for making an instance that runs nothing.
pub(crate) fn probe_call() -> CallTool {
    let limits = ToolLimits { time: Duration::from_secs(2), ..ToolLimits::MOST };
    let (args, env, dirs) = (Vec::new(), Vec::new(), Vec::new());
    CallTool { tool: 0, args, env, dirs, limits, seed: Some(0) }
}
