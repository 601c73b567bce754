//! Policy decides what runs where: read in the evidence of runs, not only in the decision.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::tool::{Does, component, manifest};
use crate::support::{User, World, busybox_layout, is_root};

const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

/// A world with an image, whose user has this policy.
fn world(policy: &str) -> World {
    let world = World::new();
    let layout = busybox_layout(&world.path("layout"));
    world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", "test:latest"]).exits(0);
    set_policy(&world, policy, 0o644);
    world
}

fn set_policy(world: &World, policy: &str, mode: u32) {
    let place = world.path("nobody-home/.config/ringwall");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("ringwall.toml"), policy).unwrap();
    fs::set_permissions(place.join("ringwall.toml"), fs::Permissions::from_mode(mode)).unwrap();
}

fn with_risk(risk: &str) -> String {
    SHIPPED.replace("risk = \"medium\"", &format!("risk = {risk:?}"))
}

/// The rings of a run, as their wardens showed them.
#[track_caller]
fn wall_of(world: &World, flags: &[&str]) -> String {
    let flags = [&["-o", "json", "--image", "test:latest"], flags].concat();
    let document = world.sh(&flags, "true").exits(0).json();
    let evidence = document["evidence"].as_array().expect("evidence").clone();
    let rings: Vec<&str> = evidence.iter().filter_map(|ring| ring["ring"].as_str()).collect();
    assert_eq!(document["wall"], rings.join("/"));
    rings.join("/")
}

/// Every record of the audit log, without the checkpoints.
fn log(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.home().join("audit/log")).expect("a log");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    lines.filter(|line: &Value| line["checkpoint"].is_null()).collect()
}

#[test]
fn files_and_builds_run_behind_the_wall_that_the_risk_level_calls_for() {
    for (risk, wall) in [("low", "process"), ("medium", "container"), ("high", "container")] {
        let world = world(&with_risk(risk));
        for kind in ["files", "build"] {
            assert_eq!(wall_of(&world, &["--kind", kind]), wall, "{kind} work, risk level {risk}");
        }
    }
    let world = world(&with_risk("low"));
    assert_eq!(wall_of(&world, &["--kind", "build", "--risk", "medium"]), "container");
}

#[test]
fn work_of_no_known_kind_is_untrusted_and_gets_a_machine_or_nothing() {
    let world = world(SHIPPED);
    for flags in [&[][..], &["--kind", "nonsense"], &["--kind", "untrusted"]] {
        let refused = world.sh(flags, "true");
        refused.is_refused().says(&["untrusted work", "wall vm", "--image"]);
    }
}

#[test]
fn why_names_the_rule_of_the_last_refusal_and_what_would_allow_it() {
    let world = world(SHIPPED);
    let why = |words: &[&str], parts: &[&str]| {
        let shown = world.ringwall([&["why"], words].concat());
        let out = shown.exits(0).out();
        assert!(parts.iter().all(|part| out.contains(part)), "{parts:?}\n{out}");
    };
    why(&[], &["nothing was refused"]);
    world.sh(&["--kind", "build", "--wall", "process"], "true").is_refused();
    why(
        &[],
        &["refused   run build", "risk-levels.medium", "ringwall.toml:", "to allow", "audit show"],
    );
    // A limit refuses, too, and it is the newer refusal.
    let flags = ["--image", "test:latest", "--kind", "build", "--timeout", "200ms"];
    world.sh(&flags, "sleep 30").exits(124);
    why(&[], &["the time limit", "--timeout"]);
    let all = world.ringwall(["why", "-n", "9", "-o", "json"]).exits(0).json();
    assert_eq!(all[0]["refusal"]["what"], "run build", "{all}");
    let ended = all.as_array().and_then(|all| all.last()).expect("the limit");
    let id = ended["ids"]["sandbox"].as_str().expect("a sandbox");
    why(&[id], &["the time limit", id]);
    why(&["no-such-id"], &["nothing was refused for no-such-id"]);
}

#[test]
fn a_wall_that_is_too_weak_is_refused_by_the_rule_that_says_so() {
    let world = world(SHIPPED);
    let refused = world.sh(&["--kind", "build", "--wall", "process"], "true");
    refused.is_refused().says(&["process", "risk-levels.medium", "ringwall.toml:"]);
    let denied = log(&world).pop().expect("a record");
    assert_eq!(denied["event"]["kind"], "admission-denied");
    assert!(denied["event"]["rule"].as_str().unwrap().contains("risk-levels.medium"), "{denied}");
    let flags = ["--kind", "build", "--wall", "container/process"];
    assert_eq!(wall_of(&world, &flags), "container/process");
}

#[test]
fn limits_are_the_policys_and_no_more_can_be_asked_for() {
    let world = world(&SHIPPED.replace("memory = \"2G\"", "memory = \"96M\""));
    let flags = ["--kind", "build", "--image", "test:latest"];
    let refused = world.sh(&[&flags[..], &["--memory", "97M"]].concat(), "true");
    refused.is_refused().says(&["memory", "limits.memory"]);
    let run = world.sh(
        &[&flags[..], &["-o", "json"]].concat(),
        "x=$(head -c 200000000 /dev/zero | tr '\\0' x)",
    );
    assert_eq!(run.json()["ending"]["kind"], "oom", "{run:?}");
}

#[test]
fn the_policy_of_a_cloned_repository_narrows_and_never_widens() {
    let world = world(SHIPPED);
    let kind = ["--kind", "build", "--workspace", "."];
    let wide = "version = 1\nrisk = \"low\"\nfloor = \"process\"\n\
                [routes]\nbuild = [\"process\"]\nuntrusted = [\"process\"]\n\
                [limits]\nmemory = \"64G\"\ntimeout = \"24h\"\n";
    world.write("ringwall.toml", wide);
    assert_eq!(wall_of(&world, &kind), "container");
    let long =
        world.sh(&[&kind[..], &["--timeout", "2h", "--image", "test:latest"]].concat(), "true");
    long.is_refused();
    world.write("ringwall.toml", "version = 1\n[limits]\npids = 7\n");
    let narrow =
        world.sh(&[&kind[..], &["--pids", "8", "--image", "test:latest"]].concat(), "true");
    narrow.is_refused().says(&["limits.pids", "ringwall.toml"]);
    assert_eq!(wall_of(&world, &kind), "container");
}

#[test]
fn without_a_policy_that_can_be_trusted_nothing_is_routed() {
    let world = World::new();
    let run = |world: &World| world.sh(&["--kind", "build"], "echo ran");
    run(&world).is_refused().says(&["no policy", "ringwall policy init"]);
    set_policy(&world, "version = 1\ntrsut = \"low\"\n", 0o644);
    run(&world).is_refused().says(&["trsut", "did you mean", "2"]);
    set_policy(&world, SHIPPED, 0o666);
    run(&world).is_refused().says(&["others may write"]);
    set_policy(&world, "", 0o644);
    run(&world).is_refused();
    let named = world.sh(&["--policy", "absent.toml", "--kind", "build"], "echo ran");
    named.is_refused().says(&["absent.toml"]);
}

#[test]
fn an_ordinary_users_unreadable_policy_is_no_policy() {
    if !is_root() {
        println!("not tested here: only root makes a file that its user cannot read");
        return;
    }
    let world = World::of(User::Ordinary);
    set_policy(&world, SHIPPED, 0o000);
    for place in ["nobody-home", "nobody-home/.config", "nobody-home/.config/ringwall"] {
        fs::set_permissions(world.path(place), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.sh(&[], "echo ran").is_refused().says(&["cannot be read"]);
}

#[test]
fn a_task_moves_through_its_phases_and_writes_where_each_lets_it() {
    let phases = "\n[phases.plan]\nwrite = [\"./docs/**\"]\nnext = [\"implement\"]\n\
                  [phases.implement]\nwrite = [\"./**\"]\ndeny = [\"./ci/**\"]\nnext = [\"check\"]\n\
                  [phases.check]\nwrite = [\"./target/**\"]\n";
    let shipped =
        with_risk("low").replace("trust = \"medium\"", "trust = \"high\"\nphase = \"plan\"");
    let world = world(&format!("{shipped}{phases}"));
    world.write("docs/plan.md", "plan\n");
    world.write("ci/job", "job\n");
    world.write("src/main.rs", "code\n");
    let created = world.ringwall(["create", "--kind", "build", "--workspace", "."]);
    created.exits(0);
    let id = created.word();
    let script =
        "for f in docs/n src/n ci/n target/n; do (echo x >$f) 2>/dev/null && echo $f; done";
    let try_all =
        || world.ringwall(["exec", &id, "--", "sh", "-c", &format!("{script}; true")]).out();
    world.ringwall(["phase", &id]).prints("plan\n");
    assert_eq!(try_all(), "docs/n\n");
    world.ringwall(["phase", &id, "check"]).is_refused().says(&["phases.plan.next"]);
    assert_eq!(try_all(), "docs/n\n");
    world.ringwall(["phase", &id, "implement"]).exits(0);
    assert_eq!(try_all(), "docs/n\nsrc/n\n");
    world.ringwall(["phase", &id, "check"]).exits(0);
    assert_eq!(try_all(), "target/n\n");
    world.ringwall(["phase", &id, "plan"]).is_refused();
    // What was asked for at first still counts in a later phase.
    let flags = ["create", "--kind", "build", "--workspace", ".", "--read-only", "src"];
    let narrow = world.ringwall(flags).exits(0).word();
    world.ringwall(["phase", &narrow, "implement"]).exits(0);
    let line = ["exec", &narrow, "--", "sh", "-c", &format!("{script}; true")];
    world.ringwall(line).exits(0).prints("docs/n\n");
    world.ringwall(["rm", "--force", &narrow]).exits(0);
    world.ringwall(["stop", &id]).exits(0);
    world.ringwall(["apply", &id]).exits(0);
    assert!(world.project().join("src/n").exists() && !world.project().join("ci/n").exists());
    let records = log(&world);
    let changes = records.iter().filter(|record| record["event"]["kind"] == "phase-changed");
    let changes: Vec<_> = changes.map(|record| record["event"]["to"].as_str().unwrap()).collect();
    assert_eq!(changes, ["implement", "check", "implement"]);
    assert_eq!(records.last().unwrap()["event"]["kind"], "workspace-applied");
}

#[test]
fn a_tool_is_called_if_policy_approves_it_behind_a_wall_that_is_strong_enough() {
    let wasm = component(&manifest("yes"), &Does::Returns(r#"{"ok": true}"#));
    let call = |policy: &str| {
        let world = World::new();
        world.write("yes.wasm", &wasm);
        set_policy(&world, policy, 0o644);
        let called = world.ringwall(["tool", "call", "./yes.wasm"]);
        (world, called)
    };
    let (world, called) = call(SHIPPED);
    let digest = digest_of(&world, "./yes.wasm");
    called.is_refused().says(&[&digest, "trust-levels.medium"]);
    let records = log(&world);
    let denied = records.iter().find(|record| record["event"]["kind"] == "admission-denied");
    let denied = denied.expect("a denial");
    assert_eq!(
        (&denied["event"]["action"], &denied["event"]["resource"]),
        (&"call".into(), &digest.as_str().into())
    );
    // A name that a file gives itself is nothing to go by.
    for pattern in ["yes", "*s", "s*"] {
        let named = approving(pattern);
        call(&format!("{SHIPPED}{named}")).1.is_refused().says(&["trust-levels.medium"]);
    }
    let approved = approving(&digest);
    let (world, called) = call(&format!("{SHIPPED}{approved}"));
    called.exits(0).prints("{\"ok\":true}\n");
    let records = log(&world);
    let of_call: Vec<&Value> =
        records.iter().filter(|record| record["event"]["call"] == "tool").collect();
    assert_eq!(of_call.len(), 2, "{records:?}");
    assert_eq!(of_call[1]["event"]["result"], "succeeded");
    let high = format!("{}{approved}", with_risk("high"));
    call(&high).1.is_refused().says(&["wasm", "risk-levels.high"]);
}

/// A rule of a policy for one tool.
fn approving(name: &str) -> String {
    format!("\n[[tool]]\nnames = [{name:?}]\nkind = \"compute\"\napproved = true\n")
}

fn digest_of(world: &World, file: &str) -> String {
    let inspected = world.ringwall(["tool", "inspect", file, "-o", "json"]);
    inspected.exits(0).json()["digest"].as_str().unwrap().to_owned()
}

#[test]
fn a_watched_file_takes_no_name_that_is_installed_or_built_in() {
    let world = World::new();
    let says = |name: &str, text: &str| component(&manifest(name), &Does::Returns(text));
    world.write("own.wasm", says("own", r#"{"ok": "installed"}"#));
    world.ringwall(["tool", "add", "./own.wasm"]).exits(0);
    fs::create_dir(world.path("watched")).unwrap();
    let taking = says("own", r#"{"ok": "watched"}"#);
    fs::write(world.path("watched/evil.wasm"), taking).unwrap();
    let watched = world.path("watched").display().to_string();
    let asked = b"{\"id\": 1, \"tool\": \"own\"}\n";
    let served = world.ringwall_with_input(&["tool", "serve", "--watch", &watched], asked);
    let text = served.exits(0).out();
    assert!(text.contains("installed already") && !text.contains("swapped"), "{text}");
    assert!(text.contains("\"ok\":\"installed\""), "{text}");
}

#[test]
fn commands_behind_a_ring_for_tools_are_judged_by_the_rings_round_them() {
    let world = World::new();
    set_policy(&world, SHIPPED, 0o644);
    let escape = |flags: &[&str]| world.sh(flags, "echo ran >canary");
    for wall in ["process/wasm", "process"] {
        escape(&["--kind", "compute", "--wall", wall]).is_refused().says(&["risk-levels.medium"]);
    }
    // Nor by a file of the repository.
    world.write("ringwall.toml", "version = 1\n[routes]\nbuild = [\"process/wasm\"]\n");
    let refused = escape(&["--kind", "build", "--workspace", "."]);
    refused.is_refused().says(&["container"]);
}

#[test]
fn apply_asks_for_the_paths_that_it_writes_however_they_are_spelled() {
    let world = World::new();
    set_policy(&world, &with_risk("low"), 0o644);
    let rails = "@id(\"no-locks\") forbid(principal, action == Action::\"write\", resource)\n\
                 when { resource.path like \"*.lock\" };";
    fs::write(world.path("nobody-home/.config/ringwall/ringwall.cedar"), rails).unwrap();
    let made =
        world.sh(&["--kind", "files", "--workspace", "."], "echo x >deps.lock; echo y >code.c");
    made.exits(0);
    let id = world.sandboxes()[0]["id"].as_str().unwrap().to_owned();
    let whole = world.project().join("deps.lock").display().to_string();
    let all = world.project().display().to_string();
    for path in ["deps.lock", "./deps.lock", &whole, "./", ".", &all] {
        world.ringwall(["apply", &id, path]).is_refused().says(&["no-locks"]);
    }
    world.ringwall(["apply", &id]).is_refused().says(&["no-locks"]);
    world.ringwall(["apply", &id, "./", "--except", "./deps.lock"]).exits(0);
    assert!(world.project().join("code.c").exists() && !world.project().join("deps.lock").exists());
}

#[test]
fn a_run_stands_in_the_log_with_why_it_ran_there_and_how_it_ended() {
    let world = world(SHIPPED);
    world.sh(&["--kind", "build", "--image", "test:latest"], "exit 3").exits(3);
    let records = log(&world);
    let id = records.last().unwrap()["ids"]["sandbox"].as_str().unwrap().to_owned();
    let of_run: Vec<&Value> =
        records.iter().filter(|record| record["ids"]["sandbox"] == id.as_str()).collect();
    let kinds: Vec<_> = of_run.iter().map(|it| it["event"]["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "sandbox-placed",
            "call-started",
            "evidence-checked",
            "sandbox-raised",
            "call-ended",
            "sandbox-ended"
        ]
    );
    let placed = &of_run[0]["event"];
    assert_eq!(placed["inputs"]["kind"], "build");
    assert!(placed["rules"][0].as_str().unwrap().contains("routes.build"), "{placed}");
    assert_eq!(of_run[4]["event"]["ending"]["code"], 3);
    assert_eq!(of_run[1]["ids"]["call"], of_run[4]["ids"]["call"]);
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let world = World::new();
    world.sh(&[], "true").exits(0);
    let log = world.home().join("audit/log");
    let whole = fs::read(&log).unwrap();
    fs::write(&log, &whole[..whole.len() - 100]).unwrap();
    let refused = world.sh(&["--workspace", "."], "echo ran >canary");
    refused.is_refused().says(&["record", "audit"]);
    assert!(!world.project().join("canary").exists());
    assert!(world.sandboxes().is_empty(), "nothing is left of a refused run");
    fs::write(&log, &whole).unwrap();
    world.sh(&[], "true").exits(0);
    fs::remove_file(&log).unwrap();
    world.sh(&[], "true").is_refused().says(&["cut off"]);
}

#[test]
fn a_service_of_tools_asks_the_policy_for_every_call() {
    let world = World::new();
    fs::create_dir(world.path("watched")).unwrap();
    for name in ["yes", "no"] {
        let wasm = component(&manifest(name), &Does::Returns(r#"{"ok": true}"#));
        fs::write(world.path(format!("watched/{name}.wasm")), wasm).unwrap();
    }
    let watched = world.path("watched").display().to_string();
    let approved = approving(&digest_of(&world, &format!("{watched}/yes.wasm")));
    set_policy(&world, &format!("{SHIPPED}{approved}"), 0o644);
    let asked = "{\"id\": 1, \"tool\": \"yes\"}\n{\"id\": 2, \"tool\": \"no\"}\n";
    let served =
        world.ringwall_with_input(&["tool", "serve", "--watch", &watched], asked.as_bytes());
    let text = served.exits(0).out();
    let answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let answer = |id: u64| answers.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_eq!(answer(1)["output"]["ok"], true, "{text}");
    assert_eq!(answer(2)["error"]["code"], "refused", "{text}");
    assert!(
        answer(2)["error"]["message"].as_str().unwrap().contains("trust-levels.medium"),
        "{text}"
    );
    let kinds: Vec<Value> =
        log(&world).iter().map(|record| record["event"]["kind"].clone()).collect();
    for kind in ["call-started", "call-ended", "admission-denied"] {
        assert!(kinds.contains(&kind.into()), "{kinds:?}");
    }
}

#[test]
fn work_of_another_kind_in_a_living_sandbox_is_routed_again() {
    let world = world(&with_risk("low"));
    let floor = "\n[routes]\nbuild = [\"container\"]\n";
    world.write("ringwall.toml", format!("version = 1\n{floor}"));
    let created = world.ringwall(["create", "--kind", "files", "--workspace", "."]);
    let id = created.exits(0).word();
    let exec = |kind: &str| {
        let line = ["exec", "--kind", kind, &id, "--", "echo", "ran"];
        world.ringwall(line)
    };
    exec("files").exits(0).prints("ran\n");
    let stronger = exec("build");
    stronger.is_refused().says(&["build", "container", "ringwall run --kind build"]);
    for kind in ["untrusted", "nonsense"] {
        exec(kind).is_refused().says(&["untrusted", "ringwall run --kind untrusted"]);
    }
    let denied = log(&world).pop().expect("a record");
    assert_eq!(
        (&denied["event"]["kind"], &denied["event"]["action"]),
        (&"admission-denied".into(), &"exec".into())
    );
    assert_eq!(denied["ids"]["sandbox"], id.as_str());
    world.ringwall(["exec", &id, "--", "echo", "ran"]).exits(0).prints("ran\n");
}

#[test]
fn a_policy_that_the_sandbox_could_write_is_none() {
    let world = world(SHIPPED);
    let direct = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(direct.path(), Some(12345), Some(12345)).ok();
    let direct = direct.path().canonicalize().unwrap();
    let text = direct.display().to_string();
    let run = |flags: &[&str], dir: &str| {
        let flags = [&["--kind", "build", "--image", "test:latest"], flags].concat();
        world.sh(&[&flags[..], &["--workspace-rw", dir]].concat(), "echo ran")
    };
    run(&[], &text).exits(0);
    // Its own, which narrows: it could take that away for the next run.
    fs::write(direct.join("ringwall.toml"), "version = 1\n[limits]\npids = 7\n").unwrap();
    run(&[], &text).is_refused().says(&["ringwall.toml", "sandbox can write"]);
    fs::remove_file(direct.join("ringwall.toml")).unwrap();
    // One that was named.
    fs::write(direct.join("mine.toml"), SHIPPED).unwrap();
    let named = direct.join("mine.toml").display().to_string();
    run(&["--policy", &named], &text).is_refused().says(&["mine.toml", "sandbox can write"]);
    // Copy-on-write: the job changes a copy, and taking that over is a person's decision.
    world.write("ringwall.toml", "version = 1\n[limits]\npids = 77\n");
    let flags = ["--kind", "build", "--image", "test:latest", "--workspace", "."];
    let run = world.sh(&flags, "echo 'version = 1' >ringwall.toml");
    run.exits(0);
    assert!(world.read("ringwall.toml").contains("pids"));
    let id = world.sandboxes()[0]["id"].as_str().expect("an id").to_owned();
    world.ringwall(["apply", &id]).is_refused().says(&["ringwall.toml", "protected"]);
    assert!(world.read("ringwall.toml").contains("pids"));
}

#[test]
fn a_denial_that_no_mount_keeps_refuses_a_workspace_that_is_written_directly() {
    let implement = "\n[phases.implement]\nwrite = [\"./**\"]\ndeny = [\"./**/.git/**\"]\n";
    let shipped =
        with_risk("low").replace("trust = \"medium\"", "trust = \"high\"\nphase = \"implement\"");
    let world = world(&format!("{shipped}{implement}"));
    let direct = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(direct.path(), Some(12345), Some(12345)).ok();
    let direct = direct.path().canonicalize().unwrap();
    fs::create_dir_all(direct.join(".git/hooks")).unwrap();
    let script = "echo evil >.git/hooks/pre-commit && echo WROTE";
    let flags = ["--kind", "build", "--workspace-rw", direct.to_str().unwrap()];
    let refused = world.sh(&flags, script);
    refused.is_refused().says(&["phases.implement.deny", "./**/.git/**", "--workspace"]);
    assert!(!direct.join(".git/hooks/pre-commit").exists());
    // Changes that are kept apart are judged one by one.
    world.write(".git/config", "");
    let script = "mkdir -p .git/hooks && echo evil >.git/hooks/pre-commit; echo fine >code.c";
    let run = world.sh(&["--kind", "build", "--workspace", ".", "-o", "json"], script);
    let id = run.exits(0).json()["id"].as_str().expect("an id").to_owned();
    let refused = world.ringwall(["apply", &id]);
    refused.is_refused().says(&["./.git", "phases.implement.deny"]);
    world.ringwall(["apply", &id, "code.c"]).exits(0);
    assert!(!world.project().join(".git/hooks").exists());
}

/// A policy speaks of a project, and a workspace can be a part of it.
#[test]
fn a_denial_holds_where_the_workspace_is_what_it_denies() {
    let implement =
        "\n[phases.implement]\nwrite = [\"./**\"]\ndeny = [\"./infra/**\", \"./conf/**/*.tf\"]\n";
    let shipped =
        with_risk("low").replace("trust = \"medium\"", "trust = \"high\"\nphase = \"implement\"");
    let world = world(&format!("{shipped}{implement}"));
    world.write(".git/HEAD", "ref: refs/heads/main\n");
    for directory in ["infra/deep", "conf/sub", "src"] {
        world.write(&format!("{directory}/code"), "mine\n");
    }
    let made = |workspace: &str, script: &str| {
        let flags = ["--kind", "build", "--workspace", workspace, "-o", "json"];
        let run = world.sh(&flags, script);
        run.exits(0).json()["id"].as_str().map(str::to_owned)
    };
    for workspace in ["infra", "infra/deep"] {
        let run = world
            .sh(&["--kind", "build", "--workspace", workspace], "echo x >prod.tf && echo WROTE");
        assert!(!run.out().contains("WROTE"), "{run:?}");
        let run = world.sh(&["--kind", "build", "--workspace-rw", workspace], "echo WROTE");
        run.is_refused();
        assert!(!world.project().join(workspace).join("prod.tf").exists());
    }
    // No mount keeps this one.
    let id = made("conf/sub", "echo x >prod.tf; echo x >code").expect("an id");
    world.ringwall(["apply", &id]).is_refused().says(&["prod.tf", "phases.implement.deny"]);
    world.ringwall(["apply", &id, "code"]).exits(0);
    let id = made("src", "echo x >code").expect("an id");
    world.ringwall(["apply", &id]).exits(0);
    assert_eq!(world.read("src/code"), "x\n");
}

#[test]
fn a_guard_rail_against_writing_refuses_a_workspace_that_is_written_directly() {
    let shipped = with_risk("low");
    let world = world(&shipped);
    let direct = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(direct.path(), Some(12345), Some(12345)).ok();
    let direct = direct.path().canonicalize().unwrap();
    let flags = ["--kind", "build", "--workspace-rw", direct.to_str().unwrap()];
    world.sh(&flags, "touch made").exits(0);
    let rails = "@id(\"no-locks\")\nforbid(principal, action == Action::\"write\", resource)\n\
                 when { resource.path like \"*.lock\" };\n";
    let place = world.path("nobody-home/.config/ringwall");
    fs::write(place.join("ringwall.cedar"), rails).unwrap();
    let refused = world.sh(&flags, "touch deps.lock");
    refused.is_refused().says(&["no-locks", "--workspace"]);
    assert!(!direct.join("deps.lock").exists());
}
