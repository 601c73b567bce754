//! From a `.wasm` file to verified code in the cache, by way of a jailed compiler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwall_ring_wasm::{Cache, CacheError, Entry, WasmRing};
use ringwall_spec::{Limits, ToolDigest, ToolKind};
use ringwall_wire::{ClientError, MAX_CODE_BYTES, MAX_TOOL_BYTES};

use super::{HostPlace, Place, ToolHost, lock};
use crate::raise::RaiseError;

/// Wall-clock time of one compilation.
const PATIENCE: Duration = Duration::from_secs(180);

/// Verified entries that are kept open.
const MAX_OPEN: usize = 256;

/// Memory of the compiler, which is what hostile input may make it use.
const MEMORY_BYTES: u64 = 4 << 30;

#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("the tool has {bytes} bytes; at most {MAX_TOOL_BYTES} are compiled")]
    TooLarge { bytes: usize },
    #[error("the tool is refused: {reason}")]
    Refused { reason: String },
    #[error("compiling the tool took more than {}s; split it, or make it smaller", PATIENCE.as_secs())]
    Timeout,
    #[error("the compiler was ended by its limits, or broke; make the tool smaller")]
    CompilerLost(#[source] ClientError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("the compiled tool was changed while it was stored; try again")]
    Vanished,
    #[error("tools are not compiled in a sandbox; compile the tool on the host first")]
    Inside,
    #[error("no ring for the compiler could be raised")]
    Raise(#[from] RaiseError),
}

/// A tool whose code is in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    pub digest: ToolDigest,
    pub kind: ToolKind,
    /// What the tool says of itself, as it is in the file.
    pub manifest: Option<Vec<u8>>,
    pub imports: Vec<String>,
    pub artefact_bytes: u64,
}

impl ToolHost {
    /// Compiles a tool, unless that has been done before.
    pub fn compile(&self, wasm: &[u8]) -> Result<Compiled, CompileError> {
        if wasm.len() > MAX_TOOL_BYTES {
            return Err(CompileError::TooLarge { bytes: wasm.len() });
        }
        let digest = Cache::digest(wasm);
        if let Some(entry) = self.entry(&digest) {
            return Ok(Compiled::new(digest, &entry));
        }
        let Place::Host(host) = &self.inner.rings.place else {
            return Err(CompileError::Inside);
        };
        host.compile(&self.inner.rings.cache, &digest, wasm)?;
        let entry = self.entry(&digest).ok_or(CompileError::Vanished)?;
        Ok(Compiled::new(digest, &entry))
    }

    /// A tool that was compiled before. None if its code is missing or was changed.
    pub fn find(&self, digest: &ToolDigest) -> Option<Compiled> {
        self.entry(digest).map(|entry| Compiled::new(*digest, &entry))
    }

    /// Removes compiled code of all tools but these. Gives the number of tools whose code went.
    pub fn keep_only(&self, tools: &BTreeSet<ToolDigest>) -> Result<u64, CacheError> {
        lock(&self.inner.known).retain(|digest, _| tools.contains(digest));
        self.inner.rings.cache.keep_only(tools)
    }

    /// Verified once; then the open file stands for it, whatever happens to its name.
    pub(super) fn entry(&self, digest: &ToolDigest) -> Option<Arc<Entry>> {
        if let Some(entry) = lock(&self.inner.known).get(digest) {
            return Some(Arc::clone(entry));
        }
        let entry = Arc::new(self.inner.rings.cache.find(digest)?);
        let mut known = lock(&self.inner.known);
        if known.len() >= MAX_OPEN {
            // Whatever is still called is found again.
            known.clear();
        }
        known.insert(*digest, Arc::clone(&entry));
        Some(entry)
    }

    /// The code does not run here: it has to be compiled anew.
    pub(super) fn forget(&self, digest: &ToolDigest) {
        lock(&self.inner.known).remove(digest);
        self.inner.rings.cache.remove(digest);
    }
}

/// What the compiler has.
pub(super) fn limits() -> Limits {
    Limits {
        timeout: PATIENCE,
        memory_bytes: MEMORY_BYTES,
        cpu_milli: 2000,
        pids: 64,
        disk_bytes: 1 << 20,
        disk_inodes: 64,
        open_files: 64,
        ..Limits::default()
    }
}

impl HostPlace {
    fn compile(&self, cache: &Cache, digest: &ToolDigest, wasm: &[u8]) -> Result<(), CompileError> {
        let deadline = Instant::now() + PATIENCE;
        let (ring, permit) = (WasmRing::default(), &self.permits.compiler);
        let sandbox = self.raise(&self.compiler, &ring, permit, "compile a WASM tool")?;
        let client = sandbox.files().ok_or(CompileError::Vanished)?.until(deadline);
        let answer = client.compile(wasm, cache.code_for(), MAX_CODE_BYTES);
        let answer = answer.map_err(|error| match error {
            ClientError::Remote(refusal) => CompileError::Refused { reason: refusal.message },
            ClientError::TimedOut => CompileError::Timeout,
            error => CompileError::CompilerLost(error),
        })?;
        Ok(cache.put(digest, &answer.output, &answer.report)?)
    }
}

impl Compiled {
    fn new(digest: ToolDigest, entry: &Entry) -> Compiled {
        Compiled {
            digest,
            kind: entry.kind,
            manifest: entry.manifest.clone(),
            imports: entry.imports.clone(),
            artefact_bytes: entry.code_bytes,
        }
    }
}
