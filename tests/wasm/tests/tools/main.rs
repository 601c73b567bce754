//! Tools in real wardens: what they can do, what stops them, what happens when a warden is lost.
//!
//! Uses the programs that `make build` made, in the directory that `RINGWALL_PROGRAMS` names.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in a test, a panic is how a failure is told"
)]

mod files;
mod guests;
mod hostile;
mod jail;
mod life;
mod loading;
mod nested;
mod repeat;

use std::path::PathBuf;

use ringwall_engine::{
    Compiled, Engine, EngineConfig, Programs, ToolCall, ToolError, ToolHost, ToolOutcome,
};
use ringwall_spec::ToolStatus;

/// A host with a state of its own.
struct World {
    home: tempfile::TempDir,
    host: ToolHost,
}

impl World {
    fn new() -> World {
        let home = tempfile::tempdir().unwrap();
        let host = open(home.path().join("state"));
        World { home, host }
    }

    fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    fn compile(&self, text: &str) -> Compiled {
        self.host.compile(&wat::parse_str(text).unwrap()).unwrap()
    }

    /// A call of a command module.
    fn command(&self, text: &str) -> ToolCall {
        ToolCall::command(self.compile(text).digest, "tool", Vec::new(), Vec::new())
    }

    fn call(&self, call: &ToolCall) -> ToolOutcome {
        self.host.call(call).unwrap()
    }

    /// What its wardens hold in memory, shared or not.
    fn resident_bytes(&self) -> usize {
        let of = |pid: u32| {
            let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
            pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        self.host.wardens().into_iter().map(of).sum()
    }

    /// The warden that ran before runs the next call, and nothing was lost.
    fn still_serves(&self) {
        let outcome = self.call(&self.command(guests::HELLO));
        assert_eq!(outcome.status, ToolStatus::Exited { code: 0 });
        assert_eq!(outcome.output, b"hello\n");
    }
}

fn open(home: PathBuf) -> ToolHost {
    engine(home).tools(&ringwall_desk::tools_permit).unwrap()
}

fn engine(home: PathBuf) -> Engine {
    let programs = std::env::var_os("RINGWALL_PROGRAMS")
        .map(PathBuf::from)
        .expect("RINGWALL_PROGRAMS must name a directory with the programs; run `make build`");
    let programs = Programs {
        launcher: programs.join("ringwall-launcher"),
        warden: programs.join("ringwall-warden"),
    };
    Engine::open(EngineConfig { home, programs }).unwrap()
}
