//! What agents did, for people and programs.

use std::path::Path;

use anyhow::Context;
use ringwall_agent::{AgentId, Doing, Entry, Journal, Line, Replayed, State, Verdict};
use serde::Serialize;
use serde_json::json;

use super::lines::{short, spent, told};
use crate::report::{self, Table, printable};

#[derive(Serialize)]
struct Listed {
    id: AgentId,
    doing: &'static str,
    task: String,
    steps: u64,
    tokens: u64,
    tainted: bool,
    parent: Option<AgentId>,
}

fn doing(home: &Path, id: &AgentId, state: &State) -> &'static str {
    match &state.doing {
        Doing::Finished(_) => "finished",
        Doing::Stopped(stop) => stop.word(),
        Doing::Going if Journal::is_running(home, id) => "running",
        Doing::Going => "killed",
    }
}

pub(super) fn list(home: &Path, json: bool) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for id in Journal::list(home)? {
        let lines = match Journal::read(home, &id) {
            Ok(lines) => lines,
            Err(error) => {
                report::note(&error.to_string());
                continue;
            }
        };
        let Some(state) = State::of(&lines) else { continue };
        let used = state.spent_in_all();
        all.push(Listed {
            doing: doing(home, &id, &state),
            task: state.options.task.clone(),
            steps: used.steps,
            tokens: used.tokens(),
            tainted: state.taint.is_some(),
            parent: state.parent.map(|(parent, _)| parent),
            id,
        });
    }
    if json {
        return Ok(report::json(&all)?);
    }
    let mut table = Table::new(["ID", "STATE", "STEPS", "TOKENS", "TASK"]);
    for one in all {
        let task = short(&one.task.replace('\n', " "));
        let (steps, tokens) = (one.steps.to_string(), one.tokens.to_string());
        table.row([one.id.as_str(), one.doing, &steps, &tokens, &task]);
    }
    Ok(report::text(table.to_string())?)
}

/// The whole causal chain: every turn, call, wall, question and cost, with the sub-agents.
pub(super) fn one(home: &Path, id: &AgentId, json: bool) -> anyhow::Result<()> {
    let lines = Journal::read(home, id)?;
    let state = State::of(&lines).context("the journal has no beginning")?;
    if json {
        let document = json!({
            "id": id,
            "doing": doing(home, id, &state),
            "spent": state.spent_in_all(),
            "sandbox": state.sandbox,
            "tainted": state.taint.as_ref().map(|taint| json!({"step": taint.step, "source": taint.source})),
            "journal": lines,
        });
        return Ok(report::json(&document)?);
    }
    let mut text = format!("{id}: {}\n", printable(&state.options.task));
    chain(home, &lines, 1, &mut text)?;
    let sandbox = state.sandbox.as_ref();
    let sandbox = sandbox.map(|id| format!(", sandbox {id} (`ringwall audit show {id}`)"));
    text.push_str(&format!(
        "{}: {}{}\n",
        doing(home, id, &state),
        spent(&state.spent_in_all()),
        sandbox.unwrap_or_default()
    ));
    Ok(report::text(text)?)
}

fn chain(home: &Path, lines: &[Line], depth: usize, text: &mut String) -> anyhow::Result<()> {
    let Some(state) = State::of(lines) else { return Ok(()) };
    let indent = "  ".repeat(depth);
    for line in lines {
        let at = report::utc(line.at_unix_ms);
        let said = match &line.entry {
            Entry::Turn { turn, tokens, money_micros, .. } => {
                let calls = turn.calls.len();
                let words = short(&turn.text.replace('\n', " "));
                Some(format!(
                    "turn: {words:?}, {calls} calls, {}+{} tokens, cost {money_micros} micros",
                    tokens.input, tokens.output
                ))
            }
            entry => told(entry, &state),
        };
        if let Some(said) = said {
            text.push_str(&format!("{indent}{at} {}\n", printable(&said)));
        }
        if let Entry::CallEnded { place: Some(place), .. } = &line.entry {
            let sandbox = place.sandbox.as_deref().unwrap_or("-");
            let evidence = place.evidence.as_deref().unwrap_or("in the audit log");
            text.push_str(&format!("{indent}  in sandbox {sandbox}, evidence {evidence}\n"));
        }
        if let Entry::Child { id, .. } = &line.entry {
            chain(home, &Journal::read(home, id)?, depth + 1, text)?;
        }
    }
    Ok(())
}

/// Whether something would be refused that was not.
pub(super) fn replayed(calls: &[Replayed], json: bool) -> anyhow::Result<bool> {
    let newly = |call: &&Replayed| call.then.is_none() && matches!(call.now, Verdict::Refused(_));
    let refused = calls.iter().filter(newly).count();
    if json {
        report::json(&calls)?;
        return Ok(refused > 0);
    }
    let mut text = String::new();
    for call in calls {
        let verdict = match (&call.then, &call.now) {
            (None, Verdict::Refused(why)) => format!("would be refused: {why}"),
            (Some(_), Verdict::Refused(why)) => format!("refused as before: {why}"),
            (Some(then), Verdict::Allowed) => format!("would be allowed; it was refused: {then}"),
            (_, Verdict::Allowed) => "allowed".to_owned(),
            (_, Verdict::NotAsked) => "no matter of policy".to_owned(),
        };
        let line = format!("[{}] {} {}: {verdict}", call.step, call.tool, short(&call.what));
        text.push_str(&format!("{}\n", printable(&line)));
    }
    text.push_str(&format!("{refused} of {} calls would be refused\n", calls.len()));
    report::text(text)?;
    Ok(refused > 0)
}
