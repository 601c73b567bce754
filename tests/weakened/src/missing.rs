//! One protection after the other is taken out.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ringwall_desk::Permit;
use ringwall_engine::{Engine, EngineConfig, Programs, Protection, RaiseError, Sandbox};
use ringwall_spec::{SandboxSpec, WorkspaceMode};
use ringwall_verify::{
    AdversaryOptions, AdversaryReport, Finding, Options, Raising, Scene, Verdict, adversary, verify,
};
use tempfile::TempDir;

/// A wall as it should be, but for one thing.
#[derive(Clone, Copy)]
enum Flaw {
    Without(Protection),
    /// A directory of the host is shown, secrets and all.
    HostMount,
    /// What a job writes into its workspace is there for the next.
    SharedVolume,
}

impl Raising for Flaw {
    fn change(&self, spec: &mut SandboxSpec, scene: &Scene) {
        match self {
            Flaw::Without(_) => {}
            Flaw::HostMount => {
                // As careless as such mounts are: everybody may read what is there.
                let places = scene.secrets.iter().filter_map(|path| path.parent());
                for place in places.filter(|place| place.starts_with("/var/tmp")) {
                    let open_to_all = |path: PathBuf, mode| {
                        std::fs::set_permissions(path, Permissions::from_mode(mode))
                    };
                    open_to_all(place.to_owned(), 0o755).expect("ours");
                    open_to_all(place.join("secret.txt"), 0o644).expect("ours");
                    spec.read_only_paths.push(place.to_owned());
                }
            }
            Flaw::SharedVolume => {
                if let Some(workspace) = &mut spec.workspace {
                    // Of somebody who is not root: else it is refused.
                    let _ =
                        std::os::unix::fs::chown(&workspace.path, Some(ORDINARY), Some(ORDINARY));
                    workspace.mode = WorkspaceMode::ReadWrite;
                }
            }
        }
    }

    fn raise(&self, engine: &Engine, permit: &Permit) -> Result<Sandbox, RaiseError> {
        match self {
            Flaw::Without(missing) => engine.raise_without(permit, *missing),
            Flaw::HostMount | Flaw::SharedVolume => engine.raise(permit),
        }
    }

    fn has_keeper(&self) -> bool {
        false
    }
}

const ORDINARY: u32 = 12_345;

/// The names of the attacks that got through a wall with this flaw.
fn noticed(wall: &str, flaw: Flaw) -> Vec<&'static str> {
    let found = findings(wall, flaw).into_iter();
    found.filter(|one| one.verdict == Verdict::Breach).map(|one| one.probe).collect()
}

fn home() -> TempDir {
    tempfile::Builder::new().prefix("ringwall-weakened-").tempdir().expect("a directory")
}

fn config(home: &TempDir) -> EngineConfig {
    let names = ["ringwall-launcher", "ringwall-warden", "ringwall-probe"];
    let directory = ringwall_testkit::programs::built(&names);
    let program = |name: &str| directory.join(name);
    let programs =
        Programs { launcher: program("ringwall-launcher"), warden: program("ringwall-warden") };
    EngineConfig { home: home.path().join("home"), programs }
}

/// What became of every attack on a wall with this flaw.
fn findings(wall: &str, flaw: Flaw) -> Vec<Finding> {
    let home = home();
    let config = config(&home);
    let options = Options { walls: vec![wall.parse().expect("a wall")], ..Options::default() };
    let report = verify(&config, &options, &flaw, &mut |_| {}).expect("a report");
    assert_eq!(report.walls.len(), 1, "{:?}", report.skipped);
    assert!(report.count(Verdict::Blocked) > 100, "{}", report.text());
    report.walls.into_iter().flat_map(|wall| wall.findings).collect()
}

#[track_caller]
fn is_noticed_by(flaw: Flaw, probes: &[&str]) {
    for wall in ["process", "container"] {
        let noticed = noticed(wall, flaw);
        for probe in probes {
            assert!(noticed.contains(probe), "{wall}: {probe} is not among {noticed:?}");
        }
    }
}

#[test]
fn a_wall_without_a_filter_of_system_calls_is_noticed() {
    let usual = ["no-filter", "keyctl", "socket-vsock", "core-dump-limit"];
    let programs =
        ["seccomp-filter", "seccomp-filter-by-prctl", "socket-filter", "landlock-ruleset"];
    let huge = ["huge-pages", "huge-pages-in-a-file", "huge-pages-in-a-segment"];
    let group = ["socket-filter-of-a-group"];
    let all = [&usual[..], &programs, &huge, &group].concat();
    is_noticed_by(Flaw::Without(Protection::Seccomp), &all);
}

#[test]
fn a_wall_whose_jobs_keep_capabilities_is_noticed() {
    is_noticed_by(Flaw::Without(Protection::DroppedCapabilities), &["bounding-capabilities"]);
}

#[test]
fn a_wall_without_landlock_is_noticed() {
    // What it refuses, capabilities and the filter refuse too, and nothing gets through for want of it; but
    // an attack tells by which of them it was refused.
    let why = |wall: &str, flaw: Flaw| {
        let all = findings(wall, flaw);
        let device = all.into_iter().find(|one| one.probe == "make-device");
        device.expect("an attack that makes devices").detail
    };
    for wall in ["process", "container"] {
        let without = why(wall, Flaw::Without(Protection::Landlock));
        let with = why(wall, Flaw::SharedVolume);
        assert!(with.contains("Permission denied"), "{wall}: {with}");
        assert!(without.contains("Operation not permitted"), "{wall}: {without}");
    }
}

#[test]
fn a_wall_with_the_hosts_network_is_noticed() {
    let probes = ["tcp", "udp", "abstract-socket"];
    let noticed = noticed("container", Flaw::Without(Protection::NetworkNamespace));
    assert!(probes.iter().any(|probe| noticed.contains(probe)), "{noticed:?}");
}

#[test]
fn a_wall_without_control_groups_is_noticed() {
    is_noticed_by(
        Flaw::Without(Protection::ControlGroups),
        &[
            "exhaust-processes",
            "exhaust-memory",
            "exhaust-memory-files",
            "exhaust-local-sockets",
            "exhaust-tcp-buffers",
            "exhaust-udp-buffers",
            "exhaust-pipes",
            "exhaust-behind-an-ended-thread",
        ],
    );
}

#[test]
fn a_directory_of_the_host_behind_the_wall_is_noticed() {
    is_noticed_by(Flaw::HostMount, &["read-secret"]);
}

#[test]
fn a_volume_that_sandboxes_share_is_noticed() {
    is_noticed_by(Flaw::SharedVolume, &["persist-workspace"]);
}

/// Far more rounds than it takes to come across any of these flaws.
const MOST_ROUNDS: u32 = 40;

fn played(wall: &str, flaw: &dyn Raising, rounds: u32) -> AdversaryReport {
    let home = home();
    let walls = vec![wall.parse().expect("a wall")];
    let options = AdversaryOptions { rounds, seed: 1, walls };
    let report = adversary(&config(&home), &options, flaw, &mut |_| {}).expect("a report");
    assert!(report.skipped.is_empty() && report.rounds > 0, "{}", report.text());
    report
}

/// The adversary comes across the flaw, this oracle sees it, and the seed of that round leads there again.
#[track_caller]
fn adversary_notices(wall: &str, flaw: Flaw, oracle: &str) {
    let report = played(wall, &flaw, MOST_ROUNDS);
    let breach = report.breach.as_ref().expect("a breach");
    eprintln!("{wall}: seen by {} in round {}", breach.oracle, report.rounds);
    assert_eq!(breach.oracle, oracle, "{}", report.text());
    assert!(!breach.host.is_empty() && !breach.inside.is_empty(), "{}", report.text());
    assert!(report.text().contains(&format!("--seed {}", breach.seed)), "{}", report.text());
}

#[test]
fn the_adversary_notices_a_directory_of_the_host() {
    for wall in ["process", "container"] {
        adversary_notices(wall, Flaw::HostMount, "secrets");
    }
}

#[test]
fn the_adversary_notices_a_workspace_that_is_written_directly() {
    adversary_notices("process", Flaw::SharedVolume, "files");
}

#[test]
fn the_adversary_notices_the_hosts_network() {
    let flaw = Flaw::Without(Protection::NetworkNamespace);
    adversary_notices("container", flaw, "listeners");
}

#[test]
fn the_adversary_notices_hidden_files_that_come_later() {
    for wall in ["process", "container"] {
        adversary_notices(wall, Flaw::Without(Protection::Hiding), "secrets");
    }
}

#[test]
fn the_adversary_notices_memory_without_a_limit() {
    adversary_notices("process", Flaw::Without(Protection::ControlGroups), "memory");
}

/// A wall as it should be, held by the test itself.
struct NoFlaw;

impl Raising for NoFlaw {
    fn has_keeper(&self) -> bool {
        false
    }
}

#[test]
fn the_adversary_notices_nothing_where_nothing_is_missing() {
    for wall in ["process", "container"] {
        let report = played(wall, &NoFlaw, 4);
        assert!(report.breach.is_none() && report.rounds == 4, "{}", report.text());
        assert!(report.actions >= 600, "{}", report.text());
    }
}
