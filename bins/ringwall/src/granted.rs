//! Sandboxes that are asked for with a grant: what its holder may have, and what a person must allow.

mod presented;
mod tool;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use ringwall_approval::{
    Action, ApprovalId, Approvals, Permit, UsedElevation, Wanted, sandbox_parameters,
};
use ringwall_engine::{
    AdmitError, Asked, Engine, EngineConfig, NetworkBounds, PolicySearch, Record, narrow_writing,
};
use ringwall_grant::{Ask, Cost, Held, Request, Reserved};
use ringwall_policy::AdmittedSpec;
use ringwall_rules::{Refusal, Stack};
use ringwall_spec::{Command, Limits, SandboxId, SandboxSpec, Usage, WorkspaceMode};
use serde::{Deserialize, Serialize};

use crate::commands::Approving;
use crate::{ledger, report};
use presented::settle;

pub(crate) use presented::{Presented, token_text};
pub(crate) use tool::{CallHolding, hold_call};

const MIB: u64 = 1 << 20;
/// Below this, nothing could be done.
const SHORTEST: Duration = Duration::from_secs(1);

/// A grant that was presented, and those who could allow more than it and the policy do.
struct Granted {
    grant: Presented,
    approvals: Approvals,
    approving: Approving,
}

/// What a sandbox holds of its grant until it ends.
#[derive(Serialize, Deserialize)]
pub(crate) struct Holding {
    reserved: Reserved,
    /// An elevation that was for this one time.
    once: Option<ApprovalId>,
}

type AskedLimits<'a> = &'a (dyn Fn(Limits) -> Limits + Sync);

/// Admits what was asked for, if policy and grant allow it. What only an elevation would allow
/// becomes a question to people; once one of them has said yes, the same asked again is admitted.
pub(crate) fn admit(
    engine: &Engine,
    file: &Path,
    (mut asked, search): (Asked, &PolicySearch),
    (limits, command): (AskedLimits<'_>, Option<&Command>),
) -> anyhow::Result<(AdmittedSpec, Holding)> {
    let policy = search.load()?;
    let granted = Granted::open(file, &policy)?;
    let grant = &granted.grant;
    asked.notes.insert("task".to_owned(), grant.standing().task.clone());
    asked.notes.insert("grant".to_owned(), grant.own_id());
    grant.or_denied(narrow_paths(grant, &mut asked.spec))?;
    asked.notes.insert("grants".to_owned(), grant.standing().all_ids());
    asked.search = Some(search.clone());
    let (layers, secrets) = grant.shown.network();
    let left = grant.left()?;
    let sent_bytes = left.egress_bytes;
    asked.network_at_most = Some(NetworkBounds { layers, secrets, sent_bytes });
    let within = |default| grant.within_budget(limits(default), left);
    match engine.admit_by(&policy, asked.clone(), &within) {
        Ok(admitted) => {
            grant.check(placing(&admitted))?;
            let holding = granted.hold(&admitted, None)?;
            Ok((admitted, holding))
        }
        Err(AdmitError::Refused { refusal }) => {
            granted.admit_elevated(engine, (asked, &policy), (limits, command), &refusal)
        }
        Err(error) => Err(error.into()),
    }
}

impl Holding {
    /// The sandbox has ended: what it did not use is given back, and so are the rights that it had
    /// for this one time.
    pub(crate) fn end(&self, usage: Usage) -> anyhow::Result<()> {
        let reserved = self.reserved.cost;
        let peak_mib = usage.peak_memory_bytes.map(|bytes| bytes.div_ceil(MIB));
        let used = Cost {
            calls: reserved.calls,
            wall_ms: usage.wall_ms,
            cpu_ms: usage.cpu_ms.unwrap_or(reserved.cpu_ms),
            memory_mib_ms: peak_mib
                .map_or(reserved.memory_mib_ms, |mib| mib.saturating_mul(usage.wall_ms)),
            egress_bytes: usage.sent_bytes.unwrap_or(u64::MAX).min(reserved.egress_bytes),
            ..Cost::default()
        };
        settle(&self.reserved, used)?;
        if reserved.egress_bytes > 0
            && usage.sent_bytes.is_none_or(|sent| sent >= reserved.egress_bytes)
        {
            report::note("the budget of egress_bytes is spent, so nothing more was sent");
        }
        if let Some(id) = &self.once {
            let approvals = Approvals::open(&EngineConfig::from_environment()?.home)?;
            use_is_over(&approvals, id)?;
        }
        Ok(())
    }

    /// The sandbox lives on without this process; its keeper ends the holding.
    pub(crate) fn leave_to_keeper(&self, sandbox: &SandboxId) -> anyhow::Result<()> {
        let held = Held::open(&EngineConfig::from_environment()?.home)?;
        Ok(held.put(&sandbox.to_string(), &serde_json::to_vec(self)?)?)
    }
}

/// A sandbox that lived on has ended: whatever it held of a grant is settled.
pub(crate) fn end_kept(sandbox: &SandboxId, usage: Usage) -> anyhow::Result<()> {
    let held = Held::open(&EngineConfig::from_environment()?.home)?;
    let Some(text) = held.take(&sandbox.to_string())? else { return Ok(()) };
    serde_json::from_slice::<Holding>(&text)?.end(usage)
}

/// What the job would see must be in the paths that the grant lets be read, whole; where it may
/// write is narrowed to those that the grant lets be written.
fn narrow_paths(grant: &Presented, spec: &mut SandboxSpec) -> anyhow::Result<()> {
    for path in &mut spec.read_only_paths {
        let shown = path.canonicalize();
        *path = shown.with_context(|| format!("{} cannot be shown", path.display()))?;
    }
    let Some(workspace) = &spec.workspace else {
        return grant.check_paths(&spec.read_only_paths, |path| Ask::Read { path });
    };
    let seen = spec.read_only_paths.iter().chain([&workspace.path]);
    grant.check_paths(seen, |path| Ask::Read { path })?;
    if workspace.mode == WorkspaceMode::ReadWrite {
        // There is nothing that would keep a job from writing to a part of it.
        return grant.check_paths([&workspace.path], |path| Ask::Write { path });
    }
    narrow_writing(spec, grant.shown.writable());
    Ok(())
}

/// What a secret pays for at its endpoint nobody counts, so a budget of it allows no secret.
fn refuse_uncounted(grant: &Presented, spec: &SandboxSpec) -> anyhow::Result<()> {
    let mut paid = grant.budget_parts().filter(|part| ["tokens", "money_micros"].contains(part));
    let secrets = spec.egress.as_ref().is_some_and(|egress| !egress.secrets.is_empty());
    match (secrets, paid.next()) {
        (true, Some(part)) => bail!(
            "the grant or its tenant has a budget of {part}, which cannot be kept for a sandbox that uses secrets at their endpoints: what it has done there is not counted; use a grant without secrets, or without that budget"
        ),
        _ => Ok(()),
    }
}

fn placing(admitted: &AdmittedSpec) -> Ask {
    Ask::Place { kind: admitted.kind().to_owned(), wall: admitted.spec().wall.to_string() }
}

impl Granted {
    fn open(file: &Path, policy: &Stack) -> anyhow::Result<Granted> {
        let grant = Presented::open(file, "run")?;
        let approvals = Approvals::open(&EngineConfig::from_environment()?.home)?;
        Ok(Granted { grant, approvals, approving: Approving::of(policy)? })
    }

    /// Takes the most that the sandbox can use from the budget.
    fn hold(self, admitted: &AdmittedSpec, once: Option<ApprovalId>) -> anyhow::Result<Holding> {
        self.grant.or_denied(refuse_uncounted(&self.grant, admitted.spec()))?;
        let limits = &admitted.spec().limits;
        let wall_ms = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
        let reserved = self.grant.reserve(Cost {
            calls: 1,
            egress_bytes: admitted.spec().egress.as_ref().and_then(|it| it.sent_bytes).unwrap_or(0),
            ..Cost::running(wall_ms, limits.cpu_milli.into(), limits.memory_bytes.div_ceil(MIB))
        })?;
        Ok(Holding { reserved, once })
    }

    /// What the policy refused, by an elevation that a person gave; else they are asked.
    fn admit_elevated(
        self,
        engine: &Engine,
        (mut asked, policy): (Asked, &Stack),
        (limits, command): (AskedLimits<'_>, Option<&Command>),
        refusal: &Refusal,
    ) -> anyhow::Result<(AdmittedSpec, Holding)> {
        let Some(elevation) = refusal.elevations().first().cloned() else {
            bail!(AdmitError::Refused { refusal: Box::new(refusal.clone()) })
        };
        asked.task.elevated.insert(elevation.clone());
        // What is left of the budget is not part of what people are asked: it changes.
        let mut without = asked.clone();
        without.network_at_most.iter_mut().for_each(|most| most.sent_bytes = None);
        let lifted = engine.admit_by(policy, without, limits)?;
        let action = self.action(&lifted, command);
        let used = self.use_or_ask(&lifted, &action, (&elevation, refusal))?;
        // Whoever goes ahead by an elevation stops when it ends.
        let left = time_left(&used)?;
        let budget = self.grant.left()?;
        let capped = |default| {
            let asked = self.grant.within_budget(limits(default), budget);
            Limits { timeout: asked.timeout.min(left), ..asked }
        };
        let admitted = engine.admit_by(policy, asked, &capped)?;
        let holding = self.hold(&admitted, used.once.then_some(used.id))?;
        Ok((admitted, holding))
    }

    fn request(&self, admitted: &AdmittedSpec) -> Request {
        self.grant.request(placing(admitted))
    }

    fn action(&self, admitted: &AdmittedSpec, command: Option<&Command>) -> Action {
        let spec = admitted.spec();
        let sandbox = spec.name.as_ref().map_or("-", |name| name.as_str()).to_owned();
        Action::of(&self.request(admitted), sandbox_parameters(spec, command), sandbox, "new")
    }

    fn use_or_ask(
        &self,
        admitted: &AdmittedSpec,
        action: &Action,
        (elevation, refusal): (&str, &Refusal),
    ) -> anyhow::Result<UsedElevation> {
        let (people, request) = ((&self.approvals, &self.approving), self.request(admitted));
        use_or_ask(&self.grant, people, (&request, action), (elevation, refusal))
    }
}

/// Uses what a person has allowed, if it is exactly this; else they are asked, and it is refused.
fn use_or_ask(
    Presented { verifier, token, .. }: &Presented,
    (approvals, approving): (&Approvals, &Approving),
    (request, action): (&Request, &Action),
    (elevation, refusal): (&str, &dyn std::fmt::Display),
) -> anyhow::Result<UsedElevation> {
    let rule = approving.rules.iter().find(|rule| rule.name.as_str() == elevation);
    let rule = rule.context("the policy offers the elevation no more")?;
    let wanted = Wanted { request, action, rule, approvers: &approving.approvers };
    match approvals.use_or_ask(verifier, token, wanted)? {
        Permit::Used(used) => {
            ledger::write(used.event(action))?;
            Ok(used)
        }
        Permit::Asked(asked) => {
            ledger::write(asked.event())?;
            bail!(
                "{refusal}; {id} waits for a person (`ringwall approvals show {id}`), and once it is approved the same can be run again",
                id = asked.id
            )
        }
    }
}

/// Moves a sandbox to another phase, by the policy or by what a person has allowed to this grant.
pub(crate) fn change_phase(
    engine: &Engine,
    (grant, record): (&Presented, &Record),
    to: &str,
    search: &PolicySearch,
) -> anyhow::Result<()> {
    let ask = Ask::Phase { name: to.to_owned() };
    grant.check(ask.clone())?;
    let asker = format!("grant {}", grant.own_id());
    let change = |by: Option<&str>| engine.change_phase(record, (to, &asker), (search, by));
    let Err(refused) = change(None) else { return Ok(()) };
    let Some(elevation) = refused.elevation() else { return Err(refused.into()) };
    engine.allow_phase(record, to, (search, Some(elevation)))?;
    let approvals = Approvals::open(&EngineConfig::from_environment()?.home)?;
    let approving = Approving::of(&search.load()?)?;
    let workspace = record.workspace.as_ref().map(serde_json::to_string).transpose()?;
    let from = Some(engine.phase(record).unwrap_or_default());
    let parameters = [("from", from), ("workspace", workspace)];
    let parameters = parameters.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?)));
    let (request, life) = (grant.request(ask), record.created_unix_ms.to_string());
    let action = Action::of(&request, parameters.collect(), record.id.to_string(), life);
    let used =
        use_or_ask(grant, (&approvals, &approving), (&request, &action), (elevation, &refused))?;
    let changed = change(Some(elevation));
    if used.once {
        use_is_over(&approvals, &used.id)?;
    }
    Ok(changed?)
}

fn time_left(used: &UsedElevation) -> anyhow::Result<Duration> {
    let until = UNIX_EPOCH + Duration::from_secs(used.until_unix);
    until.duration_since(SystemTime::now()).context("the elevation has just ended")
}

fn use_is_over(approvals: &Approvals, id: &ApprovalId) -> anyhow::Result<()> {
    approvals.end(id, "its one use is over", SystemTime::now())?;
    record_returned(approvals)
}

/// Writes down that old rights are back, if an elevation has ended since somebody looked.
pub(crate) fn record_ended() -> anyhow::Result<()> {
    let home = EngineConfig::from_environment()?.home;
    if Approvals::is_due(&home, SystemTime::now()) {
        record_returned(&Approvals::open(&home)?)?;
    }
    Ok(())
}

/// The same without looking whether there is anything to write down.
pub(crate) fn record_returned(approvals: &Approvals) -> anyhow::Result<()> {
    for returned in approvals.returned(SystemTime::now())? {
        let recorded = ledger::write(returned.event());
        if recorded.is_err() {
            approvals.tell_again(&returned)?;
        }
        recorded?;
    }
    Ok(())
}
