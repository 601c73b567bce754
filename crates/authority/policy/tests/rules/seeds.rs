//! The shipped policy gives the tables of the design, row by row.

use crate::common;
use crate::common::{everything, get, path, shipped, task, wall_of, work};
use ringwall_policy::*;

#[test]
fn profiles_and_routes_give_the_table_of_walls() {
    let stack = shipped();
    let table = [
        (Risk::Medium, ["wasm", "container", "container", "vm"]),
        (Risk::High, ["container/wasm", "container", "container", "vm"]),
        (Risk::VeryHigh, ["vm/container/wasm", "vm/container", "vm/container", "vm/container"]),
    ];
    for (risk, walls) in table {
        for (kind, wall) in Kind::ALL.iter().zip(walls) {
            for trust in Trust::ALL {
                let mut request = work(*kind);
                request.task = Task { risk: Some(risk), ..task(*trust) };
                let record = stack.place(&request, &everything());
                assert_eq!(wall_of(&record), wall, "{risk} {kind} {trust}");
            }
        }
    }
}

#[test]
fn the_low_profile_runs_native_work_in_a_process_ring() {
    let text = common::shipped_but("risk = \"medium\"", "risk = \"low\"");
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
        (Trust::High, "/etc/hosts", true),
        (Trust::High, "/home/u/w/x", true),
        (Trust::Medium, "/home/u/x", true),
        (Trust::Medium, "./x", true),
        (Trust::Medium, "/tmp/x", true),
        (Trust::Medium, "/etc/hosts", false),
        (Trust::Low, "/tmp/x", true),
        (Trust::Low, "./x", false),
        (Trust::Low, "~/x", false),
    ];
    for (trust, file, allowed) in table {
        for action in [Action::Read(path(file)), Action::Write(path(file))] {
            let decision = stack.decide(&task(trust), &action);
            assert_eq!(decision.allowed, allowed, "{trust} {action:?}: {}", decision.why);
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
        (Trust::High, "other.example.com", true),
        (Trust::Medium, "api.example.com", true),
        (Trust::Medium, "other.example.com", false),
        (Trust::Low, "api.example.com", false),
    ];
    for (trust, host, allowed) in table {
        let decision = stack.decide(&task(trust), &get(host, "/"));
        assert_eq!(decision.allowed, allowed, "{trust} {host}: {}", decision.why);
    }
    let egress = |stack: &Stack, trust| {
        let request = PlaceRequest { task: task(trust), ..work(Kind::Files) };
        stack.place(&request, &everything()).plan().unwrap().egress.clone()
    };
    assert_eq!(egress(&stack, Trust::Low), None);
    assert!(egress(&stack, Trust::Medium).is_some());
    assert_eq!(egress(&shipped(), Trust::Medium), None);
}

#[test]
fn tiers_reach_the_tools_of_the_table() {
    let stack = shipped();
    let call = |tool: &str, read_only| Action::Call { tool: tool.into(), kind: None, read_only };
    let table = [
        (Trust::High, call("whatever", false), true),
        (Trust::Medium, call("patch", false), true),
        (Trust::Medium, call("whatever", true), false),
        (Trust::Low, call("grep", false), true),
        (Trust::Low, call("whatever", true), true),
        (Trust::Low, call("patch", false), false),
    ];
    for (trust, action, allowed) in table {
        let decision = stack.decide(&task(trust), &action);
        assert_eq!(decision.allowed, allowed, "{trust} {action:?}: {}", decision.why);
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
