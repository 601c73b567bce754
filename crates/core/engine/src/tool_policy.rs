//! Whether a tool may be called, and where; and the record of its call.

use std::path::{Path, PathBuf};

use ringwall_audit::{CallEnded, CallKind, Id, Ids, Text};
use ringwall_policy::{
    Action, Anchors, Decision, FilePath, LoadError, PlaceRequest, Refusal, RuleRef, Stack, Task,
    Work,
};
use ringwall_spec::{
    DirAccess, EgressSpec, RingKind, SandboxId, ToolMeter, ToolStatus, Usage, Wall, WorkspaceMode,
    WorkspaceSpec,
};

use crate::admit::{anchors, deciding, hint, workspace_rights};
use crate::config::Engine;
use crate::denials;
use crate::egress::{self, EgressError, NetworkBounds, egress_by};
use crate::ledger::{self, CallEntry, LedgerError, succeeded};
use crate::policy_files::PolicySearch;
use crate::tools::DirGrant;

#[derive(Debug, thiserror::Error)]
pub enum ToolDenied {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error("the tool {tool} may not be called: {why}{}", hint(.elevations))]
    Call { tool: String, why: String, elevations: Vec<String> },
    #[error("the tool {tool} may not be called there: {refusal}{}", instead(.better.as_ref()))]
    Place { tool: String, refusal: Box<Refusal>, better: Option<Wall> },
    #[error(
        "the tool {tool} may be called in its strict mode only, by [[tool]] of the policy; give \"strict\": true in its input"
    )]
    NotStrict { tool: String },
    #[error(
        "the tool {tool} may not write to {path:?}: {why}; leave out :rw, or call it in a sandbox and apply its changes{}", hint(.elevations)
    )]
    Write { tool: String, path: PathBuf, why: String, elevations: Vec<String> },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The policy by which tools are called, read once. None where there is no policy: then it is for
/// the person who asks to say.
#[derive(Debug)]
pub struct ToolGate {
    stack: Option<Stack>,
    /// What `./` means in the policy, for paths in it.
    directory: Option<PathBuf>,
}

/// A call that a caller wants to make.
#[derive(Debug, Clone, Copy)]
pub struct AskedCall<'a> {
    pub tool: &'a str,
    /// As the tool declares it.
    pub kind: &'a str,
    /// The directories that the call was given: of the host, or of its sandbox.
    pub dirs: &'a [DirGrant],
    pub wall: &'a Wall,
    pub sandbox: Option<&'a SandboxId>,
    /// Whether its input asks for the tool's strict mode.
    pub strict: bool,
    /// An elevation that it is called with.
    pub elevated: Option<&'a str>,
    /// Whose call it is, where more is known of the task than that it calls a tool.
    pub task: Option<&'a Task>,
}

impl ToolDenied {
    /// An elevation that would allow the refused call.
    pub fn elevation(&self) -> Option<&str> {
        let all = match self {
            ToolDenied::Call { elevations, .. } | ToolDenied::Write { elevations, .. } => {
                elevations.as_slice()
            }
            ToolDenied::Place { refusal, .. } => refusal.elevations(),
            ToolDenied::NotStrict { .. } | ToolDenied::Policy(_) | ToolDenied::Ledger(_) => &[],
        };
        all.first().map(String::as_str)
    }
}

impl ToolGate {
    pub fn open(search: &PolicySearch) -> Result<ToolGate, LoadError> {
        let layers = search.read()?;
        let stack = (!layers.is_empty()).then(|| PolicySearch::stack(layers)).transpose()?;
        Ok(ToolGate { stack, directory: search.workspace.clone() })
    }

    /// A directory that a tool writes to outside of this one is a workspace of its own.
    fn anchors(&self, path: &Path) -> Anchors {
        let around = self.directory.as_deref().filter(|directory| path.starts_with(directory));
        anchors(around.unwrap_or(path))
    }
}

impl Engine {
    /// Asks the policy, if there is one, and writes down that the call begins, or why not.
    pub fn begin_tool(
        &self,
        asked: AskedCall<'_>,
        gate: &ToolGate,
    ) -> Result<CallEntry, ToolDenied> {
        self.allow_call(asked, gate)?;
        let what = (CallKind::Tool, Text::new(format!("{} behind {}", asked.tool, asked.wall)));
        let (entry, started) = CallEntry::begin_as(asked.ids(), what, None);
        self.record(vec![started])?;
        Ok(entry)
    }

    /// Allows a call without beginning it.
    pub fn allow_call(&self, asked: AskedCall<'_>, gate: &ToolGate) -> Result<(), ToolDenied> {
        match &gate.stack {
            Some(stack) => deciding(|| self.allow_tool(asked, (gate, stack))),
            None => Ok(()),
        }
    }

    /// The hosts that a tool may reach by HTTP, if any. Policy gives them, or a person's own order
    /// where there is none. They are narrowed to the request, to the hosts that the tool wants and to `most`.
    pub fn network_of_tool(
        &self,
        gate: &ToolGate,
        wanted: &[String],
        asked: Option<EgressSpec>,
        most: Option<&NetworkBounds>,
    ) -> Result<Option<EgressSpec>, EgressError> {
        match (wanted, &asked) {
            ([], None) => return Ok(None),
            ([], Some(_)) => return Err(EgressError::Unwanted),
            _ => {}
        }
        let egress = match &gate.stack {
            None => asked.map(|egress| self.egress_ordered(egress)).transpose()?,
            Some(stack) => deciding(|| egress_by(stack, &Task::default(), asked))?,
        };
        let wanted = egress.map(|egress| egress::wanted_by_tool(egress, wanted));
        Ok(wanted.and_then(|egress| egress::within(egress, most)))
    }

    fn allow_tool(
        &self,
        asked: AskedCall<'_>,
        (gate, stack): (&ToolGate, &Stack),
    ) -> Result<(), ToolDenied> {
        let (tool, kind) = (asked.tool.to_owned(), Some(asked.kind.to_owned()));
        let mut task = asked.task.cloned().unwrap_or_default();
        task.elevated.extend(asked.elevated.map(str::to_owned));
        let action =
            Action::Call { tool: tool.clone(), kind: kind.clone(), read_only: !asked.writes() };
        let decision = stack.decide(&task, &action);
        if !decision.allowed {
            let Decision { why, elevations, rules, .. } = decision;
            let denied = ToolDenied::Call { tool, why, elevations };
            return self.deny(asked, &rules, denied);
        }
        if stack.wants_strict(&tool) && !asked.strict {
            return self.deny(asked, &[], ToolDenied::NotStrict { tool });
        }
        self.allow_writing(asked, (gate, stack), &task)?;
        let request = PlaceRequest {
            task,
            work: Work { tool: Some(tool.clone()), kind },
            wall: Some(asked.wall.clone()),
            limits: None,
            reuse: false,
        };
        let placed = stack.place(&request, &self.host_facts(true));
        match placed.plan() {
            Ok(_) => Ok(()),
            Err(refusal) => {
                let refusal = Box::new(refusal.clone());
                let anywhere = PlaceRequest { wall: None, ..request };
                let better = stack.place(&anywhere, &self.host_facts(true));
                let better = better.plan().ok().map(|plan| plan.wall.clone());
                let denied = ToolDenied::Place { tool, refusal, better };
                self.deny(asked, &placed.rules, denied)
            }
        }
    }

    /// A tool outside of a sandbox writes to a directory as a job with `--workspace-rw` does, but no mount keeps it
    /// to a part. So the policy must let all of the directory be written.
    fn allow_writing(
        &self,
        asked: AskedCall<'_>,
        (gate, stack): (&ToolGate, &Stack),
        task: &Task,
    ) -> Result<(), ToolDenied> {
        for path in asked.written_on_host() {
            let denied = |why: String, elevations: Vec<String>| {
                let (tool, path) = (asked.tool.to_owned(), path.to_owned());
                ToolDenied::Write { tool, path, why, elevations }
            };
            let anchors = gate.anchors(path);
            let file = match FilePath::new(&path.display().to_string(), &anchors) {
                Ok(file) => file,
                Err(error) => return self.deny(asked, &[], denied(error.to_string(), Vec::new())),
            };
            let decision = stack.decide(task, &Action::Write(file));
            if !decision.allowed {
                let Decision { why, elevations, rules, .. } = decision;
                return self.deny(asked, &rules, denied(why, elevations));
            }
            if let Some(why) = kept_from_part(stack, task, (path, &anchors)) {
                return self.deny(asked, &decision.rules, denied(why, Vec::new()));
            }
        }
        Ok(())
    }

    fn deny(
        &self,
        asked: AskedCall<'_>,
        rules: &[RuleRef],
        denied: ToolDenied,
    ) -> Result<(), ToolDenied> {
        let what = ("call", asked.tool);
        self.record(vec![ledger::denied(asked.ids(), what, rules, &denied.to_string(), None)])?;
        Err(denied)
    }

    /// Writes down how a call ended.
    pub fn end_tool(
        &self,
        entry: CallEntry,
        status: Option<&ToolStatus>,
        meter: ToolMeter,
    ) -> Result<(), LedgerError> {
        let ended = CallEnded {
            result: succeeded(status.is_some_and(ToolStatus::is_success)),
            summary: Text::new(status.map_or("the call failed".to_owned(), |it| format!("{it:?}"))),
            usage: Some(Usage {
                wall_ms: meter.wall_us / 1000,
                peak_memory_bytes: Some(meter.peak_memory_bytes),
                output_bytes: meter.bytes_out,
                ..Usage::default()
            }),
            ..CallEnded::default()
        };
        self.record(vec![entry.ended(ended)])
    }
}

/// Why a tool could write where the policy lets nothing be written, if the policy excepts something below the path.
fn kept_from_part(
    stack: &Stack,
    task: &Task,
    (path, anchors): (&Path, &Anchors),
) -> Option<String> {
    let paths = stack.path_rights(task);
    let rights = workspace_rights(&paths, path, anchors);
    if !rights.is_everywhere() || !rights.read_only.is_empty() {
        return Some("the policy lets only a part of it be written".to_owned());
    }
    let written = WorkspaceSpec { path: path.to_owned(), mode: WorkspaceMode::ReadWrite };
    let phase = task.phase.clone().unwrap_or_default();
    let lost = denials::unkept(stack, &paths, &phase, Some(&written));
    lost.map(|_| "the policy has a denial for paths below it".to_owned())
}

/// The wall that policy gives to such calls, as a flag.
fn instead(wall: Option<&Wall>) -> String {
    let with_tools = wall.filter(|wall| wall.rings().last() == Some(&RingKind::Wasm));
    match with_tools {
        Some(wall) if wall.image_ring().is_some() => format!("; use --wall {wall} --image REF"),
        Some(wall) => format!("; use --wall {wall}"),
        None => String::new(),
    }
}

impl<'a> AskedCall<'a> {
    /// Whether the call was given a directory to write to.
    fn writes(&self) -> bool {
        self.dirs.iter().any(|dir| dir.access == DirAccess::Write)
    }

    /// The directories of the host that the call was given to write to. A tool in a sandbox gets those of the sandbox,
    /// with the rights of its mounts.
    pub fn written_on_host(&self) -> impl Iterator<Item = &'a Path> {
        let alone = self.wall.rings() == [RingKind::Wasm];
        let dirs = if alone { self.dirs } else { &[] };
        dirs.iter().filter(|dir| dir.access == DirAccess::Write).map(|dir| dir.host.as_path())
    }

    fn ids(self) -> Ids {
        Ids { sandbox: self.sandbox.map(Id::from), ..Ids::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why a tool may not write to a directory, in a project with this policy.
    fn kept(more: &str, directory: &str, phase: Option<&str>) -> Option<String> {
        let mut text = Stack::built_in();
        text.text.push_str(more);
        let stack = Stack::load(vec![text]).unwrap();
        let gate = ToolGate { stack: None, directory: Some("/home/me/project".into()) };
        let path = Path::new(directory);
        let task = Task { phase: phase.map(str::to_owned), ..Task::default() };
        kept_from_part(&stack, &task, (path, &gate.anchors(path)))
    }

    #[test]
    fn a_tool_writes_only_where_the_policy_lets_all_be_written() {
        let phases = "\n[phases.plan]\nwrite = [\"./docs/**\"]\n\
                      [phases.work]\nwrite = [\"./**\"]\ndeny = [\"./.github/**\"]\n\
                      [phases.all]\nwrite = [\"./**\"]\ndeny = [\"./**/.git/**\"]\n";
        let kept = |directory: &str, phase| kept(phases, directory, Some(phase));
        for directory in ["/home/me/project", "/home/me/project/src"] {
            assert!(kept(directory, "plan").is_some(), "{directory}");
            assert!(kept(directory, "all").is_some(), "{directory}: no mount keeps it");
        }
        assert_eq!(kept("/home/me/project/docs", "plan"), None);
        assert_eq!(kept("/home/me/project/docs/a", "plan"), None);
        assert!(kept("/home/me/project", "work").is_some());
        assert_eq!(kept("/home/me/project/src", "work"), None);
        // Another project, by the same rules.
        assert!(kept("/home/me/other", "plan").is_some());
    }

    #[test]
    fn without_phases_the_rights_of_the_tier_count() {
        assert_eq!(kept("", "/home/me/project", None), None);
    }
}
