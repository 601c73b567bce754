//! Placement: fallback goes up or nowhere, what is asked is honoured or refused, records replay.

use crate::common::{everything, layer, shipped, shipped_but, task, user, wall_of, work};
use proptest::prelude::*;
use ringwall_rules::*;
use ringwall_spec::{LimitName, Limits, RingKind, Wall};

fn missing(name: &str) -> Missing {
    Missing { feature: name.to_owned(), fix: format!("install {name}") }
}

fn without(ring: RingKind) -> HostFacts {
    HostFacts::of_rings(|kind| (kind == ring).then(|| missing(ring.name())))
}

fn asked(kind: Kind, wall: &str) -> PlaceRequest {
    PlaceRequest { wall: Some(wall.parse().unwrap()), ..work(kind) }
}

#[test]
fn a_wall_that_cannot_be_raised_is_replaced_by_a_stronger_one() {
    let stack = shipped();
    let host = everything().without(&"container".parse().unwrap(), missing("overlayfs"));
    let record = stack.place(&work(Kind::Build), &host);
    assert_eq!(wall_of(&record), "vm/container");
    let reasons: Vec<&Verdict> = record.candidates.iter().map(|c| &c.verdict).collect();
    assert!(
        matches!(reasons[0], Verdict::Denied { rules, .. } if rules[0].rule == "profiles.medium")
    );
    assert!(matches!(reasons[1], Verdict::NotRaisable(missing) if missing.feature == "overlayfs"));
    assert_eq!(reasons[2], &Verdict::Taken);
}

#[test]
fn without_a_stronger_wall_the_refusal_names_the_feature_and_the_fix() {
    let record = shipped().place(&work(Kind::Untrusted), &without(RingKind::Vm));
    let refusal = record.plan().unwrap_err();
    assert!(matches!(refusal, Refusal::NotRaisable { .. }));
    let text = refusal.to_string();
    assert!(text.contains("vm") && text.contains("install vm"), "{text}");
}

#[test]
fn a_listed_wall_that_is_not_stronger_is_no_fallback() {
    let text = shipped_but(
        "build = [\"process\", \"container\", \"vm/container\"]",
        "build = [\"container\", \"wasm\"]",
    );
    let record = user(&text).place(&work(Kind::Build), &without(RingKind::Container));
    assert!(matches!(record.plan(), Err(Refusal::NotRaisable { .. })));
    assert!(matches!(record.candidates[1].verdict, Verdict::Weaker { .. }));
}

#[test]
fn a_wall_that_was_asked_for_is_honoured_or_refused() {
    let stack = shipped();
    let place = |request| stack.place(&request, &everything());
    assert_eq!(wall_of(&place(asked(Kind::Build, "vm/container"))), "vm/container");
    assert_eq!(wall_of(&place(asked(Kind::Build, "vm"))), "vm");
    let weaker = place(asked(Kind::Build, "process"));
    assert!(matches!(weaker.plan(), Err(Refusal::WallDenied { .. })), "{:?}", weaker.outcome);
    let other = place(asked(Kind::Files, "wasm"));
    assert!(other.plan().is_err());
    let odd = place(asked(Kind::Build, "container/container"));
    assert!(matches!(odd.plan(), Err(Refusal::WallDenied { .. })));
    let host = everything().without(&"vm".parse().unwrap(), missing("kvm"));
    let refused = stack.place(&asked(Kind::Build, "vm"), &host);
    assert!(matches!(refused.plan(), Err(Refusal::NotRaisable { .. })));
}

#[test]
fn limits_are_the_policys_and_more_is_refused_by_name() {
    let stack = shipped();
    let plan = stack.place(&work(Kind::Build), &everything()).plan().unwrap().clone();
    assert_eq!(plan.limits.memory_bytes, 2 << 30);
    let ask = |limits| PlaceRequest { limits: Some(limits), ..work(Kind::Build) };
    let less = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    let plan = stack.place(&ask(less.clone()), &everything()).plan().unwrap().clone();
    assert_eq!(plan.limits, less);
    let more = Limits { memory_bytes: 4 << 30, ..Limits::default() };
    let record = stack.place(&ask(more), &everything());
    let Err(Refusal::Limit { limit: LimitName::Memory, rule }) = record.plan() else {
        panic!("{:?}", record.outcome);
    };
    assert_eq!(rule.rule, "limits.memory");
    assert!(rule.line.is_some());
}

#[test]
fn a_floor_counts_for_everything() {
    let stack = user(&shipped_but("tier = \"medium\"\n", "tier = \"medium\"\nfloor = \"vm\"\n"));
    assert_eq!(wall_of(&stack.place(&work(Kind::Build), &everything())), "vm/container");
    assert_eq!(wall_of(&stack.place(&work(Kind::Compute), &everything())), "vm/container/wasm");
}

#[test]
fn a_workspace_can_ask_for_more_but_not_for_less() {
    let place = |cloned: &str, kind| {
        let layers =
            vec![layer(OriginKind::User, DEFAULT_POLICY), layer(OriginKind::Workspace, cloned)];
        wall_of(&Stack::load(layers).unwrap().place(&work(kind), &everything()))
    };
    assert_eq!(place("version = 1\nprofile = \"very-high\"\n", Kind::Build), "vm/container");
    assert_eq!(place("version = 1\nprofile = \"low\"\n", Kind::Build), "container");
    assert_eq!(place("version = 1\nfloor = \"vm\"\n", Kind::Build), "vm/container");
    assert_eq!(
        place(
            "version = 1\n[profiles]\nmedium = \"process\"\n[routes]\nbuild = [\"process\"]\n",
            Kind::Build
        ),
        "container"
    );
    let harmless = "version = 1\n[[tool]]\nnames = [\"*\"]\nkind = \"compute\"\n";
    assert_eq!(place(harmless, Kind::Untrusted), "vm");
}

#[test]
fn records_replay_and_notice_another_policy() {
    let stack = shipped();
    for kind in Kind::ALL {
        let record = stack.place(&work(*kind), &without(RingKind::Vm));
        let text = serde_json::to_string(&record).unwrap();
        let read: DecisionRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);
        assert_eq!(replay(&read, &stack), Ok(()));
        let other = user(&shipped_but("2G", "3G"));
        assert!(matches!(replay(&read, &other), Err(ReplayError::OtherPolicy { .. })));
        let mut forged = read;
        forged.outcome = stack.place(&work(Kind::Compute), &everything()).outcome;
        if *kind != Kind::Compute {
            assert!(matches!(replay(&forged, &stack), Err(ReplayError::OtherAnswer(_))));
        }
    }
}

#[test]
fn an_unknown_phase_is_refused() {
    let mut request = work(Kind::Build);
    request.task.phase = Some("plan".into());
    let record = shipped().place(&request, &everything());
    assert!(matches!(record.plan(), Err(Refusal::UnknownPhase { .. })));
}

fn any_walls() -> impl Strategy<Value = Vec<Wall>> {
    proptest::sample::subsequence(known_walls(), 1..=6).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn fallback_is_never_weaker_and_placement_never_changes(
        route in any_walls(),
        gone in proptest::sample::subsequence(known_walls(), 0..=10),
        profile in proptest::sample::select(Profile::ALL),
        tier in proptest::sample::select(Tier::ALL),
    ) {
        let names: Vec<String> = route.iter().map(|wall| format!("\"{wall}\"")).collect();
        let text = shipped_but(
            "build = [\"process\", \"container\", \"vm/container\"]",
            &format!("build = [{}]", names.join(", ")),
        );
        let stack = user(&text);
        let mut request = work(Kind::Build);
        request.task = Task { profile: Some(profile), ..task(tier) };
        let best = stack.place(&request, &everything());
        let host = gone.iter().fold(everything(), |host, wall| host.without(wall, missing("x")));
        let here = stack.place(&request, &host);
        prop_assert_eq!(&here, &stack.place(&request, &host));
        prop_assert_eq!(replay(&here, &user(&text)), Ok(()));
        match (best.plan(), here.plan()) {
            (Ok(best), Ok(here)) => {
                prop_assert!(at_least(&here.wall, &best.wall), "{} {}", here.wall, best.wall);
                prop_assert!(!gone.contains(&here.wall));
            }
            (Err(_), Ok(here)) => prop_assert!(false, "placed in {}", here.wall),
            _ => {}
        }
    }
}
