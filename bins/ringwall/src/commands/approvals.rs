//! `ringwall approvals`: what waits for a person, and the person's answer. The answer is signed with
//! the person's own key, which is not in the engine's home.

mod show;

pub(crate) use show::words_of;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use ringwall_approval::{
    Answer, ApprovalId, Approvals, Approver, Decided, ElevationRule, Verdict, default_place,
    load_key, make_key,
};
use ringwall_engine::{EngineConfig, PolicySearch};
use ringwall_grant::SecretKey;
use ringwall_rules::Stack;
use serde_json::{Value, json};

use crate::args::{ApprovalsVerb, DecisionArgs, KeyArgs};
use crate::{daemon, granted, ledger, report};

/// Who may approve which elevation.
#[derive(Debug, Default)]
pub(crate) struct Approving {
    pub(crate) approvers: Vec<Approver>,
    pub(crate) rules: Vec<ElevationRule>,
}

pub(super) fn run(verb: &ApprovalsVerb) -> anyhow::Result<()> {
    match verb {
        ApprovalsVerb::Ls { all, output } => {
            let now = SystemTime::now();
            let approvals = open()?;
            granted::record_returned(&approvals)?;
            show::list(&approvals.list(now)?, now, *all, output.json())
        }
        ApprovalsVerb::Show { id, output } => {
            show::one(&open()?.get(id, SystemTime::now())?, output.json())
        }
        ApprovalsVerb::Approve { decision, lasting } => {
            decide(decision, Verdict::Approve { lasting: *lasting })
        }
        ApprovalsVerb::Deny { decision } => decide(decision, Verdict::Deny),
        ApprovalsVerb::Page { key } => page(key),
        ApprovalsVerb::Keygen { key } => keygen(key),
    }
}

impl Approving {
    /// The approvers and elevations of a policy. Without any, nobody may approve.
    pub(crate) fn of(stack: &Stack) -> anyhow::Result<Approving> {
        let mut approving = Approving::default();
        let terms = stack.elevation_names().into_iter().filter_map(|name| stack.elevation(&name));
        for terms in terms {
            let (rule, people) = ElevationRule::from_terms(
                &terms.name,
                &terms.approvers,
                terms.max,
                terms.single_use,
            )?;
            approving.rules.push(rule);
            approving.approvers.extend(people);
        }
        Ok(approving)
    }
}

fn decide(args: &DecisionArgs, verdict: Verdict) -> anyhow::Result<()> {
    let policy = PolicySearch::from_environment(std::env::current_dir().ok()).load()?;
    let key = key_place(args.key.file.clone())?;
    let decided = decide_on(&args.id, (verdict, &args.reason), &key, &policy)?;
    show::decided(&decided, args.output.json())
}

/// Decides with the key in this file, under this policy, and writes it into the audit log.
pub(crate) fn decide_on(
    id: &ApprovalId,
    (verdict, reason): (Verdict, &str),
    key: &Path,
    policy: &Stack,
) -> anyhow::Result<Decided> {
    let home = EngineConfig::from_environment()?.home;
    let key = load_key(key, &home)?;
    let decided = answer(&open()?, id, verdict, reason, &key, &Approving::of(policy)?)?;
    ledger::write(decided.event())?;
    Ok(decided)
}

/// The person's answer, under the rule that policy has for what was asked.
fn answer(
    approvals: &Approvals,
    id: &ApprovalId,
    verdict: Verdict,
    reason: &str,
    key: &SecretKey,
    approving: &Approving,
) -> anyhow::Result<Decided> {
    let now = SystemTime::now();
    let asked = approvals.get(id, now)?.asked;
    let rule = approving.rules.iter().find(|rule| rule.name.as_str() == asked.elevation);
    let Some(rule) = rule else {
        bail!(
            "the policy in force offers no elevation {:?}, so nobody may decide on it; write it into ringwall.toml",
            asked.elevation
        );
    };
    let answer =
        Answer { verdict, reason, key, approvers: &approving.approvers, rule, presented: &[] };
    Ok(approvals.decide(id, &answer, now)?)
}

/// Has the daemon let one person in. What that one decides there is signed with this key.
fn page(args: &KeyArgs) -> anyhow::Result<()> {
    let home = EngineConfig::from_environment()?.home;
    let key = std::path::absolute(key_place(args.file.clone())?)?;
    // Told here in the same words as for every other use of it.
    load_key(&key, &home)?;
    let Some(stream) = daemon::connect(&home) else {
        bail!(
            "no daemon answers, and only one that listens has a page; start it with `ringwall serve --listen 127.0.0.1:8400`, or decide with `ringwall approvals ls`"
        );
    };
    let key = key.to_str().context("the path of the key is not UTF-8")?;
    let (status, body) = daemon::post(stream, "/v1/approvals/page", &json!({ "key": key }))?;
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    match (status, text("url")) {
        (200, Some(url)) => {
            report::text(format!("{url}\n"))?;
            report::note("open it within two minutes; it lets one person in, once");
            Ok(())
        }
        _ => bail!("{}", text("detail").unwrap_or("the daemon gave no reason")),
    }
}

fn keygen(args: &KeyArgs) -> anyhow::Result<()> {
    let home = EngineConfig::from_environment()?.home;
    let path = key_place(args.file.clone())?;
    let public = make_key(&path, &home)?;
    report::text(format!("{public}\n"))?;
    report::note(&format!(
        "your key is in {}; keep it to yourself, and have the line above written into the policy as yours",
        path.display()
    ));
    Ok(())
}

/// The file of the person's key: the one that was named, or the usual one.
pub(crate) fn key_place(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    match named {
        Some(file) => Ok(file),
        None => Ok(default_place(variable("XDG_CONFIG_HOME"), variable("HOME"))?),
    }
}

fn open() -> anyhow::Result<Approvals> {
    let home = EngineConfig::from_environment()?.home;
    Approvals::open(&home).context("the approvals cannot be opened")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringwall_approval::Action;
    use ringwall_grant::{Ask, Authority, Name, Request, Rights};

    use super::*;

    #[test]
    fn an_answer_needs_a_rule_of_the_policy_and_an_approver_of_it() {
        let home = tempfile::tempdir().unwrap();
        let name = |text: &str| text.parse::<Name>().unwrap();
        let authority = Authority::open(home.path()).unwrap();
        let rights = Rights::none(name("t"), name("local"), name("agent"));
        let token = authority.mint(&rights, Duration::from_secs(60)).unwrap().token;
        let request = Request::new("t", "local", Ask::Tool { name: "rm".to_owned() });
        let action = Action::of(&request, [].into(), "box", "1");
        let rule = ElevationRule {
            name: name("tools"),
            approvers: vec![name("alice")],
            max: Duration::from_secs(60),
            single_use: true,
        };
        let approvals = Approvals::open(home.path()).unwrap();
        let asked =
            approvals.ask(&authority.verifier(), &token, &request, &action, &rule, None).unwrap();
        let key = SecretKey::generate().unwrap();
        let yes = Verdict::Approve { lasting: None };
        let say = |approving| answer(&approvals, &asked.id, yes, "fine", &key, &approving);
        let told = say(Approving::default()).unwrap_err().to_string();
        assert!(told.contains("offers no elevation \"tools\""), "{told}");
        let without = Approving { approvers: Vec::new(), rules: vec![rule.clone()] };
        let told = say(without).unwrap_err().to_string();
        assert!(told.contains(&key.public().to_string()), "{told}");
        let alice = Approver { name: name("alice"), groups: Vec::new(), key: key.public() };
        let decided = say(Approving { approvers: vec![alice], rules: vec![rule] }).unwrap();
        assert!(decided.decision.approved && decided.decision.once);
    }
}
