//! Grants and approvals as their holders and approvers meet them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::support::{Finished, World};

const SHIPPED: &str = include_str!("../../../crates/rules/src/default.toml");

/// A world whose policy gives tasks work with files only, but lets Ann allow builds.
struct Place {
    world: World,
    token: PathBuf,
}

impl Place {
    fn new(kinds: &[&str]) -> Place {
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
            .replace("[tiers.medium]\n", "[tiers.medium]\nkinds = [\"files\"]\n")
            .replace("profile = \"medium\"", "profile = \"low\"");
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
    fn grant(&self, kinds: &[&str]) {
        let mut line =
            vec!["grant", "new", "--task", "t-1", "--wall", "container", "--wall", "process"];
        line.extend(kinds.iter().flat_map(|kind| ["--kind", kind]));
        let made = self.world.ringwall(line);
        made.exits(0);
        fs::write(&self.token, made.out()).expect("a file");
    }

    fn run(&self, kind: &str, script: &str) -> Finished {
        let token = self.token.to_str().expect("a path");
        self.world.sh(&["--grant", token, "--kind", kind, "--wall", "process"], script)
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
    place.grant(&["compute"]);
    place.run("files", "echo ran").is_refused().says(&["files"]);
    fs::write(&place.token, "not a token").expect("a file");
    place.run("files", "echo ran").is_refused().says(&["token"]);
    assert!(place.kinds_of_events().contains(&"grant-minted".to_owned()));
}

#[test]
fn a_revoked_grant_is_worth_nothing_from_then_on() {
    let place = Place::new(&["files"]);
    place.run("files", "true").exits(0);
    let listed = place.world.ringwall(["grant", "ls", "-o", "json"]).exits(0).json();
    let id = listed[0]["id"].as_str().expect("an id").to_owned();
    place.world.ringwall(["grant", "revoke", &id]).exits(0);
    place.run("files", "echo ran").is_refused().says(&["revoked"]);
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
    for kind in ["approval-asked", "approval-approved", "approval-used", "approval-denied"] {
        assert!(events.iter().any(|event| event == kind), "{kind} is not in {events:?}");
    }
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
