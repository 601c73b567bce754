//! The shipped policy gives the tables of the design, row by row.

use crate::common;
use crate::common::{everything, get, path, shipped, task, wall_of, work};
use ringwall_policy::*;

#[test]
fn profiles_and_routes_give_the_table_of_walls() {
    let stack = shipped();
    let table = [
        (Profile::Medium, ["wasm", "container", "container", "vm"]),
        (Profile::High, ["container/wasm", "container", "container", "vm"]),
        (Profile::VeryHigh, ["vm/container/wasm", "vm/container", "vm/container", "vm/container"]),
    ];
    for (profile, walls) in table {
        for (kind, wall) in Kind::ALL.iter().zip(walls) {
            for tier in Tier::ALL {
                let mut request = work(*kind);
                request.task = Task { profile: Some(profile), ..task(*tier) };
                let record = stack.place(&request, &everything());
                assert_eq!(wall_of(&record), wall, "{profile} {kind} {tier}");
            }
        }
    }
}

#[test]
fn the_low_profile_runs_native_work_in_a_process_ring() {
    let text = common::shipped_but("profile = \"medium\"", "profile = \"low\"");
    let stack = common::user(&text);
    let walls: Vec<String> =
        Kind::ALL.iter().map(|kind| wall_of(&stack.place(&work(*kind), &everything()))).collect();
    assert_eq!(walls, ["wasm", "process", "process", "vm"]);
}

#[test]
fn untrusted_work_gets_a_machine_of_its_own() {
    let stack = shipped();
    for kind in [Some("untrusted".to_owned()), None, Some("no-such-kind".to_owned())] {
        let mut request = work(Kind::Compute);
        request.work.kind = kind;
        let record = stack.place(&request, &everything());
        let plan = record.plan().unwrap();
        assert_eq!((plan.wall.to_string().as_str(), plan.fresh), ("vm", true));
        request.reuse = true;
        let refused = stack.place(&request, &everything());
        assert!(matches!(refused.plan(), Err(Refusal::NoWall { kind: Kind::Untrusted, .. })));
    }
    assert!(!stack.place(&work(Kind::Build), &everything()).plan().unwrap().fresh);
}

#[test]
fn tiers_reach_the_files_of_the_table() {
    let stack = shipped();
    let table = [
        (Tier::High, "/etc/hosts", true),
        (Tier::High, "/home/u/w/x", true),
        (Tier::Medium, "/home/u/x", true),
        (Tier::Medium, "./x", true),
        (Tier::Medium, "/tmp/x", true),
        (Tier::Medium, "/etc/hosts", false),
        (Tier::Low, "/tmp/x", true),
        (Tier::Low, "./x", false),
        (Tier::Low, "~/x", false),
    ];
    for (tier, file, allowed) in table {
        for action in [Action::Read(path(file)), Action::Write(path(file))] {
            let decision = stack.decide(&task(tier), &action);
            assert_eq!(decision.allowed, allowed, "{tier} {action:?}: {}", decision.why);
        }
    }
}

#[test]
fn tiers_reach_the_network_of_the_table() {
    let listed = common::shipped_but(
        "presets = [\"none\"]",
        "[[network.allow]]\nhost = \"api.example.com\"",
    );
    let stack = common::user(&listed);
    let table = [
        (Tier::High, "other.example.com", true),
        (Tier::Medium, "api.example.com", true),
        (Tier::Medium, "other.example.com", false),
        (Tier::Low, "api.example.com", false),
    ];
    for (tier, host, allowed) in table {
        let decision = stack.decide(&task(tier), &get(host, "/"));
        assert_eq!(decision.allowed, allowed, "{tier} {host}: {}", decision.why);
    }
    let egress = |stack: &Stack, tier| {
        let request = PlaceRequest { task: task(tier), ..work(Kind::Files) };
        stack.place(&request, &everything()).plan().unwrap().egress.clone()
    };
    assert_eq!(egress(&stack, Tier::Low), None);
    assert!(egress(&stack, Tier::Medium).is_some());
    assert_eq!(egress(&shipped(), Tier::Medium), None);
}

#[test]
fn tiers_reach_the_tools_of_the_table() {
    let stack = shipped();
    let call = |tool: &str, read_only| Action::Call { tool: tool.into(), kind: None, read_only };
    let table = [
        (Tier::High, call("whatever", false), true),
        (Tier::Medium, call("patch", false), true),
        (Tier::Medium, call("whatever", true), false),
        (Tier::Low, call("grep", false), true),
        (Tier::Low, call("whatever", true), true),
        (Tier::Low, call("patch", false), false),
    ];
    for (tier, action, allowed) in table {
        let decision = stack.decide(&task(tier), &action);
        assert_eq!(decision.allowed, allowed, "{tier} {action:?}: {}", decision.why);
    }
}

#[test]
fn a_tool_goes_where_its_declared_class_goes() {
    let stack = shipped();
    let placed = |tool: &str, kind: Option<&str>| {
        let work = Work { tool: Some(tool.into()), kind: kind.map(str::to_owned) };
        wall_of(&stack.place(&PlaceRequest { work, ..PlaceRequest::default() }, &everything()))
    };
    assert_eq!(placed("grep", None), "wasm");
    assert_eq!(placed("grep", Some("untrusted")), "wasm");
    assert_eq!(placed("pytest", Some("build")), "container");
    assert_eq!(placed("pytest", None), "vm");
}
