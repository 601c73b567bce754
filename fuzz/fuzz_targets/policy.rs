//! Any text as a policy of a workspace, with any text as its guard-rails: reading must not panic or
//! hang, and whatever it says, it allows nothing that the policy above it denies.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ringwall_policy::{
    Action, FileFacts, GuardRailText, HostFacts, Inside, Kind, LayerText, OriginKind, PlaceRequest,
    Stack, Stage, Task, Trust, Work, at_least,
};

fuzz_target!(|input: &str| {
    // A NUL stands between the two: neither holds one.
    let (text, rails) = match input.split_once('\0') {
        Some((text, rails)) => (text, Some(rails)),
        None => (input, None),
    };
    let cloned = LayerText {
        origin: OriginKind::Workspace,
        path: "ringwall.toml".to_owned(),
        text: text.to_owned(),
        guard_rails: rails.map(|text| GuardRailText {
            path: "ringwall.cedar".to_owned(),
            text: text.to_owned(),
        }),
        facts: FileFacts::default(),
    };
    let Ok(both) = Stack::load(vec![Stack::built_in(), cloned]) else {
        return;
    };
    let own = Stack::load(vec![Stack::built_in()]).expect("the built-in policy");
    let host = HostFacts::of_rings(|_| None);
    for trust in Trust::ALL {
        let task = Task {
            trust: Some(*trust),
            ..Task::default()
        };
        for action in [
            Action::Apply,
            Action::Connect {
                scheme: ringwall_spec::Scheme::Https,
                host: "example.com".to_owned(),
                port: 443,
                stage: Stage::Dial,
            },
            Action::Call {
                tool: "tool".to_owned(),
                kind: None,
                read_only: false,
            },
        ] {
            let allowed = both.decide(&task, &action).allowed;
            assert!(!allowed || own.decide(&task, &action).allowed, "widened");
        }
        for kind in Kind::ALL {
            let work = Work {
                tool: None,
                kind: Some(kind.name().to_owned()),
            };
            let request = PlaceRequest {
                task: task.clone(),
                work,
                ..PlaceRequest::default()
            };
            let (with, without) = (both.place(&request, &host), own.place(&request, &host));
            if let Ok(plan) = with.plan() {
                let own_plan = without.plan().expect("placed without it as well");
                assert!(at_least(&plan.wall, &own_plan.wall, Inside::Command), "weaker");
            }
        }
    }
});
