//! A layer below another never allows what that one denies, whatever it says.

use crate::common;
use std::collections::BTreeSet;

use crate::common::{everything, get, layer, path, shipped_but, work};
use proptest::prelude::*;
use ringwall_policy::*;

/// Parts of a policy file. Each is a whole table, so that any choice of them is a file.
const KEYS: [&str; 6] = [
    "risk = \"low\"",
    "risk = \"very-high\"",
    "trust = \"high\"",
    "trust = \"low\"",
    "floor = \"process\"",
    "secrets = [\"github\", \"own\"]",
];

const TABLES: [&str; 15] = [
    "[risk-levels]\nlow = \"process\"\nmedium = \"process\"\nhigh = \"process\"\nvery-high = \"process\"",
    "[routes]\ncompute = [\"process\"]\nfiles = [\"process\"]\nbuild = [\"process\"]\nuntrusted = [\"process\"]",
    "[routes]\nbuild = [\"vm\"]\nfresh = [\"build\"]",
    "[trust-levels.high]\nread = [\"/**\"]\nwrite = [\"/**\"]\nnetwork = \"open\"\ntools = \"all\"\napply = true",
    "[trust-levels.medium]\nread = [\"/**\"]\nwrite = [\"/**\"]\nnetwork = \"open\"\ntools = \"all\"\napply = true",
    "[trust-levels.low]\nread = [\"/**\"]\nwrite = [\"/**\"]\nnetwork = \"open\"\ntools = \"all\"\napply = true",
    "[trust-levels.low]\nread = [\"./**\"]\nnetwork = \"none\"\ntools = \"none\"\nkinds = [\"compute\"]",
    "[limits]\nmemory = \"8G\"\ntimeout = \"100h\"\npids = 64",
    "[network]\npresets = [\"open\"]",
    "[[network.allow]]\nhost = \"evil.example\"\n[[network.allow]]\nhost = \"api.example.com\"\nsecret = \"github\"",
    "[[network.deny]]\nhost = \"**.com\"",
    "[phases.plan]\nwrite = [\"/**\"]\nnext = [\"plan\"]",
    "[taint]\nsources = []\neffects = []",
    "[[tool]]\nnames = [\"*\"]\nkind = \"compute\"\napproved = true\nread-only = true",
    "[routes]\ncompute = [\"process/wasm\"]\nfiles = [\"process/wasm\"]\nbuild = [\"process/wasm\"]\nuntrusted = [\"process/wasm\"]",
];

const ELEVATION: &str = "[[approver]]\nname = \"eve\"\nkey = \"ed25519/4444444444444444444444444444444444444444444444444444444444444444\"\n\
    [[elevation]]\nname = \"net\"\ngrants = [\"connect:**.example.com\", \"write:/**\", \"read:/**\", \"apply\", \"taint\", \"call:*\", \"run:build\", \"phase:plan\"]\n\
    approvers = [\"eve\"]\nmax = \"1h\"";

fn file(keys: &BTreeSet<usize>, tables: &BTreeSet<usize>, elevation: bool) -> String {
    let mut text = "version = 1\n".to_owned();
    let mut seen = BTreeSet::new();
    let mut push = |part: &str, text: &mut String| {
        let name = part.split(['=', '\n']).next().unwrap_or_default().trim().to_owned();
        if seen.insert(name) {
            text.push_str(part);
            text.push('\n');
        }
    };
    let needs_secret = tables.contains(&9) && !keys.contains(&5);
    keys.iter().for_each(|index| push(KEYS[*index], &mut text));
    if needs_secret {
        push(KEYS[5], &mut text);
    }
    tables.iter().filter(|index| **index != 8 || !tables.contains(&9)).for_each(|index| {
        push(TABLES[*index], &mut text);
    });
    if elevation {
        text.push_str(ELEVATION);
    }
    text
}

fn base() -> String {
    shipped_but(
        "presets = [\"none\"]",
        "presets = [\"git-read\"]\n[[network.allow]]\nhost = \"api.example.com\"\nmethods = [\"GET\"]",
    )
}

fn actions() -> Vec<Action> {
    let mut actions = vec![
        get("api.example.com", "/"),
        get("evil.example", "/"),
        get("github.com", "/a"),
        Action::Apply,
        Action::ChangePhase("plan".into()),
        Action::Elevate("net".into()),
        Action::UseSecret { name: "github".into(), host: "api.example.com".into(), port: 443 },
    ];
    for file in ["/etc/passwd", "/tmp/x", "./x", "~/x"] {
        actions.extend([Action::Read(path(file)), Action::Write(path(file))]);
    }
    for tool in ["grep", "patch", "other"] {
        actions.push(Action::Call { tool: tool.into(), kind: None, read_only: false });
    }
    for kind in Kind::ALL {
        for wall in known_walls() {
            let work = work(*kind).work;
            actions.push(Action::Run { work, wall, fresh: true });
        }
    }
    actions
}

fn any_task() -> impl Strategy<Value = Task> {
    let trust = proptest::sample::select(Trust::ALL);
    (trust, any::<bool>(), any::<bool>()).prop_map(|(trust, tainted, elevated)| {
        let elevated = elevated.then(|| "net".to_owned()).into_iter().collect();
        Task { trust: Some(trust), tainted, elevated, ..Task::default() }
    })
}

fn any_part(count: usize) -> impl Strategy<Value = BTreeSet<usize>> {
    proptest::collection::btree_set(0..count, 0..=count / 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_cloned_policy_never_widens(
        keys in any_part(KEYS.len()),
        tables in any_part(TABLES.len()),
        elevation in any::<bool>(),
        task in any_task(),
    ) {
        let cloned = file(&keys, &tables, elevation);
        let own = common::user(&base());
        let layers = vec![
            layer(OriginKind::User, &base()),
            layer(OriginKind::Workspace, &cloned),
        ];
        let Ok(both) = Stack::load(layers) else {
            return Err(TestCaseError::fail(format!("not a policy:\n{cloned}")));
        };
        for action in actions() {
            let with_clone = both.decide(&task, &action).allowed;
            let without = own.decide(&task, &action).allowed;
            prop_assert!(!with_clone || without, "{task:?} {action:?}\n{cloned}");
        }
        for kind in Kind::ALL {
            let request = PlaceRequest { task: task.clone(), ..work(*kind) };
            let with_clone = both.place(&request, &everything());
            let without = own.place(&request, &everything());
            if let Ok(plan) = with_clone.plan() {
                let Ok(own_plan) = without.plan() else {
                    return Err(TestCaseError::fail(format!("newly placed\n{cloned}")));
                };
                let is_at_least = at_least(&plan.wall, &own_plan.wall, Inside::Command);
                prop_assert!(is_at_least, "{} {}", plan.wall, own_plan.wall);
                prop_assert!(plan.limits.memory_bytes <= own_plan.limits.memory_bytes);
                prop_assert!(plan.limits.timeout <= own_plan.limits.timeout);
                prop_assert!(plan.fresh || !own_plan.fresh);
            }
        }
    }
}

#[test]
fn the_parts_would_widen_if_they_were_believed() {
    let wide = file(&BTreeSet::new(), &BTreeSet::from([0, 1, 3, 4, 5, 8]), false);
    let believed = common::user(&format!("{wide}\n"));
    let task = Task { trust: Some(Trust::Low), ..Task::default() };
    assert!(believed.decide(&task, &get("evil.example", "/")).allowed);
    assert!(believed.decide(&task, &Action::Write(path("/etc/passwd"))).allowed);
}

#[test]
fn what_a_narrow_layer_does_not_speak_of_stays_as_it_was() {
    let layers = vec![
        layer(OriginKind::User, &base()),
        layer(OriginKind::Workspace, "version = 1\n[[network.deny]]\nhost = \"github.com\"\n"),
    ];
    let both = Stack::load(layers).unwrap();
    let task = Task { trust: Some(Trust::Medium), ..Task::default() };
    assert!(both.decide(&task, &get("api.example.com", "/")).allowed);
    assert!(!both.decide(&task, &get("github.com", "/a")).allowed);
    assert!(both.decide(&task, &Action::Write(path("./x"))).allowed);
    assert!(both.decide(&task, &Action::Apply).allowed);
}

#[test]
fn any_layer_can_ask_for_strict_calls_and_none_can_take_that_back() {
    let asks = "version = 1\n[[tool]]\nnames = [\"eval-*\"]\nstrict = true\n";
    let silent = "version = 1\n[[tool]]\nnames = [\"eval-js\"]\nstrict = false\n";
    for (first, second) in [(asks, silent), (silent, asks)] {
        let layers = vec![layer(OriginKind::User, first), layer(OriginKind::Workspace, second)];
        let stack = Stack::load(layers).unwrap();
        assert!(stack.wants_strict("eval-js") && !stack.wants_strict("grep"));
    }
}

fn with_commands(origin: OriginKind, rows: &[(&str, &str)]) -> LayerText {
    let rows =
        rows.iter().map(|(run, kind)| format!("[[command]]\nrun = [{run:?}]\nkind = {kind:?}\n"));
    layer(origin, &format!("version = 1\n{}", rows.collect::<String>()))
}

#[test]
fn a_command_is_of_the_kind_that_the_first_layer_says() {
    let rows =
        [("cargo build", "build"), ("cargo", "untrusted"), ("make", "build"), ("ls", "files")];
    let stack = Stack::load(vec![with_commands(OriginKind::User, &rows)]).unwrap();
    assert_eq!(stack.kind_of_command("make -j2 all"), Some(Kind::Build));
    assert_eq!(stack.kind_of_command("ls -la src"), Some(Kind::Files));
    assert_eq!(stack.kind_of_command("cargo build"), Some(Kind::Untrusted), "the riskiest counts");
    for unknown in ["makes", "sh make", "make; ./x", "make\n./x", "./make", "CC=./x make", ""] {
        assert_eq!(stack.kind_of_command(unknown), None, "{unknown:?}");
    }
}

#[test]
fn a_layer_below_can_only_raise_the_risk_of_a_command() {
    let first = with_commands(OriginKind::User, &[("make", "build")]);
    let below = |rows| with_commands(OriginKind::Workspace, rows);
    let kind = |rows, command: &str| {
        Stack::load(vec![first.clone(), below(rows)]).unwrap().kind_of_command(command)
    };
    assert_eq!(kind(&[("make", "compute")], "make"), Some(Kind::Build));
    assert_eq!(kind(&[("make", "untrusted")], "make"), Some(Kind::Untrusted));
    assert_eq!(kind(&[("make x", "untrusted")], "make y"), Some(Kind::Build));
    assert_eq!(kind(&[("sh", "build")], "sh evil.sh"), None, "the first layer does not know it");
}

#[test]
fn a_command_that_becomes_less_risky_shows_in_the_difference() {
    let stack =
        |rows: &[(&str, &str)]| Stack::load(vec![with_commands(OriginKind::User, rows)]).unwrap();
    let old = stack(&[("make", "build")]);
    let found = |new: &[(&str, &str)]| {
        let all = compare(&old, &stack(new)).widened;
        all.into_iter().filter(|one| one.what.contains("command")).count()
    };
    assert_eq!(found(&[("make", "build")]), 0);
    assert_eq!(found(&[("make", "untrusted")]), 0);
    assert_eq!(found(&[("make", "files")]), 1);
    assert_eq!(found(&[("make", "build"), ("sh", "build")]), 1);
    assert_eq!(found(&[("make", "build"), ("make install", "compute")]), 0, "the riskiest counts");
}
