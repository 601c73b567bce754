//! Phases, taint, elevations and the network, as decided.

use std::collections::BTreeSet;

use crate::common::{get, layer, path, shipped_but, task, user};
use ringwall_policy::*;
use ringwall_spec::Scheme;

const PHASES: &str = r#"
phase = "plan"
secrets = ["github", "other"]

[phases.plan]
write = ["./docs/**"]
next = ["implement"]

[phases.implement]
write = ["./**", "/tmp/**"]
deny = ["./**/.git/**", "./.github/**"]
next = ["plan"]

[[network.allow]]
host = "api.example.com"
methods = ["GET"]
paths = ["/repos", "/v1/"]
secret = "github"

[[network.allow]]
host = "*.mirror.example"
port = 8443
passthrough = true

[[network.deny]]
host = "bad.mirror.example"

[[network.deny]]
host = "api.example.com"
paths = ["/repos/private"]

[taint]
sources = ["network", "tool:web-*", "path:./inbox/**", "kind:untrusted"]
effects = ["no-network", "no-secrets", "no-apply", "no-phase-change", "read-only-tools", "isolate"]

[[elevation]]
name = "ci"
grants = ["write:./.github/**"]
approvers = ["group:maintainers"]
max = "10m"
single-use = true

[[elevation]]
name = "net"
grants = ["taint", "connect:files.example.com"]
approvers = ["ann"]
max = "15m"

[[approver]]
name = "ann"
key = "ed25519/1111111111111111111111111111111111111111111111111111111111111111"
groups = ["maintainers"]

[[approver]]
name = "ben"
key = "ed25519/2222222222222222222222222222222222222222222222222222222222222222"
groups = ["maintainers"]
"#;

fn stack() -> Stack {
    let base = shipped_but("presets = [\"none\"]\n", "");
    let (head, tables) = base.split_once("[risk-levels]").unwrap();
    let start = tables.find("# Who has read").unwrap();
    let end = tables.find("# The tools that").unwrap();
    let (own_keys, own_tables) = PHASES.split_once("\n\n[phases").unwrap();
    user(&format!(
        "{head}{own_keys}\n[risk-levels]{}{}\n[phases{own_tables}",
        &tables[..start],
        &tables[end..],
    ))
}

fn in_phase(phase: &str) -> Task {
    Task { phase: Some(phase.into()), ..task(Trust::Medium) }
}

fn elevated(task: Task, name: &str) -> Task {
    Task { elevated: BTreeSet::from([name.to_owned()]), ..task }
}

#[test]
fn rights_to_write_change_with_the_phase() {
    let stack = stack();
    for (phase, file, allowed) in [
        ("plan", "./docs/a", true),
        ("plan", "./src/a", false),
        ("plan", "/tmp/a", false),
        ("implement", "./src/a", true),
        ("implement", "./.git/config", false),
        ("implement", "./sub/.git/hooks/x", false),
        ("implement", "~/x", false),
        ("release", "./docs/a", false),
    ] {
        let decision = stack.decide(&in_phase(phase), &Action::Write(path(file)));
        assert_eq!(decision.allowed, allowed, "{phase} {file}: {}", decision.why);
    }
    assert!(stack.decide(&in_phase("plan"), &Action::Read(path("./src/a"))).allowed);
    assert!(stack.decide(&task(Trust::Medium), &Action::Write(path("./docs/a"))).allowed);
}

#[test]
fn a_phase_is_followed_only_by_those_that_it_names() {
    let stack = stack();
    let to = |phase: &str| Action::ChangePhase(phase.to_owned());
    assert!(stack.decide(&in_phase("plan"), &to("implement")).allowed);
    assert!(!stack.decide(&in_phase("plan"), &to("plan")).allowed);
    assert!(!stack.decide(&in_phase("plan"), &to("release")).allowed);
    assert!(!stack.decide(&in_phase("none"), &to("implement")).allowed);
}

#[test]
fn a_denial_names_its_rule_and_the_elevation_that_would_help() {
    let stack = stack();
    let write = Action::Write(path("./.github/ci.yml"));
    let denied = stack.decide(&in_phase("implement"), &write);
    assert!(!denied.allowed);
    assert_eq!(denied.rules[0].rule, "phases.implement.deny");
    assert!(denied.rules[0].line.is_some());
    assert_eq!(denied.elevations, ["ci"]);
    let task = elevated(in_phase("implement"), "ci");
    assert!(stack.decide(&task, &write).allowed);
    assert!(!stack.decide(&task, &Action::Write(path("./.git/config"))).allowed);
}

#[test]
fn the_terms_of_an_elevation_name_people_and_time() {
    let terms = stack().elevation("ci").unwrap();
    let people: Vec<&str> = terms.approvers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(people, ["ann", "ben"]);
    assert!(terms.single_use);
    assert_eq!(terms.max, std::time::Duration::from_secs(600));
    assert_eq!(stack().elevation("none"), None);
}

#[test]
fn a_workspace_cannot_name_other_approvers() {
    let cloned = "version = 1\n[[approver]]\nname = \"ann\"\nkey = \"ed25519/3333333333333333333333333333333333333333333333333333333333333333\"\n\
        [[elevation]]\nname = \"ci\"\ngrants = [\"write:./**\"]\napprovers = [\"ann\"]\nmax = \"100h\"\n";
    let base = "version = 1\n[[approver]]\nname = \"ann\"\nkey = \"ed25519/1111111111111111111111111111111111111111111111111111111111111111\"\n\
        [[elevation]]\nname = \"ci\"\ngrants = [\"write:./.github/**\"]\napprovers = [\"ann\"]\nmax = \"10m\"\n";
    let layers = vec![layer(OriginKind::User, base), layer(OriginKind::Workspace, cloned)];
    let terms = Stack::load(layers).unwrap().elevation("ci").unwrap();
    assert_eq!(terms.approvers, []);
    assert_eq!(terms.grants, ["write:./.github/**"]);
    assert_eq!(terms.max, std::time::Duration::from_secs(600));
}

#[test]
fn a_tainted_task_loses_what_the_policy_says_until_it_is_elevated() {
    let stack = stack();
    let clean = in_phase("plan");
    let tainted = Task { tainted: true, ..clean.clone() };
    let secret =
        Action::UseSecret { name: "github".into(), host: "api.example.com".into(), port: 443 };
    let patch = Action::Call { tool: "patch".into(), kind: None, read_only: false };
    let run = Action::Run {
        work: Work { tool: None, kind: Some("build".into()) },
        wall: "container".parse().unwrap(),
        fresh: true,
    };
    let phase = Action::ChangePhase("implement".into());
    for action in [get("api.example.com", "/v1/x"), secret, Action::Apply, phase, patch, run] {
        assert!(stack.decide(&clean, &action).allowed, "{action:?}");
        let denied = stack.decide(&tainted, &action);
        assert!(!denied.allowed, "{action:?}");
        assert!(denied.rules[0].rule.starts_with("taint."), "{:?}", denied.rules);
        assert_eq!(denied.elevations, ["net"]);
        assert!(stack.decide(&elevated(tainted.clone(), "net"), &action).allowed, "{action:?}");
    }
}

#[test]
fn what_is_taken_in_taints() {
    let stack = stack();
    assert!(stack.taints(&TakenIn::Network));
    assert!(stack.taints(&TakenIn::Tool("web-fetch")));
    assert!(!stack.taints(&TakenIn::Tool("grep")));
    assert!(stack.taints(&TakenIn::File(&path("./inbox/mail"))));
    assert!(!stack.taints(&TakenIn::File(&path("./src/a"))));
    assert!(stack.taints(&TakenIn::OutputOf(Kind::Untrusted)));
    assert!(!stack.taints(&TakenIn::OutputOf(Kind::Compute)));
}

#[test]
fn the_allowlist_counts_by_host_port_method_and_path() {
    let stack = stack();
    let scheme = Scheme::Https;
    let connect =
        |host: &str, port, stage| Action::Connect { scheme, host: host.into(), port, stage };
    let request =
        |method: &str, path: &str| Stage::Request { method: method.into(), path: path.into() };
    for (action, allowed) in [
        (get("api.example.com", "/v1/x"), true),
        (get("api.example.com", "/repos"), true),
        (get("api.example.com", "/repos/a"), true),
        (get("api.example.com", "/repos2"), false),
        (get("api.example.com", "/v1/../admin"), false),
        (get("api.example.com", "/v1/%2e%2e/admin"), false),
        (get("api.example.com", "/repos/private/x"), false),
        (get("API.example.com", "/v1/x"), false),
        (connect("api.example.com", 443, request("POST", "/v1/x")), false),
        (connect("api.example.com", 80, request("GET", "/v1/x")), false),
        (connect("api.example.com", 443, Stage::Dial), true),
        (connect("api.example.com", 443, Stage::Tunnel), false),
        (connect("a.mirror.example", 8443, Stage::Tunnel), true),
        (connect("mirror.example", 8443, Stage::Tunnel), false),
        (connect("b.a.mirror.example", 8443, Stage::Tunnel), false),
        (connect("bad.mirror.example", 8443, Stage::Dial), false),
        (connect("files.example.com", 443, Stage::Dial), false),
    ] {
        let decision = stack.decide(&in_phase("plan"), &action);
        assert_eq!(decision.allowed, allowed, "{action:?}: {}", decision.why);
    }
    let net = elevated(in_phase("plan"), "net");
    assert!(stack.decide(&net, &connect("files.example.com", 443, Stage::Dial)).allowed);
}

#[test]
fn a_secret_goes_only_to_its_endpoint() {
    let stack = stack();
    let secret = |name: &str, host: &str, port| Action::UseSecret {
        name: name.into(),
        host: host.into(),
        port,
    };
    let task = in_phase("plan");
    assert!(stack.decide(&task, &secret("github", "api.example.com", 443)).allowed);
    assert!(!stack.decide(&task, &secret("github", "api.example.com", 80)).allowed);
    assert!(!stack.decide(&task, &secret("github", "a.mirror.example", 8443)).allowed);
    assert!(!stack.decide(&task, &secret("other", "api.example.com", 443)).allowed);
    let low = Task { trust: Some(Trust::Low), ..task };
    assert!(!stack.decide(&low, &secret("github", "api.example.com", 443)).allowed);
}

#[test]
fn presets_read_and_do_not_write() {
    let stack = user(&shipped_but("\"none\"]", "\"packages\", \"git-read\"]"));
    let task = task(Trust::Medium);
    let request = |method: &str, path: &str| Action::Connect {
        scheme: Scheme::Https,
        host: "github.com".into(),
        port: 443,
        stage: Stage::Request { method: method.into(), path: path.into() },
    };
    assert!(stack.decide(&task, &request("GET", "/a/b/info/refs")).allowed);
    assert!(stack.decide(&task, &request("POST", "/a/b/git-upload-pack")).allowed);
    assert!(!stack.decide(&task, &request("POST", "/a/b/git-receive-pack")).allowed);
    assert!(stack.decide(&task, &get("rubygems.org", "/x")).allowed);
    assert!(!stack.decide(&task, &get("rubygems.org.example", "/x")).allowed);
}

#[test]
fn the_rights_of_a_plan_say_what_cedar_says() {
    let stack = stack();
    let files = [
        "./docs/a",
        "./src/a",
        "./.git/x",
        "./.github/x",
        "/tmp/x",
        "~/x",
        "/etc/x",
        "/",
        "./docs",
    ];
    for trust in Trust::ALL {
        for phase in ["plan", "implement", "unknown"] {
            for elevation in ["ci", "net", "none"] {
                let task = Task { trust: Some(*trust), ..elevated(in_phase(phase), elevation) };
                let rights = stack.path_rights(&task);
                for file in files {
                    let file = path(file);
                    let read = rights.iter().all(|rights| rights.may_read(&file));
                    let write = rights.iter().all(|rights| rights.may_write(&file));
                    let cedar = |action| stack.decide(&task, &action).allowed;
                    assert_eq!(read, cedar(Action::Read(file.clone())), "{trust} {file:?}");
                    assert_eq!(
                        write,
                        cedar(Action::Write(file.clone())),
                        "{trust} {phase} {file:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_file_goes_by_its_digest_and_by_no_pattern_of_names() {
    let digest = format!("sha256:{}", "ab".repeat(32));
    let stranger = format!("sha256:{}", "cd".repeat(32));
    let call = |tool: &str| Action::Call { tool: tool.to_owned(), kind: None, read_only: true };
    let low = task(Trust::Medium);
    let with = |names: &str| {
        let rule =
            format!("[[tool]]\nnames = [{names}]\napproved = true\nkind = \"compute\"\n\n[[tool]]");
        user(&DEFAULT_POLICY.replacen("[[tool]]", &rule, 1))
    };
    let of_file = with(&format!("{digest:?}"));
    assert!(of_file.decide(&low, &call(&digest)).allowed);
    assert!(!of_file.decide(&low, &call(&stranger)).allowed);
    let kind = |stack: &Stack, tool: &str| {
        stack.kind_of(&Work { tool: Some(tool.to_owned()), kind: None })
    };
    assert_eq!(
        (kind(&of_file, &digest), kind(&of_file, &stranger)),
        (Kind::Compute, Kind::Untrusted)
    );
    for pattern in ["s*", "*c*", "*d", "sha256*", "*a*b"] {
        let stack = with(&format!("{pattern:?}"));
        assert!(!stack.decide(&low, &call(&digest)).allowed, "{pattern}");
        assert!(!stack.decide(&low, &call(&stranger)).allowed, "{pattern}");
        assert_eq!(kind(&stack, &stranger), Kind::Untrusted, "{pattern}");
    }
    for all in ["*", "**"] {
        assert!(with(&format!("{all:?}")).decide(&low, &call(&stranger)).allowed);
    }
}
