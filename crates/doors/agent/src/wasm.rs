//! The WASM tools that a model is offered, and their calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ringwall_agent_model::ToolOffer;
use ringwall_desk::tools_permit;
use ringwall_engine::{
    AskedCall, CallStop, Engine, ToolCall, ToolError, ToolHostError, ToolOutcome,
};
use ringwall_spec::{CodeFor, DirAccess, RingKind, SandboxId, ToolLimits, Wall};
use ringwall_tool::{
    BuiltIns, DirGrant, Grants, LimitWishes, StoreError, Tool, ToolStore, limits_for,
};
use ringwall_tool_host::{Allowed, Host, asked};
use serde_json::Value;

use crate::site::Site;

/// Below Ringwall's home.
const STORE: &str = "tools";

#[derive(Debug, thiserror::Error)]
pub enum WasmError {
    #[error(transparent)]
    Host(#[from] ToolHostError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Call(#[from] ToolError),
}

/// Tools that are ready to be called, by name.
#[derive(Debug)]
pub struct WasmTools {
    host: Host,
    /// The same with code for guests, once one is needed.
    store: ToolStore,
    tools: BTreeMap<String, Arc<Tool>>,
}

/// A call that is ready to be made.
#[derive(Debug)]
pub(crate) struct Prepared {
    tool: Arc<Tool>,
    call: ToolCall,
}

impl Prepared {
    pub(crate) fn limits(&self) -> ToolLimits {
        self.call.limits
    }

    pub(crate) fn limit(&mut self, limits: ToolLimits) {
        self.call.limits = limits;
    }

    /// What the policy is asked about it.
    pub(crate) fn asked<'a>(
        &'a self,
        wall: &'a Wall,
        sandbox: Option<&'a SandboxId>,
    ) -> AskedCall<'a> {
        asked(&self.tool, &self.call, (wall, sandbox))
    }

    /// Ends the call from another thread.
    pub(crate) fn stop(&self) -> CallStop {
        self.call.stop.clone()
    }

    /// What the tool says itself.
    pub(crate) fn result(&self, outcome: &ToolOutcome) -> Result<Value, String> {
        let result = self.tool.result(&outcome.status, &outcome.output, &outcome.errors);
        result.map_err(|failure| failure.to_string())
    }
}

impl WasmTools {
    /// Opens the tools whose names fit one of `wanted`: a name, or `prefix*`. What is not compiled yet
    /// is compiled now.
    pub fn open(
        engine: &Engine,
        (home, programs): (&Path, &Path),
        wanted: &[String],
        before_compiling: fn(usize),
    ) -> Result<WasmTools, WasmError> {
        let host = Host { tools: engine.tools(&tools_permit)?, before_compiling };
        let store = ToolStore::open(&home.join(STORE), BuiltIns::from_environment(programs))?;
        let mut tools = BTreeMap::new();
        if !wanted.is_empty() {
            for entry in store.list(&host)? {
                // The first of a name is the one that is called by it.
                if wanted.iter().any(|wish| fits(wish, &entry.name))
                    && !tools.contains_key(&entry.name)
                {
                    let tool = store.open_tool(&entry, &host)?;
                    tools.insert(entry.name.clone(), Arc::new(tool));
                }
            }
        }
        Ok(WasmTools { host, store, tools })
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// As policies name it.
    pub(crate) fn kind(&self, name: &str) -> &'static str {
        self.tools.get(name).map_or("untrusted", |tool| tool.manifest().risk.name())
    }

    pub(crate) fn wants_files(&self, name: &str) -> bool {
        self.tools.get(name).is_some_and(|tool| !tool.manifest().wants.dirs.is_empty())
    }

    pub(crate) fn offers(&self) -> impl Iterator<Item = ToolOffer> {
        self.tools.iter().map(|(name, tool)| {
            let manifest = tool.manifest();
            let mut description = manifest.summary.clone();
            for wish in &manifest.wants.dirs {
                description.push_str(&format!(" Sees the workspace as {}.", wish.path));
            }
            ToolOffer { name: name.clone(), description, schema: manifest.input.clone() }
        })
    }

    /// Checks the input and gives the tool what it wants of the workspace, but no writing unless
    /// `may_write`.
    pub(crate) fn prepare(
        &self,
        name: &str,
        input: &Value,
        (root, may_write): (Option<&Path>, bool),
    ) -> Result<Prepared, String> {
        let tool = self.tools.get(name).ok_or_else(|| format!("there is no tool {name:?}"))?;
        let manifest = tool.manifest();
        let bytes = input.to_string().len();
        let request = tool.request_of(input.clone(), bytes).map_err(|failure| failure.message)?;
        let dirs = manifest.wants.dirs.iter().filter_map(|wish| {
            let access = if may_write { wish.access } else { DirAccess::Read };
            Some(DirGrant { guest: wish.path.clone(), host: root?.to_owned(), access })
        });
        let granted = Grants { dirs: dirs.collect(), env: Vec::new() };
        let grants = manifest.wants.narrow(granted).map_err(|error| error.to_string())?;
        let limits = limits_for(&manifest.limits, &LimitWishes::default())
            .map_err(|error| error.to_string())?;
        let call = Allowed { grants, limits, seed: None }.call_of(tool, request);
        Ok(Prepared { tool: Arc::clone(tool), call })
    }

    /// Sees to code that can be run behind this wall: that for guests is compiled apart.
    pub(crate) fn make_ready(
        &self,
        engine: &Engine,
        prepared: &Prepared,
        wall: &Wall,
    ) -> Result<(), WasmError> {
        if wall.outermost() != RingKind::Vm {
            return Ok(());
        }
        let guests = Host::new(engine.tools_with(CodeFor::AnyProcessor, &tools_permit)?);
        let digest = prepared.tool.digest;
        let named = self.store.list(&guests)?.into_iter().find(|it| it.digest == digest);
        named.map(|entry| self.store.open_tool(&entry, &guests)).transpose()?;
        Ok(())
    }

    /// Calls it in this sandbox, or alone.
    pub(crate) fn call(
        &self,
        prepared: &Prepared,
        inside: Option<&Site>,
    ) -> Result<ToolOutcome, WasmError> {
        Ok(match inside {
            Some(site) => site.attached.call_tool(&prepared.call)?.0,
            None => self.host.tools.call(&prepared.call)?,
        })
    }
}

/// Whether a name is the wish, or begins as `prefix*` does.
pub(crate) fn fits(wish: &str, name: &str) -> bool {
    match wish.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => wish == name,
    }
}
