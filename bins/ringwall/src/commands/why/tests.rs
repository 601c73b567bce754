//! Every kind of refusal is explained with what, why and what would allow it.

use ringwall_audit::{AdmissionDenied, Egress, EvidenceChecked, Text};

use super::*;

fn denied(rule: &str, fix: Option<&str>) -> Event {
    Event::AdmissionDenied(AdmissionDenied {
        action: Text::new("run"),
        resource: Text::new("build"),
        rule: Text::new(rule),
        reason: Text::new("builds need a container"),
        fix: fix.map(Text::new),
    })
}

#[test]
fn a_refusal_by_a_rule_names_the_rule_and_the_fix_that_was_recorded() {
    let why = refusal(&denied("ringwall.toml:7", Some("use --wall container"))).unwrap();
    assert_eq!(why.what, "run build");
    assert_eq!(why.rule, "ringwall.toml:7");
    assert_eq!(why.to_allow, "use --wall container");
}

#[test]
fn a_refusal_without_a_recorded_fix_names_the_place_to_look() {
    let fix = |rule| refusal(&denied(rule, None)).unwrap().to_allow;
    assert!(fix("ringwall.toml:7").contains("ringwall policy explain"));
    assert!(fix("grant 4f2a").contains("ringwall grant new"));
    assert!(fix("").contains("ringwall doctor"));
}

#[test]
fn a_refused_connection_names_the_host_to_allow() {
    let event = Event::Egress(Egress {
        verdict: Verdict::Denied,
        host: Text::new("example.com"),
        port: 443,
        reason: Some(Text::new("no rule allows it")),
        ..Egress::default()
    });
    let why = refusal(&event).unwrap();
    assert!(why.what.contains("example.com:443"));
    assert!(why.to_allow.contains("--net example.com"));
}

#[test]
fn a_limit_names_its_flag() {
    let flag =
        |ending| refusal(&Event::SandboxEnded { ending: Some(ending), reason: Text::new("") });
    assert!(flag(Ending::Timeout).unwrap().to_allow.contains("--timeout"));
    assert!(flag(Ending::Oom).unwrap().to_allow.contains("--memory"));
    assert!(flag(Ending::OutputLimit).unwrap().to_allow.contains("--output-limit"));
}

#[test]
fn what_was_allowed_is_no_refusal() {
    let allowed = Egress { verdict: Verdict::Allowed, ..Egress::default() };
    let whole = EvidenceChecked { passed: true, ..EvidenceChecked::default() };
    let ended =
        Event::SandboxEnded { ending: Some(Ending::Exited { code: 1 }), reason: Text::new("") };
    for event in [Event::Egress(allowed), Event::EvidenceChecked(whole), ended] {
        assert_eq!(refusal(&event), None);
    }
}
