//! `ringwall why`: the last refusal, its rule, and the way to allow it.

use std::process::ExitCode;

use ringwall_audit::{AuditPaths, CallResult, Event, LogReader, ReadError, Stored, Verdict};
use ringwall_engine::EngineConfig;
use ringwall_spec::Ending;
use serde::Serialize;

use super::open_engine;
use crate::args::WhyArgs;
use crate::report::{self, printable, utc};

#[cfg(test)]
mod tests;

/// One refusal, in the order in which a person asks about it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Refusal {
    what: String,
    /// Empty where no rule decided, but what this machine can do or a limit.
    rule: String,
    because: String,
    to_allow: String,
}

pub(super) fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let log = AuditPaths::in_home(&EngineConfig::from_environment()?.home).log();
    let id = args.id.as_deref().map(id_of).transpose()?;
    let wanted = |record: &Stored| {
        refusal(&record.event).is_some() && id.as_deref().is_none_or(|id| belongs_to(record, id))
    };
    let records = match LogReader::last_where(&log, usize::try_from(args.lines)?, wanted) {
        Ok((records, _)) => records,
        Err(ReadError::NoLog(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let refused = records.iter().filter_map(|record| Some((record, refusal(&record.event)?)));
    if args.output.json() {
        let all: Vec<_> = refused
            .map(|(record, why)| {
                serde_json::json!({"record": record.seq, "time": record.time, "ids": record.ids, "refusal": why})
            })
            .collect();
        report::json(&all)?;
    } else if records.is_empty() {
        let whose = id.map(|id| format!(" for {}", printable(&id))).unwrap_or_default();
        report::text(format!("nothing was refused{whose}\n"))?;
    } else {
        let screens: Vec<String> = refused.map(|(record, why)| screen(record, &why)).collect();
        report::text(screens.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The log knows sandboxes by id, people also by name. A name without a sandbox may be a task, a call, a
/// grant or a sandbox that is gone.
fn id_of(named: &str) -> anyhow::Result<String> {
    let found = open_engine()?.find(named);
    Ok(found.map_or_else(|_| named.to_owned(), |record| record.id.to_string()))
}

fn belongs_to(record: &Stored, id: &str) -> bool {
    let ids = &record.ids;
    [&ids.sandbox, &ids.task, &ids.call, &ids.grant, &ids.approval]
        .into_iter()
        .flatten()
        .any(|known| known.as_str() == id)
}

/// What a record refused, if it did.
fn refusal(event: &Event) -> Option<Refusal> {
    let (what, rule, because, to_allow) = match event {
        Event::AdmissionDenied(denied) => {
            let rule = denied.rule.to_string();
            let fix = denied.fix.as_ref().map(ToString::to_string);
            let to_allow = fix.unwrap_or_else(|| fix_of_rule(&rule));
            (
                format!("{} {}", denied.action, denied.resource),
                rule,
                denied.reason.to_string(),
                to_allow,
            )
        }
        Event::Egress(egress) if egress.verdict == Verdict::Denied => {
            let target = format!("{}:{}", egress.host, egress.port);
            let request =
                egress.request.as_ref().map(|line| format!(" ({line})")).unwrap_or_default();
            (
                format!("a connection to {target}{request}"),
                egress.rule.to_string(),
                egress.reason.as_ref().map(ToString::to_string).unwrap_or_default(),
                format!(
                    "`--net {}` on the command, or [[network.allow]] in the policy; `ringwall net explain` tries a rule first",
                    egress.host
                ),
            )
        }
        Event::EvidenceChecked(checked) if !checked.passed => {
            let missing: Vec<String> = checked.missing.iter().map(ToString::to_string).collect();
            (
                format!("to start behind the {} ring", checked.ring),
                String::new(),
                format!("the ring was not as planned: {}", missing.join(", ")),
                "`ringwall doctor` says what this machine lacks and how to fix it".to_owned(),
            )
        }
        Event::SandboxEnded { ending, reason } => return ended(*ending, reason.as_str()),
        Event::CallEnded(call) if call.result != CallResult::Denied => {
            let at_limit = call.ending.and_then(limit)?;
            let what = format!("{}, for {}", at_limit.what, call.what);
            return Some(Refusal { what, ..at_limit });
        }
        Event::CallEnded(call) => (
            call.what.to_string(),
            String::new(),
            call.summary.to_string(),
            "`ringwall policy explain` shows which rule decides".to_owned(),
        ),
        Event::ApprovalDenied { by, reason } => (
            "an approval".to_owned(),
            format!("the answer of {by}"),
            reason.to_string(),
            "ask again; `ringwall approvals` lists what waits for an answer".to_owned(),
        ),
        Event::ApprovalAsked(asked) => (
            format!("{} {}", asked.action, asked.resource),
            asked.rule.to_string(),
            "the rule wants a person to approve it".to_owned(),
            "`ringwall approvals` lists what waits for an answer".to_owned(),
        ),
        _ => return None,
    };
    Some(Refusal { what, rule, because, to_allow })
}

/// How a sandbox ended, where it was not the command that decided to.
fn ended(ending: Option<Ending>, reason: &str) -> Option<Refusal> {
    if let Some(at_limit) = ending.and_then(limit) {
        return Some(at_limit);
    }
    let (what, to_allow) = match ending {
        _ if reason.is_empty() => return None,
        None => ("to start", "`ringwall doctor` says what works on this machine"),
        Some(_) => ("to continue", "`ringwall audit tail` shows what came before"),
    };
    Some(Refusal {
        what: what.to_owned(),
        rule: String::new(),
        because: reason.to_owned(),
        to_allow: to_allow.to_owned(),
    })
}

/// An ending at a limit, with the flag that raises the limit.
fn limit(ending: Ending) -> Option<Refusal> {
    let (what, flag) = match ending {
        Ending::Timeout => ("time", "--timeout"),
        Ending::Oom => ("memory", "--memory"),
        Ending::OutputLimit => ("output", "--output-limit"),
        _ => return None,
    };
    Some(Refusal {
        what: format!("more {what}"),
        rule: format!("the {what} limit"),
        because: "the limit was reached".to_owned(),
        to_allow: format!("give more with `{flag}`"),
    })
}

fn fix_of_rule(rule: &str) -> String {
    let fix = if rule.is_empty() {
        "`ringwall doctor` says what this machine lacks and how to fix it"
    } else if rule.starts_with("grant") {
        "use a grant that has this right; `ringwall grant new` makes one"
    } else {
        "change that rule; `ringwall policy explain` and `ringwall policy test` try it first"
    };
    fix.to_owned()
}

fn screen(record: &Stored, why: &Refusal) -> String {
    let ids = &record.ids;
    let whose: Vec<String> =
        [("sandbox", &ids.sandbox), ("task", &ids.task), ("grant", &ids.grant)]
            .into_iter()
            .filter_map(|(kind, id)| Some(format!("{kind} {}", id.as_ref()?)))
            .collect();
    let lines = [
        ("refused", why.what.as_str()),
        ("rule", why.rule.as_str()),
        ("because", why.because.as_str()),
        ("to allow", why.to_allow.as_str()),
        ("for", &whose.join(", ")),
        ("when", &format!("{}, `ringwall audit show {}`", utc(record.time), record.seq)),
    ];
    let shown = lines.into_iter().filter(|(_, text)| !text.is_empty());
    shown.map(|(name, text)| format!("{name:<10}{}\n", printable(text))).collect()
}
