//! One WASM warden, seen from outside.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ringwall_linux::fdpass;
use ringwall_ring_wasm::{Entry, WasmRing};
use ringwall_spec::{Evidence, Limits, ToolDigest};
use ringwall_wire::{Client, ClientError, LoadTool, LoadedTool};

use super::dirs::{self, GrantClass};
use super::{Rings, lock};
use crate::raise::RaiseError;
use crate::sandbox::{Killer, Sandbox};

/// Memory of one warden: many calls, each with its own limit, and the code of its tools.
const MEMORY_BYTES: u64 = 2 << 30;

/// Tools that one warden keeps mapped; it takes a few more.
const MAX_LOADED: usize = 128;

#[derive(Debug)]
pub(super) struct Warden {
    pub(super) class: GrantClass,
    pub(super) client: Client,
    pub(super) evidence: Arc<Vec<Evidence>>,
    /// As numbered here outside.
    pub(super) pid: u32,
    killer: Killer,
    loader: OwnedFd,
    loaded: Mutex<Loaded>,
    /// Calls that are in it now.
    pub(super) calls: AtomicUsize,
    /// How often a call came while another was in it.
    pub(super) meetings: AtomicU64,
    pub(super) lost: AtomicBool,
    /// Ends with this value.
    _sandbox: Mutex<Sandbox>,
}

#[derive(Debug, Default)]
struct Loaded {
    next: LoadedTool,
    tools: HashMap<(ToolDigest, bool), LoadedTool>,
}

impl Warden {
    pub(super) fn raise(rings: &Rings, class: GrantClass) -> Result<Warden, RaiseError> {
        let limits = Limits {
            memory_bytes: MEMORY_BYTES,
            cpu_milli: 2000,
            pids: 8,
            disk_bytes: 1 << 20,
            disk_inodes: 64,
            open_files: 4096,
            ..Limits::default()
        };
        let cache = Some(rings.cache.path().to_owned());
        let ring = WasmRing { grants: dirs::with_hidden(&class)?, cache };
        let sandbox = rings.raise(&rings.warden, &ring, limits, "run WASM tools")?;
        let loader = sandbox.ring.scratch()?;
        let client = sandbox.connected()?;
        Ok(Warden {
            class,
            client,
            evidence: Arc::new(sandbox.evidence().to_vec()),
            pid: sandbox.ring.launched.pid,
            killer: sandbox.killer(),
            loader,
            loaded: Mutex::default(),
            calls: AtomicUsize::new(0),
            meetings: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            _sandbox: Mutex::new(sandbox),
        })
    }

    /// Which of its tools this is; mapped first if it is new here.
    pub(super) fn tool(
        &self,
        digest: ToolDigest,
        entry: &Entry,
        wants_http: bool,
    ) -> Result<LoadedTool, ClientError> {
        let mut loaded = lock(&self.loaded);
        if let Some(tool) = loaded.tools.get(&(digest, wants_http)) {
            return Ok(*tool);
        }
        if loaded.tools.len() >= MAX_LOADED {
            self.unload_oldest(&mut loaded)?;
        }
        let tool = loaded.next;
        loaded.next += 1;
        // The descriptor first: the warden takes it when it is asked to load.
        fdpass::send(self.loader.as_fd(), &tool.to_le_bytes(), &[entry.code.as_fd()])
            .map_err(|_| ClientError::Disconnected)?;
        self.client.load_tool(LoadTool { tool, kind: entry.kind, wants_http })?;
        loaded.tools.insert((digest, wants_http), tool);
        Ok(tool)
    }

    /// Versions of tools come and go. A call that was about to use this one is told, and tries again.
    fn unload_oldest(&self, loaded: &mut Loaded) -> Result<(), ClientError> {
        let oldest = loaded.tools.iter().min_by_key(|(_, tool)| **tool);
        if let Some((key, tool)) = oldest.map(|(key, tool)| (*key, *tool)) {
            loaded.tools.remove(&key);
            self.client.unload_tool(tool)?;
        }
        Ok(())
    }

    /// Nobody gets it any more, and whoever is in it loses it.
    pub(super) fn kill(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.killer.kill();
    }
}
