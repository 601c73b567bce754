//! Calls of tools in a WASM warden, and of the WASM compiler.

use std::io::Read;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringwall_spec::CodeFor;

use super::exchange::{Exchange, Item, Outlet};
use super::{Client, ClientError, unexpected_reply};
use crate::connection::Channel;
use crate::limits::MAX_DATA_BYTES;
use crate::message::{Reply, Request};
use crate::tool::{
    CallInside, CallReport, CallTool, CompileReport, InsideReport, LoadTool, LoadedTool, SendTool,
};

/// What a call or a compilation gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    pub report: T,
    pub output: Vec<u8>,
    pub errors: Vec<u8>,
}

/// Ends calls of tools from another thread, one call at a time. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct CallStop(Arc<Mutex<Stopping>>);

#[derive(Debug, Default)]
struct Stopping {
    stopped: bool,
    /// The call that is under way.
    call: Option<Outlet>,
}

/// A call that can be stopped, until dropped.
struct Stoppable<'a>(&'a CallStop);

impl CallStop {
    /// Gives up the call that is under way, and every later one.
    pub fn stop(&self) {
        let call = {
            let mut state = self.lock();
            state.stopped = true;
            state.call.take()
        };
        if let Some(call) = call {
            call.cancel();
        }
    }

    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn begin(&self, call: Outlet) -> Result<Stoppable<'_>, ClientError> {
        let mut state = self.lock();
        if state.stopped {
            return Err(ClientError::Ended);
        }
        state.call = Some(call);
        Ok(Stoppable(self))
    }

    fn lock(&self) -> MutexGuard<'_, Stopping> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stoppable<'_> {
    fn drop(&mut self) {
        self.0.lock().call = None;
    }
}

impl Client {
    /// Whether a wait for an answer that comes soon may keep a CPU busy for a moment rather than
    /// sleep. For the whole connection; wise only while nobody else needs the CPU.
    pub fn may_linger(&self, yes: bool) {
        self.link.may_linger.store(yes, Ordering::Relaxed);
    }

    pub fn load_tool(&self, load: LoadTool) -> Result<(), ClientError> {
        self.ask(&Request::LoadTool(load)).map(drop)
    }

    /// Sends the code of a tool, for want of a descriptor.
    pub fn send_tool(&self, send: SendTool, code: &mut dyn Read) -> Result<(), ClientError> {
        self.upload(&Request::SendTool(send), code).map(drop)
    }

    /// Makes an instance of a loaded tool and runs nothing of it but its start function.
    pub fn probe_tool(&self, tool: LoadedTool) -> Result<(), ClientError> {
        self.ask(&Request::ProbeTool { tool }).map(drop)
    }

    pub fn unload_tool(&self, tool: LoadedTool) -> Result<(), ClientError> {
        self.ask(&Request::UnloadTool { tool }).map(drop)
    }

    /// Runs a tool to its end. More output than `most` bytes on one channel is an error: the warden
    /// was told to stop there.
    pub fn call_tool(
        &self,
        call: CallTool,
        input: &[u8],
        most: usize,
    ) -> Result<Answer<CallReport>, ClientError> {
        let exchange = self.open(&Request::CallTool(Box::new(call)))?;
        self.converse(&exchange, input, most, |reply| match reply {
            Reply::Called(report) => Some(*report),
            _ => None,
        })
    }

    /// Runs a tool in the wasm ring of a sandbox that a keeper holds.
    pub fn call_inside(
        &self,
        call: CallInside,
        input: &[u8],
        most: usize,
    ) -> Result<Answer<InsideReport>, ClientError> {
        let exchange = self.open(&Request::CallInside(Box::new(call)))?;
        self.converse(&exchange, input, most, |reply| match reply {
            Reply::CalledInside(report) => Some(*report),
            _ => None,
        })
    }

    /// Compiles a tool; the output is the code.
    pub fn compile(
        &self,
        wasm: &[u8],
        code_for: CodeFor,
        most: usize,
    ) -> Result<Answer<CompileReport>, ClientError> {
        let exchange = self.open(&Request::Compile { bytes: wasm.len() as u64, code_for })?;
        self.converse(&exchange, wasm, most, |reply| match reply {
            Reply::Compiled(report) => Some(*report),
            _ => None,
        })
    }

    fn converse<T>(
        &self,
        exchange: &Exchange,
        input: &[u8],
        most: usize,
        report: impl FnOnce(Reply) -> Option<T>,
    ) -> Result<Answer<T>, ClientError> {
        let outlet = exchange.outlet();
        let _stoppable = self.stop.as_ref().map(|stop| stop.begin(outlet.clone())).transpose()?;
        let mut rest = outlet.queue(input);
        while !rest.is_empty() {
            match outlet.send_some(rest, self.deadline) {
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                // It has its answer without reading on.
                Err(ClientError::InputClosed) => break,
                Err(error) => return Err(error),
            }
            if rest.is_empty() {
                outlet.end();
            }
        }
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        loop {
            match exchange.next(MAX_DATA_BYTES, self.deadline)? {
                Item::Data(channel, bytes) => {
                    let sink = if channel == Channel::Stderr { &mut errors } else { &mut output };
                    if sink.len() + bytes.len() > most {
                        return Err(ClientError::FileTooLarge { max_bytes: most as u64 });
                    }
                    sink.extend_from_slice(&bytes);
                }
                Item::Reply(reply) => {
                    let report = report(reply).ok_or_else(unexpected_reply)?;
                    return Ok(Answer { report, output, errors });
                }
            }
        }
    }
}
