//! One of each kind of event, for tests.

use super::*;

pub(crate) fn ids() -> Ids {
    Ids::default().task("task-1").call("call-1").sandbox("abcdefghijkl")
}

/// Every kind, so that a new one cannot be forgotten in an export.
pub(crate) fn one_of_each() -> Vec<Event> {
    let mut events = about_the_log_and_sandboxes();
    events.extend(about_rights());
    events
}

fn used() -> Usage {
    Usage {
        wall_ms: 12,
        raise_ms: 3,
        cpu_ms: Some(4),
        peak_memory_bytes: None,
        output_bytes: 5,
        sent_bytes: Some(6),
        received_bytes: Some(7),
    }
}

fn about_the_log_and_sandboxes() -> Vec<Event> {
    vec![
        Event::LogOpened { program: "ringwall".into(), version: "1".into() },
        Event::LogRecovered(LogRecovered {
            reason: "state was missing".into(),
            bytes: 0,
            sha256: None,
            moved_to: None,
        }),
        Event::PolicyLoaded(PolicyLoaded {
            digest: "sha256:1".into(),
            sources: vec!["/etc/ringwall.toml".into()],
            previous: None,
        }),
        Event::AdmissionDenied(AdmissionDenied {
            action: "raise".into(),
            resource: "process".into(),
            rule: "floor".into(),
            reason: "weaker than container".into(),
            fix: Some("--wall container".into()),
        }),
        Event::SandboxPlaced(SandboxPlaced {
            wall: "container/process".into(),
            inputs: [("kind".into(), "build".into())].into(),
            rules: vec!["route build".into()],
            limits: [("memory".into(), "512 MiB".into())].into(),
            ..SandboxPlaced::default()
        }),
        Event::SandboxRaised(SandboxRaised { wall: "container".into(), image: None, raise_ms: 9 }),
        Event::EvidenceChecked(EvidenceChecked {
            ring: "container".into(),
            passed: true,
            checks: 14,
            ..EvidenceChecked::default()
        }),
        Event::SandboxEnded { ending: Some(Ending::Timeout), reason: "time limit".into() },
        Event::CallStarted(CallStarted {
            call: CallKind::Exec,
            what: "cargo test".into(),
            parameters: Some("sha256:2".into()),
        }),
        Event::CallEnded(CallEnded {
            call: CallKind::FileWrite,
            what: "/src/a\nb.rs".into(),
            result: CallResult::Succeeded,
            ending: Some(Ending::Exited { code: 0 }),
            summary: "done".into(),
            usage: Some(used()),
            changes: Some(ChangeSummary { added: 1, modified: 2, deleted: 3 }),
        }),
        Event::WorkspaceApplied(WorkspaceApplied {
            workspace: "/home/me/project".into(),
            protected: vec![".github/x.yml".into()],
            ..WorkspaceApplied::default()
        }),
        Event::Egress(Egress {
            verdict: Verdict::Allowed,
            host: "example.com".into(),
            port: 443,
            address: Some("192.0.2.7".into()),
            rule: "allow example.com".into(),
            sent_bytes: 10,
            received_bytes: 20,
            secrets: vec!["TOKEN".into()],
            ..Egress::default()
        }),
        Event::Egress(Egress { host: "evil.example".into(), port: 80, ..Egress::default() }),
        Event::VerifyReport {
            subject: "audit log".into(),
            passed: true,
            digest: None,
            summary: "whole".into(),
        },
    ]
}

fn about_rights() -> Vec<Event> {
    vec![
        Event::GrantMinted(GrantMinted {
            holder: "agent".into(),
            summary: "tools: grep".into(),
            expires_unix_ms: Some(1),
        }),
        Event::GrantNarrowed {
            parent: "g0".into(),
            summary: "one call".into(),
            expires_unix_ms: None,
        },
        Event::GrantRevoked { by: "me".into(), reason: "done".into() },
        Event::ApprovalAsked(ApprovalAsked {
            action: "egress".into(),
            resource: "example.com".into(),
            rule: "ask".into(),
            request: "sha256:3".into(),
            expires_unix_ms: Some(2),
        }),
        Event::ApprovalApproved(ApprovalApproved {
            by: "me".into(),
            reason: "needed".into(),
            request: "sha256:3".into(),
            until_unix_ms: Some(3),
            single_use: true,
        }),
        Event::ApprovalDenied { by: "me".into(), reason: "no".into() },
        Event::ApprovalUsed { request: "sha256:3".into() },
        Event::ApprovalReturned { why: Returned::Used, closed_streams: 1 },
        Event::ElevationGranted { right: "egress".into(), until_unix_ms: 4 },
        Event::ElevationReturned {
            right: "egress".into(),
            why: Returned::Expired,
            closed_streams: 0,
        },
        Event::PhaseChanged { from: Some("plan".into()), to: "implement".into(), by: "me".into() },
        Event::TaintSet { source: "fetch".into(), label: "web".into() },
    ]
}
