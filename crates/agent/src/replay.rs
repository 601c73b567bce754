//! What another policy would have said to the calls of an agent.

use ringwall_rules::{Action, FilePath, Stack, Task, Work};
use ringwall_rules::{HostFacts, PlaceRequest};
use serde::Serialize;
use serde_json::Value;

use crate::gate::anchors;
use crate::journal::{Entry, Line};
use crate::options::Options;
use crate::registry::Wish;
use crate::state::State;

/// One call, as it was and as it would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replayed {
    pub step: u64,
    pub tool: String,
    /// In a few words.
    pub what: String,
    /// Why it was refused then.
    pub then: Option<String>,
    pub now: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Allowed,
    Refused(String),
    /// Policy has no say in it.
    NotAsked,
}

/// Puts every call of a journal to a policy. A task that was tainted then counts as tainted from the same
/// step on: what it took in is not judged anew.
pub fn replay(lines: &[Line], policy: &Stack, host: &HostFacts) -> Vec<Replayed> {
    let Some(mut state) = lines.first().and_then(|first| State::of(std::slice::from_ref(first)))
    else {
        return Vec::new();
    };
    let mut calls: Vec<Replayed> = Vec::new();
    for line in lines.iter().skip(1) {
        if let Entry::CallBegun { step, tool, input, .. } = &line.entry {
            // WASM tools are known by not being anything else.
            let workspace = state.options.workspace.as_deref();
            let wish = Wish::of(tool, input, (workspace, &|_| true));
            let task = state.task(line.at_unix_ms / 1000);
            let (what, now) = match &wish {
                Ok(wish) => judge(wish, (&task, &state.options), policy, host),
                Err(why) => (why.clone(), Verdict::NotAsked),
            };
            calls.push(Replayed { step: *step, tool: tool.clone(), what, then: None, now });
        }
        if let Entry::CallEnded { step, refused, .. } = &line.entry
            && let Some(call) = calls.iter_mut().find(|call| call.step == *step)
        {
            call.then.clone_from(refused);
        }
        state.apply(&line.entry);
    }
    calls
}

fn judge(
    wish: &Wish,
    (task, options): (&Task, &Options),
    policy: &Stack,
    host: &HostFacts,
) -> (String, Verdict) {
    match wish {
        Wish::Exec(exec) => {
            let what = format!("{} ({})", exec.command, exec.kind);
            let request = PlaceRequest {
                task: task.clone(),
                work: Work { tool: None, kind: Some(exec.kind.clone()) },
                wall: options.wall.clone(),
                limits: None,
                reuse: false,
            };
            let verdict = match policy.place(&request, host).plan() {
                Ok(_) => Verdict::Allowed,
                Err(refusal) => Verdict::Refused(refusal.to_string()),
            };
            (what, verdict)
        }
        Wish::Read { path, .. } | Wish::List { path } | Wish::Search { path, .. } => {
            of_path(path, options, |path| policy.decide(task, &Action::Read(path)))
        }
        Wish::Extract { path, .. } => {
            of_path(path, options, |path| policy.decide(task, &Action::Read(path)))
        }
        Wish::Write { path, .. } | Wish::Edit { path, .. } => {
            of_path(path, options, |path| policy.decide(task, &Action::Write(path)))
        }
        Wish::Phase { to } => {
            (to.clone(), said(&policy.decide(task, &Action::ChangePhase(to.clone()))))
        }
        Wish::AskApproval { elevation, .. } => {
            let action = Action::Elevate(elevation.clone());
            (elevation.clone(), said(&policy.decide(task, &action)))
        }
        Wish::Wasm { tool, input } => {
            let action = Action::Call { tool: tool.clone(), kind: None, read_only: false };
            (brief(input), said(&policy.decide(task, &action)))
        }
        Wish::Plan { .. } => (String::new(), Verdict::NotAsked),
        Wish::SubAgent(sub) => (sub.task.clone(), Verdict::NotAsked),
    }
}

fn of_path(
    path: &str,
    options: &Options,
    decide: impl FnOnce(FilePath) -> ringwall_rules::Decision,
) -> (String, Verdict) {
    let shown = if path.is_empty() { ".".to_owned() } else { format!("./{path}") };
    let verdict = match FilePath::new(&shown, &anchors(options)) {
        Ok(path) => said(&decide(path)),
        Err(error) if options.workspace.is_some() => Verdict::Refused(error.to_string()),
        Err(_) => Verdict::NotAsked,
    };
    (shown, verdict)
}

fn said(decision: &ringwall_rules::Decision) -> Verdict {
    match decision.allowed {
        true => Verdict::Allowed,
        false => Verdict::Refused(decision.why.clone()),
    }
}

fn brief(input: &Value) -> String {
    input.to_string().chars().take(80).collect()
}
