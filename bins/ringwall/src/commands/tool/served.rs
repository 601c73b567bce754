//! A call through the daemon, whose wardens are up already.

use std::process::ExitCode;

use anyhow::Context;
use ringwall_engine::EngineConfig;
use ringwall_spec::DirAccess;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::{CallArgs, ToolRef};
use crate::{daemon, report};

/// What the daemon answers; all of it but the id of the call goes into `-o json`.
#[derive(Deserialize)]
struct Called {
    output: Option<Value>,
    error: Option<Failure>,
    exit_code: u8,
    log: String,
    log_is_output: bool,
}

#[derive(Deserialize)]
struct Failure {
    code: String,
    message: String,
}

/// Does the call if a daemon is there and takes it. What it refuses was not done, and the caller's own
/// way tells why.
pub(super) fn call(args: &CallArgs, input: &[u8]) -> anyhow::Result<Option<ExitCode>> {
    let Some((name, request)) = request(args, input) else { return Ok(None) };
    let Some(stream) = daemon::connect(&EngineConfig::from_environment()?.home) else {
        return Ok(None);
    };
    let asked = daemon::post(stream, &format!("/v1/tools/{name}/call"), &request);
    let body = match asked
        .context("the daemon has gone, and whether the tool was called is not known")?
    {
        (200, body) => body,
        (status, body) if status >= 500 => {
            let text = String::from_utf8_lossy(&body).into_owned();
            anyhow::bail!("the daemon failed, and whether the tool was called is not known: {text}")
        }
        _ => return Ok(None),
    };
    let mut document: Value = serde_json::from_slice(&body)?;
    let called: Called = serde_json::from_slice(&body)?;
    let exit_code = ExitCode::from(called.exit_code);
    if args.output.json() {
        if let Some(fields) = document.as_object_mut() {
            fields.retain(|name, _| name != "call" && name != "log_is_output");
        }
        report::json(&document)?;
        return Ok(Some(exit_code));
    }
    if !called.log_is_output {
        let tool = document["tool"].as_str().unwrap_or(&name);
        called.log.lines().for_each(|line| report::note(&format!("{tool}: {line}")));
    }
    match (&called.output, &called.error) {
        (Some(output), _) => super::call::print_output(output)?,
        (None, Some(failure)) => report::note(&format!("{}: {}", failure.code, failure.message)),
        (None, None) => {}
    }
    Ok(Some(exit_code))
}

/// The call as the daemon wants it, if it is one for it: of a tool that it knows, alone.
fn request(args: &CallArgs, input: &[u8]) -> Option<(String, Value)> {
    let ToolRef::Name(name) = &args.tool else { return None };
    let inside = &args.inside;
    let alone = inside.sandbox.is_none() && inside.wall.is_none();
    // The daemon has built-in tools of its own, and over its socket everything is the owner's.
    if !alone
        || args.network.is_given()
        || args.grant.is_some()
        || std::env::var_os("RINGWALL_TOOLS").is_some()
    {
        return None;
    }
    let input: Value = serde_json::from_slice(input).ok()?;
    let (grants, limits) = (args.grants.grants(), args.limits.wishes());
    let mut dirs = Vec::new();
    for dir in grants.dirs {
        let path = std::path::absolute(&dir.host).ok()?;
        let write = dir.access == DirAccess::Write;
        dirs.push(json!({ "guest": dir.guest, "path": path.to_str()?, "write": write }));
    }
    let request = json!({
        "input": input,
        "seed": args.seed,
        "dirs": dirs,
        "env": grants.env.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "limits": {
            "time_ms": limits.time_ms, "memory_bytes": limits.memory_bytes,
            "output_bytes": limits.output_bytes, "fuel": limits.fuel,
        },
        "policy_directory": std::env::current_dir().ok()?.to_str()?,
        "evidence": args.output.json(),
    });
    Some((name.to_string(), request))
}
