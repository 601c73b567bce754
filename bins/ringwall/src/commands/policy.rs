//! `ringwall policy`: write, check, explain, compare and test policies.

use std::fmt::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use ringwall_engine::{CASE_FILE, POLICY_FILE, PolicySearch};
use ringwall_policy::{
    Anchors, Asked, DEFAULT_POLICY, Decision, DecisionRecord, DiffMethod, Difference, HostFacts,
    PlaceRequest, Risk, Severity, Stack, Task, Verdict, Widening, compare, parse_asked,
};
use ringwall_proof::{Proof, Solver, prove};
use ringwall_safekeeping::{Content, create_new};

use crate::args::{CheckArgs, ExplainArgs, InitArgs, PolicyDiffArgs, PolicyVerb};
use crate::report;

/// Exit code 0 for yes, 1 for no: findings that are errors, a denial, an edit that widens, a case
/// that fails.
pub(super) fn run(verb: PolicyVerb) -> anyhow::Result<ExitCode> {
    let yes = match verb {
        PolicyVerb::Init(args) => init(&args).map(|()| true),
        PolicyVerb::Check(args) => check(&args),
        PolicyVerb::Explain(args) => explain(&args),
        PolicyVerb::Diff(args) => diff(&args),
        PolicyVerb::Test(args) => test(&args),
    };
    Ok(if yes? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn here() -> anyhow::Result<PathBuf> {
    std::env::current_dir().context("the current directory is not known")
}

/// Without a file: whatever counts here. With one: that file as if it were one's own policy.
fn search(file: Option<&Path>) -> anyhow::Result<PolicySearch> {
    Ok(match file {
        Some(file) => {
            let file = std::path::absolute(file).context("the path of the policy is empty")?;
            PolicySearch { named: Some(file), ..PolicySearch::default() }
        }
        None => PolicySearch::from_environment(Some(here()?)),
    })
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let path = if args.user {
        let user = PolicySearch::from_environment(None).user_file;
        user.context("no home directory is known; set HOME or XDG_CONFIG_HOME")?
    } else {
        here()?.join(POLICY_FILE)
    };
    if let Some(directory) = path.parent() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.with_context(|| format!("{} cannot be made", directory.display()))?;
    }
    let own = format!("\nrisk = \"{}\"\n", args.risk);
    let text = match args.risk {
        Risk::Medium => DEFAULT_POLICY.to_owned(),
        _ => DEFAULT_POLICY.replacen("\nrisk = \"medium\"\n", &own, 1),
    };
    create_new(&path, Content::durable(text.as_bytes()).with_mode(0o644))
        .with_context(|| format!("{} cannot be written", path.display()))?;
    report::text(format!("{}\n", report::printable(&path.to_string_lossy())))?;
    if !args.user {
        report::note("a policy of a directory can only narrow what your own allows");
    }
    Ok(())
}

fn check(args: &CheckArgs) -> anyhow::Result<bool> {
    let stack = search(args.file.as_deref())?.load()?;
    let findings = stack.check();
    let wrong = findings.iter().any(|finding| finding.severity == Severity::Error);
    if args.output.json() {
        report::json(&findings)?;
        return Ok(!wrong);
    }
    let mut text = String::new();
    for finding in &findings {
        let severity = match finding.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let place = report::printable(&finding.file);
        let what = report::printable(&finding.message);
        writeln!(text, "{place}:{}: {severity}: {what} [{}]", finding.line, finding.mistake)?;
        writeln!(text, "    fix: {}", report::printable(&finding.fix))?;
    }
    if findings.is_empty() {
        for layer in stack.layer_refs() {
            writeln!(text, "{}: no findings", report::printable(&layer.path))?;
        }
    }
    report::text(text)?;
    Ok(!wrong)
}

fn explain(args: &ExplainArgs) -> anyhow::Result<bool> {
    let workspace = match &args.workspace {
        Some(path) => std::path::absolute(path).context("--workspace is empty; give a path")?,
        None => here()?,
    };
    let mut search = PolicySearch::from_environment(Some(workspace.clone()));
    search.named.clone_from(&args.policy);
    let stack = search.load()?;
    let anchors = Anchors {
        home: std::env::var("HOME").ok(),
        workspace: workspace.to_str().map(str::to_owned),
    };
    // A request may also be given as one argument.
    let words: Vec<&str> = args.request.iter().flat_map(|word| word.split_whitespace()).collect();
    let task = Task {
        trust: args.trust,
        risk: args.risk,
        phase: args.phase.clone(),
        tainted: args.tainted,
        elevated: args.elevated.iter().cloned().collect(),
    };
    match parse_asked(&words, &anchors)? {
        Asked::Act(action) => {
            let decision = stack.decide(&task, &action);
            let cedar = args.cedar.then(|| stack.cedar(action.act())).transpose()?;
            if args.output.json() {
                report::json(&decision)?;
            } else {
                report::text(explained(&decision, cedar))?;
            }
            Ok(decision.allowed)
        }
        Asked::Place { work, wall } => {
            let request = PlaceRequest { task, work, wall, ..PlaceRequest::default() };
            // What policy says, wherever that is; `ringwall doctor` says what this host can do.
            let record = stack.place(&request, &HostFacts::of_rings(|_| None));
            let cedar = args.cedar.then(|| stack.cedar(ringwall_policy::Act::Run)).transpose()?;
            if args.output.json() {
                report::json(&record)?;
            } else {
                report::text(explained_placement(&record, cedar))?;
            }
            Ok(record.plan().is_ok())
        }
    }
}

fn explained(decision: &Decision, cedar: Option<String>) -> String {
    let mut text = String::from(if decision.allowed { "allowed\n" } else { "denied\n" });
    text.push_str(&format!("  {}\n", report::printable(&decision.why)));
    if !decision.elevations.is_empty() {
        let names = decision.elevations.join(", ");
        text.push_str(&format!("  an elevation would help: {}\n", report::printable(&names)));
    }
    text.push_str(&cedar.unwrap_or_default());
    text
}

fn explained_placement(record: &DecisionRecord, cedar: Option<String>) -> String {
    let mut text = match record.plan() {
        Ok(plan) => {
            let fresh = if plan.fresh { ", in a sandbox of its own" } else { "" };
            format!("{} work runs in {}{fresh}\n", record.kind, plan.wall)
        }
        Err(refusal) => format!("refused: {}\n", report::printable(&refusal.to_string())),
    };
    for candidate in &record.candidates {
        let verdict = match &candidate.verdict {
            Verdict::Taken => "taken".to_owned(),
            Verdict::Denied { why, .. } => why.clone(),
            Verdict::NotRaisable(missing) => format!("this host has not {}", missing.feature),
            Verdict::Weaker { than } => format!("not at least as strong as {than}"),
            Verdict::NotNeeded => "not needed".to_owned(),
        };
        text.push_str(&format!("  {}: {}\n", candidate.wall, report::printable(&verdict)));
    }
    for rule in &record.rules {
        text.push_str(&format!("  rule: {}\n", report::printable(&rule.to_string())));
    }
    text.push_str(&cedar.unwrap_or_default());
    text
}

fn diff(args: &PolicyDiffArgs) -> anyhow::Result<bool> {
    let load = |path: &Path| -> anyhow::Result<Stack> { Ok(search(Some(path))?.load()?) };
    let (old, new) = (load(&args.old)?, load(&args.new)?);
    let mut difference = compare(&old, &new);
    let no_proof = prove_it(&old, &new, &mut difference).err();
    let widens = !difference.widened.is_empty();
    if args.output.json() {
        report::json(&difference)?;
        return Ok(!widens);
    }
    let mut text = String::new();
    for widening in &difference.widened {
        writeln!(text, "newly allowed: {}", report::printable(&widening.what))?;
        if widening.action.is_some() {
            let task = &widening.task;
            let trust = task.trust.map_or("the policy's own".to_owned(), |trust| trust.to_string());
            let tainted = if task.tainted { ", tainted" } else { "" };
            let phase = task.phase.as_ref().map(|phase| format!(", phase {phase}"));
            let elevated: Vec<String> =
                task.elevated.iter().map(|name| format!(", elevated {name}")).collect();
            let more = format!("{}{tainted}{}", phase.unwrap_or_default(), elevated.concat());
            writeln!(text, "    for a task of trust level {trust}{}", report::printable(&more))?;
        }
    }
    if !widens {
        let change = if difference.narrowed > 0 { "narrows" } else { "changes nothing" };
        let found = match difference.method {
            DiffMethod::Proof => {
                "no rule newly allows any request, and no job of the list gets a weaker wall"
            }
            DiffMethod::Enumeration => "no request was found that is newly allowed",
        };
        writeln!(text, "{found}; the edit {change}")?;
    }
    let cut = if difference.cut { "; the list was cut, so this is a part" } else { "" };
    let (requests, placements) = (difference.requests, difference.placements);
    match no_proof {
        None => writeln!(
            text,
            "method: a solver looked at the rules, for all requests; {requests} requests and \
             {placements} placements were put to both policies{cut}. The solver does not decide where work runs."
        )?,
        Some(why) => writeln!(
            text,
            "method: enumeration; actions with the same rules were left out, {requests} requests and \
             {placements} placements drawn from both policies were put to each{cut}. This is no proof for other requests: {}.",
            report::printable(&why)
        )?,
    }
    report::text(text)?;
    Ok(!widens)
}

/// Has a solver look at all requests there are. An error says why there is no proof.
fn prove_it(old: &Stack, new: &Stack, difference: &mut Difference) -> Result<(), String> {
    let solver = Solver::find().ok_or("there is no cvc5 on the PATH, and CVC5 names none")?;
    match prove(old, new, solver).map_err(|error| error.to_string())? {
        Proof::NothingNew { .. } if difference.widened.is_empty() => {
            difference.method = DiffMethod::Proof;
            Ok(())
        }
        // A limit, or who may approve: no request, so nothing for a solver.
        Proof::NothingNew { .. } => Ok(()),
        Proof::Widens(example) => {
            if difference.widened.is_empty() {
                difference.widened.push(Widening {
                    task: Task::default(),
                    action: None,
                    what: format!(
                        "a request that {} allows by itself: {}",
                        example.layer, example.request
                    ),
                    rules: Vec::new(),
                });
            }
            Ok(())
        }
    }
}

fn test(args: &CheckArgs) -> anyhow::Result<bool> {
    let search = search(args.file.as_deref())?;
    let stack = search.load()?;
    let mut results = Vec::new();
    let mut asked = false;
    for layer in stack.layer_refs() {
        let cases = Path::new(&layer.path).with_file_name(CASE_FILE);
        if !cases.is_file() {
            continue;
        }
        asked = true;
        let name = cases.display().to_string();
        let text =
            std::fs::read_to_string(&cases).with_context(|| format!("{name} cannot be read"))?;
        let of_file = stack.run_cases(&name, &text)?;
        results.extend(of_file.into_iter().map(|result| (name.clone(), result)));
    }
    if !asked {
        bail!(
            "there is no {CASE_FILE} beside the policy; write one, see docs/reference/policy-file.md"
        );
    }
    let failed = results.iter().filter(|(_, result)| !result.passed).count();
    if args.output.json() {
        let only: Vec<_> = results.iter().map(|(_, result)| result).collect();
        report::json(&only)?;
        return Ok(failed == 0);
    }
    let mut text = String::new();
    for (file, result) in &results {
        let verdict = if result.passed { "ok" } else { "FAILED" };
        let place = format!("{}:{}", report::printable(file), result.line);
        writeln!(text, "{verdict}  {place}  {}", report::printable(&result.name))?;
        if !result.passed {
            writeln!(text, "    {}", report::printable(&result.why))?;
        }
    }
    writeln!(text, "{} of {} cases passed", results.len() - failed, results.len())?;
    report::text(text)?;
    Ok(failed == 0)
}
