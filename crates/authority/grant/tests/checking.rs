//! What a grant allows, what it refuses, and what people are told.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use common::{World, asks, connect, only_tools, read, rights, tool, write};
use ringwall_grant::{
    Ask, Authority, AuthorityError, Basis, Budget, Narrowing, Reason, Request, Token,
};

#[test]
fn a_grant_allows_what_it_names_and_nothing_else() {
    let world = World::new();
    let (verifier, token) = (world.authority.verifier(), world.token());
    let named = |make: fn(String) -> Ask, name: &str| asks(make(name.to_owned()));
    let place =
        |kind: &str, wall: &str| asks(Ask::Place { kind: kind.to_owned(), wall: wall.to_owned() });
    let secret = |name| Ask::Secret { name };
    let phase = |name| Ask::Phase { name };
    let allowed = [
        asks(Ask::Identity),
        tool("grep"),
        tool("git-log"),
        read("/workspace"),
        read("/workspace/a \"quoted\"/b"),
        read("/tmp/x"),
        write("/workspace/src/main.rs"),
        connect("api.example.com", 443, Some("GET")),
        connect("x.example.org", 22, None),
        named(secret, "github-ro"),
        named(phase, "plan"),
        place("build", "vm/container"),
    ];
    for request in allowed {
        let answer =
            verifier.check(&token, &request).unwrap_or_else(|no| panic!("{request:?}: {no}"));
        assert_eq!(answer.basis, Basis::Grant);
        assert_eq!(answer.grant.holder, "agent");
    }
    let refused = [
        tool("grepper"),
        tool("git"),
        read("/"),
        read("/workspaces"),
        write("/workspace"),
        write("/workspace/srcs"),
        connect("api.example.com", 443, Some("POST")),
        connect("api.example.com", 443, None),
        connect("api.example.com", 80, Some("GET")),
        connect("example.org", 443, Some("GET")),
        connect("evilexample.org", 443, Some("GET")),
        named(secret, "github-rw"),
        named(phase, "pr"),
        place("build", "process"),
        place("untrusted", "container"),
    ];
    for request in refused {
        let no = verifier.check(&token, &request).expect_err(&format!("{request:?}"));
        assert!(matches!(no.reason, Reason::NotGranted(_)), "{request:?}: {no}");
    }
}

#[test]
fn what_has_no_single_spelling_is_refused_whatever_is_granted() {
    let world = World::new();
    let mut all = rights();
    all.tools = ["*".parse().unwrap()].into();
    all.read = ["/".parse().unwrap()].into();
    all.endpoints = ["*:*".parse().unwrap()].into();
    let (verifier, token) = (world.authority.verifier(), world.mint(&all));
    let bad = [
        tool(""),
        tool("a\nb"),
        read("workspace"),
        read("/workspace/../etc"),
        read("/workspace//x"),
        read("/workspace/"),
        connect("API.example.com", 443, None),
        connect("api.example.com.", 443, None),
        connect("a b", 443, None),
        connect("a.example", 443, Some("GET, POST")),
        connect("a.example", 443, Some("")),
    ];
    for request in bad {
        let no = verifier.check(&token, &request).expect_err(&format!("{request:?}"));
        assert_eq!(no.reason, Reason::BadRequest, "{request:?}: {no}");
    }
}

#[test]
fn a_grant_is_of_one_task_and_one_tenant() {
    let world = World::new();
    let (verifier, token) = (world.authority.verifier(), world.token());
    let reason = |task: &str, tenant: &str| {
        verifier.check(&token, &Request::new(task, tenant, Ask::Identity)).map_err(|no| no.reason)
    };
    assert!(reason("t-1", "acme").is_ok());
    assert_eq!(reason("t-2", "acme"), Err(Reason::OtherTask));
    assert_eq!(reason("t-1", "other"), Err(Reason::OtherTenant));
}

#[test]
fn a_narrowed_grant_says_which_narrowing_refused() {
    let world = World::new();
    let verifier = world.authority.verifier();
    let narrowed = world.token().narrow(&only_tools(&["grep"])).unwrap();
    let twice = narrowed
        .narrow(&Narrowing {
            read: Some(["/workspace/docs".parse().unwrap()].into()),
            holder: Some("helper".parse().unwrap()),
            budget: Budget { calls: Some(50), tokens: Some(5), ..Budget::default() },
            ..Narrowing::default()
        })
        .unwrap();
    let allowed = verifier.check(&twice, &tool("grep")).unwrap().grant;
    assert_eq!(allowed.holder, "helper");
    assert_eq!((allowed.budget.calls, allowed.budget.tokens), (Some(10), Some(5)));
    assert_eq!(allowed.ids.len(), 3);
    assert_eq!(allowed.ids[..2], narrowed.ids().unwrap());
    let no = verifier.check(&twice, &tool("git-log")).unwrap_err();
    assert!(matches!(no.reason, Reason::Narrowed { block: 1, .. }));
    assert!(no.to_string().contains("the tools that narrowing 1 of the grant left"), "{no}");
    let no = verifier.check(&twice, &read("/workspace")).unwrap_err();
    assert!(matches!(no.reason, Reason::Narrowed { block: 2, .. }));
    verifier.check(&twice, &read("/workspace/docs/a")).unwrap();
}

#[test]
fn a_narrowing_to_nothing_leaves_nothing_and_the_rest_as_it_was() {
    let world = World::new();
    let verifier = world.authority.verifier();
    let token = world.token().narrow(&only_tools(&[])).unwrap();
    assert!(verifier.check(&token, &tool("grep")).is_err());
    verifier.check(&token, &read("/tmp")).unwrap();
}

#[test]
fn a_grant_expires_and_a_narrowed_one_no_later() {
    let world = World::new();
    let now = SystemTime::now();
    let at = |seconds: u64| {
        let then = now + Duration::from_secs(seconds);
        world.authority.verifier().with_clock(move || then)
    };
    let unix = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let token = world.token();
    let expiring = |seconds| Narrowing { expires: Some(unix + seconds), ..Narrowing::default() };
    let sooner = token.narrow(&expiring(60)).unwrap();
    let later = token.narrow(&expiring(999_999)).unwrap();
    at(30).check(&sooner, &tool("grep")).unwrap();
    assert!(matches!(
        at(90).check(&sooner, &tool("grep")).unwrap_err().reason,
        Reason::Expired { .. }
    ));
    at(90).check(&token, &tool("grep")).unwrap();
    for token in [&token, &later] {
        let no = at(3700).check(token, &tool("grep")).unwrap_err();
        assert!(matches!(no.reason, Reason::Expired { .. }), "{no}");
    }
}

#[test]
fn a_sealed_grant_is_good_and_takes_nothing_more() {
    let world = World::new();
    let sealed = world.token().narrow(&only_tools(&["grep"])).unwrap().seal().unwrap();
    world.authority.verifier().check(&sealed, &tool("grep")).unwrap();
    for error in [
        sealed.narrow(&only_tools(&[])).unwrap_err(),
        sealed.elevation_request().unwrap_err(),
        sealed.seal().unwrap_err(),
    ] {
        assert!(error.to_string().contains("sealed"), "{error}");
    }
    assert!(world.authority.verifier().inspect(&sealed).unwrap().sealed);
}

#[test]
fn a_grant_survives_its_text_form_and_is_not_printed_by_accident() {
    let world = World::new();
    let token = world.token();
    let text = token.to_text();
    assert!(text.starts_with("rwg_") && text.len() < 2000, "{}", text.len());
    assert_eq!(text.parse::<Token>().unwrap(), token);
    assert!(!format!("{token:?}").contains(&text[8..20]));
}

#[test]
fn inspecting_shows_what_was_granted_and_how_it_was_narrowed() {
    let world = World::new();
    let narrowing = Narrowing {
        endpoints: Some(["api.example.com:443 GET".parse().unwrap()].into()),
        secrets: Some([].into()),
        walls: Some(["vm/container".parse().unwrap()].into()),
        budget: Budget { money_micros: Some(7), ..Budget::default() },
        ..Narrowing::default()
    };
    let token = world.token().narrow(&narrowing).unwrap();
    let shown = world.authority.verifier().inspect(&token).unwrap();
    assert_eq!((shown.rights, shown.narrowings, shown.sealed), (rights(), vec![narrowing], false));
    assert_eq!(shown.refused, None);
}

#[test]
fn keys_are_replaced_while_grants_of_the_last_one_stay_good() {
    let mut world = World::new();
    let first = world.token();
    let revoked = world.token();
    world.authority.revoke(&revoked.ids().unwrap()).unwrap();
    assert_eq!(world.authority.rotate().unwrap(), 2);
    let second = world.token();
    let verifier = world.authority.verifier();
    verifier.check(&first, &tool("grep")).unwrap();
    verifier.check(&second, &tool("grep")).unwrap();
    assert_eq!(world.authority.rotate().unwrap(), 3);
    let reopened = Authority::open(world.home.path()).unwrap();
    let verifier = reopened.verifier();
    assert_eq!(verifier.check(&first, &tool("grep")).unwrap_err().reason, Reason::UnknownKey);
    verifier.check(&second, &tool("grep")).unwrap();
    assert_eq!(reopened.revocations().count().unwrap(), 1);
}

#[test]
fn a_grant_of_another_home_is_worth_nothing() {
    let (world, other) = (World::new(), World::new());
    let no = world.authority.verifier().check(&other.token(), &tool("grep")).unwrap_err();
    assert_eq!(no.reason, Reason::NotAGrant);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let world = World::new();
    let key = world.home.path().join("keys/grant-1.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Authority::open(world.home.path()).unwrap_err();
    assert!(error.to_string().contains("open to others"), "{error}");
    let keys = world.home.path().join("keys");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Authority::open(world.home.path()).unwrap_err().to_string().contains("open to others"));
}

#[test]
fn what_was_minted_is_recorded_without_the_token() {
    let world = World::new();
    let minted = world.authority.mint(&rights(), Duration::from_secs(60)).unwrap();
    assert_eq!(world.authority.records().unwrap(), std::slice::from_ref(&minted.record));
    assert_eq!(minted.token.ids().unwrap(), [minted.record.id]);
    for entry in std::fs::read_dir(world.home.path().join("grants")).unwrap() {
        let content = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!content.contains(&minted.token.to_text()[4..40]));
    }
    let long = world.authority.mint(&rights(), Duration::from_secs(8 * 24 * 3600));
    assert!(matches!(long, Err(AuthorityError::Lifetime { .. })));
}

#[test]
fn half_a_record_of_a_killed_writer_hides_no_other() {
    let world = World::new();
    world.token();
    let path = world.home.path().join("grants/minted.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"id\":\"12")).unwrap();
    world.token();
    assert_eq!(world.authority.records().unwrap().len(), 2);
}
