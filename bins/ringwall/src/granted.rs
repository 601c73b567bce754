//! Sandboxes that are asked for with a grant: what its holder may have, and what a person must allow.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use ringwall_approval::{Action, Approvals, State, UsedElevation, Why};
use ringwall_audit::{ApprovalAsked, Event, Id, Ids, Returned, Text};
use ringwall_engine::{AdmitError, Asked, Engine, EngineConfig, PolicySearch};
use ringwall_grant::{Ask, Authority, MAX_TOKEN_BYTES, Request, Standing, Token, Verifier};
use ringwall_policy::AdmittedSpec;
use ringwall_rules::{Refusal, Stack};
use ringwall_spec::{Limits, SandboxSpec};

use crate::commands::Approving;
use crate::ledger;

/// A grant that was presented, and those who could allow more than it and the policy do.
struct Granted {
    token: Token,
    verifier: Verifier,
    standing: Standing,
    approvals: Approvals,
    approving: Approving,
}

/// Admits what was asked for, if policy and grant allow it. What only an elevation would allow
/// becomes a question to people; once one of them has said yes, the same asked again is admitted.
pub(crate) fn admit(
    engine: &Engine,
    file: &Path,
    (mut asked, search): (Asked, &PolicySearch),
    (limits, words): (&(dyn Fn(Limits) -> Limits + Sync), &[String]),
) -> anyhow::Result<AdmittedSpec> {
    let policy = search.load()?;
    let granted = Granted::open(file, &policy)?;
    record_returned(&granted.approvals)?;
    asked.notes.insert("task".to_owned(), granted.standing.task.clone());
    let own = granted.standing.ids.last().map(ToString::to_string).unwrap_or_default();
    asked.notes.insert("grant".to_owned(), own);
    let refusal = match engine.admit_by(&policy, asked.clone(), limits) {
        Ok(admitted) => {
            let request = granted.request(&admitted);
            granted.verifier.check(&granted.token, &request)?;
            return Ok(admitted);
        }
        Err(AdmitError::Refused { refusal }) => refusal,
        Err(error) => return Err(error.into()),
    };
    let Some(elevation) = refusal.elevations().first().cloned() else {
        bail!(AdmitError::Refused { refusal })
    };
    asked.task.elevated.insert(elevation.clone());
    let lifted = engine.admit_by(&policy, asked.clone(), limits)?;
    let action = granted.action(&lifted, words);
    let used = granted.use_or_ask(&lifted, &action, (&elevation, &refusal))?;
    // Whoever goes ahead by an elevation stops when it ends.
    let left =
        (UNIX_EPOCH + Duration::from_secs(used.until_unix)).duration_since(SystemTime::now());
    let left = left.context("the elevation has just ended")?;
    let capped = |default| {
        let asked = limits(default);
        Limits { timeout: asked.timeout.min(left), ..asked }
    };
    Ok(engine.admit_by(&policy, asked, &capped)?)
}

impl Granted {
    fn open(file: &Path, policy: &Stack) -> anyhow::Result<Granted> {
        let home = EngineConfig::from_environment()?.home;
        let token = read_token(file)?;
        let verifier = Authority::open_existing(&home)?.verifier();
        let inspected = verifier.inspect(&token)?;
        if let Some(refused) = inspected.refused {
            return Err(refused.into());
        }
        Ok(Granted {
            token,
            verifier,
            standing: inspected.standing,
            approvals: Approvals::open(&home)?,
            approving: Approving::of(policy)?,
        })
    }

    fn request(&self, admitted: &AdmittedSpec) -> Request {
        let kind = admitted.decision().and_then(|decided| decided.kind.clone());
        let wall = admitted.spec().wall.to_string();
        let ask = Ask::Place { kind: kind.unwrap_or_else(|| "untrusted".to_owned()), wall };
        Request::new(&self.standing.task, &self.standing.tenant, ask)
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
        let ids = || Ids::default().task(Id::new(&self.standing.task));
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

/// Writes down that old rights are back.
pub(crate) fn record_returned(approvals: &Approvals) -> anyhow::Result<()> {
    for returned in approvals.returned(SystemTime::now())? {
        let why = match returned.why {
            Why::Time => Returned::Expired,
            Why::Ended(_) => Returned::Ended,
        };
        let ids = Ids::default()
            .task(Id::new(&returned.asked.action.task))
            .approval(Id::new(returned.asked.id.to_string()));
        ledger::record(ids, Event::ApprovalReturned { why, closed_streams: 0 })?;
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
