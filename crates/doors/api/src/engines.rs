//! An engine and a host for tools of its own for each tenant: no two share user ids, parked
//! launchers or wardens.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringwall_engine::{Engine, EngineConfig, OpenError, ToolHostError};
use ringwall_tool_host::Host;

/// Beyond that, those that nobody uses are let go.
const MOST_TENANTS: usize = 32;

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
        let host = self.engine.tools(&ringwall_desk::tools_permit)?;
        host.keep_ready(1);
        Ok(self.tools.get_or_init(|| Host::new(host)))
    }
}
