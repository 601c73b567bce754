//! Grants and approvals as their holders and approvers meet them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;

use crate::support::tool::{Does, component, manifest};
use crate::support::{Finished, World};

const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");

/// A world whose policy gives tasks work with files only, but lets Ann allow builds.
pub(crate) struct Place {
    pub(crate) world: World,
    pub(crate) token: PathBuf,
}

impl Place {
    pub(crate) fn new(kinds: &[&str]) -> Place {
        let world = World::new();
        let config = world.path("nobody-home/.config/ringwall");
        fs::create_dir_all(&config).expect("a directory");
        for directory in ["nobody-home", "nobody-home/.config", "nobody-home/.config/ringwall"] {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(world.path(directory), mode).expect("a mode");
        }
        let made = world.ringwall(["approvals", "keygen"]);
        let key = made.exits(0).word();
        let shipped = SHIPPED
            .replace("[trust-levels.medium]\n", "[trust-levels.medium]\nkinds = [\"files\"]\n")
            .replace("risk = \"medium\"", "risk = \"low\"");
        assert!(shipped.contains("kinds"));
        let rules = format!(
            "\n[[elevation]]\nname = \"builds\"\ngrants = [\"run:build\"]\napprovers = [\"ann\"]\n\
             max = \"10m\"\nsingle-use = true\n\n[[approver]]\nname = \"ann\"\nkey = \"{key}\"\n"
        );
        fs::write(config.join("ringwall.toml"), shipped + &rules).expect("a policy");
        let place = Place { token: world.path("token"), world };
        place.grant(kinds);
        place
    }

    /// A new grant for these kinds of work, in a process or container wall.
    pub(crate) fn grant(&self, kinds: &[&str]) {
        let kinds: Vec<&str> = kinds.iter().flat_map(|kind| ["--kind", kind]).collect();
        self.grant_with(&kinds);
    }

    /// The same for whatever these flags say.
    fn grant_with(&self, flags: &[&str]) {
        let line = ["grant", "new", "--task", "t-1", "--wall", "container", "--wall", "process"];
        let made = self.world.ringwall([&line, flags].concat());
        made.exits(0);
        fs::write(&self.token, made.out()).expect("a file");
    }

    fn run(&self, kind: &str, script: &str) -> Finished {
        self.run_with(&["--kind", kind], script)
    }

    fn run_with(&self, flags: &[&str], script: &str) -> Finished {
        let token = self.token.to_str().expect("a path");
        self.world.sh(&[&["--grant", token, "--wall", "process"], flags].concat(), script)
    }

    /// A path of the project.
    fn project(&self, name: &str) -> String {
        self.world.project().join(name).display().to_string()
    }

    /// The approval that a refusal names.
    #[track_caller]
    fn asked(&self, refused: &Finished) -> String {
        let text = refused.is_refused().err();
        let at = text.find("apr-").unwrap_or_else(|| panic!("no approval: {text}"));
        text[at..]
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .next()
            .unwrap()
            .to_owned()
    }

    fn kinds_of_events(&self) -> Vec<String> {
        let log = fs::read_to_string(self.world.home().join("audit/log")).expect("a log");
        let events = log.lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            Some(line["event"]["kind"].as_str()?.to_owned())
        });
        events.collect()
    }
}

#[test]
fn a_grant_gives_its_kinds_of_work_and_no_others() {
    let place = Place::new(&["files"]);
    place.run("files", "echo ran").exits(0).prints("ran\n");
    let log = fs::read_to_string(place.world.home().join("audit/log")).expect("a log");
    assert!(log.contains(r#""caller":"grant "#), "{log}");
    place.grant(&["compute"]);
    place.run("files", "echo ran").is_refused().says(&["files"]);
    fs::write(&place.token, "not a token").expect("a file");
    place.run("files", "echo ran").is_refused().says(&["token"]);
    assert!(place.kinds_of_events().contains(&"grant-minted".to_owned()));
    let told = place.world.ringwall(["audit", "tail", "--kind", "grant-minted"]).exits(0).out();
    assert!(told.contains("kinds files") && told.contains("walls container process"), "{told}");
}

#[test]
fn a_revoked_grant_is_worth_nothing_from_then_on() {
    let place = Place::new(&["files"]);
    place.run("files", "true").exits(0);
    let listed = place.world.ringwall(["grant", "ls", "-o", "json"]).exits(0).json();
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    place.world.ringwall(["grant", "revoke", &id]).exits(0);
    place.run("files", "echo ran").is_refused().says(&["revoked"]);
    assert_eq!(place.kinds_of_events().last().map(String::as_str), Some("admission-denied"));
}

#[test]
fn a_person_allows_exactly_what_was_asked_and_once() {
    let place = Place::new(&["build"]);
    let id = place.asked(&place.run("build", "echo built"));
    assert_eq!(id, place.asked(&place.run("build", "echo built")), "one question");
    let approve = ["approvals", "approve", &id, "--reason", "the release needs it"];
    place.world.ringwall(approve).exits(0);
    let other = place.asked(&place.run("build", "echo something else"));
    assert_ne!(other, id, "another command is another question");
    place.run("build", "echo built").exits(0).prints("built\n");
    place.run("build", "echo built").is_refused();
    let deny = ["approvals", "deny", &other, "--reason", "no"];
    place.world.ringwall(deny).exits(0);
    place.run("build", "echo something else").is_refused();
    let events = place.kinds_of_events();
    for kind in [
        "approval-asked",
        "approval-approved",
        "approval-used",
        "approval-returned",
        "approval-denied",
    ] {
        assert!(events.iter().any(|event| event == kind), "{kind} is not in {events:?}");
    }
    let at = |kind: &str| events.iter().position(|event| event == kind);
    assert!(at("approval-used") < at("approval-returned"), "{events:?}");
    place.world.ringwall(["audit", "verify"]).exits(0);
}

#[test]
fn a_yes_of_somebody_whom_the_policy_does_not_name_counts_for_nothing() {
    let place = Place::new(&["build"]);
    let id = place.asked(&place.run("build", "echo built"));
    let own = place.world.path("own.key");
    let own = own.to_str().expect("a path");
    place.world.ringwall(["approvals", "keygen", "--key", own]).exits(0);
    let line = ["approvals", "approve", &id, "--reason", "me", "--key", own];
    place.world.ringwall(line).is_refused();
    place.run("build", "echo built").is_refused();
}

#[test]
fn an_elevation_that_nobody_used_is_returned_by_the_next_command() {
    let place = Place::new(&["build"]);
    let id = place.asked(&place.run("build", "echo built"));
    let approve = ["approvals", "approve", &id, "--reason", "for a moment", "--for", "1s"];
    place.world.ringwall(approve).exits(0);
    let returned = || place.kinds_of_events().iter().any(|event| event == "approval-returned");
    assert!(!returned());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    place.run("files", "true").is_refused();
    assert!(returned(), "{:?}", place.kinds_of_events());
    place.run("files", "true").is_refused();
    let events = place.kinds_of_events();
    assert_eq!(events.iter().filter(|event| *event == "approval-returned").count(), 1);
}

#[test]
fn a_grants_paths_are_all_that_a_job_sees_and_writes_of_the_workspace() {
    let place = Place::new(&["files"]);
    place.world.write("src/main.rs", "code\n");
    place.world.write("docs/a.md", "text\n");
    let script = "for f in docs/n src/n top; do (echo x >$f) 2>/dev/null && echo $f; done; true";
    let workspace = ["--kind", "files", "--workspace", "."];
    // Nothing of it is granted.
    place.run_with(&workspace, "echo ran").is_refused().says(&["read"]);
    let (all, docs) = (place.project(""), place.project("docs"));
    place.grant_with(&["--kind", "files", "--read", &all]);
    place.run_with(&workspace, &format!("cat src/main.rs; {script}")).exits(0).prints("code\n");
    place.grant_with(&["--kind", "files", "--read", &all, "--write", &docs]);
    place.run_with(&workspace, script).exits(0).prints("docs/n\n");
    // Not even where a flag or a wider grant before says more.
    let flags = [&workspace[..], &["--writable", "src", "--writable", "docs"]].concat();
    place.run_with(&flags, script).exits(0).prints("docs/n\n");
    place.grant_with(&["--kind", "files", "--read", &all, "--write", &all]);
    place.run_with(&workspace, script).exits(0).prints("docs/n\nsrc/n\ntop\n");
    let token = fs::read(&place.token).expect("a token");
    let narrow = ["grant", "narrow", "--write", &docs];
    let narrowed = place.world.ringwall_with_input(&narrow, &token);
    fs::write(&place.token, narrowed.exits(0).out()).expect("a file");
    place.run_with(&workspace, script).exits(0).prints("docs/n\n");
    // A part of what would be seen is not enough: nothing would keep the rest from being read.
    place.grant_with(&["--kind", "files", "--read", &docs, "--write", &all]);
    place.run_with(&workspace, "echo ran").is_refused().says(&["read"]);
    place.run_with(&["--kind", "files", "--workspace", "docs"], "cat a.md").prints("text\n");
    let shown = ["--kind", "files", "--ro", &all];
    place.run_with(&shown, "echo ran").is_refused().says(&["read"]);
    assert_eq!(place.kinds_of_events().last().map(String::as_str), Some("admission-denied"));
}

#[test]
fn under_a_grant_no_workspace_is_written_straight_to() {
    let place = Place::new(&["files"]);
    let direct = tempfile::tempdir().expect("a directory");
    // Root's own directories are refused for another reason.
    std::os::unix::fs::chown(direct.path(), Some(12345), Some(12345)).ok();
    let path = direct.path().canonicalize().expect("a path").display().to_string();
    let part = format!("{path}/part");
    let flags = ["--kind", "files", "--workspace-rw", &path];
    let hook = "mkdir -p .git/hooks; echo evil >.git/hooks/pre-commit; echo ran";
    place.grant_with(&["--kind", "files", "--read", &path, "--write", &part]);
    place.run_with(&flags, hook).is_refused().says(&["writ"]);
    // Not even where all of it is granted: protected paths are the owner's.
    place.grant_with(&["--kind", "files", "--read", &path, "--write", &path]);
    let words = ["protected paths", "owner", "--workspace"];
    place.run_with(&flags, hook).is_refused().says(&words);
    let token = place.token.to_str().expect("a path");
    let create = ["create", "--grant", token, "--wall", "process"];
    place.world.ringwall([&create[..], &flags].concat()).is_refused().says(&words);
    assert!(!direct.path().join(".git").exists());
    assert!(place.kinds_of_events().contains(&"admission-denied".to_owned()));
    // A copy can be written, and the owner can still write directly.
    place.run_with(&["--kind", "files", "--workspace", &path], hook).exits(0).prints("ran\n");
    assert!(!direct.path().join(".git").exists());
    let owner = ["--wall", "process", "--kind", "files", "--workspace-rw", &path];
    place.world.sh(&owner, hook).exits(0).prints("ran\n");
    assert!(direct.path().join(".git/hooks/pre-commit").exists());
}

#[test]
fn a_tier_above_that_of_the_policy_is_the_owners_to_name() {
    let place = Place::new(&["files", "build"]);
    // The policy keeps the medium trust level, and no other, to work with files.
    place.run("build", "echo ran").is_refused();
    let with = |kind: &str, flags: &[&str]| {
        place.run_with(&[&["--kind", kind, "--no-workspace"], flags].concat(), "echo ran")
    };
    let words = ["trust level high", "above medium", "--trust"];
    for kind in ["build", "files"] {
        with(kind, &["--trust", "high"]).is_refused().says(&words);
    }
    let token = place.token.to_str().expect("a path");
    let create = ["create", "--grant", token, "--wall", "process", "--kind", "build"];
    let create = [&create[..], &["--no-workspace", "--trust", "high"]].concat();
    place.world.ringwall(create).is_refused().says(&words);
    for trust in ["medium", "low"] {
        with("files", &["--trust", trust]).exits(0).prints("ran\n");
    }
    // A risk level is on top of the policy's own, so a lower one gives nothing.
    with("build", &["--risk", "low"]).is_refused().says(&["trust-levels.medium.kinds"]);
    let owner = ["--wall", "process", "--kind", "build", "--no-workspace", "--trust", "high"];
    place.world.sh(&owner, "echo ran").exits(0).prints("ran\n");
    // A policy that names no trust level trusts its tasks least.
    let policy = place.world.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = fs::read_to_string(&policy).expect("a policy");
    fs::write(&policy, text.replace("trust = \"medium\"\n", "")).expect("a policy");
    with("files", &["--trust", "medium"]).is_refused().says(&["trust level medium", "above low"]);
}

#[test]
fn a_budget_is_for_all_runs_together_and_what_is_not_used_comes_back() {
    let place = Place::new(&["files"]);
    place.grant_with(&["--kind", "files", "--budget", "calls=2"]);
    for _ in 0..2 {
        place.run("files", "echo ran").exits(0).prints("ran\n");
    }
    let third = place.run("files", "echo ran");
    third.is_refused().says(&["calls", "spent"]);
    let token = fs::read(&place.token).expect("a token");
    let narrow = ["grant", "narrow", "--budget", "calls=5"];
    let narrowed = place.world.ringwall_with_input(&narrow, &token);
    fs::write(&place.token, narrowed.exits(0).out()).expect("a file");
    place.run("files", "echo ran").is_refused().says(&["calls"]);
    assert_eq!(place.kinds_of_events().last().map(String::as_str), Some("admission-denied"));

    place.grant_with(&["--kind", "files", "--budget", "wall_seconds=8"]);
    for _ in 0..3 {
        // Each may take all that is left, and takes next to nothing.
        place.run("files", "echo ran").exits(0).prints("ran\n");
    }
    let long = place.run("files", "sleep 60");
    long.exits(124).says(&["time"]);
    place.run("files", "echo ran").is_refused().says(&["wall_seconds", "spent"]);
}

#[test]
fn processors_and_memory_are_paid_for_by_the_second() {
    let place = Place::new(&["files"]);
    place.grant_with(&["--kind", "files", "--budget", "cpu_seconds=4"]);
    let timeout_of = |flags: &[&str]| {
        let flags = [&["--kind", "files", "-o", "json"], flags].concat();
        let document = place.run_with(&flags, "true").exits(0).json();
        let limits = document["limits"].as_array().expect("limits").clone();
        let timeout = limits.iter().find(|limit| limit["limit"] == "timeout").expect("a limit");
        timeout["value"].as_str().expect("a time").to_owned()
    };
    // What the runs before used is a few milliseconds.
    let (two, one) = (timeout_of(&["--cpus", "2"]), timeout_of(&["--cpus", "1"]));
    assert!(two.starts_with("1.") || two.starts_with('2'), "{two}");
    assert!(one.starts_with("3.") || one.starts_with('4'), "{one}");
    place.grant_with(&["--kind", "files", "--budget", "memory_mib_seconds=100"]);
    let refused = place.run_with(&["--kind", "files", "--memory", "512M"], "echo ran");
    refused.is_refused().says(&["memory_mib_seconds"]);
    place.run_with(&["--kind", "files", "--memory", "50M"], "echo ran").exits(0);
}

#[test]
fn a_sandbox_that_lives_on_gives_back_what_it_did_not_use_when_it_ends() {
    let place = Place::new(&["files"]);
    place.grant_with(&["--kind", "files", "--budget", "wall_seconds=30"]);
    let token = place.token.to_str().expect("a path");
    let flags = ["create", "--grant", token, "--wall", "process", "--kind", "files"];
    let id = place.world.ringwall(flags).exits(0).word();
    place.world.ringwall(flags).is_refused().says(&["wall_seconds", "spent"]);
    place.world.ringwall(["stop", &id]).exits(0);
    // The keeper settles after it has said that the sandbox is stopped.
    let held = place.world.home().join("grants/held").join(&id);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while held.exists() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let again = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let made = place.world.ringwall(flags);
        (made.code == 0).then(|| made.word())
    });
    let again = again.expect("what was not used is there again");
    place.world.ringwall(["rm", "--force", &again]).exits(0);
}

#[test]
fn a_tool_is_called_under_a_grant_that_names_it_and_its_directories() {
    let place = Place::new(&["files"]);
    let world = &place.world;
    let wasm = component(&manifest("yes"), &Does::Returns(r#"{"ok": true}"#));
    world.write("yes.wasm", &wasm);
    world.ringwall(["tool", "add", "./yes.wasm"]).exits(0);
    let token = place.token.to_str().expect("a path");
    let call = || world.ringwall(["tool", "call", "yes", "--grant", token]);
    place.grant_with(&["--tool", "no"]);
    call().is_refused().says(&["grant", "yes"]);
    assert_eq!(place.kinds_of_events().last().map(String::as_str), Some("admission-denied"));
    place.grant_with(&["--tool", "yes", "--budget", "calls=2"]);
    // What the policy refuses costs nothing.
    call().is_refused().says(&["trust-levels.medium.tools"]);
    let policy = world.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = fs::read_to_string(&policy).expect("a policy");
    let rule = "\n[[tool]]\nnames = [\"yes\"]\nkind = \"compute\"\napproved = true\n";
    let text = text.replace("kinds = [\"files\"]", "kinds = [\"files\", \"compute\"]");
    fs::write(&policy, text + rule).expect("a policy");
    call().exits(0).prints("{\"ok\":true}\n");
    call().exits(0);
    call().is_refused().says(&["calls", "spent"]);
    // Fuel: no more than is left, and nothing when it is gone.
    place.grant_with(&["--tool", "yes", "--budget", "fuel=10"]);
    call().exits(137).says(&["fuel"]);
    call().is_refused().says(&["fuel", "spent"]);
}

/// A tool that wants to write, in the world of a policy that approves of it.
fn add_writing_tool(world: &World) {
    let mut described = manifest("writes");
    described["wants"] = json!({ "dirs": [{ "path": "/work", "access": "rw", "optional": true }] });
    world.write("writes.wasm", component(&described, &Does::Returns(r#"{"ok": true}"#)));
    world.ringwall(["tool", "add", "./writes.wasm"]).exits(0);
    let policy = world.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = fs::read_to_string(&policy).expect("a policy");
    let rule = "\n[[tool]]\nnames = [\"writes\"]\nkind = \"compute\"\napproved = true\n";
    let text = text.replace("kinds = [\"files\"]", "kinds = [\"files\", \"compute\"]");
    fs::write(&policy, text + rule).expect("a policy");
}

#[test]
fn a_grant_lets_no_tool_write_where_protected_paths_could_be_made() {
    let place = Place::new(&["files"]);
    add_writing_tool(&place.world);
    let project = place.project("");
    let project = project.trim_end_matches('/');
    place.grant_with(&["--tool", "writes", "--read", project, "--write", project]);
    let token = place.token.to_str().expect("a path");
    let call = |dir: &str| {
        let dir = format!("/work={dir}");
        place.world.ringwall(["tool", "call", "writes", "--grant", token, "--dir", &dir])
    };
    call(project).exits(0);
    fs::create_dir_all(place.world.project().join("empty/.git")).expect("directories");
    for directory in ["", "/empty", "/empty/.git"] {
        let refused = call(&format!("{project}{directory}:rw"));
        refused.is_refused().says(&["writes", "by a grant", ".git/hooks", "/wasm"]);
    }
    assert_eq!(place.kinds_of_events().last().map(String::as_str), Some("admission-denied"));
}

#[test]
fn a_tool_writes_only_where_phase_and_tier_let_all_be_written() {
    let place = Place::new(&["files"]);
    let world = &place.world;
    add_writing_tool(world);
    world.write("docs/page", "text\n");
    let call =
        |dir: &str| world.ringwall(["tool", "call", "writes", "--dir", &format!("/work={dir}")]);
    let policy = world.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = fs::read_to_string(&policy).expect("a policy");
    let trust = r#"write = ["~/**", "./**", "/tmp/**"]"#;
    let narrow = text.replace(trust, r#"write = ["./docs/**"]"#);
    assert_ne!(narrow, text);
    fs::write(&policy, narrow).expect("a policy");
    call(".:rw").is_refused().says(&["writes", "trust-levels.medium.write"]);
    call(".").exits(0);
    let phases = "\n[phases.plan]\nwrite = [\"./docs/**\"]\n";
    let text = text.replace("trust = \"medium\"", "trust = \"medium\"\nphase = \"plan\"");
    fs::write(&policy, text.clone() + phases).expect("a policy");
    call(".:rw").is_refused().says(&["writes", "may not write"]);
    call(".").exits(0);
    let phases = "\n[phases.plan]\nwrite = [\"./**\"]\ndeny = [\"./**/.git/**\"]\n";
    fs::write(&policy, text + phases).expect("a policy");
    call(".:rw").is_refused().says(&["writes", "a denial for paths below it"]);
}

#[test]
fn a_person_allows_exactly_this_call_of_a_tool_and_once() {
    let place = Place::new(&["files"]);
    let world = &place.world;
    let wasm = component(&manifest("maybe"), &Does::Returns(r#"{"ok": true}"#));
    world.write("maybe.wasm", &wasm);
    world.ringwall(["tool", "add", "./maybe.wasm"]).exits(0);
    let policy = world.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = fs::read_to_string(&policy).expect("a policy");
    let text = text.replace("kinds = [\"files\"]", "kinds = [\"files\", \"compute\"]");
    let rules = "\n[[tool]]\nnames = [\"maybe\"]\nkind = \"compute\"\n\n[[elevation]]\nname = \"tools\"\n\
                 grants = [\"call:*\"]\napprovers = [\"ann\"]\nmax = \"10m\"\nsingle-use = true\n";
    fs::write(&policy, text + rules).expect("a policy");
    place.grant_with(&["--tool", "maybe", "--budget", "calls=1"]);
    let token = place.token.to_str().expect("a path");
    let call = |flags: &[&str]| {
        world.ringwall([&["tool", "call", "maybe", "--grant", token], flags].concat())
    };
    let question = place.asked(&call(&[]));
    assert_eq!(place.asked(&call(&[])), question, "one question");
    let yes = ["approvals", "approve", &question, "--reason", "harmless"];
    world.ringwall(yes).exits(0);
    for other in [&["--seed", "1"][..], &["--input", "{ }"], &["--timeout", "1s"]] {
        assert_ne!(place.asked(&call(other)), question, "{other:?} is another question");
    }
    call(&[]).exits(0).prints("{\"ok\":true}\n");
    // The yes was for one call, and none of the refusals cost anything.
    call(&[]).is_refused().says(&["calls", "spent"]);
    let events = place.kinds_of_events();
    let at = |kind: &str| events.iter().position(|event| event == kind);
    assert!(at("approval-used").is_some() && at("approval-used") < at("approval-returned"));
    place.grant_with(&["--tool", "maybe"]);
    assert_ne!(place.asked(&call(&[])), question, "the yes is used up");
}

#[test]
fn a_phase_changes_under_a_grant_that_names_it() {
    let place = Place::new(&["files"]);
    let policy = place.world.path("nobody-home/.config/ringwall/ringwall.toml");
    let text = fs::read_to_string(&policy).expect("a policy");
    let text = text.replace("trust = \"medium\"", "trust = \"medium\"\nphase = \"plan\"");
    let phases =
        "\n[phases.plan]\nwrite = [\"./**\"]\nnext = [\"check\"]\n[phases.check]\nwrite = []\n";
    let back = "\n[[elevation]]\nname = \"back\"\ngrants = [\"phase:plan\"]\napprovers = [\"ann\"]\n\
                max = \"10m\"\nsingle-use = true\n";
    fs::write(&policy, text + phases + back).expect("a policy");
    let project = place.world.project().display().to_string();
    let for_phase = |phase: &str| {
        place.grant_with(&["--kind", "files", "--read", &project, "--phase", phase]);
    };
    for_phase("plan");
    let token = place.token.to_str().expect("a path");
    let flags = ["create", "--wall", "process", "--kind", "files", "--workspace", "."];
    let owners = place.world.ringwall(flags).exits(0).word();
    let made = [&flags[..], &["--grant", token]].concat();
    let id = place.world.ringwall(made).exits(0).word();
    let change = || place.world.ringwall(["phase", &id, "check", "--grant", token]);
    change().is_refused().says(&["grant", "check"]);
    for_phase("check");
    place.world.ringwall(["phase", &owners, "check", "--grant", token]).is_refused();
    // Nor with a grant that could not have made the sandbox.
    place.grant_with(&["--phase", "check"]);
    change().is_refused().says(&["grant"]);
    for_phase("check");
    change().exits(0);
    place.world.ringwall(["phase", &id]).prints("check\n");
    // No way leads back but a person's.
    for_phase("plan");
    let back = || place.world.ringwall(["phase", &id, "plan", "--grant", token]);
    let question = place.asked(&back());
    assert_eq!(place.asked(&back()), question, "one question");
    let yes = ["approvals", "approve", &question, "--reason", "the plan was wrong"];
    place.world.ringwall(yes).exits(0);
    back().exits(0);
    place.world.ringwall(["phase", &id]).prints("plan\n");
    assert!(place.kinds_of_events().contains(&"approval-returned".to_owned()));
    place.world.ringwall(["rm", "--force", &id, &owners]).exits(0);
    // Nor is a phase had by naming it when a run begins.
    let begin = |phase: &str| {
        place.run_with(&["--kind", "files", "--phase", phase, "--no-workspace"], "echo ran")
    };
    begin("check").is_refused().says(&["check"]);
    begin("plan").exits(0).prints("ran\n");
}

#[test]
fn a_command_that_was_approved_without_input_reads_none() {
    let place = Place::new(&["build"]);
    let token = place.token.to_str().expect("a path");
    let shell = |flags: &[&str], input: &[u8]| {
        let line = [
            &["run", "--grant", token, "--wall", "process", "--kind", "build", "--no-workspace"],
            flags,
            &["--", "sh"],
        ];
        place.world.ringwall_with_input(&line.concat(), input)
    };
    let id = place.asked(&shell(&[], b""));
    let yes = ["approvals", "approve", &id, "--reason", "it does nothing"];
    place.world.ringwall(yes).exits(0);
    let other = place.asked(&shell(&["-i"], b"echo nobody-was-shown-this"));
    assert_ne!(other, id);
    let shown = place.world.ringwall(["approvals", "show", &other]).exits(0).out();
    assert!(shown.contains("streamed"), "{shown}");
    shell(&[], b"").exits(0);
}

#[test]
fn a_run_ends_when_its_grant_is_revoked() {
    let place = Place::new(&["files"]);
    let token = place.token.to_str().expect("a path");
    let line = ["run", "--grant", token, "--wall", "process", "--kind", "files"];
    let line = [&line[..], &["--no-workspace", "--", "sh", "-c", "echo up; sleep 1000"]].concat();
    let mut command = place.world.command(line);
    let mut run = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut up = [0; 3];
    std::io::Read::read_exact(run.stdout.as_mut().expect("a pipe"), &mut up).expect("it runs");
    let listed = place.world.ringwall(["grant", "ls", "-o", "json"]).exits(0).json();
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    place.world.ringwall(["grant", "revoke", &id]).exits(0);
    assert!(!run.wait().expect("it ends").success());
    let log = fs::read_to_string(place.world.home().join("audit/log")).expect("a log");
    assert!(log.contains("go on"), "{log}");
}
