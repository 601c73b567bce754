//! Calls of tools under a grant: the tool, the directories and the budget must be in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ringwall_approval::{Action, ApprovalId, Approvals};
use ringwall_engine::{
    AskedCall, CallEntry, DirGrant, Engine, EngineConfig, NetworkBounds, PolicySearch, ToolGate,
};
use ringwall_grant::{Ask, Cost, Left, Reserved};
use ringwall_spec::{DirAccess, ToolLimits, ToolMeter};

use super::presented::{Presented, settle};
use super::{MIB, time_left, use_is_over, use_or_ask};
use crate::commands::Approving;

/// What a call holds of its grant until it ends.
pub(crate) struct CallHolding {
    reserved: Reserved,
    grant: Presented,
    /// An elevation that is for this one call.
    once: Option<ApprovalId>,
}

/// Time and fuel are what is left of the budget, where that is less.
pub(crate) fn within(left: Left, limits: &mut ToolLimits) {
    let time = left.time(ONE_CPU, limits.memory_bytes.div_ceil(MIB));
    limits.time = time.map_or(limits.time, |(most, _)| limits.time.min(most)).max(SHORTEST_CALL);
    limits.fuel = left.fuel.map_or(limits.fuel, |most| limits.fuel.min(most)).max(1);
}

/// A tool runs on one at most.
const ONE_CPU: u64 = 1000;
const SHORTEST_CALL: Duration = Duration::from_millis(1);

/// Whether the grant in `file` lets this tool be called with these directories of the host, and takes
/// what the call may use from its budget.
pub(crate) fn hold_call(
    file: &Path,
    tool: &str,
    dirs: &[DirGrant],
    limits: &mut ToolLimits,
) -> anyhow::Result<CallHolding> {
    let grant = Presented::open(file, "call")?;
    grant.check(Ask::Tool { name: tool.to_owned() })?;
    for DirGrant { host, access, .. } in dirs {
        let resolved = host.canonicalize();
        let dir = [resolved.with_context(|| format!("{} cannot be granted", host.display()))?];
        let mut allowed = grant.check_paths(&dir, |path| Ask::Read { path });
        if *access == DirAccess::Write {
            allowed = allowed.and_then(|()| grant.check_paths(&dir, |path| Ask::Write { path }));
        }
        grant.or_denied(allowed)?;
    }
    within(grant.left()?, limits);
    let wall_ms = u64::try_from(limits.time.as_millis()).unwrap_or(u64::MAX);
    let running = Cost::running(wall_ms, ONE_CPU, limits.memory_bytes.div_ceil(MIB));
    let cost = Cost { calls: 1, fuel: limits.fuel, ..running };
    Ok(CallHolding { reserved: grant.reserve(cost)?, grant, once: None })
}

impl CallHolding {
    /// What the tool may reach at most.
    pub(crate) fn network(&self) -> NetworkBounds {
        let (layers, secrets) = self.grant.shown.network();
        NetworkBounds { layers, secrets, sent_bytes: None }
    }

    /// What a tool sends is counted for no grant, so a budget of it allows none.
    pub(crate) fn refuse_uncounted(&self) -> anyhow::Result<()> {
        let mut parts = self.grant.budget_parts();
        match parts.find(|part| ["egress_bytes", "tokens", "money_micros"].contains(part)) {
            None => Ok(()),
            Some(part) => self.grant.or_denied(Err(anyhow::anyhow!(
                "the grant or its tenant has a budget of {part}, which cannot be kept for a tool that reaches the network; use a grant without one"
            ))),
        }
    }

    /// Begins a call that the policy allows, or a person has allowed to this grant; else they are
    /// asked. An elevation ends the call when it ends itself: the time that it has left.
    pub(crate) fn begin(
        &mut self,
        engine: &Engine,
        asked: AskedCall<'_>,
        (search, gate): (&PolicySearch, &ToolGate),
        parameters: BTreeMap<String, String>,
    ) -> anyhow::Result<(CallEntry, Option<Duration>)> {
        let refused = match engine.begin_tool(asked, gate) {
            Ok(entry) => return Ok((entry, None)),
            Err(refused) => refused,
        };
        let Some(elevation) = refused.elevation() else { return Err(refused.into()) };
        let lifted = AskedCall { elevated: Some(elevation), ..asked };
        engine.allow_call(lifted, gate)?;
        let approvals = Approvals::open(&EngineConfig::from_environment()?.home)?;
        let approving = Approving::of(&search.load()?)?;
        let request = self.grant.request(Ask::Tool { name: asked.tool.to_owned() });
        // A sandbox's id is of one life.
        let place = |none: &str| asked.sandbox.map_or(none.to_owned(), ToString::to_string);
        let action = Action::of(&request, parameters, place("-"), place("new"));
        let people = (&approvals, &approving);
        let used = use_or_ask(&self.grant, people, (&request, &action), (elevation, &refused))?;
        let left = time_left(&used);
        self.once = used.once.then_some(used.id);
        Ok((engine.begin_tool(lifted, gate)?, Some(left?)))
    }

    /// The tool was not called.
    pub(crate) fn release(&self) -> anyhow::Result<()> {
        self.give_back_rights()?;
        settle(&self.reserved, Cost::default())
    }

    /// Of a call that was lost nothing is known, so nothing but the rights is given back.
    pub(crate) fn give_back_rights(&self) -> anyhow::Result<()> {
        let Some(id) = &self.once else { return Ok(()) };
        use_is_over(&Approvals::open(&EngineConfig::from_environment()?.home)?, id)
    }

    /// The call has ended.
    pub(crate) fn end(&self, meter: &ToolMeter) -> anyhow::Result<()> {
        self.give_back_rights()?;
        let memory_mib = meter.peak_memory_bytes.div_ceil(MIB);
        let running = Cost::running(meter.wall_us.div_ceil(1000), ONE_CPU, memory_mib);
        settle(&self.reserved, Cost { calls: 1, fuel: meter.fuel, ..running })
    }
}
