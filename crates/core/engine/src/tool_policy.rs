//! Whether a tool may be called, and where; and the record of its call.

use ringwall_audit::{CallEnded, CallKind, Id, Ids, Text};
use ringwall_policy::{
    Action, Decision, LoadError, PlaceRequest, Refusal, RuleRef, Stack, Task, Work,
};
use ringwall_spec::{EgressSpec, RingKind, SandboxId, ToolMeter, ToolStatus, Usage, Wall};

use crate::admit::{deciding, hint};
use crate::config::Engine;
use crate::egress::{self, EgressError, NetworkBounds, egress_by};
use crate::ledger::{self, CallEntry, LedgerError, succeeded};
use crate::policy_files::PolicySearch;

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
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The policy by which tools are called, read once. None where there is no policy: then it is for
/// the person who asks to say.
#[derive(Debug)]
pub struct ToolGate(Option<Stack>);

/// A call that a caller wants to make.
#[derive(Debug, Clone, Copy)]
pub struct AskedCall<'a> {
    pub tool: &'a str,
    /// As the tool declares it.
    pub kind: &'a str,
    /// Whether the call was given a directory to write to.
    pub writes: bool,
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
            ToolDenied::Call { elevations, .. } => elevations.as_slice(),
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
        Ok(ToolGate(stack))
    }

    pub fn policy(&self) -> Option<&Stack> {
        self.0.as_ref()
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
        match &gate.0 {
            Some(stack) => deciding(|| self.allow_tool(asked, stack)),
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
        let egress = match &gate.0 {
            None => asked.map(|egress| self.egress_ordered(egress)).transpose()?,
            Some(stack) => deciding(|| egress_by(stack, &Task::default(), asked))?,
        };
        let wanted = egress.map(|egress| egress::wanted_by_tool(egress, wanted));
        Ok(wanted.and_then(|egress| egress::within(egress, most)))
    }

    fn allow_tool(&self, asked: AskedCall<'_>, stack: &Stack) -> Result<(), ToolDenied> {
        let (tool, kind) = (asked.tool.to_owned(), Some(asked.kind.to_owned()));
        let mut task = asked.task.cloned().unwrap_or_default();
        task.elevated.extend(asked.elevated.map(str::to_owned));
        let action =
            Action::Call { tool: tool.clone(), kind: kind.clone(), read_only: !asked.writes };
        let decision = stack.decide(&task, &action);
        if !decision.allowed {
            let Decision { why, elevations, rules, .. } = decision;
            let denied = ToolDenied::Call { tool, why, elevations };
            return self.deny(asked, &rules, denied);
        }
        if stack.wants_strict(&tool) && !asked.strict {
            return self.deny(asked, &[], ToolDenied::NotStrict { tool });
        }
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

/// The wall that policy gives to such calls, as a flag.
fn instead(wall: Option<&Wall>) -> String {
    let with_tools = wall.filter(|wall| wall.rings().last() == Some(&RingKind::Wasm));
    match with_tools {
        Some(wall) if wall.image_ring().is_some() => format!("; use --wall {wall} --image REF"),
        Some(wall) => format!("; use --wall {wall}"),
        None => String::new(),
    }
}

impl AskedCall<'_> {
    fn ids(self) -> Ids {
        Ids { sandbox: self.sandbox.map(Id::from), ..Ids::default() }
    }
}
