//! Verdicts, from accounts and sights.

use std::path::PathBuf;

use super::*;

fn probe(name: &str) -> Probe {
    ringwall_probes::all().into_iter().find(|probe| probe.name == name).unwrap()
}

fn verdict(name: &str, tried: Option<Tried>, wall: &str, seen: &Seen) -> Verdict {
    let wall: Wall = wall.parse().unwrap();
    let account = tried.map(|tried| Account { probe: name.to_owned(), tried });
    let known = Known {
        wall: Some(&wall),
        seen,
        secret_in: &|text| text.contains("hidden"),
        ending: "Timeout",
        started: true,
    };
    judge(&probe(name), account.as_ref(), &known).verdict
}

fn worked(text: &str) -> Option<Tried> {
    Some(Tried::Succeeded(text.to_owned()))
}

fn failed() -> Option<Tried> {
    Some(Tried::Failed("no".to_owned()))
}

#[test]
fn a_secret_that_was_printed_is_a_breach_and_is_not_told_on() {
    let seen = Seen::default();
    assert_eq!(verdict("read-secret", worked("hidden"), "vm", &seen), Verdict::Breach);
    // Something was read, but not the hidden text.
    assert_eq!(verdict("read-secret", worked("other"), "process", &seen), Verdict::Blocked);
    let account = Account { probe: "read-secret".into(), tried: worked("hidden").unwrap() };
    let known = Known {
        wall: None,
        seen: &seen,
        secret_in: &|text| text.contains("hidden"),
        ending: "",
        started: true,
    };
    assert!(!judge(&probe("read-secret"), Some(&account), &known).detail.contains("hidden"));
}

#[test]
fn a_write_counts_when_the_host_sees_it_and_not_when_the_attack_says_so() {
    let changed = Seen { changed: vec![PathBuf::from("/canary")], ..Seen::default() };
    assert_eq!(
        verdict("write-canary", worked(""), "container", &Seen::default()),
        Verdict::Blocked
    );
    assert_eq!(verdict("write-canary", worked(""), "container", &changed), Verdict::Breach);
    assert_eq!(verdict("write-canary", failed(), "container", &changed), Verdict::Blocked);
    // Then an attack must explain it.
    assert!(unexplained(&[], &changed));
}

#[test]
fn a_listener_names_whom_it_heard() {
    let heard = Seen { heard: vec!["mark udp".to_owned()], ..Seen::default() };
    assert_eq!(verdict("udp", failed(), "process", &heard), Verdict::Breach);
    assert_eq!(verdict("tcp", worked(""), "process", &heard), Verdict::Blocked);
}

#[test]
fn a_kernel_of_its_own_contains_what_a_shared_one_must_stop() {
    let seen = Seen::default();
    assert_eq!(verdict("bpf", worked(""), "vm", &seen), Verdict::Contained);
    assert_eq!(verdict("bpf", worked(""), "vm/container", &seen), Verdict::Breach);
    assert_eq!(verdict("bpf", worked(""), "container", &seen), Verdict::Breach);
    assert_eq!(verdict("bpf", failed(), "container", &seen), Verdict::Blocked);
    assert_eq!(verdict("make-whiteout", worked(""), "vm/process", &seen), Verdict::Contained);
    assert_eq!(verdict("make-whiteout", worked(""), "process", &seen), Verdict::Breach);
    // An object of the host stays the host's behind every wall.
    assert_eq!(verdict("network-devices", worked(""), "vm", &seen), Verdict::Breach);
}

#[test]
fn an_attack_that_was_not_made_is_not_counted_as_stopped() {
    let seen = Seen::default();
    let impossible = Some(Tried::Impossible("nothing there".to_owned()));
    assert_eq!(verdict("bpf", impossible, "process", &seen), Verdict::NotTested);
    assert_eq!(verdict("bpf", None, "process", &seen), Verdict::NotTested);
    // But one that only the end of the sandbox can stop was stopped by it.
    assert_eq!(verdict("exhaust-memory", None, "process", &seen), Verdict::Blocked);
    assert_eq!(verdict("exhaust-memory", worked(""), "vm", &seen), Verdict::Breach);
}

#[test]
fn a_process_that_is_left_or_lost_is_a_breach() {
    let left = Seen { survivors: vec![7], ..Seen::default() };
    assert_eq!(verdict("outlive", worked(""), "process", &left), Verdict::Breach);
    assert_eq!(verdict("outlive", worked(""), "process", &Seen::default()), Verdict::Blocked);
    let gone = Seen { victim_gone: true, ..Seen::default() };
    assert_eq!(verdict("signal-process", worked(""), "process", &gone), Verdict::Breach);
}
