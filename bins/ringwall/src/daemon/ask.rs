//! Flags as the daemon takes them. What it cannot be told, it is not asked.

use std::collections::BTreeMap;

use ringwall_policy::Task;
use ringwall_spec::{Command, Limits, SandboxSpec, WorkspaceMode};
use serde_json::{Value, json};

use crate::args::SandboxArgs;
use crate::spec::sandbox_spec;

/// The sandbox that the flags ask for, for the daemon; none if there is something in it that only the
/// caller has: a grant, a policy file, secrets, rights within the workspace, a trust level or risk level,
/// filters of its own, or words that are no text.
pub(crate) fn sandbox_asked(
    args: &SandboxArgs,
    default: Limits,
    command: Option<&Command>,
) -> anyhow::Result<Option<Value>> {
    let policy = &args.policy;
    let task = policy.task();
    let plain = Task { phase: task.phase.clone(), ..Task::default() } == task;
    if !plain || policy.policy.is_some() || policy.grant.is_some() {
        return Ok(None);
    }
    let spec = sandbox_spec(args, default)?;
    let network = spec.egress.as_ref();
    let own = network.is_some_and(|egress| !egress.secrets.is_empty() || egress.layers.len() > 1);
    if own || spec.rights.is_some() || spec.own_filters {
        return Ok(None);
    }
    Ok(described(args, &spec, command))
}

fn described(args: &SandboxArgs, spec: &SandboxSpec, command: Option<&Command>) -> Option<Value> {
    let workspace = match &spec.workspace {
        None => None,
        Some(workspace) => Some(json!({
            "path": workspace.path.to_str()?,
            "read_write": workspace.mode == WorkspaceMode::ReadWrite,
        })),
    };
    let shown: Option<Vec<&str>> = spec.read_only_paths.iter().map(|path| path.to_str()).collect();
    let network = spec
        .egress
        .as_ref()
        .map(|egress| json!({ "rules": egress.layers.first(), "transparent": egress.transparent }));
    Some(json!({
        "wall": args.named_wall().map(|wall| wall.to_string()),
        "image": spec.image,
        "workspace": workspace,
        "read_only": shown?,
        "network": network,
        "name": spec.name.as_ref().map(|name| name.as_str()),
        "limits": args.limits_asked(),
        "kind": args.policy.work().kind,
        "phase": args.policy.task().phase,
        "policy_directory": std::env::current_dir().ok()?.to_str()?,
        "command": match command {
            None => None,
            Some(command) => Some(words_of(command)?),
        },
    }))
}

/// A command, if all of it is text.
pub(crate) fn words_of(command: &Command) -> Option<Value> {
    let argv: Option<Vec<&str>> = command.argv.iter().map(|word| word.to_str()).collect();
    let mut env = BTreeMap::new();
    for (name, value) in &command.env {
        env.insert(name.to_str()?, value.to_str()?);
    }
    let cwd = match &command.cwd {
        None => None,
        Some(path) => Some(path.to_str()?),
    };
    Some(json!({ "argv": argv?, "env": env, "cwd": cwd }))
}
