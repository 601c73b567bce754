//! Sandboxes that are asked for with a grant: what its holder may have, and what a person must allow.

mod network;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use ringwall_approval::{Action, ApprovalId, Approvals, State, UsedElevation, Why};
use ringwall_audit::{AdmissionDenied, ApprovalAsked, Event, Id, Ids, Returned, Text};
use ringwall_engine::{AdmitError, Asked, Engine, EngineConfig, PolicySearch, narrow_writing};
use ringwall_grant::{
    Ask, Authority, Budget, Cost, GrantId, Inspected, Left, MAX_TOKEN_BYTES, Request, Spending,
    Standing, Token, Verifier,
};
use ringwall_policy::AdmittedSpec;
use ringwall_rules::{Refusal, Stack};
use ringwall_spec::{Limits, SandboxSpec, Usage, WorkspaceMode};

use crate::commands::Approving;
use crate::ledger;

const MIB: u64 = 1 << 20;
/// Below this, nothing could be done.
const SHORTEST: Duration = Duration::from_secs(1);

/// A grant that was presented, and those who could allow more than it and the policy do.
struct Granted {
    token: Token,
    verifier: Verifier,
    shown: Inspected,
    spending: Spending,
    approvals: Approvals,
    approving: Approving,
}

/// What a sandbox holds of its grant until it ends.
pub(crate) struct Holding {
    spending: Spending,
    budgets: Vec<(GrantId, Budget)>,
    reserved: Cost,
    /// An elevation that was for this one time.
    once: Option<ApprovalId>,
    approvals: Approvals,
}

type AskedLimits<'a> = &'a (dyn Fn(Limits) -> Limits + Sync);

/// Admits what was asked for, if policy and grant allow it. What only an elevation would allow
/// becomes a question to people; once one of them has said yes, the same asked again is admitted.
pub(crate) fn admit(
    engine: &Engine,
    file: &Path,
    (mut asked, search): (Asked, &PolicySearch),
    (limits, words): (AskedLimits<'_>, &[String]),
) -> anyhow::Result<(AdmittedSpec, Holding)> {
    let policy = search.load()?;
    let granted = Granted::open(file, &policy)?;
    asked.notes.insert("task".to_owned(), granted.standing().task.clone());
    asked.notes.insert("grant".to_owned(), granted.own_id());
    granted.or_denied(granted.narrow_paths(&mut asked.spec))?;
    asked.network_at_most = Some(network::bounds(&granted.shown));
    let left = granted.spending.left(&granted.shown.budgets)?;
    let within = |default| granted.within_budget(limits(default), left);
    match engine.admit_by(&policy, asked.clone(), &within) {
        Ok(admitted) => {
            let request = granted.request(&admitted);
            let checked = granted.verifier.check(&granted.token, &request);
            granted.or_denied(checked.map_err(Into::into))?;
            let holding = granted.hold(&admitted, None)?;
            Ok((admitted, holding))
        }
        Err(AdmitError::Refused { refusal }) => {
            granted.admit_elevated(engine, (asked, &policy), (limits, words), &refusal)
        }
        Err(error) => Err(error.into()),
    }
}

impl Holding {
    /// The sandbox has ended: what it did not use is given back, and so are the rights that it had
    /// for this one time.
    pub(crate) fn end(self, usage: Usage) -> anyhow::Result<()> {
        let reserved = self.reserved;
        let peak_mib = usage.peak_memory_bytes.map(|bytes| bytes.div_ceil(MIB));
        let used = Cost {
            calls: reserved.calls,
            wall_ms: usage.wall_ms,
            cpu_ms: usage.cpu_ms.unwrap_or(reserved.cpu_ms),
            memory_mib_ms: peak_mib
                .map_or(reserved.memory_mib_ms, |mib| mib.saturating_mul(usage.wall_ms)),
        };
        self.spending.settle(&self.budgets, reserved, used)?;
        if let Some(id) = &self.once {
            self.approvals.end(id, "its one use is over", SystemTime::now())?;
            record_returned(&self.approvals)?;
        }
        Ok(())
    }
}

impl Granted {
    fn open(file: &Path, policy: &Stack) -> anyhow::Result<Granted> {
        let home = EngineConfig::from_environment()?.home;
        let token = read_token(file)?;
        let verifier = Authority::open_existing(&home)?.verifier();
        let mut shown = verifier.inspect(&token)?;
        let refused = shown.refused.take();
        let granted = Granted {
            token,
            verifier,
            shown,
            spending: Spending::open(&home)?,
            approvals: Approvals::open(&home)?,
            approving: Approving::of(policy)?,
        };
        match refused {
            Some(refused) => granted.or_denied(Err(refused.into())),
            None => Ok(granted),
        }
    }

    fn standing(&self) -> &Standing {
        &self.shown.standing
    }

    fn own_id(&self) -> String {
        self.standing().ids.last().map(ToString::to_string).unwrap_or_default()
    }

    /// Writes a refusal by the grant into the log.
    fn or_denied<T>(&self, decided: anyhow::Result<T>) -> anyhow::Result<T> {
        if let Err(error) = &decided {
            let denied = AdmissionDenied {
                action: Text::new("run"),
                resource: Text::new(""),
                rule: Text::new(format!("grant {}", self.own_id())),
                reason: Text::new(crate::exit::line(error)),
                fix: None,
            };
            let ids = ledger::grant_ids(&self.own_id(), &self.standing().task);
            ledger::record(ids, Event::AdmissionDenied(denied))?;
        }
        decided
    }

    /// What the job would see must be in the paths that the grant lets be read, whole; where it may
    /// write is narrowed to those that the grant lets be written.
    fn narrow_paths(&self, spec: &mut SandboxSpec) -> anyhow::Result<()> {
        for path in &mut spec.read_only_paths {
            let shown = path.canonicalize();
            *path = shown.with_context(|| format!("{} cannot be shown", path.display()))?;
        }
        let Some(workspace) = &spec.workspace else {
            return self.check_paths(&spec.read_only_paths, |path| Ask::Read { path });
        };
        let seen = spec.read_only_paths.iter().chain([&workspace.path]);
        self.check_paths(seen, |path| Ask::Read { path })?;
        if workspace.mode == WorkspaceMode::ReadWrite {
            // There is nothing that would keep a job from writing to a part of it.
            return self.check_paths([&workspace.path], |path| Ask::Write { path });
        }
        narrow_writing(spec, self.shown.writable());
        Ok(())
    }

    fn check_paths<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a PathBuf>,
        ask: impl Fn(String) -> Ask,
    ) -> anyhow::Result<()> {
        for path in paths {
            let text = path.to_str().context("a path that is not UTF-8 cannot be granted")?;
            let (task, tenant) = (&self.standing().task, &self.standing().tenant);
            let request = Request::new(task, tenant, ask(text.to_owned()));
            self.verifier.check(&self.token, &request)?;
        }
        Ok(())
    }

    /// No longer than the grant lives and its budget lasts.
    fn within_budget(&self, asked: Limits, left: Left) -> Limits {
        let life = self.standing().life(SystemTime::now());
        let budget = left.time(asked.cpu_milli.into(), asked.memory_bytes.div_ceil(MIB));
        // What is next to nothing is asked for all the same, so that the refusal names the budget.
        let most = budget.unwrap_or(life).min(life).max(SHORTEST);
        Limits { timeout: asked.timeout.min(most), ..asked }
    }

    /// Takes the most that the sandbox can use from the budget.
    fn hold(self, admitted: &AdmittedSpec, once: Option<ApprovalId>) -> anyhow::Result<Holding> {
        self.or_denied(self.refuse_uncounted(admitted.spec()))?;
        let limits = &admitted.spec().limits;
        let wall_ms = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
        let reserved = Cost {
            calls: 1,
            wall_ms,
            cpu_ms: wall_ms.saturating_mul(limits.cpu_milli.into()) / 1000,
            memory_mib_ms: wall_ms.saturating_mul(limits.memory_bytes.div_ceil(MIB)),
        };
        let budgets = self.shown.budgets.clone();
        self.or_denied(self.spending.reserve(&budgets, reserved).map_err(Into::into))?;
        let Granted { spending, approvals, .. } = self;
        Ok(Holding { spending, budgets, reserved, once, approvals })
    }

    /// What is sent to the network is counted for no grant yet, so a budget of it allows none.
    fn refuse_uncounted(&self, spec: &SandboxSpec) -> anyhow::Result<()> {
        let parts = self.shown.budgets.iter().flat_map(|(_, budget)| budget.parts());
        let mut sent =
            parts.filter(|(part, _)| ["egress_bytes", "tokens", "money_micros"].contains(part));
        match (spec.egress.is_some(), sent.next()) {
            (true, Some((part, _))) => bail!(
                "the grant has a budget of {part}, which cannot be kept for a sandbox that reaches the network; use a grant without one, or a sandbox without a network"
            ),
            _ => Ok(()),
        }
    }

    /// What the policy refused, by an elevation that a person gave; else they are asked.
    fn admit_elevated(
        self,
        engine: &Engine,
        (mut asked, policy): (Asked, &Stack),
        (limits, words): (AskedLimits<'_>, &[String]),
        refusal: &Refusal,
    ) -> anyhow::Result<(AdmittedSpec, Holding)> {
        let Some(elevation) = refusal.elevations().first().cloned() else {
            bail!(AdmitError::Refused { refusal: Box::new(refusal.clone()) })
        };
        asked.task.elevated.insert(elevation.clone());
        // What is left of the budget is not part of what people are asked: it changes.
        let lifted = engine.admit_by(policy, asked.clone(), limits)?;
        let action = self.action(&lifted, words);
        let used = self.use_or_ask(&lifted, &action, (&elevation, refusal))?;
        // Whoever goes ahead by an elevation stops when it ends.
        let left =
            (UNIX_EPOCH + Duration::from_secs(used.until_unix)).duration_since(SystemTime::now());
        let left = left.context("the elevation has just ended")?;
        let budget = self.spending.left(&self.shown.budgets)?;
        let capped = |default| {
            let asked = self.within_budget(limits(default), budget);
            Limits { timeout: asked.timeout.min(left), ..asked }
        };
        let admitted = engine.admit_by(policy, asked, &capped)?;
        let holding = self.hold(&admitted, used.once.then_some(used.id))?;
        Ok((admitted, holding))
    }

    fn request(&self, admitted: &AdmittedSpec) -> Request {
        let (kind, wall) = (admitted.kind().to_owned(), admitted.spec().wall.to_string());
        let ask = Ask::Place { kind, wall };
        Request::new(&self.standing().task, &self.standing().tenant, ask)
    }

    fn action(&self, admitted: &AdmittedSpec, words: &[String]) -> Action {
        let spec = admitted.spec();
        let sandbox = spec.name.as_ref().map_or("-", |name| name.as_str()).to_owned();
        Action::of(&self.request(admitted), parameters(spec, words), sandbox, "new")
    }

    fn use_or_ask(
        &self,
        admitted: &AdmittedSpec,
        action: &Action,
        (elevation, refusal): (&str, &Refusal),
    ) -> anyhow::Result<UsedElevation> {
        let now = SystemTime::now();
        let request = self.request(admitted);
        let policy = (&self.approving.rules[..], &self.approving.approvers[..]);
        let ids = || Ids::default().task(Id::new(&self.standing().task));
        for approval in self.approvals.list(now)?.approvals {
            let held = matches!(approval.state, State::Approved(_));
            if !held || approval.asked.action != *action || approval.asked.elevation != elevation {
                continue;
            }
            let id = &approval.asked.id;
            let token = self.approvals.elevate(&self.token, id, now)?;
            let authorized =
                self.approvals.authorize(&self.verifier, &token, &request, action, policy, true)?;
            if let Some(used) = authorized.used {
                let event = Event::ApprovalUsed { request: Text::new(action.hash().to_string()) };
                ledger::record(ids().approval(Id::new(id.to_string())), event)?;
                return Ok(used);
            }
        }
        let rule = self.approving.rules.iter().find(|rule| rule.name.as_str() == elevation);
        let rule = rule.context("the policy offers the elevation no more")?;
        let (verifier, token) = (&self.verifier, &self.token);
        let asked = self.approvals.ask(verifier, token, &request, action, rule, None)?;
        let event = Event::ApprovalAsked(ApprovalAsked {
            action: Text::new(&action.action),
            resource: Text::new(&action.resource),
            rule: Text::new(elevation),
            request: Text::new(action.hash().to_string()),
            expires_unix_ms: Some(asked.expires_unix.saturating_mul(1000)),
        });
        ledger::record(ids().approval(Id::new(asked.id.to_string())), event)?;
        bail!(
            "{refusal}; {id} waits for a person (`ringwall approvals show {id}`), and once it is approved the same can be run again",
            id = asked.id
        )
    }
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
        let why = match returned.why {
            Why::Time => Returned::Expired,
            Why::Ended(_) => Returned::Ended,
        };
        let ids = Ids::default()
            .task(Id::new(&returned.asked.action.task))
            .approval(Id::new(returned.asked.id.to_string()));
        let recorded = ledger::record(ids, Event::ApprovalReturned { why, closed_streams: 0 });
        if recorded.is_err() {
            approvals.tell_again(&returned)?;
        }
        recorded?;
    }
    Ok(())
}

/// Everything in which two requests for the same wall can differ.
fn parameters(spec: &SandboxSpec, words: &[String]) -> BTreeMap<String, String> {
    let text = |value: serde_json::Result<String>| value.unwrap_or_default();
    let entries = [
        ("command", text(serde_json::to_string(words))),
        ("image", spec.image.clone().unwrap_or_default()),
        ("workspace", text(serde_json::to_string(&spec.workspace))),
        ("rights", text(serde_json::to_string(&spec.rights))),
        ("paths", text(serde_json::to_string(&spec.read_only_paths))),
        ("limits", text(serde_json::to_string(&spec.limits))),
        ("network", text(serde_json::to_string(&spec.egress))),
    ];
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn read_token(file: &Path) -> anyhow::Result<Token> {
    let wrong = || format!("{} must hold the token of a grant", file.display());
    let text = std::fs::File::open(file).and_then(token_text).with_context(wrong)?;
    text.parse().with_context(wrong)
}

/// Reads what may be a token, and no more than one can have.
pub(crate) fn token_text(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    // Twice the bytes: a token's text is longer than the token.
    source.take(2 * MAX_TOKEN_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}
