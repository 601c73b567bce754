//! An engine and a host for tools of its own for each tenant: no two share user ids, parked
//! launchers or wardens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringwall_engine::{
    Compiled, Engine, EngineConfig, OpenError, ToolCall, ToolHost, ToolHostError,
};
use ringwall_spec::{ToolDigest, ToolStatus};
use ringwall_tool::{BoxError, Compiler, Described};

/// Beyond that, those that nobody uses are let go.
const MOST_TENANTS: usize = 32;
/// Enough for any text that explains a program.
const HELP_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Engines {
    config: EngineConfig,
    by_tenant: Mutex<HashMap<String, Arc<Crew>>>,
}

/// What serves one tenant.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) engine: Arc<Engine>,
    tools: OnceLock<Host>,
    opening: Mutex<()>,
}

impl Engines {
    pub(crate) fn new(config: EngineConfig) -> Engines {
        Engines { config, by_tenant: Mutex::default() }
    }

    pub(crate) fn of(&self, tenant: &str) -> Result<Arc<Crew>, OpenError> {
        let mut all = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crew) = all.get(tenant) {
            return Ok(Arc::clone(crew));
        }
        if all.len() >= MOST_TENANTS {
            all.retain(|_, crew| Arc::strong_count(crew) > 1);
        }
        let engine = Arc::new(Engine::open(self.config.clone())?);
        let crew = Arc::new(Crew { engine, tools: OnceLock::new(), opening: Mutex::default() });
        all.insert(tenant.to_owned(), Arc::clone(&crew));
        Ok(crew)
    }
}

impl Crew {
    /// Opened at the first call of a tool, with one warden kept ready from then on.
    pub(crate) fn tools(&self) -> Result<&Host, ToolHostError> {
        if let Some(host) = self.tools.get() {
            return Ok(host);
        }
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(host) = self.tools.get() {
            return Ok(host);
        }
        let host = self.engine.tools()?;
        host.keep_ready(1);
        Ok(self.tools.get_or_init(|| Host(host)))
    }
}

/// The engine's host for tools, as the store of tools wants to see it.
#[derive(Debug, Clone)]
pub(crate) struct Host(pub(crate) ToolHost);

impl Compiler for Host {
    fn find(&self, digest: &ToolDigest) -> Option<Described> {
        self.0.find(digest).map(described)
    }

    fn compile(&self, wasm: &[u8]) -> Result<Described, BoxError> {
        Ok(described(self.0.compile(wasm)?))
    }

    fn probe(&self, digest: &ToolDigest, wants_http: bool) -> Result<(), BoxError> {
        Ok(self.0.probe(digest, wants_http)?)
    }

    fn help(&self, digest: &ToolDigest, program: &str) -> Result<String, BoxError> {
        let mut call = ToolCall::command(*digest, program, vec!["--help".to_owned()], Vec::new());
        call.limits.output_bytes = HELP_BYTES;
        let outcome = self.0.call(&call)?;
        match outcome.status {
            // Many a program prints its help to standard error and then fails.
            ToolStatus::Exited { .. } if outcome.output.is_empty() => {
                Ok(String::from_utf8_lossy(&outcome.errors).into_owned())
            }
            ToolStatus::Exited { .. } => Ok(String::from_utf8_lossy(&outcome.output).into_owned()),
            other => Err(format!("it ended with {other:?}").into()),
        }
    }
}

fn described(compiled: Compiled) -> Described {
    let Compiled { digest, kind, manifest, imports, .. } = compiled;
    Described { digest, kind, manifest, imports }
}
