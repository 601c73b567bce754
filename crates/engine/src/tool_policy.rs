//! Whether a tool may be called, and where; and the record of its call.

use ringwall_audit::{CallEnded, CallKind, Id, Ids, Text};
use ringwall_rules::{Action, LoadError, PlaceRequest, Refusal, Stack, Task, Work};
use ringwall_spec::{SandboxId, ToolMeter, ToolStatus, Usage, Wall};

use crate::admit::deciding;
use crate::config::Engine;
use crate::ledger::{CallEntry, LedgerError, succeeded};
use crate::policy_files::PolicySearch;

#[derive(Debug, thiserror::Error)]
pub enum ToolDenied {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error("the tool {tool} may not be called: {why}")]
    Call { tool: String, why: String },
    #[error("the tool {tool} may not be called there: {refusal}")]
    Place { tool: String, refusal: Box<Refusal> },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl Engine {
    /// Asks the policy, if there is one, and writes down that the call begins. `writes` tells
    /// whether the call was given a directory to write to.
    pub fn begin_tool(
        &self,
        (tool, writes): (&str, bool),
        (wall, sandbox): (&Wall, Option<&SandboxId>),
        search: &PolicySearch,
    ) -> Result<CallEntry, ToolDenied> {
        let layers = search.read()?;
        if !layers.is_empty() {
            deciding(|| self.allow_tool(tool, writes, wall, &PolicySearch::stack(layers)?))?;
        }
        let ids = Ids { sandbox: sandbox.map(Id::from), ..Ids::default() };
        let what = (CallKind::Tool, Text::new(format!("{tool} behind {wall}")));
        let (entry, started) = CallEntry::begin_as(ids, what, None);
        self.record(vec![started])?;
        Ok(entry)
    }

    fn allow_tool(
        &self,
        tool: &str,
        writes: bool,
        wall: &Wall,
        stack: &Stack,
    ) -> Result<(), ToolDenied> {
        let task = Task::default();
        let action = Action::Call { tool: tool.to_owned(), kind: None, read_only: !writes };
        let decision = stack.decide(&task, &action);
        if !decision.allowed {
            return Err(ToolDenied::Call { tool: tool.to_owned(), why: decision.why });
        }
        let request = PlaceRequest {
            task,
            work: Work { tool: Some(tool.to_owned()), kind: None },
            wall: Some(wall.clone()),
            limits: None,
            reuse: false,
        };
        let placed = stack.place(&request, &self.host_facts(true));
        match placed.plan() {
            Ok(_) => Ok(()),
            Err(refusal) => {
                let refusal = Box::new(refusal.clone());
                Err(ToolDenied::Place { tool: tool.to_owned(), refusal })
            }
        }
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
