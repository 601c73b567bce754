//! `ringwall tool call`: one call, checked on the way in and on the way out.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ringwall_desk::{Action, BegunCall, CallWish, Desk, Used, Watched};
use ringwall_engine::{
    DirGrant, Engine, PolicySearch, ToolCall, ToolGate, ToolNetwork, ToolOutcome, deciding,
};
use ringwall_spec::{
    DirAccess, EgressSpec, Evidence, ToolDigest, ToolLimits, ToolMeter, ToolStatus, ToolTotals,
    Wall,
};
use ringwall_tool::{Failure, Kind, Stdout, Tool, limits_for};
use ringwall_tool_host::{Allowed, asked};
use serde::Serialize;
use serde_json::{Value, json};

use super::Tools;
use super::{inside, served};
use crate::args::CallArgs;
use crate::granted::Asking;
use crate::{report, spec};

/// More than the wall lets through, so that it is refused and not cut.
const MOST_INPUT: u64 = (16 << 20) + 1;

/// What `-o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    tool: &'a str,
    version: &'a str,
    digest: ToolDigest,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a Failure>,
    exit_code: u8,
    status: &'a ToolStatus,
    /// Standard error, and what the tool logged.
    log: String,
    meter: ToolMeter,
    /// The totals of all calls in the same sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_totals: Option<ToolTotals>,
    evidence: &'a [Evidence],
}

pub(super) fn run(args: &CallArgs) -> anyhow::Result<ExitCode> {
    let input = read_input(&args.input)?;
    if let Some(done) = served::call(args, &input)? {
        return Ok(done);
    }
    let place = inside::find(&args.inside)?;
    let tools = Tools::open_with(place.code_for())?;
    let tool = tools.get(&args.tool)?;
    let manifest = tool.manifest();
    let request = tool.request(&input).map_err(|failure| {
        anyhow::anyhow!("{}; see `ringwall tool inspect {}`", failure.message, tool.name())
    })?;
    let (_, sandbox) = place.wall_and_sandbox();
    let grants = match sandbox {
        Some(_) => args.grants.grants(),
        None => args.grants.resolved()?,
    };
    let allowed = Allowed {
        grants: manifest.wants.narrow(grants)?,
        limits: limits_for(&manifest.limits, &args.limits.wishes())?,
        seed: args.seed,
    };
    let mut call = allowed.call_of(&tool, request);
    let engine = &tools.engine;
    let asking = Asking::by(args.grant.as_deref())?;
    may_use(&asking, engine, (&place, args.inside.workspace.as_deref()), &call)?;
    let begun = begin(args, engine, (&tool, &mut call, &input), &place, &asking)?;
    let BegunCall { entry, limits, reservation, elevated: _elevated } = begun;
    call.limits = limits;
    let (what, stop) = (format!("a call of {}", tool.name()), call.stop.clone());
    let end = Box::new(move || stop.stop());
    let lease = asking.books.lease(&asking.caller, Watched { what, end });
    let called = place.call(&tools, &tool, &call);
    drop(lease);
    let (status, meter) = match &called {
        Ok((outcome, _)) => (Some(&outcome.status), outcome.meter),
        Err(_) => (None, ToolMeter::default()),
    };
    engine.end_tool(entry, status, meter)?;
    // A lost call may have used its whole reservation, so nothing is given back.
    if called.is_ok() {
        reservation.settle(Used::of_tool(&meter))?;
    }
    let (outcome, totals) = called?;
    let result = tool.result(&outcome.status, &outcome.output, &outcome.errors);
    let exit_code = exit_code(&result, &outcome.status);
    if args.output.json() {
        print_document(&tool, (&outcome, totals), &result, exit_code)?;
    } else {
        pass_on_log(&tool, &outcome);
        match &result {
            Ok(output) => print_output(output)?,
            Err(failure) => report::note(&failure.to_string()),
        }
    }
    Ok(ExitCode::from(exit_code))
}

/// Whether the grant lets the tool have these directories of the host, or this sandbox.
fn may_use(
    asking: &Asking,
    engine: &Engine,
    (place, workspace): (&inside::Place, Option<&Path>),
    call: &ToolCall,
) -> anyhow::Result<()> {
    let (desk, caller) = (asking.desk(engine), &asking.caller);
    match place {
        inside::Place::Living(record) => {
            let search = Desk::policy_of(record);
            desk.enter(caller, (record, &search), Action::CallTool)?;
        }
        inside::Place::Fresh(_) => {
            if let Some(workspace) = workspace {
                desk.may_use_path(caller, &std::fs::canonicalize(workspace)?, false)?;
            }
        }
        inside::Place::Alone(_) => {
            for DirGrant { host, access, .. } in &call.dirs {
                desk.may_use_path(caller, host, *access == DirAccess::Write)?;
            }
        }
    }
    Ok(())
}

/// Asks policy and grant about the call and what it may reach, and writes down that it begins.
fn begin(
    args: &CallArgs,
    engine: &Engine,
    (tool, call, input): (&Tool, &mut ToolCall, &[u8]),
    place: &inside::Place,
    asking: &Asking,
) -> anyhow::Result<BegunCall> {
    let search = PolicySearch::from_environment(std::env::current_dir().ok());
    let gate = deciding(|| ToolGate::open(&search))?;
    let egress = network(args, (engine, &gate), tool, place, asking)?;
    let asked = asked(tool, call, place.wall_and_sandbox());
    let parameters = parameters(call, input, call.limits, (asked.wall, egress.as_ref()))?;
    let account = format!("{}-{}", std::process::id(), tool.name());
    let wish =
        CallWish { asked, gate: &gate, search: &search, limits: call.limits, account: &account };
    let begun = asking.desk(engine).begin_call(&asking.caller, wish, || parameters)?;
    call.network = egress.map(|egress| ToolNetwork {
        egress,
        variables: tool.manifest().wants.env.clone(),
        entry: begun.entry.clone(),
    });
    Ok(begun)
}

/// All of what a person would allow by letting this tool be called.
fn parameters(
    call: &ToolCall,
    input: &[u8],
    limits: ToolLimits,
    (wall, egress): (&Wall, Option<&EgressSpec>),
) -> anyhow::Result<BTreeMap<String, String>> {
    let dirs =
        call.dirs.iter().map(|DirGrant { host, guest, access }| json!([host, guest, access]));
    let parameters = [
        ("digest", call.digest.to_string()),
        ("wall", wall.to_string()),
        ("input", String::from_utf8(input.to_vec()).context("the input is not UTF-8")?),
        ("directories", serde_json::to_string(&dirs.collect::<Vec<_>>())?),
        ("variables", serde_json::to_string(&call.env)?),
        ("limits", serde_json::to_string(&limits)?),
        ("network", serde_json::to_string(&egress)?),
        ("seed", serde_json::to_string(&call.seed)?),
    ];
    Ok(parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// What the tool may reach.
fn network(
    args: &CallArgs,
    (engine, gate): (&Engine, &ToolGate),
    tool: &Tool,
    place: &inside::Place,
    asking: &Asking,
) -> anyhow::Result<Option<EgressSpec>> {
    let asked = spec::network(&args.network)?;
    if args.network.transparent {
        bail!("tools have no connections but HTTP requests; leave --net-transparent out");
    }
    if !matches!(place, inside::Place::Alone(_)) {
        if asked.is_some() {
            bail!(
                "tools in a sandbox reach no network; leave --net and --secret out, or --sandbox and --wall"
            );
        }
        return Ok(None);
    }
    let wanted = &tool.manifest().wants.http;
    let desk = asking.desk(engine);
    let egress = desk.network_of_tool(&asking.caller, (gate, wanted), asked)?;
    if let Some(egress) = &egress {
        egress.warning().into_iter().for_each(report::note);
    }
    Ok(egress)
}

/// The text itself, `@FILE` or `-`.
fn read_input(given: &str) -> anyhow::Result<Vec<u8>> {
    let mut input = Vec::new();
    if given == "-" {
        io::stdin()
            .take(MOST_INPUT)
            .read_to_end(&mut input)
            .context("standard input cannot be read")?;
    } else if let Some(path) = given.strip_prefix('@') {
        let file = std::fs::File::open(path)
            .and_then(|file| file.take(MOST_INPUT).read_to_end(&mut input));
        file.with_context(|| format!("the input {path} cannot be read; write @FILE, - or JSON"))?;
    } else {
        input.extend_from_slice(given.as_bytes());
    }
    Ok(input)
}

/// A program's exit code is part of what it returned; the call itself went well.
fn exit_code(result: &Result<Value, Failure>, status: &ToolStatus) -> u8 {
    match (result, status) {
        (Ok(_), _) => 0,
        (Err(_), ToolStatus::Returned | ToolStatus::Exited { .. }) => 1,
        (Err(_), other) => other.exit_code(),
    }
}

/// Pretty for people, one line for programs.
pub(super) fn print_output(output: &Value) -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        // Every character that a terminal would obey is escaped in JSON, or made printable.
        let pretty = serde_json::to_string_pretty(output)?;
        let lines = pretty.lines().map(|line| format!("{}\n", report::printable(line)));
        report::text(lines.collect::<String>())?;
    } else {
        report::text(format!("{output}\n"))?;
    }
    Ok(())
}

/// What the tool said beside its output, unless that is in the output already.
fn pass_on_log(tool: &Tool, outcome: &ToolOutcome) {
    let manifest = tool.manifest();
    let shown = manifest.command.as_ref().is_some_and(|command| command.stdout == Stdout::Text);
    if manifest.kind == Kind::Command && shown {
        return;
    }
    for line in String::from_utf8_lossy(&outcome.errors).lines() {
        report::note(&format!("{}: {line}", tool.name()));
    }
}

fn print_document(
    tool: &Tool,
    (outcome, sandbox_totals): (&ToolOutcome, Option<ToolTotals>),
    result: &Result<Value, Failure>,
    exit_code: u8,
) -> anyhow::Result<()> {
    report::json(&Document {
        tool: tool.name(),
        version: &tool.manifest().version,
        digest: tool.digest,
        output: result.as_ref().ok(),
        error: result.as_ref().err(),
        exit_code,
        status: &outcome.status,
        log: String::from_utf8_lossy(&outcome.errors).into_owned(),
        meter: outcome.meter,
        sandbox_totals,
        evidence: &outcome.evidence,
    })?;
    Ok(())
}
