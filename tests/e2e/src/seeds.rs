//! The tables that Ringwall was made from, row by row: work is done under a policy, and what was
//! round it is read in the evidence. Rows that need a machine of their own are in `tests/vm`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::tool::{Does, component, manifest};
use crate::support::{Finished, World, busybox_layout};

const SHIPPED: &str = include_str!("../../../crates/authority/policy/src/default.toml");
const IMAGE: &str = "test:latest";

/// A place in which work is asked for under the shipped policy, but for what a row says.
struct Table {
    world: World,
}

/// The rings of a run from the outside in, each with what its warden saw.
struct Evidence(Vec<Value>);

impl Table {
    fn new(risk: &str, trust: &str) -> Table {
        let world = World::new();
        let layout = busybox_layout(&world.path("layout"));
        world.ringwall(["image", "import", layout.to_str().unwrap(), "--name", IMAGE]).exits(0);
        let config = world.path("nobody-home/.config/ringwall");
        fs::create_dir_all(&config).unwrap();
        let policy = SHIPPED
            .replace("risk = \"medium\"", &format!("risk = {risk:?}"))
            .replace("\ntrust = \"medium\"", &format!("\ntrust = {trust:?}"));
        let tools = "\n[[tool]]\nnames = [\"approved\"]\nkind = \"compute\"\napproved = true\n\
                     [[tool]]\nnames = [\"unknown\"]\nkind = \"compute\"\n";
        fs::write(config.join("ringwall.toml"), policy + tools).unwrap();
        for name in ["approved", "unknown"] {
            let mut described = manifest(name);
            described["wants"] =
                json!({ "dirs": [{ "path": "/work", "access": "rw", "optional": true }] });
            let wasm = component(&described, &Does::Returns(r#"{"ok": true}"#));
            world.write(&format!("{name}.wasm"), wasm);
            world.ringwall(["tool", "add", &format!("./{name}.wasm")]).exits(0);
        }
        Table { world }
    }

    fn asks(&self, flags: &[&str], script: &str) -> Finished {
        let flags = [&["-o", "json", "--image", IMAGE], flags].concat();
        self.world.sh(&flags, script)
    }

    #[track_caller]
    fn runs(&self, flags: &[&str], script: &str) -> (Evidence, Value) {
        let document = self.asks(flags, script).exits(0).json();
        (Evidence::of(&document), document)
    }

    fn asks_tool(&self, name: &str, flags: &[&str]) -> Finished {
        self.world.ringwall([&["tool", "call", name, "-o", "json"], flags].concat())
    }

    #[track_caller]
    fn calls(&self, name: &str, flags: &[&str]) -> Evidence {
        let document = self.asks_tool(name, flags).exits(0).json();
        assert_eq!(document["output"], json!({ "ok": true }));
        Evidence::of(&document)
    }
}

impl Evidence {
    fn of(document: &Value) -> Evidence {
        Evidence(document["evidence"].as_array().expect("evidence").clone())
    }

    /// These rings, and each with the layers of its kind as they were seen from inside.
    #[track_caller]
    fn shows(&self, wall: &str) -> &Evidence {
        let rings: Vec<&str> = self.0.iter().filter_map(|ring| ring["ring"].as_str()).collect();
        assert_eq!(rings.join("/"), wall);
        for ring in &self.0 {
            let facts = &ring["facts"];
            assert_eq!(facts["seccomp"]["mode"], 2, "no filter: {facts}");
            assert_eq!(facts["no_new_privs"], true, "{facts}");
            assert_eq!(facts["capabilities"]["effective"], 0, "{facts}");
            assert!(!ring["checks"].as_array().expect("checks").is_empty(), "{ring}");
        }
        self
    }

    /// No network device but loopback, in any ring.
    #[track_caller]
    fn has_no_network(&self) -> &Evidence {
        for ring in &self.0 {
            assert_eq!(ring["facts"]["network_devices"], json!(["lo"]), "{}", ring["ring"]);
        }
        self
    }
}

// --- Tools are routed by their risk

#[test]
fn route_of_pure_compute_is_wasm() {
    let table = Table::new("medium", "medium");
    table.calls("approved", &[]).shows("wasm").has_no_network();
}

#[test]
fn route_of_file_operations_is_a_container() {
    let table = Table::new("medium", "medium");
    table.world.write("file", "text\n");
    let (evidence, document) =
        table.runs(&["--kind", "files", "--workspace", "."], "cat file >copy; cat /etc/motd");
    evidence.shows("container").has_no_network();
    assert_eq!(document["stdout"], "made for tests\n", "the image's own files");
    assert_eq!(document["changes"]["added"], 1);
}

#[test]
fn route_of_build_and_test_is_a_container() {
    let table = Table::new("medium", "medium");
    let (evidence, document) = table.runs(&["--kind", "build"], "cat /etc/motd");
    evidence.shows("container").has_no_network();
    assert_eq!(document["stdout"], "made for tests\n");
}

#[test]
fn route_of_untrusted_scripts_is_no_wall_of_this_kernel() {
    let table = Table::new("low", "medium");
    for wall in ["process", "container", "container/process"] {
        let image = if wall == "process" { &[][..] } else { &["--image", IMAGE] };
        let flags = [&["--kind", "untrusted", "--wall", wall], image].concat();
        let refused = table.world.sh(&flags, "true");
        refused.is_refused().says(&[wall, "routes.untrusted"]);
    }
}

// --- Risk levels

#[test]
fn low_risk_is_an_operating_system_sandbox_or_a_container() {
    let table = Table::new("low", "medium");
    for kind in ["files", "build"] {
        table.runs(&["--kind", kind], "true").0.shows("process");
        table.runs(&["--kind", kind, "--wall", "container"], "true").0.shows("container");
    }
}

#[test]
fn medium_risk_is_a_container_with_filters() {
    let table = Table::new("medium", "medium");
    let (evidence, _) = table.runs(&["--kind", "build"], "true");
    evidence.shows("container");
    let facts = &evidence.0[0]["facts"];
    assert_eq!(facts["seccomp"]["refuses_io_uring"], true);
    assert_eq!(facts["seccomp"]["refuses_user_namespace"], true);
    assert!(facts["seccomp"]["fingerprint"].as_u64().is_some_and(|it| it != 0), "{facts}");
    let label = facts["apparmor"].as_str().is_some_and(|label| label.contains("ringwall"));
    assert!(label || facts["landlock"]["denied_open"] == "denied", "{facts}");
    let weaker = table.world.sh(&["--kind", "build", "--wall", "process"], "true");
    weaker.is_refused().says(&["risk-levels.medium"]);
}

#[test]
fn high_risk_is_a_container_and_wasm_in_it() {
    let table = Table::new("high", "medium");
    table.runs(&["--kind", "build"], "true").0.shows("container");
    let alone = table.asks_tool("approved", &[]);
    alone.is_refused().says(&["risk-levels.high", "use --wall container/wasm --image"]);
    let inside = ["--wall", "container/wasm", "--image", IMAGE];
    table.calls("approved", &inside).shows("container/wasm").has_no_network();
}

#[test]
fn very_high_risk_is_nothing_that_shares_this_kernel() {
    let table = Table::new("very-high", "medium");
    let refused = table.asks(&["--kind", "build", "--wall", "container"], "true");
    refused.is_refused().says(&["risk-levels.very-high"]);
    let inside = ["--wall", "container/wasm", "--image", IMAGE];
    table.asks_tool("approved", &inside).is_refused().says(&["risk-levels.very-high"]);
}

// --- Trust levels: files

/// A directory in nobody's home and not in /tmp, removed when the test is over.
fn elsewhere() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("ringwall-e2e-").tempdir_in("/var/tmp").expect("a directory")
}

/// Shows one more directory in a run, and whether its file can be read and the workspace written.
fn files_of(
    table: &Table,
    trust: &str,
    workspace: Option<&Path>,
    shown: Option<&Path>,
) -> Finished {
    let mut flags = vec!["--kind", "files", "--trust", trust];
    let (workspace, shown) =
        [workspace, shown].map(|path| path.map(|path| path.display().to_string())).into();
    flags.extend(workspace.iter().flat_map(|path| ["--workspace", path]));
    flags.extend(shown.iter().flat_map(|path| ["--ro", path]));
    let read = shown.as_deref().map_or(String::new(), |path| format!("cat {path}/file;"));
    table.asks(&flags, &format!("echo x >/tmp/own && {read} touch new"))
}

#[test]
fn files_of_high_trust_are_all() {
    let table = Table::new("medium", "medium");
    let (workspace, shown) = (elsewhere(), elsewhere());
    fs::write(shown.path().join("file"), "shown\n").unwrap();
    let run = files_of(&table, "high", Some(workspace.path()), Some(shown.path()));
    let document = run.exits(0).json();
    assert_eq!(document["stdout"], "shown\n");
    assert_eq!(document["changes"]["added"], 1);
    Evidence::of(&document).shows("container");
}

#[test]
fn files_of_medium_trust_are_the_home_and_the_workspace() {
    let table = Table::new("low", "medium");
    let (home, outside) = (table.world.path("nobody-home/data"), elsewhere());
    fs::create_dir(&home).unwrap();
    for place in [home.as_path(), outside.path()] {
        fs::write(place.join("file"), "shown\n").unwrap();
    }
    let project = table.world.project();
    let document = files_of(&table, "medium", Some(&project), Some(&home)).exits(0).json();
    assert_eq!(
        (&document["stdout"], &document["changes"]["added"]),
        (&json!("shown\n"), &json!(1))
    );
    let refused = files_of(&table, "medium", None, Some(outside.path()));
    refused.is_refused().says(&["trust-levels.medium.read"]);
    let link = home.join("link");
    std::os::unix::fs::symlink(outside.path(), &link).unwrap();
    // A link that leads out of its own directory is refused before a policy is asked.
    let (refused, target) = (files_of(&table, "medium", None, Some(&link)), outside.path());
    refused.is_refused().says(&["leads through a link to", target.to_str().unwrap()]);
}

#[test]
fn files_of_low_trust_are_temporary() {
    let table = Table::new("medium", "medium");
    let outside = elsewhere();
    let document = files_of(&table, "low", None, None).exits(0).json();
    let evidence = Evidence::of(&document);
    let facts = &evidence.shows("container").0[0]["facts"];
    let mounts = facts["mounts"].as_array().expect("mounts");
    let of_host = mounts.iter().filter(|mount| mount["path"].as_str().unwrap().contains("home"));
    assert_eq!(of_host.count(), 0, "{mounts:?}");
    for place in [outside.path(), Path::new("/opt")] {
        files_of(&table, "low", None, Some(place)).is_refused().says(&["trust-levels.low.read"]);
    }
    files_of(&table, "low", Some(outside.path()), None)
        .is_refused()
        .says(&["trust-levels.low.read"]);
}

// --- Trust levels: network. Nothing is attached to a run, so there is no way out for any trust level.

#[test]
fn network_of_high_trust_has_no_device() {
    let table = Table::new("medium", "medium");
    table.runs(&["--kind", "build", "--trust", "high"], "true").0.has_no_network();
}

#[test]
fn network_of_medium_trust_has_no_device() {
    let table = Table::new("medium", "medium");
    table.runs(&["--kind", "build", "--trust", "medium"], "true").0.has_no_network();
}

#[test]
fn network_of_low_trust_is_none() {
    let table = Table::new("medium", "low");
    table.runs(&["--kind", "build", "--trust", "low"], "true").0.has_no_network();
}

// --- Trust levels: tools

#[test]
fn tools_of_high_trust_are_all() {
    let table = Table::new("medium", "high");
    for name in ["approved", "unknown"] {
        table.calls(name, &[]).shows("wasm");
    }
}

#[test]
fn tools_of_medium_trust_are_approved_ones() {
    let table = Table::new("medium", "medium");
    table.calls("approved", &[]).shows("wasm");
    table.asks_tool("unknown", &[]).is_refused().says(&["unknown", "trust-levels.medium.tools"]);
}

#[test]
fn tools_of_low_trust_only_read() {
    let table = Table::new("medium", "low");
    table.calls("unknown", &["--dir", "/work=."]).shows("wasm");
    let writes = table.asks_tool("approved", &["--dir", "/work=.:rw"]);
    writes.is_refused().says(&["approved", "trust-levels.low.tools"]);
}
