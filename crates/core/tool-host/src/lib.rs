//! The engine's host for tools, as the store of tools and its registry want to see it, and calls as
//! the policy and the engine do.
//!
//! For the command line and the daemon alike: between them there is no difference.

use ringwall_engine::{AskedCall, CallStop, Compiled, DirGrant, ToolCall, ToolHost, ToolInput};
use ringwall_spec::{SandboxId, ToolDigest, ToolLimits, ToolStatus, Wall};
use ringwall_tool::{BoxError, Compiler, Described, Grants, Request, Tool};

/// Enough for any text that explains a program.
const HELP_BYTES: u64 = 256 << 10;

/// Compiles and calls tools behind a wall.
#[derive(Debug, Clone)]
pub struct Host {
    pub tools: ToolHost,
    /// Hears how many bytes are about to be compiled: large ones take a while.
    pub before_compiling: fn(usize),
}

impl Host {
    /// One that compiles in silence.
    pub fn new(tools: ToolHost) -> Host {
        Host { tools, before_compiling: |_| {} }
    }
}

/// What one call is allowed.
#[derive(Debug, Clone)]
pub struct Allowed {
    pub grants: Grants,
    pub limits: ToolLimits,
    pub seed: Option<u64>,
}

/// What the policy is asked about a call.
pub fn asked<'a>(
    tool: &'a Tool,
    call: &'a ToolCall,
    (wall, sandbox): (&'a Wall, Option<&'a SandboxId>),
) -> AskedCall<'a> {
    let kind = tool.manifest().risk.name();
    let strict = match &call.input {
        ToolInput::Component { json } => ringwall_tool::asks_strict(json),
        ToolInput::Command { .. } => false,
    };
    let tool = tool.identity();
    let dirs = &call.dirs;
    AskedCall { tool, kind, dirs, wall, sandbox, strict, elevated: None, task: None }
}

impl Allowed {
    /// The call of a tool with what is allowed.
    pub fn call_of(self, tool: &Tool, request: Request) -> ToolCall {
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
            network: None,
            stop: CallStop::default(),
        }
    }
}

impl Compiler for Host {
    fn find(&self, digest: &ToolDigest) -> Option<Described> {
        self.tools.find(digest).map(described)
    }

    fn compile(&self, wasm: &[u8]) -> Result<Described, BoxError> {
        (self.before_compiling)(wasm.len());
        Ok(described(self.tools.compile(wasm)?))
    }

    fn probe(&self, digest: &ToolDigest, wants_http: bool) -> Result<(), BoxError> {
        Ok(self.tools.probe(digest, wants_http)?)
    }

    fn help(&self, digest: &ToolDigest, program: &str) -> Result<String, BoxError> {
        let mut call = ToolCall::command(*digest, program, vec!["--help".to_owned()], Vec::new());
        call.limits.output_bytes = HELP_BYTES;
        let outcome = self.tools.call(&call)?;
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
