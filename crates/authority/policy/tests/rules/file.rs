//! What is wrong with a file is refused with its place, and who could have written it counts.

use crate::common;
use crate::common::{layer, shipped_but};
use ringwall_policy::*;

fn fault(text: &str) -> Fault {
    match Stack::load(vec![layer(OriginKind::User, text)]) {
        Err(LoadError::Wrong(fault)) => fault,
        other => panic!("expected a fault, got {other:?}"),
    }
}

#[test]
fn unknown_keys_are_refused_with_place_and_suggestion() {
    let found = fault("version = 1\n\n[trust-levels.low]\nnetwrok = \"none\"\ntools = \"all\"\n");
    assert_eq!((found.line, found.column), (4, 1), "{found}");
    assert!(found.message.contains("did you mean \"network\"?"), "{found}");
    let found = fault("version = 1\ntrsut = \"low\"\n");
    assert_eq!(found.line, 2);
    assert!(found.message.contains("did you mean \"trust\"?"), "{found}");
}

#[test]
fn keys_of_earlier_versions_are_answered_with_their_new_names() {
    for (text, new) in [
        ("version = 1\ntier = \"low\"\n", "trust"),
        ("version = 1\nprofile = \"low\"\n", "risk"),
        ("version = 1\n[tiers.low]\nnetwork = \"none\"\ntools = \"all\"\n", "trust-levels"),
        ("version = 1\n[profiles]\nlow = \"process\"\n", "risk-levels"),
    ] {
        let found = fault(text);
        assert!(found.message.contains(&format!("is called {new} now")), "{found}");
        assert_eq!(found.line, 2, "{found}");
    }
    let elsewhere = fault("version = 1\n[limits]\ntier = \"low\"\n");
    assert!(!elsewhere.message.contains("is called"), "{elsewhere}");
}

#[test]
fn wrong_values_are_refused_with_place_and_suggestion() {
    for (text, line, near) in [
        ("version = 1\nrisk = \"hgih\"\n", 2, "did you mean \"high\"?"),
        ("version = 1\n[routes]\nbuild = [\"contianer\"]\n", 3, "did you mean \"container\"?"),
        ("version = 1\n[routes]\nbuild = [\"container/vm\"]\n", 3, "policy knows no wall"),
        ("version = 1\n[routes]\nbuild = []\n", 3, "at least one wall"),
        ("version = 2\n", 1, "version = 1"),
        ("version = 1\n[limits]\nmemory = \"much\"\n", 3, "is not a size"),
        ("version = 1\n[limits]\ntimeout = \"9999h\"\n", 2, "outside"),
        (
            "version = 1\n[trust-levels.low]\nnetwork = \"none\"\ntools = \"all\"\nread = [\"tmp/**\"]\n",
            5,
            "start it with /",
        ),
        ("version = 1\nphase = \"plan\"\n[phases.plans]\n", 2, "did you mean \"plans\"?"),
        (
            "version = 1\n[[network.allow]]\nhost = \"*ample.com\"\n",
            3,
            "*.example.com for one label",
        ),
        ("version = 1\nversion = 1\n", 2, "duplicate key"),
        ("version = ", 1, ""),
    ] {
        let found = fault(text);
        assert_eq!(found.line, line, "{text}: {found}");
        assert!(found.message.contains(near), "{text}: {found}");
    }
}

#[test]
fn a_secret_is_declared_and_goes_to_one_host() {
    let allow = "[[network.allow]]\nhost = \"*.example.com\"\nsecret = \"github\"\n";
    let found = fault(&format!("version = 1\nsecrets = [\"github\"]\n{allow}"));
    assert!(found.message.contains("name one host"), "{found}");
    let allow = "[[network.allow]]\nhost = \"api.example.com\"\nsecret = \"githbu\"\n";
    let found = fault(&format!("version = 1\nsecrets = [\"github\"]\n{allow}"));
    assert!(found.message.contains("did you mean \"github\"?"), "{found}");
}

#[test]
fn a_rule_that_could_not_be_kept_is_refused() {
    let text = "version = 1\n[[network.allow]]\nhost = \"x.org\"\npassthrough = true\nmethods = [\"GET\"]\n";
    assert!(fault(text).message.contains("passthrough"));
    let found = fault("version = 1\n[network]\npresets = [\"open\", \"packages\"]\n");
    assert!(found.message.contains("stand alone"), "{found}");
    let key = "ed25519/".to_owned() + &"00".repeat(32);
    let text = format!(
        "version = 1\n[[approver]]\nname = \"ann\"\nkey = \"{key}\"\n[[elevation]]\nname = \"net\"\n\
         grants = [\"connect:*.x.org\"]\napprovers = [\"anne\"]\nmax = \"1h\"\n"
    );
    assert!(fault(&text).message.contains("did you mean \"ann\"?"));
}

#[test]
fn sizes_and_counts_are_bounded() {
    let long = format!("version = 1\n#{}", "x".repeat(MOST_BYTES));
    let refused = Stack::load(vec![layer(OriginKind::User, &long)]);
    assert!(matches!(refused, Err(LoadError::TooLarge { .. })));
    let many = "[[network.allow]]\nhost = \"x.org\"\n".repeat(4097);
    assert!(fault(&format!("version = 1\n{many}")).message.contains("at most 4096"));
    let deep = format!("version = 1\nx = {}{}", "[".repeat(20_000), "]".repeat(20_000));
    assert!(Stack::load(vec![layer(OriginKind::User, &deep)]).is_err());
}

#[test]
fn without_a_policy_of_ones_own_nothing_is_allowed() {
    assert_eq!(Stack::load(Vec::new()).unwrap_err(), LoadError::Absent);
    let cloned = layer(OriginKind::Workspace, DEFAULT_POLICY);
    assert!(matches!(Stack::load(vec![cloned]), Err(LoadError::OnlyWorkspace(_))));
}

#[test]
fn a_policy_that_others_could_have_written_is_refused_but_a_workspaces_is_not() {
    let foreign = FileFacts { foreign_owner: true, ..FileFacts::default() };
    let open = FileFacts { writable_by_others: true, ..FileFacts::default() };
    let inside = FileFacts { writable_by_sandbox: true, ..FileFacts::default() };
    for facts in [foreign, open, inside] {
        for origin in [OriginKind::System, OriginKind::User, OriginKind::Named] {
            let text = LayerText { facts, ..layer(origin, DEFAULT_POLICY) };
            assert!(Stack::load(vec![text]).is_err(), "{origin:?} {facts:?}");
        }
        let narrowing = LayerText { facts, ..layer(OriginKind::Workspace, "version = 1\n") };
        // Its own sandbox must not write it either: it would narrow the next run less.
        let loaded = Stack::load(vec![Stack::built_in(), narrowing]);
        assert_eq!(loaded.is_ok(), !facts.writable_by_sandbox);
    }
}

fn with_rails(rails: &str) -> Result<Stack, LoadError> {
    let rails = GuardRailText { path: "ringwall.cedar".into(), text: rails.to_owned() };
    let text = LayerText { guard_rails: Some(rails), ..layer(OriginKind::User, DEFAULT_POLICY) };
    Stack::load(vec![text])
}

#[test]
fn a_guard_rail_forbids_and_is_named() {
    let stack = with_rails(
        "// nobody writes keys\n@id(\"no-keys\")\nforbid(principal, action == Action::\"write\", resource)\n\
         when { resource.path like \"*.pem\" };",
    )
    .unwrap();
    let task = common::task(Trust::High);
    let denied = stack.decide(&task, &Action::Write(common::path("./key.pem")));
    assert!(!denied.allowed);
    assert_eq!(
        (denied.rules[0].rule.as_str(), denied.rules[0].line),
        ("guard-rail no-keys", Some(2))
    );
    assert!(stack.decide(&task, &Action::Write(common::path("./key.txt"))).allowed);
}

#[test]
fn a_guard_rail_that_permits_or_could_fail_is_refused_with_its_line() {
    for (rails, line, words) in [
        ("\npermit(principal, action, resource);", 2, "can only forbid"),
        ("forbid(principal, action, resource)\nwhen { principal.trusst == \"low\" };", 1, "trusst"),
        ("forbid(principal, action, resource) when { principal.trust == 3 };", 1, ""),
        ("forbid(principal,\n action resource);", 2, ""),
        ("forbid(principal == ?principal, action, resource);", 1, ""),
    ] {
        match with_rails(rails) {
            Err(LoadError::Wrong(fault)) => {
                assert_eq!(fault.line, line, "{fault}");
                assert!(fault.message.contains(words), "{fault}");
            }
            other => panic!("{rails}: {other:?}"),
        }
    }
    let nested =
        format!("forbid(principal, action, resource) when {{ {}true }};", "(".repeat(5000));
    assert!(with_rails(&nested).is_err());
}

#[test]
fn digests_tell_policies_apart() {
    let digest = |text: &str| common::user(text).layer_refs()[0].digest.clone();
    assert_eq!(digest(DEFAULT_POLICY), digest(DEFAULT_POLICY));
    assert_ne!(digest(DEFAULT_POLICY), digest(&shipped_but("2G", "3G")));
}
