//! Every event as one sentence, for people.

use std::fmt;

use crate::event::{CallEnded, CallKind, CallResult, Egress, Event, Returned, Verdict};
use crate::text::Text;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::LogOpened { program, version } => write!(f, "log begun by {program} {version}"),
            Event::LogRecovered(event) if event.bytes > 0 => {
                write!(f, "{} bytes moved aside: {}", event.bytes, event.reason)
            }
            Event::LogRecovered(event) => write!(f, "log put right: {}", event.reason),
            Event::PolicyLoaded(event) => {
                let changed = if event.previous.is_some() { "changed to" } else { "loaded:" };
                write!(f, "policy {changed} {}", event.digest)?;
                from(f, &event.sources)
            }
            Event::AdmissionDenied(event) => {
                write!(f, "denied {} {}", event.action, event.resource)?;
                // What a host lacks is no rule.
                if !event.rule.as_str().is_empty() {
                    write!(f, " by {}", event.rule)?;
                }
                write!(f, ": {}", event.reason)
            }
            Event::SandboxPlaced(event) => {
                write!(f, "placed behind {}", event.wall)?;
                from(f, &event.rules)
            }
            Event::SandboxRaised(event) => {
                write!(f, "raised {} in {} ms", event.wall, event.raise_ms)
            }
            Event::EvidenceChecked(event) if event.passed => {
                write!(f, "{} ring is there: {} layers checked", event.ring, event.checks)
            }
            Event::EvidenceChecked(event) => {
                write!(f, "{} ring is not whole", event.ring)?;
                from(f, &event.missing)
            }
            Event::SandboxEnded { reason, .. } => write!(f, "sandbox ended: {reason}"),
            Event::CallStarted(event) => write!(f, "{} started: {}", word(event.call), event.what),
            Event::CallEnded(event) => call_ended(f, event),
            Event::WorkspaceApplied(event) => {
                let changes = event.changes;
                write!(f, "changes applied to {}: ", event.workspace)?;
                write!(f, "+{} ~{} -{}", changes.added, changes.modified, changes.deleted)
            }
            _ => about_rights(f, self),
        }
    }
}

fn about_rights(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    match event {
        Event::GrantMinted(event) => write!(f, "grant for {}: {}", event.holder, event.summary),
        Event::GrantNarrowed { parent, summary, .. } => {
            write!(f, "grant narrowed from {parent}: {summary}")
        }
        Event::GrantRevoked { by, reason } => write!(f, "grant revoked by {by}: {reason}"),
        Event::ApprovalAsked(event) => {
            write!(f, "approval asked for {} {} by {}", event.action, event.resource, event.rule)
        }
        Event::ApprovalApproved(event) => write!(f, "approved by {}: {}", event.by, event.reason),
        Event::ApprovalDenied { by, reason } => write!(f, "approval denied by {by}: {reason}"),
        Event::ApprovalUsed { request } => write!(f, "approval used for {request}"),
        Event::ApprovalReturned { why, .. } => write!(f, "approval returned: {}", reason(*why)),
        Event::ElevationGranted { right, .. } => write!(f, "elevation granted: {right}"),
        Event::ElevationReturned { right, why, .. } => {
            write!(f, "elevation returned: {right}, {}", reason(*why))
        }
        Event::PhaseChanged { from: Some(from), to, by } => {
            write!(f, "phase changed from {from} to {to} by {by}")
        }
        Event::PhaseChanged { from: None, to, by } => write!(f, "phase {to} begun by {by}"),
        Event::TaintSet { source, label } => write!(f, "tainted as {label} by {source}"),
        Event::Egress(event) => egress(f, event),
        Event::VerifyReport { subject, passed, summary, .. } => {
            let passed = if *passed { "passed" } else { "failed" };
            write!(f, "check of {subject} {passed}: {summary}")
        }
        _ => f.write_str("an event of a later version"),
    }
}

fn egress(f: &mut fmt::Formatter<'_>, event: &Egress) -> fmt::Result {
    let verdict = match event.verdict {
        Verdict::Allowed => "allowed",
        Verdict::Denied => "denied",
    };
    write!(f, "{verdict} {}:{} by {}", event.host, event.port, event.rule)?;
    if let Some(reason) = &event.reason {
        write!(f, ": {reason}")?;
    }
    if event.verdict == Verdict::Allowed {
        write!(f, ", {} bytes out, {} in", event.sent_bytes, event.received_bytes)?;
    }
    Ok(())
}

fn call_ended(f: &mut fmt::Formatter<'_>, event: &CallEnded) -> fmt::Result {
    let result = match event.result {
        CallResult::Succeeded => "succeeded",
        CallResult::Failed => "failed",
        CallResult::Denied => "denied",
    };
    write!(f, "{} {result}: {}", word(event.call), event.what)?;
    if event.summary.as_str().is_empty() { Ok(()) } else { write!(f, ": {}", event.summary) }
}

fn from(f: &mut fmt::Formatter<'_>, items: &[Text]) -> fmt::Result {
    for (place, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if place == 0 { ": " } else { ", " })?;
    }
    Ok(())
}

fn word(call: CallKind) -> &'static str {
    match call {
        CallKind::Exec => "command",
        CallKind::Tool => "tool",
        CallKind::FileRead => "reading",
        CallKind::FileWrite => "writing",
        CallKind::FileDelete => "deleting",
    }
}

fn reason(why: Returned) -> &'static str {
    match why {
        Returned::Used => "it was used",
        Returned::Expired => "it expired",
        Returned::Revoked => "it was revoked",
        Returned::Ended => "what it was for has ended",
    }
}
