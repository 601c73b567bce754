//! Placement: fallback goes up or nowhere, what is asked is honoured or refused, records replay.

use crate::common::{everything, layer, shipped, shipped_but, task, user, wall_of, work};
use proptest::prelude::*;
use ringwall_policy::*;
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
        matches!(reasons[0], Verdict::Denied { rules, .. } if rules[0].rule == "risk-levels.medium")
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
    let stack = user(&shipped_but("trust = \"medium\"\n", "trust = \"medium\"\nfloor = \"vm\"\n"));
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
    assert_eq!(place("version = 1\nrisk = \"very-high\"\n", Kind::Build), "vm/container");
    assert_eq!(place("version = 1\nrisk = \"low\"\n", Kind::Build), "container");
    assert_eq!(place("version = 1\nfloor = \"vm\"\n", Kind::Build), "vm/container");
    assert_eq!(
        place(
            "version = 1\n[risk-levels]\nmedium = \"process\"\n[routes]\nbuild = [\"process\"]\n",
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

/// The user's policy with a route for builds, and a repository's file below it.
fn placed(route: &str, cloned: &str, request: &PlaceRequest) -> String {
    let own = shipped_but("build = [\"process\", \"container\", \"vm/container\"]", route);
    let own = own.replacen("medium = [\"container\", \"wasm\"]", "medium = \"process\"", 1);
    let layers = vec![layer(OriginKind::User, &own), layer(OriginKind::Workspace, cloned)];
    wall_of(&Stack::load(layers).unwrap().place(request, &everything()))
}

#[test]
fn a_ring_for_tools_does_not_count_for_commands() {
    let stack = shipped();
    let place = |request| stack.place(&request, &everything());
    let command = place(asked(Kind::Compute, "process/wasm"));
    assert!(matches!(command.plan(), Err(Refusal::WallDenied { .. })), "{:?}", command.outcome);
    // Not in a wall that looks stronger either, nor in one that lives already.
    for wall in ["container/process/wasm", "container/wasm"] {
        assert!(place(asked(Kind::Compute, wall)).plan().is_err(), "{wall}");
        let living = PlaceRequest { reuse: true, ..asked(Kind::Compute, wall) };
        assert!(place(living).plan().is_err(), "{wall}");
    }
    let untrusted = asked(Kind::Untrusted, "process/wasm");
    assert!(place(untrusted).plan().is_err());
    // A tool is inside all rings.
    let mut tool = asked(Kind::Compute, "process/wasm");
    tool.work.tool = Some("x".to_owned());
    assert_eq!(wall_of(&place(tool)), "process/wasm");
    // A floor and a risk level count for commands by the rings round them.
    for (part, with) in [
        ("trust = \"medium\"\n", "trust = \"medium\"\nfloor = \"wasm\"\n"),
        ("medium = [\"container\", \"wasm\"]", "medium = \"wasm\""),
    ] {
        let own = user(&shipped_but(part, with));
        let placed = own.place(&asked(Kind::Build, "process/wasm"), &everything());
        assert!(placed.plan().is_err(), "{:?}", placed.outcome);
    }
}

#[test]
fn the_first_layer_orders_the_walls_and_sets_the_least_one() {
    let build = &work(Kind::Build);
    let user = "build = [\"container\", \"process\"]";
    for route in ["process", "process/wasm", "wasm", "container/wasm"] {
        let cloned = format!("version = 1\n[routes]\nbuild = [\"{route}\"]\n");
        let wall = placed(user, &cloned, build);
        assert!(wall == "container" || wall.starts_with("refused"), "{route}: {wall}");
    }
    let process = "version = 1\n[routes]\nbuild = [\"process\", \"vm\"]\n";
    assert_eq!(placed(user, process, build), "container");
    let more = "version = 1\n[routes]\nbuild = [\"vm\"]\n";
    assert_eq!(placed(user, more, build), "vm");
    // With a wall by name, and with the shipped policy.
    let by_name = asked(Kind::Build, "process");
    assert!(placed(user, process, &by_name).starts_with("refused"));
    let layers = vec![
        layer(OriginKind::User, DEFAULT_POLICY),
        layer(OriginKind::Workspace, "version = 1\n[routes]\nbuild = [\"process/wasm\"]\n"),
    ];
    assert_eq!(wall_of(&Stack::load(layers).unwrap().place(build, &everything())), "container");
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
        risk in proptest::sample::select(Risk::ALL),
        trust in proptest::sample::select(Trust::ALL),
    ) {
        let names: Vec<String> = route.iter().map(|wall| format!("\"{wall}\"")).collect();
        let text = shipped_but(
            "build = [\"process\", \"container\", \"vm/container\"]",
            &format!("build = [{}]", names.join(", ")),
        );
        let stack = user(&text);
        let mut request = work(Kind::Build);
        request.task = Task { risk: Some(risk), ..task(trust) };
        let best = stack.place(&request, &everything());
        let host = gone.iter().fold(everything(), |host, wall| host.without(wall, missing("x")));
        let here = stack.place(&request, &host);
        prop_assert_eq!(&here, &stack.place(&request, &host));
        prop_assert_eq!(replay(&here, &user(&text)), Ok(()));
        match (best.plan(), here.plan()) {
            (Ok(best), Ok(here)) => {
                prop_assert!(at_least(&here.wall, &best.wall, Inside::Command), "{} {}", here.wall, best.wall);
                prop_assert!(!gone.contains(&here.wall));
            }
            (Err(_), Ok(here)) => prop_assert!(false, "placed in {}", here.wall),
            _ => {}
        }
    }
}
