//! What another policy would have said to the calls of an agent.

use std::collections::BTreeMap;

use ringwall_desk::{HostFacts, Job, Rules, Step, Taken, Task};
use serde::Serialize;
use serde_json::Value;

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
/// journal tells what was taken in; see [`TakenIn`].
pub fn replay(lines: &[Line], policy: &Rules, host: &HostFacts) -> Vec<Replayed> {
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
                let taken = TakenIn { policy, options: &state.options, task, failed: *failed };
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
struct TakenIn<'a> {
    policy: &'a Rules,
    options: &'a Options,
    task: Task,
    failed: bool,
}

impl TakenIn<'_> {
    /// `recorded` is the step by which the task was tainted then.
    fn by(&self, wish: &Wish, (step, recorded): (u64, Option<u64>)) -> Option<String> {
        let not_told = || {
            let perhaps = recorded.is_some_and(|then| then <= step);
            perhaps.then(|| "as it was recorded, or could not be".to_owned())
        };
        // The journal does not tell either which files a command, a tool or a link led to.
        let by_files = || if self.policy.tainting_paths().is_empty() { None } else { not_told() };
        match wish {
            Wish::Exec(exec) => {
                let floor = self.options.kind.max(self.policy.kind_of_command(&exec.command));
                let kind = exec.counts_as(floor, self.task.tainted);
                let of_kind = self.policy.taints(Taken::OutputOf(kind));
                let reaches = self.policy.has_network(&self.task);
                let by_network = reaches && self.policy.taints(Taken::Network);
                let source = (of_kind || by_network).then(|| format!("output of {kind} work"));
                source.or_else(by_files)
            }
            Wish::Wasm { tool, .. } => {
                let by_name = self.policy.taints(Taken::Tool(tool));
                let source = by_name.then(|| format!("output of the tool {tool}"));
                source.or_else(by_files)
            }
            _ if self.failed => None,
            Wish::Read { path, .. } | Wish::Edit { path, .. } | Wish::List { path } => {
                let shown = if path.is_empty() { ".".to_owned() } else { format!("./{path}") };
                let by_name = self.policy.taints(Taken::File(path));
                by_name.then(|| format!("the file {shown}")).or_else(by_files)
            }
            Wish::Search { .. } | Wish::Extract { .. } | Wish::SubAgent(_) => not_told(),
            Wish::Write { .. }
            | Wish::Plan { .. }
            | Wish::Phase { .. }
            | Wish::AskApproval { .. } => None,
        }
    }
}

fn judge(
    wish: &Wish,
    (task, options): (&Task, &Options),
    policy: &Rules,
    host: &HostFacts,
) -> (String, Verdict) {
    let step = |step: Step<'_>| said(policy.refusal(task, step));
    let of_path = |path: &str, wanted: Step<'_>| {
        let shown = if path.is_empty() { ".".to_owned() } else { format!("./{path}") };
        // Without a workspace no path is of one.
        let verdict = if options.workspace.is_some() { step(wanted) } else { Verdict::NotAsked };
        (shown, verdict)
    };
    match wish {
        Wish::Exec(exec) => {
            let kind = exec.counts_as(options.kind, task.tainted).to_string();
            let job = Job { tool: None, kind: &kind, wall: options.wall.as_ref(), reuse: false };
            let verdict = said(policy.no_wall(task, job, host));
            (format!("{} ({kind})", exec.command), verdict)
        }
        Wish::Read { path, .. }
        | Wish::List { path }
        | Wish::Search { path, .. }
        | Wish::Extract { path, .. } => of_path(path, Step::Read(path)),
        Wish::Write { path, .. } | Wish::Edit { path, .. } => of_path(path, Step::Write(path)),
        Wish::Phase { to } => (to.clone(), step(Step::Phase(to))),
        Wish::AskApproval { elevation, .. } => (elevation.clone(), step(Step::Elevate(elevation))),
        Wish::Wasm { tool, input } => (brief(input), step(Step::Call(tool))),
        Wish::Plan { .. } => (String::new(), Verdict::NotAsked),
        Wish::SubAgent(sub) => (sub.task.clone(), Verdict::NotAsked),
    }
}

fn said(refusal: Option<String>) -> Verdict {
    refusal.map_or(Verdict::Allowed, Verdict::Refused)
}

fn brief(input: &Value) -> String {
    input.to_string().chars().take(80).collect()
}
