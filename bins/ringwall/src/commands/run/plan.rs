//! `ringwall plan` and `ringwall run --dry-run`: the decision and the steps. Nothing starts.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use ringwall_desk::{Permit, Placed};
use ringwall_spec::{EgressSpec, Limits, RingKind, SandboxSpec, WorkspaceMode, WorkspaceSpec};
use serde::Serialize;

use super::super::open_engine;
use crate::args::RunArgs;
use crate::job;
use crate::report::{self, printable};
use crate::spec::decide;

/// What `-o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    wall: String,
    /// Empty where the owner's own order counts.
    rules: &'a [String],
    limits: &'a Limits,
    network: Vec<String>,
    rings: Vec<PlannedRing>,
}

#[derive(Serialize)]
struct PlannedRing {
    ring: RingKind,
    steps: Vec<String>,
}

/// Prints what `run` would do. Nothing is started, pulled or charged.
pub(super) fn show(args: RunArgs, default: Limits) -> anyhow::Result<ExitCode> {
    refuse_what_changes_something(&args)?;
    let RunArgs { sandbox, job, output, command, .. } = args;
    let command = (!command.is_empty()).then(|| job::command(command, &job)).transpose()?;
    let engine = open_engine()?;
    let Placed { permit, reservation, .. } =
        decide(&engine, &sandbox, default, command.as_ref())?.admitted.placed;
    reservation.give_back()?;
    let rings = engine.explain(&permit)?;
    if output.json() {
        let rings = rings.into_iter().map(|(ring, steps)| PlannedRing {
            ring,
            steps: steps.lines().map(|line| line.trim().to_owned()).collect(),
        });
        let spec = permit.spec();
        report::json(&Document {
            wall: spec.wall.to_string(),
            rules: permit.rules(),
            limits: &spec.limits,
            network: spec.egress.as_ref().map(EgressSpec::summary).unwrap_or_default(),
            rings: rings.collect(),
        })?;
    } else {
        report::text(text_of(&permit, &rings)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_what_changes_something(args: &RunArgs) -> anyhow::Result<()> {
    if args.preset.is_some() {
        bail!("a preset writes settings before it starts, so it has no plan; leave --preset out");
    }
    if args.sandbox.policy.grant.is_some() {
        bail!(
            "a decision about a grant can use up its budget or an approval, so it has no plan; leave --grant out"
        );
    }
    Ok(())
}

fn text_of(permit: &Permit, rings: &[(RingKind, String)]) -> anyhow::Result<String> {
    let spec = permit.spec();
    let mut text = String::new();
    match permit.decided() {
        Some(_) => writeln!(text, "{} work runs in {}", permit.kind(), spec.wall)?,
        None => writeln!(text, "runs in {}: your own order, there is no policy", spec.wall)?,
    }
    for rule in permit.rules() {
        writeln!(text, "  rule: {}", printable(rule))?;
    }
    for (name, value) in inputs(spec) {
        writeln!(text, "  {name}: {}", printable(&value))?;
    }
    for (number, (ring, steps)) in rings.iter().enumerate() {
        write!(text, "\nring {}: {ring}\n{steps}", number + 1)?;
    }
    Ok(text)
}

/// What the sandbox is given, one line each.
fn inputs(spec: &SandboxSpec) -> Vec<(&'static str, String)> {
    let limits = &spec.limits;
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let mut lines = Vec::new();
    lines.extend(spec.image.clone().map(|image| ("image", image)));
    lines.extend(spec.workspace.as_ref().map(|workspace| ("workspace", workspace_text(workspace))));
    let shown = spec.read_only_paths.iter().map(|path| ("shown", path.display().to_string()));
    lines.extend(shown);
    lines.push((
        "limits",
        format!(
            "{} s, {} memory, {} CPUs, {} processes, {} disk",
            limits.timeout.as_secs(),
            mebibytes(limits.memory_bytes),
            f64::from(limits.cpu_milli) / 1000.0,
            limits.pids,
            mebibytes(limits.disk_bytes),
        ),
    ));
    match &spec.egress {
        Some(egress) => lines.extend(egress.summary().into_iter().map(|line| ("network", line))),
        None => lines.push(("network", "none".to_owned())),
    }
    lines
}

fn workspace_text(workspace: &WorkspaceSpec) -> String {
    let how = match workspace.mode {
        WorkspaceMode::CopyOnWrite => "changes are kept apart",
        WorkspaceMode::ReadWrite => "written directly",
    };
    format!("{} ({how})", workspace.path.display())
}
