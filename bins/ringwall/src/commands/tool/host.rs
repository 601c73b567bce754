//! The engine's tool host as the store and the registry want to see it.

use std::io::IsTerminal;

use ringwall_engine::{AskedCall, Compiled, DirGrant, ToolCall, ToolHost, ToolInput};
use ringwall_spec::{DirAccess, SandboxId, ToolDigest, ToolLimits, ToolStatus, Wall, show_bytes};
use ringwall_tool::{BoxError, Compiler, Described, Grants, Request, Tool};

use crate::report;

/// Enough for any text that explains a program.
const HELP_BYTES: u64 = 256 << 10;
/// What is smaller compiles in the time it takes to read a line.
const NOTED_BYTES: usize = 1 << 20;

/// Compiles and calls tools behind a wall.
#[derive(Debug, Clone)]
pub(super) struct Host(pub(super) ToolHost);

/// What one call is allowed.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    pub(super) grants: Grants,
    pub(super) limits: ToolLimits,
    pub(super) seed: Option<u64>,
}

/// What the policy is asked about a call.
pub(super) fn asked<'a>(
    tool: &'a Tool,
    call: &ToolCall,
    (wall, sandbox): (&'a Wall, Option<&'a SandboxId>),
) -> AskedCall<'a> {
    let writes = call.dirs.iter().any(|dir| dir.access == DirAccess::Write);
    AskedCall { tool: tool.name(), kind: tool.manifest().risk.name(), writes, wall, sandbox }
}

impl Allowed {
    /// The call of a tool with what is allowed.
    pub(super) fn call_of(self, tool: &Tool, request: Request) -> ToolCall {
        let allowed = self;
        let input = match request {
            Request::Component { json } => ToolInput::Component { json },
            Request::Command { args, stdin } => ToolInput::Command { args, stdin },
        };
        let dirs = allowed.grants.dirs.into_iter().map(|dir| DirGrant {
            host: dir.host,
            guest: dir.guest,
            access: dir.access,
        });
        ToolCall {
            digest: tool.digest,
            input,
            program: tool.name().to_owned(),
            dirs: dirs.collect(),
            env: allowed.grants.env,
            limits: allowed.limits,
            seed: allowed.seed,
            wants_http: !tool.manifest().wants.http.is_empty(),
        }
    }
}

impl Compiler for Host {
    fn find(&self, digest: &ToolDigest) -> Option<Described> {
        self.0.find(digest).map(described)
    }

    fn compile(&self, wasm: &[u8]) -> Result<Described, BoxError> {
        // Large ones take a while; nobody should wonder.
        if wasm.len() >= NOTED_BYTES && std::io::stderr().is_terminal() {
            let size = show_bytes(wasm.len() as u64);
            report::note(&format!("compiling {size} of WebAssembly unless that was done before"));
        }
        Ok(described(self.0.compile(wasm)?))
    }

    fn probe(&self, digest: &ToolDigest, wants_http: bool) -> Result<(), BoxError> {
        Ok(self.0.probe(digest, wants_http)?)
    }

    fn help(&self, digest: &ToolDigest, program: &str) -> Result<String, BoxError> {
        let mut call = ToolCall::command(*digest, program, vec!["--help".to_owned()], Vec::new());
        call.limits.output_bytes = HELP_BYTES;
        let outcome = self.0.call(&call)?;
        // Many a program prints its help to standard error and then fails.
        match outcome.status {
            ToolStatus::Exited { .. } if !outcome.output.is_empty() => {
                Ok(String::from_utf8_lossy(&outcome.output).into_owned())
            }
            ToolStatus::Exited { .. } => Ok(String::from_utf8_lossy(&outcome.errors).into_owned()),
            other => Err(format!("it ended with {other:?}").into()),
        }
    }
}

fn described(compiled: Compiled) -> Described {
    let Compiled { digest, kind, manifest, imports, .. } = compiled;
    Described { digest, kind, manifest, imports }
}
