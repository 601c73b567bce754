//! `ringwall mcp`: becomes the program that serves an agent, or runs a third-party server.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ringwall_engine::EngineConfig;
use ringwall_spec::Limits;
use serde_json::json;

use super::run::run_within;
use crate::args::{
    DockerArgs, JobArgs, McpArgs, McpServeArgs, McpVerb, OutputArgs, RunArgs, WrapArgs, usual_jobs,
};
use crate::daemon::{default_socket, program};
use crate::report;

/// A daemon that was started for an agent ends when no agent has been there for so long.
const IDLE: Duration = Duration::from_secs(60);
/// A server lives as long as its client, which may be all day.
const DAY: Duration = Duration::from_secs(24 * 3600);
const SERVERS_OUTPUT: u64 = 1 << 30;

pub(super) fn run(args: McpArgs) -> anyhow::Result<ExitCode> {
    match args.verb {
        Some(McpVerb::Wrap(args)) => wrap(*args),
        None => serve(&args.serve).map(|()| ExitCode::SUCCESS),
    }
}

fn serve(args: &McpServeArgs) -> anyhow::Result<()> {
    let config = EngineConfig::from_environment()?;
    let program = program(&config)?;
    let grant = args.grant.as_ref().map(std::path::absolute).transpose();
    let socket = default_socket(&config.home);
    let (jobs, jobs_per_tenant) = usual_jobs();
    let settings = json!({
        "socket": socket,
        "log": config.home.join("mcp-daemon.log"),
        "serve": {
            "socket": socket,
            "jobs": jobs,
            "jobs_per_tenant": jobs_per_tenant,
            "idle_ms": u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX),
            "grace_ms": 2000,
        },
        "grant": grant.context("--grant is empty; give a path")?,
        "settings": {
            "tools": args.tools,
            "workspace": workspace(args)?,
            "tools_write": args.tools_write,
            "wall": args.wall.as_ref().map(ToString::to_string),
            "image": args.image,
            "keep": args.keep,
        },
    });
    let mut server = std::process::Command::new(&program);
    // Only returns if it does not work.
    let error = server.arg("mcp").arg(settings.to_string()).exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}

/// What the agent may use. An editor that starts servers in a person's home does not mean all of it.
fn workspace(args: &McpServeArgs) -> anyhow::Result<Option<PathBuf>> {
    if args.no_workspace {
        return Ok(None);
    }
    if let Some(named) = &args.workspace {
        return Ok(Some(std::path::absolute(named).context("--workspace is empty; give a path")?));
    }
    let here = std::env::current_dir().context("the current directory cannot be used")?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let too_much = |top: &Path| top.starts_with(&here);
    if too_much(Path::new("/")) || home.as_deref().is_some_and(too_much) {
        report::note(
            "started in / or in your home, so the agent gets no workspace; give one with --workspace DIR",
        );
        return Ok(None);
    }
    Ok(Some(here))
}

fn wrap(args: WrapArgs) -> anyhow::Result<ExitCode> {
    let (env, cwd) = (args.env, args.cwd);
    let job = JobArgs { env, env_file: Vec::new(), cwd, interactive: true, tty: false };
    let run_args = RunArgs {
        sandbox: args.sandbox,
        job,
        dry_run: false,
        evidence: false,
        output: OutputArgs::default(),
        preset: None,
        apply: false,
        docker: DockerArgs::default(),
        command: args.command,
        may_begin_with_image: false,
    };
    let default = Limits { timeout: DAY, output_bytes: SERVERS_OUTPUT, ..Limits::default() };
    Ok(run_within(run_args, default, None, &|_| Ok(()))?.0)
}
