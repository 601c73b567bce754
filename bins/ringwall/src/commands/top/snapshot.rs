//! What there is at one moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_agent::{AgentId, Doing, Journal, State};
use ringwall_approval::{Approvals, State as Answer};
use ringwall_engine::{EngineConfig, RecordState};
use ringwall_grant::{Account, Spending};
use serde::Serialize;

use crate::budget::{self, Part};
use crate::report;

#[derive(Debug, Clone, Serialize)]
pub(super) struct Snapshot {
    at_unix_ms: u64,
    /// The running sandboxes, the newest first.
    pub(super) sandboxes: Vec<Sandbox>,
    /// The agents that have not finished, the newest first.
    pub(super) agents: Vec<Agent>,
    /// The tenants that have a budget.
    pub(super) tenants: Vec<Tenant>,
    /// What waits for a person, the oldest first.
    pub(super) approvals: Vec<Question>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) wall: String,
    pub(super) age_ms: u64,
    pub(super) command: String,
    memory_bytes: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Agent {
    pub(super) id: AgentId,
    pub(super) doing: &'static str,
    pub(super) task: String,
    pub(super) tainted: bool,
    sandbox: Option<String>,
    parent: Option<AgentId>,
    pub(super) budget: Vec<Part>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) budget: Vec<Part>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Question {
    pub(super) id: String,
    pub(super) elevation: String,
    pub(super) task: String,
    pub(super) age_ms: u64,
}

/// Looks again and again, and reads only journals that have grown.
#[derive(Debug, Default)]
pub(super) struct Looker {
    /// By agent: how long its journal was, and what it said.
    known: BTreeMap<AgentId, (u64, Option<Agent>)>,
}

impl Looker {
    pub(super) fn look(&mut self) -> anyhow::Result<Snapshot> {
        let now = SystemTime::now();
        let at_unix_ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let at_unix_ms = u64::try_from(at_unix_ms).unwrap_or(u64::MAX);
        let mut records = crate::commands::open_engine()?.records()?;
        records.retain(|record| record.state == RecordState::Running);
        records.sort_by_key(|record| std::cmp::Reverse(record.created_unix_ms));
        let sandbox = |record: &ringwall_engine::Record| Sandbox {
            id: record.id.to_string(),
            wall: record.wall.to_string(),
            age_ms: at_unix_ms.saturating_sub(record.created_unix_ms),
            command: record.command.join(" ").chars().take(200).collect(),
            memory_bytes: record.limits.memory_bytes,
        };
        let home = EngineConfig::from_environment()?.home;
        let listed = Approvals::open(&home)?.list(now)?;
        let pending = listed.approvals.iter().filter(|one| one.state == Answer::Pending);
        let question = |one: &ringwall_approval::Approval| Question {
            id: one.asked.id.to_string(),
            elevation: one.asked.elevation.clone(),
            task: one.asked.action.task.clone(),
            age_ms: at_unix_ms.saturating_sub(one.asked.asked_unix.saturating_mul(1000)),
        };
        Ok(Snapshot {
            at_unix_ms,
            sandboxes: records.iter().map(sandbox).collect(),
            agents: self.agents(&home)?,
            tenants: tenants(&home)?,
            approvals: pending.map(question).collect(),
        })
    }

    fn agents(&mut self, home: &Path) -> anyhow::Result<Vec<Agent>> {
        let mut known = BTreeMap::new();
        let mut agents = Vec::new();
        for id in Journal::list(home)?.into_iter().rev() {
            let length = Journal::length(home, &id).unwrap_or(0);
            let before = self.known.remove(&id).filter(|(before, _)| *before == length);
            let agent = match before {
                Some((_, agent)) => agent,
                None => read(home, &id),
            };
            if let Some(agent) = &agent {
                let running = Journal::is_running(home, &id);
                let doing = match agent.doing {
                    "running" | "killed" if running => "running",
                    "running" | "killed" => "killed",
                    other => other,
                };
                agents.push(Agent { doing, ..agent.clone() });
            }
            known.insert(id, (length, agent));
        }
        self.known = known;
        Ok(agents)
    }
}

fn tenants(home: &Path) -> anyhow::Result<Vec<Tenant>> {
    let spending = Spending::open(home)?;
    let mut tenants = Vec::new();
    for (account, budget) in spending.tenants()? {
        let spent = spending.spent(&account)?;
        if let Account::Tenant(name) = account {
            let parts = spent.of_budget(budget).into_iter();
            let budget = parts.map(|(name, used, most)| Part { name, used, most }).collect();
            tenants.push(Tenant { name, budget });
        }
    }
    tenants.retain(|tenant| !tenant.budget.is_empty());
    Ok(tenants)
}

/// An agent that has not finished.
fn read(home: &Path, id: &AgentId) -> Option<Agent> {
    let lines = match Journal::read(home, id) {
        Ok(lines) => lines,
        Err(error) => {
            report::note(&error.to_string());
            return None;
        }
    };
    let state = State::of(&lines)?;
    let doing = match &state.doing {
        Doing::Finished(_) => return None,
        Doing::Stopped(stop) => stop.word(),
        Doing::Going => "running",
    };
    Some(Agent {
        id: id.clone(),
        doing,
        task: state.options.task.replace('\n', " ").chars().take(200).collect(),
        tainted: state.taint.is_some(),
        sandbox: state.sandbox.clone(),
        parent: state.parent.clone().map(|(parent, _)| parent),
        budget: budget::parts(&state.bounds, &state.spent_in_all()),
    })
}
