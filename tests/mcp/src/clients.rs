//! Clients of others against `ringwall mcp` and `/mcp`: the Inspector, the conformance suite, the Python
//! SDK, and Codex with a model that follows a script.

pub(crate) mod codex;
mod relay;

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Daemon, Others, World};
use relay::Relay;

/// The command line that starts our server, for clients that start it themselves.
fn server(world: &World) -> (String, Vec<(String, String)>) {
    let command = world.command(["mcp"]);
    let program = command.get_program().to_str().expect("a path").to_owned();
    let environment = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())));
    (program, environment.collect())
}

fn output(command: &mut Command) -> (String, String) {
    command.stdin(Stdio::null());
    let output = command.output().expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn inspect(others: &Others, world: &World, more: &[&str]) -> Value {
    let (program, environment) = server(world);
    let mut command = others.npm_program("mcp-inspector");
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", world.path("nobody-home"));
    command.current_dir(world.project()).arg("--cli");
    for (name, value) in environment {
        command.arg("-e").arg(format!("{name}={value}"));
    }
    command.args(more).arg("--").arg(program).arg("mcp");
    let (told, errors) = output(&mut command);
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("no JSON: {told} {errors}"))
}

#[test]
fn the_inspector_lists_and_calls_tools() {
    let Some(others) = Others::found("the_inspector_lists_and_calls_tools") else { return };
    let daemon = Daemon::start();
    let listed = inspect(&others, &daemon.world, &["--method", "tools/list"]);
    let tools = listed["tools"].as_array().expect("a list").clone();
    assert!(tools.iter().any(|tool| tool["name"] == "sandbox_exec"), "{listed}");
    let call = ["--method", "tools/call", "--tool-name", "sandbox_run_code", "--tool-arg"];
    let call = [&call[..], &["language=shell", "--tool-arg", "code=echo inspected"]].concat();
    let called = inspect(&others, &daemon.world, &call);
    assert_eq!(called["structuredContent"]["stdout"], "inspected\n", "{called}");
    assert_eq!(called["structuredContent"]["wall"], "process");
}

/// With the SDK that most servers and agents in Python are made with.
const PYTHON: &str = r#"
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

async def use(streams):
    told = []
    async def progress(done, total, message):
        told.append(message)
    async with ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        made = await session.call_tool("sandbox_create", {"kind": "files", "wall": "process"})
        sandbox = made.structuredContent["sandbox"]
        line = {"sandbox": sandbox, "command": "echo first; sleep 1; echo second"}
        ran = await session.call_tool("sandbox_exec", line, progress_callback=progress)
        stopped = await session.call_tool("sandbox_stop", {"sandbox": sandbox, "keep": False})
        return {"names": names, "ran": ran.structuredContent, "progress": told,
                "stopped": stopped.isError}

async def main():
    given = json.loads(sys.argv[1])
    if "url" in given:
        headers = {"Authorization": "Bearer " + given["token"]}
        async with streamablehttp_client(given["url"], headers=headers) as streams:
            return await use(streams)
    server = StdioServerParameters(command=given["program"], args=["mcp"], env=given["env"])
    async with stdio_client(server) as streams:
        return await use(streams)

print(json.dumps(asyncio.run(main())))
"#;

fn python(others: &Others, world: &World, given: &Value) -> Value {
    let mut command = others.python();
    command.current_dir(world.project()).arg("-c").arg(PYTHON).arg(given.to_string());
    let (told, errors) = output(&mut command);
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("no JSON: {told} {errors}"))
}

#[test]
fn the_python_sdk_does_a_task_over_both_transports() {
    let Some(others) = Others::found("the_python_sdk_does_a_task_over_both_transports") else {
        return;
    };
    let daemon = Daemon::for_tenants(&[]);
    let (program, environment) = server(&daemon.world);
    let environment: serde_json::Map<_, _> =
        environment.into_iter().map(|(name, value)| (name, json!(value))).collect();
    let url = format!("http://{}/mcp", daemon.address());
    let token = daemon.grant("acme", &json!({}));
    for given in
        [json!({"program": program, "env": environment}), json!({"url": url, "token": token})]
    {
        let told = python(&others, &daemon.world, &given);
        assert_eq!(told["ran"]["stdout"], "first\nsecond\n", "{told}");
        assert_eq!(told["ran"]["wall"], "process");
        assert!(told["progress"].to_string().contains("first"), "{told}");
        assert_eq!(told["stopped"], false);
        assert!(told["names"].to_string().contains("sandbox_fs_apply"), "{told}");
    }
}

/// Scenarios of the suite that ask for nothing but the protocol.
const SCENARIOS: [&str; 9] = [
    "server-initialize",
    "ping",
    "completion-complete",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

/// Beginnings of those that call tools, prompts and resources of the server that was written for the suite,
/// or what Ringwall does not offer; docs/internals/development.md says why for each.
const NOT_FOR_US: [&str; 8] = [
    "tools-call-",
    "json-schema-2020-12",
    "elicitation-sep",
    "resources-read-",
    "resources-templates-read",
    "resources-subscribe",
    "resources-unsubscribe",
    "prompts-get-",
];
const NOT_OFFERED: [&str; 1] = ["logging-set-level"];

/// All server scenarios of the suite, as it lists them itself.
fn listed(others: &Others) -> Vec<String> {
    let (told, errors) = output(others.npm_program("conformance").arg("list"));
    let servers = told.split("Client scenarios").next().unwrap_or_default();
    let names = servers.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let names: Vec<String> =
        names.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
    assert!(names.len() > 30, "{told} {errors}");
    names
}

#[test]
fn the_conformance_suite_passes() {
    let Some(others) = Others::found("the_conformance_suite_passes") else { return };
    let daemon = Daemon::for_tenants(&[]);
    let token = daemon.grant("acme", &json!({}));
    // The suite knows no tokens.
    let relay = Relay::start(daemon.address(), &token);
    for scenario in listed(&others) {
        let known = SCENARIOS.contains(&scenario.as_str())
            || NOT_OFFERED.contains(&scenario.as_str())
            || NOT_FOR_US.iter().any(|beginning| scenario.starts_with(beginning));
        assert!(known, "{scenario} is new: run it, or say why it does not apply");
    }
    for scenario in SCENARIOS {
        let mut command = others.npm_program("conformance");
        command.current_dir(daemon.world.path("")).args(["server", "--url", &relay.url()]);
        command.args(["--scenario", scenario]);
        let done = command.stdin(Stdio::null()).output().expect("it can be started");
        let told = String::from_utf8_lossy(&done.stdout);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{scenario}: {told}\n{errors}");
    }
}
