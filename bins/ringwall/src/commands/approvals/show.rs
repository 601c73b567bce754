//! Approvals for people and programs to read. All that comes from a sandbox is made printable.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_approval::{Action, Approval, Decided, Decision, Listed, State};
use serde::Serialize;

use crate::report::{self, Table, age, printable};

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    state: &'static str,
    elevation: &'a str,
    single_use: bool,
    max_seconds: u64,
    asked_by: &'a str,
    asked_unix: u64,
    expires_unix: u64,
    action: &'a Action,
    action_sha256: String,
    decision: Option<ShownDecision<'a>>,
}

#[derive(Serialize)]
struct ShownDecision<'a> {
    approved: bool,
    approver: &'a str,
    key: String,
    reason: &'a str,
    decided_unix: u64,
    until_unix: u64,
    once: bool,
}

impl<'a> Shown<'a> {
    fn of(approval: &'a Approval) -> Shown<'a> {
        let asked = &approval.asked;
        Shown {
            id: asked.id.as_str(),
            state: approval.state.word(),
            elevation: &asked.elevation,
            single_use: asked.single_use,
            max_seconds: asked.max_seconds,
            asked_by: &asked.requester.holder,
            asked_unix: asked.asked_unix,
            expires_unix: asked.expires_unix,
            action: &asked.action,
            action_sha256: asked.action.hash().to_string(),
            decision: approval.state.decision().map(ShownDecision::of),
        }
    }
}

impl<'a> ShownDecision<'a> {
    fn of(decision: &'a Decision) -> ShownDecision<'a> {
        ShownDecision {
            approved: decision.approved,
            approver: &decision.approver,
            key: decision.key.to_string(),
            reason: &decision.reason,
            decided_unix: decision.decided_unix,
            until_unix: decision.until_unix,
            once: decision.once,
        }
    }
}

pub(super) fn list(listed: &Listed, now: SystemTime, all: bool, json: bool) -> anyhow::Result<()> {
    for (id, error) in &listed.broken {
        report::note(&format!("{id} is left out: {error}"));
    }
    let shown: Vec<_> = listed
        .approvals
        .iter()
        .filter(|approval| all || approval.state == State::Pending)
        .map(Shown::of)
        .collect();
    if json {
        report::json(&shown)?;
        return Ok(());
    }
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut table =
        Table::new(["ID", "STATE", "AGE", "TASK", "ELEVATION", "SANDBOX", "ACTION", "RESOURCE"]);
    for one in &shown {
        table.row([
            one.id,
            one.state,
            &age(now.saturating_sub(one.asked_unix).saturating_mul(1000)),
            &one.action.task,
            one.elevation,
            &one.action.sandbox,
            &one.action.action,
            &beginning(&one.action.resource),
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

/// A list shows how a resource begins; `show` has all of it.
fn beginning(resource: &str) -> String {
    const MOST: usize = 60;
    match resource.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &resource[..end]),
        None => resource.to_owned(),
    }
}

pub(super) fn one(approval: &Approval, json: bool) -> anyhow::Result<()> {
    let shown = Shown::of(approval);
    if json {
        report::json(&shown)?;
        return Ok(());
    }
    report::text(words(&shown))?;
    Ok(())
}

pub(super) fn decided(decided: &Decided, json: bool) -> anyhow::Result<()> {
    let decision = &decided.decision;
    if json {
        report::json(&ShownDecision::of(decision))?;
        return Ok(());
    }
    let text = if decision.approved {
        let seconds = decision.until_unix.saturating_sub(decision.decided_unix);
        let once = if decision.once { ", once" } else { "" };
        format!("{} is approved for {seconds} seconds{once}\n", decision.id)
    } else {
        format!("{} is denied\n", decision.id)
    };
    report::text(text)?;
    Ok(())
}

/// All that a decision is about, one thing a line.
pub(crate) fn words_of(approval: &Approval) -> String {
    words(&Shown::of(approval))
}

fn words(shown: &Shown<'_>) -> String {
    let mut text = String::new();
    let action = shown.action;
    let uses = if shown.single_use { "once" } else { "as often as asked" };
    let terms = format!("for at most {} seconds, {uses}", shown.max_seconds);
    let mut lines = vec![
        ("approval", shown.id),
        ("state", shown.state),
        ("asked by", shown.asked_by),
        ("task", &action.task),
        ("tenant", &action.tenant),
        ("sandbox", &action.sandbox),
        ("incarnation", &action.incarnation),
        ("action", &action.action),
        ("resource", &action.resource),
        ("sha256", &shown.action_sha256),
        ("elevation", shown.elevation),
        ("terms", &terms),
    ];
    if let Some(decision) = &shown.decision {
        lines.push(("decided by", decision.approver));
        lines.push(("reason", decision.reason));
    }
    for (what, value) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{what:12} {}", printable(value));
    }
    for (name, value) in &action.parameters {
        let _ = writeln!(text, "with         {} = {}", printable(name), printable(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_gives_no_orders_to_a_terminal() {
        let evil = "a\x1b]0;x\x07\u{202e}b\nstate        approved".to_owned();
        let action = Action {
            task: evil.clone(),
            tenant: evil.clone(),
            action: evil.clone(),
            resource: evil.clone(),
            parameters: [(evil.clone(), evil.clone())].into(),
            sandbox: evil.clone(),
            incarnation: evil.clone(),
        };
        let shown = Shown {
            id: "apr-000000000000",
            state: "pending",
            elevation: "net",
            single_use: true,
            max_seconds: 1,
            asked_by: &evil,
            asked_unix: 0,
            expires_unix: 0,
            action: &action,
            action_sha256: action.hash().to_string(),
            decision: None,
        };
        let text = words(&shown);
        assert!(text.chars().all(|one| one == '\n' || !one.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'));
        assert_eq!(text.lines().filter(|line| line.starts_with("state")).count(), 1, "{text}");
    }
}
