//! One WASM warden, seen from outside.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringwall_linux::fdpass;
use ringwall_ring_wasm::{Cache, Entry, WasmRing};
use ringwall_spec::{Evidence, Limits, ToolDigest};
use ringwall_wire::{Client, ClientError, Http, LoadTool, LoadedTool, SendTool, TunnelCut};

use super::dirs::{self, GrantClass, Held};
use super::inside::Inside;
use super::{HostPlace, lock};
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
    pub(super) patience: Patience,
    ring: OwnRing,
    loaded: Mutex<Loaded>,
    /// Calls that are in it now.
    pub(super) calls: AtomicUsize,
    /// How often a call came while another was in it.
    pub(super) meetings: AtomicU64,
    pub(super) lost: AtomicBool,
    /// Directories of the host that it was given.
    held: Option<Mutex<Held>>,
}

/// How long a warden may take beyond what a tool may.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// A call that is so late was not stopped from inside: it blocks in its host.
    pub(super) grace: Duration,
    /// To map a tool and make an instance of it.
    pub(super) load: Duration,
}

impl Patience {
    /// The warden's clock ends a call within milliseconds. On a host that is busy elsewhere it runs late, and
    /// a warden that is replaced for that costs every other call in it.
    pub(super) const ON_HOST: Patience =
        Patience { grace: Duration::from_secs(2), load: Duration::from_secs(10) };
    /// Frames pass through another warden, which has jobs to serve.
    pub(super) const INSIDE: Patience =
        Patience { grace: Duration::from_secs(2), load: Duration::from_secs(30) };
    /// In software emulation everything takes its time.
    pub(super) const IN_GUEST: Patience =
        Patience { grace: Duration::from_secs(5), load: Duration::from_secs(120) };
}

/// The ring round a warden. It ends with this value.
#[derive(Debug)]
enum OwnRing {
    /// An outermost one. Descriptors reach it.
    Host { _sandbox: Box<Mutex<Sandbox>>, pid: u32, killer: Killer, loader: OwnedFd },
    /// The innermost of a sandbox. Only bytes reach it.
    Inside(TunnelCut),
}

#[derive(Debug, Default)]
struct Loaded {
    next: LoadedTool,
    tools: HashMap<(ToolDigest, Http), LoadedTool>,
}

/// What every warden on the host has.
pub(super) fn limits() -> Limits {
    Limits {
        memory_bytes: MEMORY_BYTES,
        cpu_milli: 2000,
        pids: 8,
        disk_bytes: 1 << 20,
        disk_inodes: 64,
        open_files: 4096,
        ..Limits::default()
    }
}

impl Warden {
    pub(super) fn raise(
        place: &HostPlace,
        cache: &Cache,
        class: GrantClass,
    ) -> Result<Warden, RaiseError> {
        let cache = Some(cache.path().to_owned());
        let held = dirs::with_hidden(&class)?;
        if held.dirs.iter().any(|dir| !dir.hidden.is_empty()) {
            place.engine.forget_spawners();
        }
        let ring = WasmRing { grants: held.dirs.clone(), cache };
        let sandbox = place.raise(&place.warden, &ring, &place.permits.warden, "run WASM tools")?;
        let loader = sandbox.ring.scratch()?;
        let client = sandbox.connected()?;
        let evidence = sandbox.evidence().to_vec();
        let (pid, killer) = (sandbox.ring.launched.pid, sandbox.killer());
        let _sandbox = Box::new(Mutex::new(sandbox));
        let ring = OwnRing::Host { _sandbox, pid, killer, loader };
        let warden = Warden::new(class, client, evidence, Patience::ON_HOST, ring);
        Ok(Warden { held: Some(Mutex::new(held)), ..warden })
    }

    pub(super) fn raise_inside(place: &Inside, class: GrantClass) -> Result<Warden, RaiseError> {
        let (client, cut, evidence) = place.raise(&class)?;
        Ok(Warden::new(class, client, evidence, place.patience(), OwnRing::Inside(cut)))
    }

    fn new(
        class: GrantClass,
        client: Client,
        evidence: Vec<Evidence>,
        patience: Patience,
        ring: OwnRing,
    ) -> Warden {
        Warden {
            class,
            client,
            evidence: Arc::new(evidence),
            patience,
            ring,
            loaded: Mutex::default(),
            calls: AtomicUsize::new(0),
            meetings: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            held: None,
        }
    }

    /// Whether its directories have something in them now that no tool may see, and that was not
    /// hidden when it was raised.
    pub(super) fn is_stale(&self) -> bool {
        self.held.as_ref().is_some_and(|held| lock(held).is_stale())
    }

    /// As numbered here outside, where that is known.
    pub(super) fn pid(&self) -> Option<u32> {
        match &self.ring {
            OwnRing::Host { pid, .. } => Some(*pid),
            OwnRing::Inside(_) => None,
        }
    }

    /// Which of its tools this is; mapped first if it is new here.
    pub(super) fn tool(
        &self,
        digest: ToolDigest,
        entry: &Entry,
        http: Http,
    ) -> Result<LoadedTool, ClientError> {
        let mut loaded = lock(&self.loaded);
        if let Some(tool) = loaded.tools.get(&(digest, http)) {
            return Ok(*tool);
        }
        if loaded.tools.len() >= MAX_LOADED {
            self.unload_oldest(&mut loaded)?;
        }
        let tool = loaded.next;
        loaded.next += 1;
        self.hand_over(LoadTool { tool, kind: entry.kind, http }, entry)?;
        loaded.tools.insert((digest, http), tool);
        Ok(tool)
    }

    fn hand_over(&self, load: LoadTool, entry: &Entry) -> Result<(), ClientError> {
        let client = self.client.until(Instant::now() + self.patience.load);
        match &self.ring {
            OwnRing::Host { loader, .. } => {
                // The descriptor first: the warden takes it when it is asked to load.
                fdpass::send(loader.as_fd(), &load.tool.to_le_bytes(), &[entry.code.as_fd()])
                    .map_err(|_| ClientError::Disconnected)?;
                client.load_tool(load)
            }
            OwnRing::Inside(_) => {
                let mut hasher = blake3::Hasher::new();
                hasher.update_reader(FromStart::of(&entry.code)).map_err(ClientError::Local)?;
                let hash = *hasher.finalize().as_bytes();
                let send = SendTool { load, bytes: entry.code_bytes, hash };
                client.send_tool(send, &mut FromStart::of(&entry.code))
            }
        }
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

    /// No new call gets it, and running calls lose it.
    pub(super) fn kill(&self) {
        self.lost.store(true, Ordering::SeqCst);
        match &self.ring {
            OwnRing::Host { killer, .. } => killer.kill(),
            OwnRing::Inside(cut) => cut.cut(),
        }
    }
}

/// Reads a file that others read too, each from its start.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl<'a> FromStart<'a> {
    fn of(file: &'a File) -> FromStart<'a> {
        FromStart { file, at: 0 }
    }
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
