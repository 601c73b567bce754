//! Wasm rings inside a sandbox, each raised by the warden of the ring round it.
//!
//! Invariant: what such a ring can reach is the sandbox's own. No path here is one of the host's.

use std::path::{Component, PathBuf};
use std::time::{Duration, Instant};

use ringwall_linux::launch::encode_steps;
use ringwall_ring::{Expected, HostNamespaces, Ring, check};
use ringwall_ring_wasm::{GrantedDir, WasmRing, inner_wasm_plan};
use ringwall_spec::{CodeFor, Evidence, RingKind, ValidSpec};
use ringwall_wire::{Client, ClientError, FileKind, Tunnel, TunnelCut, guest_paths};

use super::dirs::{DirGrant, GrantClass};
use super::warden::Patience;
use super::{ToolError, ToolHost};
use crate::config::Engine;
use crate::place::PlaceError;
use crate::raise::{FACTS_TIMEOUT, RAISE_TIMEOUT, RaiseError};
use crate::sandbox::Sandbox;
use crate::vm;

/// A warden that has not looked at a directory by then never will.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

/// The filters of a wasm ring: one by the program that raises it, one by its warden.
const OWN_FILTERS: u32 = 2;

/// Where the wasm rings of one sandbox are raised.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The warden of the ring round them.
    outer: Client,
    how: How,
    /// What a ring with namespaces of its own must not share.
    namespaces: HostNamespaces,
    /// The evidence of the rings outside, outermost first.
    evidence: Vec<Evidence>,
    /// Where commands start in the ring outside.
    working_directory: PathBuf,
    in_guest: bool,
}

/// What the warden of the ring outside can do.
#[derive(Debug)]
pub(crate) enum How {
    /// It has given up its power, and can only make others give up more.
    Confined { expected: Expected },
    /// It is the first process of a guest, and raises rings as an engine does.
    Planned { admitted: Box<ValidSpec>, hostname: String },
}

impl Engine {
    /// Raises and checks the first wasm ring of a sandbox whose wall has one inside.
    pub(crate) fn raise_tools(
        &self,
        sandbox: &mut Sandbox,
        (outer, how): (&Client, How),
        namespaces: &HostNamespaces,
        all: &mut Vec<Evidence>,
    ) -> Result<(), RaiseError> {
        if !sandbox.wall().has_tools_inside() {
            return Ok(());
        }
        let inside = Inside {
            outer: outer.clone(),
            how,
            namespaces: namespaces.clone(),
            evidence: all.clone(),
            working_directory: sandbox.plan().working_directory.clone(),
            in_guest: sandbox.wall().outermost() == RingKind::Vm,
        };
        let host = ToolHost::inside(&self.home, inside)?;
        *all = host.evidence();
        sandbox.tools = Some(host);
        Ok(())
    }
}

impl Inside {
    pub(super) fn code_for(&self) -> CodeFor {
        if self.in_guest { CodeFor::AnyProcessor } else { CodeFor::ThisProcessor }
    }

    pub(super) fn patience(&self) -> Patience {
        if self.in_guest { Patience::IN_GUEST } else { Patience::INSIDE }
    }

    /// A directory of the ring outside, as that ring's warden sees it.
    pub(super) fn look(&self, grant: &DirGrant) -> Result<GrantedDir, ToolError> {
        let refused = |reason: &str| {
            let reason = reason.to_owned();
            ToolError::Dir { path: grant.host.clone(), reason }
        };
        let path: PathBuf = self.working_directory.join(&grant.host).components().collect();
        let plain =
            |part| matches!(part, Component::RootDir | Component::Normal(_) | Component::CurDir);
        if !path.is_absolute() || !path.components().all(plain) {
            return Err(refused("it is no plain path of the sandbox; leave out `..`"));
        }
        let text = path.to_str().ok_or_else(|| refused("its name is not UTF-8"))?;
        let outer = self.outer.until(Instant::now() + LOOK_PATIENCE);
        match outer.stat(text.as_bytes()) {
            Ok(stat) if stat.kind == FileKind::Directory => {}
            Ok(_) => return Err(refused("it is no directory of the sandbox")),
            Err(ClientError::Remote(error)) => return Err(refused(&error.message)),
            Err(_) => return Err(ToolError::WardenLost),
        }
        let (access, hidden) = (grant.access, Vec::new());
        Ok(GrantedDir { path, id: None, access, owner: (0, 0), hidden })
    }

    /// Raises one ring and checks its facts. Gives them after those of the rings outside.
    pub(super) fn raise(
        &self,
        class: &GrantClass,
    ) -> Result<(Client, TunnelCut, Vec<Evidence>), RaiseError> {
        let (tunnel, expected) = self.begin(class)?;
        let ring = RingKind::Wasm;
        let cut = tunnel.cutter();
        let client = tunnel.connect().map_err(RaiseError::Encode)?;
        let facts =
            client.facts(FACTS_TIMEOUT).map_err(|source| RaiseError::Warden { ring, source })?;
        let mut evidence = self.evidence.clone();
        evidence.push(check(ring, &expected, &self.namespaces, facts)?);
        Ok((client, cut, evidence))
    }

    fn begin(&self, class: &GrantClass) -> Result<(Tunnel, Expected), RaiseError> {
        match &self.how {
            How::Confined { expected } => {
                let grants = class.dirs.iter().map(|dir| {
                    // Looked at before: it is UTF-8.
                    (dir.path.to_string_lossy().into_owned(), dir.access)
                });
                let steps = encode_steps(&inner_wasm_plan(&grants.collect::<Vec<_>>()))
                    .map_err(|error| RaiseError::Encode(std::io::Error::other(error)))?;
                let soon = self.outer.until(Instant::now() + RAISE_TIMEOUT);
                let tunnel = soon
                    .raise(steps)
                    .map_err(|source| RaiseError::Warden { ring: RingKind::Wasm, source })?;
                let expected = Expected {
                    own_namespaces: false,
                    seccomp_filters: expected.seccomp_filters + OWN_FILTERS,
                    ..expected.clone()
                };
                Ok((tunnel, expected))
            }
            How::Planned { admitted, hostname } => {
                let mut input = vm::guest_input(admitted, hostname.clone());
                input.warden = guest_paths::WASM_WARDEN.into();
                let ring = WasmRing { grants: class.dirs.clone(), cache: None };
                let plan = ring.plan(&input).map_err(PlaceError::from)?;
                Ok((vm::begin_in_guest(&self.outer, &plan, RingKind::Wasm)?, plan.expected))
            }
        }
    }
}
