//! Where a tool is called: alone on this machine, in a sandbox that lives, or behind a fresh wall.

use anyhow::bail;
use ringwall_desk::{Permit, tools_permit};
use ringwall_engine::{Record, ToolCall, ToolOutcome};
use ringwall_spec::{
    CodeFor, Ending, RingKind, SandboxId, SandboxSpec, ToolTotals, Wall, WorkspaceMode,
    WorkspaceSpec, validate,
};
use ringwall_tool::Tool;
use ringwall_workspace::check_workspace;

use super::Tools;
use crate::args::InsideArgs;
use crate::commands::open_engine;
use crate::report;

pub(super) enum Place {
    Alone(Wall),
    Living(Box<Record>),
    /// A sandbox for the call alone, about which policy and grant are asked with this wall.
    Fresh(Box<Permit>),
}

pub(super) fn find(args: &InsideArgs) -> anyhow::Result<Place> {
    if let Some(name) = &args.sandbox {
        let record = open_engine()?.find(name)?;
        refuse_without_tools(&record.wall)?;
        return Ok(Place::Living(Box::new(record)));
    }
    let Some(wall) = &args.wall else {
        return Ok(Place::Alone(Wall::single(RingKind::Wasm)));
    };
    if wall.rings() == [RingKind::Wasm] && args.image.is_none() && args.workspace.is_none() {
        return Ok(Place::Alone(Wall::single(RingKind::Wasm)));
    }
    refuse_without_tools(wall)?;
    let workspace = match &args.workspace {
        None => None,
        Some(path) => {
            let path = check_workspace(path)?.path().to_owned();
            Some(WorkspaceSpec { path, mode: WorkspaceMode::CopyOnWrite })
        }
    };
    let spec =
        SandboxSpec { image: args.image.clone(), workspace, ..SandboxSpec::new(wall.clone()) };
    Ok(Place::Fresh(Box::new(tools_permit(validate(spec)?.into()))))
}

fn refuse_without_tools(wall: &Wall) -> anyhow::Result<()> {
    if !wall.has_tools_inside() {
        bail!(
            "no tool can be called behind the wall {wall}: it has no wasm ring inside; use {wall}/wasm"
        );
    }
    Ok(())
}

impl Place {
    pub(super) fn code_for(&self) -> CodeFor {
        let outermost = match self {
            Place::Alone(_) => return CodeFor::ThisProcessor,
            Place::Living(record) => record.wall.outermost(),
            Place::Fresh(permit) => permit.spec().wall.outermost(),
        };
        if outermost == RingKind::Vm { CodeFor::AnyProcessor } else { CodeFor::ThisProcessor }
    }

    /// The wall round a call, and the sandbox that it belongs to.
    pub(super) fn wall_and_sandbox(&self) -> (&Wall, Option<&SandboxId>) {
        match self {
            Place::Alone(wall) => (wall, None),
            Place::Living(record) => (&record.wall, Some(&record.id)),
            Place::Fresh(permit) => (&permit.spec().wall, None),
        }
    }

    /// Calls the tool there. Gives what all calls in the sandbox used, if there is one.
    pub(super) fn call(
        &self,
        tools: &Tools,
        tool: &Tool,
        call: &ToolCall,
    ) -> anyhow::Result<(ToolOutcome, Option<ToolTotals>)> {
        match self {
            Place::Alone(_) => Ok((tools.host.tools.call(call)?, None)),
            Place::Living(record) => {
                let (outcome, totals) = tools.engine.attach(record)?.call_tool(call)?;
                Ok((outcome, Some(totals)))
            }
            Place::Fresh(permit) => {
                let words = ["tool".to_owned(), tool.name().to_owned()];
                let sandbox = tools.engine.raise_for(permit, &words)?;
                let Some(host) = sandbox.tools() else {
                    bail!("the wall {} was raised without a wasm ring", sandbox.wall());
                };
                let called = host.call(call);
                // What the tool changed is kept, however the call went.
                let settled = sandbox.settle(Ending::Exited { code: 0 });
                let (outcome, settled) = (called?, settled?);
                if let Some(hint) = report::hint_at_changes(&settled.id, settled.changes) {
                    report::note(&hint);
                }
                Ok((outcome, settled.tools))
            }
        }
    }
}
