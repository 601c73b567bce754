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
use ringwall_policy::Stack;
use serde_json::{Value, json};

use crate::args::{ApprovalsVerb, DecisionArgs, KeyArgs};
use crate::{daemon, granted, ledger, report};

pub(super) fn run(verb: &ApprovalsVerb) -> anyhow::Result<()> {
    match verb {
        ApprovalsVerb::Ls { all, output } => {
            let now = SystemTime::now();
            let approvals = open()?;
            granted::books()?.record_returned(&approvals)?;
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
    let approvals = open()?;
    let elevation = approvals.get(id, SystemTime::now())?.asked.elevation;
    let terms = ringwall_desk::terms(policy, &elevation)?;
    let decided = answer(&approvals, id, verdict, reason, &key, terms)?;
    ledger::write(decided.event())?;
    Ok(decided)
}

/// The person's answer, under the policy's rule for the requested action.
fn answer(
    approvals: &Approvals,
    id: &ApprovalId,
    verdict: Verdict,
    reason: &str,
    key: &SecretKey,
    terms: Option<(ElevationRule, Vec<Approver>)>,
) -> anyhow::Result<Decided> {
    let now = SystemTime::now();
    let asked = approvals.get(id, now)?.asked;
    let Some((rule, approvers)) = terms else {
        bail!(
            "the policy in force offers no elevation {:?}, so nobody may decide on it; write it into ringwall.toml",
            asked.elevation
        );
    };
    let answer =
        Answer { verdict, reason, key, approvers: &approvers, rule: &rule, presented: &[] };
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
        let say = |terms| answer(&approvals, &asked.id, yes, "fine", &key, terms);
        let told = say(None).unwrap_err().to_string();
        assert!(told.contains("offers no elevation \"tools\""), "{told}");
        let told = say(Some((rule.clone(), Vec::new()))).unwrap_err().to_string();
        assert!(told.contains(&key.public().to_string()), "{told}");
        let alice = Approver { name: name("alice"), groups: Vec::new(), key: key.public() };
        let decided = say(Some((rule, vec![alice]))).unwrap();
        assert!(decided.decision.approved && decided.decision.once);
    }

    const USERS: &str = "version = 1\n\
        [[approver]]\nname = \"ann\"\nkey = \"USERS-KEY\"\n\
        [[elevation]]\nname = \"net\"\ngrants = [\"connect:a.example\"]\napprovers = [\"ann\"]\nmax = \"1h\"\n";

    /// The approvers of the user's elevation, as a workspace with a file of its own has them.
    fn with_workspace(users: &SecretKey, cloned: &str, theirs: &SecretKey) -> Vec<Approver> {
        let (directory, user_directory) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (of_user, of_workspace) =
            (user_directory.path().join("ringwall.toml"), directory.path().join("ringwall.toml"));
        let text = |text: &str| {
            let users = text.replace("USERS-KEY", &users.public().to_string());
            users.replace("OTHER-KEY", &theirs.public().to_string())
        };
        std::fs::write(&of_user, text(USERS)).unwrap();
        std::fs::write(&of_workspace, text(cloned)).unwrap();
        let search = PolicySearch {
            workspace: Some(directory.path().to_owned()),
            user_file: Some(of_user),
            ..PolicySearch::default()
        };
        ringwall_desk::terms(&search.load().unwrap(), "net").unwrap().unwrap().1
    }

    #[test]
    fn a_workspace_names_no_approver_of_the_users_elevations() {
        let (users, theirs) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let approver = "[[approver]]\nname = \"ann\"\nkey = \"OTHER-KEY\"\n";
        let elevation = |name: &str, approvers: &str| {
            format!(
                "[[elevation]]\nname = \"{name}\"\ngrants = [\"connect:a.example\"]\n\
                 approvers = [{approvers}]\nmax = \"1h\"\n"
            )
        };
        let group = "[[approver]]\nname = \"bob\"\nkey = \"OTHER-KEY\"\ngroups = [\"ann\"]\n";
        for cloned in [
            format!("version = 1\n{approver}{}", elevation("own", "\"ann\"")),
            format!("version = 1\n{approver}{}", elevation("aaa", "\"ann\"")),
            format!("version = 1\n{approver}{}", elevation("net", "\"ann\"")),
            format!("version = 1\n{group}{}", elevation("zzz", "\"group:ann\"")),
        ] {
            let approvers = with_workspace(&users, &cloned, &theirs);
            let theirs = theirs.public();
            assert!(approvers.iter().all(|approver| approver.key != theirs), "{cloned}");
        }
        let approvers = with_workspace(&users, "version = 1\n", &theirs);
        assert_eq!(approvers[0].key, users.public());
    }
}
