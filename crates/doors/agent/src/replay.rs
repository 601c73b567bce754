//! What another policy would have said to the calls of an agent.

use std::collections::BTreeMap;

use ringwall_policy::{Action, FilePath, HostFacts, PlaceRequest, Stack, TakenIn, Task, Work};
use serde::Serialize;
use serde_json::Value;

use crate::gate::anchors;
use crate::journal::{Entry, Line};
use crate::options::Options;
use crate::registry::Wish;
use crate::state::{State, Taint};

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

/// Puts every call of a journal to a policy. What taints is judged by that policy, too, as far as the
/// journal tells what was taken in; see [`Taken`].
pub fn replay(lines: &[Line], policy: &Stack, host: &HostFacts) -> Vec<Replayed> {
    let Some(mut state) = lines.first().and_then(|first| State::of(std::slice::from_ref(first)))
    else {
        return Vec::new();
    };
    let mut calls: Vec<Replayed> = Vec::new();
    let mut wishes: BTreeMap<u64, Wish> = BTreeMap::new();
    let recorded = lines.iter().filter_map(|line| match &line.entry {
        Entry::Tainted { step, .. } => Some(*step),
        Entry::ChildSpent { step, tainted: Some(_), .. } => Some(*step),
        _ => None,
    });
    let recorded = recorded.min();
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
            wishes.extend(wish.ok().map(|wish| (*step, wish)));
        }
        let mut taint = state.taint.take();
        if let Entry::CallEnded { step, refused, failed, .. } = &line.entry
            && let Some(call) = calls.iter_mut().find(|call| call.step == *step)
        {
            call.then.clone_from(refused);
            let done = refused.is_none() && !matches!(call.now, Verdict::Refused(_));
            if let (true, None, Some(wish)) = (done, &taint, wishes.get(step)) {
                let task = state.task(line.at_unix_ms / 1000);
                let taken = Taken { policy, options: &state.options, task, failed: *failed };
                let source = taken.by(wish, (*step, recorded));
                taint = source.map(|source| Taint { step: *step, source });
            }
        }
        state.apply(&line.entry);
        state.taint = match &line.entry {
            // It began so, or came from elsewhere.
            Entry::Tainted { step, source } if !wishes.contains_key(step) => {
                Some(Taint { step: *step, source: source.clone() })
            }
            _ => taint,
        };
    }
    calls
}

/// What a call has taken in. Which files a search read, whether a reader's answer was free text and
/// what a sub-agent saw is not in the journal: that taints if it did then, and also if nobody could
/// tell because the task had been tainted before.
struct Taken<'a> {
    policy: &'a Stack,
    options: &'a Options,
    task: Task,
    failed: bool,
}

impl Taken<'_> {
    /// `recorded` is the step by which the task was tainted then.
    fn by(&self, wish: &Wish, (step, recorded): (u64, Option<u64>)) -> Option<String> {
        let not_told = || {
            let perhaps = recorded.is_some_and(|then| then <= step);
            perhaps.then(|| "as it was recorded, or could not be".to_owned())
        };
        match wish {
            Wish::Exec(exec) => {
                let kind = exec.counts_as(self.options.kind, self.task.tainted);
                let of_kind = self.taints(&TakenIn::OutputOf(kind));
                let reaches = self.policy.egress(&self.task).is_some();
                let by_network = reaches && self.taints(&TakenIn::Network);
                (of_kind || by_network).then(|| format!("output of {kind} work"))
            }
            _ if self.failed => None,
            Wish::Read { path, .. } | Wish::Edit { path, .. } | Wish::List { path } => {
                let shown = if path.is_empty() { ".".to_owned() } else { format!("./{path}") };
                let file = FilePath::new(&shown, &anchors(self.options)).ok()?;
                self.taints(&TakenIn::File(&file)).then(|| format!("the file {shown}"))
            }
            Wish::Wasm { tool, .. } => {
                self.taints(&TakenIn::Tool(tool)).then(|| format!("output of the tool {tool}"))
            }
            Wish::Search { .. } | Wish::Extract { .. } | Wish::SubAgent(_) => not_told(),
            Wish::Write { .. }
            | Wish::Plan { .. }
            | Wish::Phase { .. }
            | Wish::AskApproval { .. } => None,
        }
    }

    fn taints(&self, taken: &TakenIn<'_>) -> bool {
        self.policy.taints(taken)
    }
}

fn judge(
    wish: &Wish,
    (task, options): (&Task, &Options),
    policy: &Stack,
    host: &HostFacts,
) -> (String, Verdict) {
    match wish {
        Wish::Exec(exec) => {
            let kind = exec.counts_as(options.kind, task.tainted);
            let what = format!("{} ({kind})", exec.command);
            let request = PlaceRequest {
                task: task.clone(),
                work: Work { tool: None, kind: Some(kind.to_string()) },
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
    decide: impl FnOnce(FilePath) -> ringwall_policy::Decision,
) -> (String, Verdict) {
    let shown = if path.is_empty() { ".".to_owned() } else { format!("./{path}") };
    let verdict = match FilePath::new(&shown, &anchors(options)) {
        Ok(path) => said(&decide(path)),
        Err(error) if options.workspace.is_some() => Verdict::Refused(error.to_string()),
        Err(_) => Verdict::NotAsked,
    };
    (shown, verdict)
}

fn said(decision: &ringwall_policy::Decision) -> Verdict {
    match decision.allowed {
        true => Verdict::Allowed,
        false => Verdict::Refused(decision.why.clone()),
    }
}

fn brief(input: &Value) -> String {
    input.to_string().chars().take(80).collect()
}
