//! `make bench-api`: what the daemon adds to the engine's own time, for commands in a living sandbox
//! and for tools.
//!
//! Everyone plays in turn in one run: the engine in this process, the engine through a keeper as
//! `ringwall exec` does it, and the daemon over one kept connection, as its owner and with a grant.

mod client;
mod findings;

use std::ffi::OsString;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ringwall_engine::{Attached, Engine, EngineConfig, Programs, ToolCall, ToolHost};
use ringwall_policy::admit;
use ringwall_spec::{Command, Ending, RingKind, SandboxSpec, Wall};
use serde_json::{Value, json};

use crate::ground::Ground;
use crate::library::{self, Silent};
use crate::options::ToolsOptions;
use crate::results::{Machine, Unavailable, load_average};
use crate::tools::stand::{ECHO, timed};
use crate::tools::turns::{Player, play};
use client::{Daemon, Http};
pub(crate) use findings::{Findings, panels, promises, text};

/// The policy that is shipped, with a profile that lets a grant have a process ring.
const POLICY: &str = include_str!("../../crates/rules/src/default.toml");
const ROUNDS: usize = 150;
const QUICK_ROUNDS: usize = 25;

pub(crate) fn measure(options: &ToolsOptions, say: &mut dyn FnMut(&str)) -> Result<Findings> {
    let load_before = load_average();
    say("preparing a daemon and sandboxes");
    let ground = Ground::without_image()?;
    let config = ground.path("config");
    fs::create_dir_all(config.join("ringwall"))?;
    let tools = format!("\n[[tool]]\nnames = [\"{ECHO}\"]\nkind = \"compute\"\napproved = true\n");
    let policy = POLICY.replace("profile = \"medium\"", "profile = \"low\"") + &tools;
    fs::write(config.join("ringwall/ringwall.toml"), policy)?;
    let stand = Stand::open(&ground, &config)?;
    let rounds = if options.quick { QUICK_ROUNDS } else { ROUNDS };
    let mut unavailable = Vec::new();
    let tool = match stand.echo() {
        Ok(tool) => Some(tool),
        Err(error) => {
            unavailable.push(Unavailable::new(findings::REST_TOOL, &error));
            None
        }
    };
    say("commands and tools");
    let (execs, calls) = stand.play(rounds, tool.as_ref())?;
    Ok(Findings { machine: Machine::look(load_before), execs, calls, unavailable })
}

struct Stand<'a> {
    ground: &'a Ground,
    engine: Engine,
    daemon: Daemon,
}

/// A tool, and the host in this process that runs it.
struct Echo {
    host: ToolHost,
    call: ToolCall,
    input: Value,
}

impl<'a> Stand<'a> {
    fn open(ground: &'a Ground, config: &std::path::Path) -> Result<Stand<'a>> {
        let programs = Programs {
            launcher: ground.programs.join("ringwall-launcher"),
            warden: ground.programs.join("ringwall-warden"),
        };
        let engine = Engine::open(EngineConfig { home: ground.home(), programs })?;
        let daemon = Daemon::start(ground, config)?;
        Ok(Stand { ground, engine, daemon })
    }

    /// The smallest built-in tool, ready in this process and known to the daemon.
    fn echo(&self) -> Result<Echo> {
        let file = self.ground.programs.join("tools").join(format!("{ECHO}.wasm"));
        let wasm = fs::read(&file)
            .with_context(|| format!("{} cannot be read; run `make tools`", file.display()))?;
        crate::ground::run(self.ringwall().args(["tool", "add"]).arg(&file))?;
        let host = self.engine.tools()?;
        host.keep_ready(1);
        let compiled = host.compile(&wasm)?;
        let input = json!({ "text": "hello" });
        let call = ToolCall::component(compiled.digest, input.to_string());
        Ok(Echo { host, call, input })
    }

    fn ringwall(&self) -> std::process::Command {
        let mut command = std::process::Command::new(self.ground.ringwall());
        command.env("RINGWALL_HOME", self.ground.home());
        command.env("RINGWALL_PROGRAMS", &self.ground.programs);
        command
    }

    fn play(
        &self,
        rounds: usize,
        tool: Option<&Echo>,
    ) -> Result<(Vec<crate::stats::Summary>, Vec<crate::stats::Summary>)> {
        let own = self.engine.raise(&admit(SandboxSpec::new(Wall::single(RingKind::Process)))?)?;
        let mut owner = self.daemon.connect(None)?;
        let (kept, path) = living(&mut owner)?;
        let attached = self.engine.attach(&self.engine.find(&kept)?)?;
        let token = owner.post("/v1/grants", &grant(), 201)?;
        let token = token["token"].as_str().context("a token")?.to_owned();
        let mut holder = self.daemon.connect(Some(&token))?;
        let (_, holders_path) = living(&mut holder)?;
        let order = json!({ "argv": ["true"] });
        let mut players = vec![
            Player::new(findings::OWN, || library::exec(&own)),
            Player::new(findings::KEPT, || through_keeper(&attached)),
            Player::new(findings::REST, || owner.timed(&path, &order)),
            Player::new(findings::REST_HELD, || holder.timed(&holders_path, &order)),
        ];
        let execs = play(&mut players, rounds)?;
        drop(players);
        library::end(own)?;
        let Some(tool) = tool else { return Ok((execs, Vec::new())) };
        let (path, order) = (format!("/v1/tools/{ECHO}/call"), json!({ "input": tool.input }));
        let mut players = vec![
            Player::new(findings::TOOL, || timed(&tool.host, &tool.call)),
            Player::new(findings::REST_TOOL, || owner.timed(&path, &order)),
            Player::new(findings::REST_TOOL_HELD, || holder.timed(&path, &order)),
        ];
        let calls = play(&mut players, rounds)?;
        Ok((execs, calls))
    }
}

impl Drop for Stand<'_> {
    /// Sandboxes outlive the daemon; none outlives the bench.
    fn drop(&mut self) {
        for record in self.engine.records().unwrap_or_default() {
            let _ = self.engine.stop(&record, Duration::ZERO);
            if let Ok(left) = self.engine.find(record.id.as_str()) {
                let _ = self.engine.remove(&left);
            }
        }
    }
}

fn grant() -> Value {
    json!({
        "task": "bench", "tenant": "bench", "holder": "bench", "kinds": ["files"],
        "walls": ["process"], "tools": [ECHO],
        "budget": { "calls": 10_000_000, "wall_seconds": 100_000_000 },
    })
}

/// A sandbox of this client's, and where commands for it go.
fn living(client: &mut Http) -> Result<(String, String)> {
    let made =
        json!({ "wall": "process", "kind": "files", "limits": { "memory_bytes": 64 << 20 } });
    let made = client.post("/v1/sandboxes", &made, 201)?;
    let id = made["id"].as_str().context("an id")?.to_owned();
    let path = format!("/v1/sandboxes/{id}/exec");
    Ok((id, path))
}

fn through_keeper(attached: &Attached) -> Result<Duration> {
    let command = Command { argv: vec![OsString::from("true")], ..Command::default() };
    let started = Instant::now();
    let ending = attached.start(&command, Duration::from_secs(60))?.wait(&mut Silent)?;
    let took = started.elapsed();
    ensure!(ending == Ending::Exited { code: 0 }, "`true` ended with {ending:?}");
    Ok(took)
}
