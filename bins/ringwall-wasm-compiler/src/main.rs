//! The WASM compiler: one tool in, its native code out, in a ring that holds nothing else.
//!
//! It is started with the engine's byte stream as descriptor 3 and a directory with a file that
//! only Landlock forbids to open as descriptor 4.

mod inspect;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;

use ringwall_linux::inside::{inherited, settle_signals};
use ringwall_linux::seccomp;
use ringwall_spec::{CodeFor, DeniedOpen, ToolKind};
use ringwall_wire::{
    Channel, CompileReport, ErrorCode, Gone, Handler, InputEvent, MAX_TOOL_BYTES, RemoteError,
    Reply, Request, ServerInput, ServerStream, serve,
};
use rustix::process::DumpableBehavior;
use wasmtime::Engine;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

const STREAM: i32 = 3;
const CANARY: i32 = 4;

struct Compiler {
    for_this_processor: Engine,
    for_any_processor: Engine,
    denied_open: DeniedOpen,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody to tell: standard error is /dev/null in a ring.
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let stream = inherited(STREAM).ok_or(io::ErrorKind::NotConnected)?;
    let denied_open = ringwall_facts::try_denied_open(inherited(CANARY));
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    settle_signals()?;
    let engine = |any| ringwall_wasm::compiler_engine(any).map_err(io::Error::other);
    let (for_this_processor, for_any_processor) = (engine(false)?, engine(true)?);
    // Everything that needs more has been done, and no byte of a tool has been seen.
    seccomp::install_wasm_filter()?;
    let compiler = Compiler { for_this_processor, for_any_processor, denied_open };
    serve(UnixStream::from(stream), Arc::new(compiler))
}

impl Handler for Compiler {
    fn handle(&self, request: Request, stream: ServerStream) {
        let reply = match request {
            Request::Facts => Reply::Facts(Box::new(ringwall_facts::gather(self.denied_open))),
            Request::Shutdown => Reply::Done,
            Request::Compile { bytes, code_for } => match self.compile(bytes, code_for, &stream) {
                Ok(report) => Reply::Compiled(Box::new(report)),
                Err(reason) => refusal(ErrorCode::Invalid, reason),
            },
            _ => refusal(ErrorCode::Invalid, "this ring compiles WASM and nothing else".into()),
        };
        stream.reply(&reply);
    }
}

impl Compiler {
    fn compile(
        &self,
        bytes: u64,
        code_for: CodeFor,
        stream: &ServerStream,
    ) -> Result<CompileReport, String> {
        let engine = match code_for {
            CodeFor::ThisProcessor => &self.for_this_processor,
            CodeFor::AnyProcessor => &self.for_any_processor,
        };
        let wasm = receive(bytes, &stream.input())?;
        let report = inspect::inspect(&wasm)?;
        let code = match report.kind {
            ToolKind::CommandModule => engine.precompile_module(&wasm),
            ToolKind::Component | ToolKind::CommandComponent => engine.precompile_component(&wasm),
        };
        let code = code.map_err(|error| format!("it does not compile: {error:#}"))?;
        stream.send(Channel::Bytes, &code).map_err(|Gone| "nobody waits for it".to_owned())?;
        Ok(report)
    }
}

fn receive(bytes: u64, input: &ServerInput) -> Result<Vec<u8>, String> {
    let length = usize::try_from(bytes).ok().filter(|length| *length <= MAX_TOOL_BYTES);
    let length = length.ok_or_else(|| format!("it is longer than {MAX_TOOL_BYTES} bytes"))?;
    let mut wasm = Vec::with_capacity(length);
    loop {
        match input.next() {
            Some(InputEvent::Data(more)) if more.len() <= length - wasm.len() => {
                wasm.extend_from_slice(&more);
            }
            Some(InputEvent::End) if wasm.len() == length => return Ok(wasm),
            _ => return Err("it did not come whole".to_owned()),
        }
    }
}

fn refusal(code: ErrorCode, message: String) -> Reply {
    Reply::Error(RemoteError { code, errno: None, message })
}
