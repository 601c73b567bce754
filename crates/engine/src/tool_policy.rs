//! Whether a tool may be called, and where; and the record of its call.

use ringwall_audit::{
    CallEnded, CallKind, CallResult, CallStarted, Event, Id, Ids, Record as AuditRecord, Text,
};
use ringwall_rules::{Action, LoadError, PlaceRequest, Refusal, Task, Work};
use ringwall_spec::{SandboxId, ToolMeter, ToolStatus, Usage, Wall};

use crate::admit::deciding;
use crate::config::Engine;
use crate::host;
use crate::ledger::LedgerError;
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

/// A call of a tool on its way: its end is to be written down as well.
#[derive(Debug)]
pub struct ToolEntry {
    ids: Ids,
    tool: Text,
}

impl Engine {
    /// Asks the policy, if there is one, and writes down that the call begins. `writes` tells
    /// whether the call was given a directory to write to.
    pub fn begin_tool(
        &self,
        (tool, writes): (&str, bool),
        (wall, sandbox): (&Wall, Option<&SandboxId>),
        search: &PolicySearch,
    ) -> Result<ToolEntry, ToolDenied> {
        if !search.read()?.is_empty() {
            deciding(|| self.allow_tool(tool, writes, wall, search))?;
        }
        let mut ids = Ids::default().call(&host::new_id());
        ids.sandbox = sandbox.map(Id::from);
        let entry = ToolEntry { ids, tool: Text::new(format!("{tool} behind {wall}")) };
        let started = CallStarted {
            call: CallKind::Tool,
            what: entry.tool.clone(),
            ..CallStarted::default()
        };
        self.record(vec![(entry.ids.clone(), Event::CallStarted(started))])?;
        Ok(entry)
    }

    fn allow_tool(
        &self,
        tool: &str,
        writes: bool,
        wall: &Wall,
        search: &PolicySearch,
    ) -> Result<(), ToolDenied> {
        let stack = search.load()?;
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
        entry: ToolEntry,
        status: Option<&ToolStatus>,
        meter: ToolMeter,
    ) -> Result<(), LedgerError> {
        let succeeded = status.is_some_and(ToolStatus::is_success);
        let ended = CallEnded {
            call: CallKind::Tool,
            what: entry.tool,
            result: if succeeded { CallResult::Succeeded } else { CallResult::Failed },
            ending: None,
            summary: Text::new(status.map_or("the call failed".to_owned(), |it| format!("{it:?}"))),
            usage: Some(Usage {
                wall_ms: meter.wall_us / 1000,
                peak_memory_bytes: Some(meter.peak_memory_bytes),
                output_bytes: meter.bytes_out,
                ..Usage::default()
            }),
            changes: None,
        };
        let record: AuditRecord = (entry.ids, Event::CallEnded(ended));
        self.record(vec![record])
    }
}
