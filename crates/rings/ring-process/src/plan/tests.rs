//! The process ring's plan, without a kernel.

use std::path::{Path, PathBuf};

use ringwall_linux::host::PrivateIds;
use ringwall_linux::step::{FileId, Step};
use ringwall_ring::testing::{
    admitted, faults, golden_fault, input, network_faults, watching_faults,
};
use ringwall_ring::{Identity, NetworkInput, PlanError, Ring, RingPlan, ShownPath, WorkspaceInput};
use ringwall_spec::{LimitName, WorkspaceMode};

use super::ProcessRing;

const ROOT: Identity = Identity::root(1 << 30);
const ID: FileId = FileId { device: 1, inode: 2 };
const USER: Identity = Identity::User { uid: 1234, gid: 1234 };
const CONFINED: Identity = Identity::ConfinedRoot { ids: PrivateIds { first: 2048, count: 512 } };

fn workspace(path: &str) -> WorkspaceInput {
    WorkspaceInput {
        path: PathBuf::from(path),
        id: Some(ID),
        inside: PathBuf::from(path),
        mode: WorkspaceMode::CopyOnWrite,
        owner_uid: 0,
        owner_gid: 0,
        copied: false,
        hidden: vec![PathBuf::from("sub/.env")],
        hidden_parents: vec![(PathBuf::from("sub"), 0o755)],
    }
}

fn opened(plan: &RingPlan) -> Vec<&Path> {
    let paths = plan.template.iter().filter_map(|step| match step {
        Step::OpenHostTree { path, .. }
        | Step::OpenCheckedTree { path, .. }
        | Step::ShowDirectory { path, .. }
        | Step::ShowFile { path, .. } => Some(path.as_path()),
        _ => None,
    });
    paths.collect()
}

#[test]
fn the_rules_for_every_ring_hold_for_root_and_for_a_user() {
    let admitted = admitted("process").unwrap();
    for identity in [ROOT, USER] {
        let mut input = input(&admitted, identity);
        input.layers.clear();
        input.workspace = Some(workspace("/home/someone/project"));
        let plan = ProcessRing.plan(&input).unwrap();
        assert_eq!(faults(&plan), Vec::<String>::new());
    }
}

#[test]
fn the_plans_are_those_that_were_reviewed() {
    let admitted = admitted("process").unwrap();
    let network = NetworkInput { authority: "a certificate".to_owned(), direct: Vec::new() };
    let mut faults = Vec::new();
    for (name, identity) in [("root", ROOT), ("user", USER)] {
        let mut input = input(&admitted, identity);
        input.layers.clear();
        let bare = ProcessRing.plan(&input).unwrap();
        faults.extend(golden_fault(env!("CARGO_MANIFEST_DIR"), name, &bare));
        input.workspace = Some(workspace("/home/someone/project"));
        input.network = Some(network.clone());
        let name = format!("{name}-with-workspace-and-network");
        let full = ProcessRing.plan(&input).unwrap();
        faults.extend(golden_fault(env!("CARGO_MANIFEST_DIR"), &name, &full));
    }
    let mut input = input(&admitted, CONFINED);
    input.layers.clear();
    let confined = ProcessRing.plan(&input).unwrap();
    faults.extend(golden_fault(env!("CARGO_MANIFEST_DIR"), "confined-root", &confined));
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_root_that_may_not_mount_leaves_root_before_it_opens_anything() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, CONFINED);
    input.layers.clear();
    let plan = ProcessRing.plan(&input).unwrap();
    assert_eq!(faults(&plan), Vec::<String>::new());
    let names: Vec<_> = plan.template.iter().map(Step::name).collect();
    assert_eq!(names[0], "stop being root", "{names:?}");
    input.workspace = Some(workspace("/home/someone/project"));
    let refused = ProcessRing.plan(&input).unwrap_err();
    assert!(matches!(refused, PlanError::ConfinedRoot(_)), "{refused}");
}

#[test]
fn filters_that_are_on_the_engine_are_looked_for_in_the_ring_too() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    let before = ProcessRing.plan(&input).unwrap().expected.seccomp_filters;
    input.inherited_filters = 2;
    assert_eq!(ProcessRing.plan(&input).unwrap().expected.seccomp_filters, before + 2);
}

#[test]
fn a_way_to_the_network_is_sockets_for_the_engine_and_nothing_else() {
    let admitted = admitted("process").unwrap();
    for identity in [ROOT, USER] {
        let mut input = input(&admitted, identity);
        let without = ProcessRing.plan(&input).unwrap();
        for direct in [vec![], vec![80, 443]] {
            input.network = Some(NetworkInput { authority: "PEM".to_owned(), direct });
            let with = ProcessRing.plan(&input).unwrap();
            assert_eq!(network_faults(&with, &without), Vec::<String>::new());
        }
    }
}

#[test]
fn what_the_watchdog_cannot_see_is_refused_where_it_is_needed() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    let other = ProcessRing.plan(&input).unwrap();
    input.without_cgroup = vec![LimitName::Memory];
    let watched = ProcessRing.plan(&input).unwrap();
    assert_eq!(watching_faults(&watched, &other), Vec::<String>::new());
}

#[test]
fn only_listed_directories_of_the_host_are_opened() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    input.layers.clear();
    let plan = ProcessRing.plan(&input).unwrap();
    let opened = opened(&plan);
    assert!(opened.contains(&Path::new("/usr")) && opened.contains(&Path::new("/etc")));
    for hidden in ["/", "/home", "/root", "/var", "/run", "/sys", "/dev"] {
        assert!(!opened.contains(&Path::new(hidden)), "{hidden}");
    }
}

#[test]
fn nothing_that_is_shown_is_a_mount_of_the_hosts_own() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    input.layers.clear();
    let shown =
        |path: &str, is_dir| ShownPath { path: path.into(), id: ID, is_dir, hidden: vec![] };
    input.shown = vec![shown("/srv/data", true), shown("/tmp/file", false)];
    let plan = ProcessRing.plan(&input).unwrap();
    let copied = plan.template.iter().filter_map(|step| match step {
        Step::OpenHostTree { path, .. } | Step::OpenCheckedTree { path, .. } => {
            Some(path.as_path())
        }
        _ => None,
    });
    let copied: Vec<_> = copied.filter(|path| !path.starts_with("/dev")).collect();
    assert_eq!(copied, [Path::new("/opt/ringwall/ringwall-warden"), Path::new("/proc")]);
    for path in ["/usr", "/etc", "/srv/data", "/tmp/file"].map(PathBuf::from) {
        assert!(plan.expected.of_host.contains(&path), "{path:?}: {:?}", plan.expected.of_host);
    }
}

#[test]
fn root_is_given_up_before_anything_of_the_ring_is_made() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, ROOT);
    input.layers.clear();
    let plan = ProcessRing.plan(&input).unwrap();
    let at = |wanted: &str| plan.template.iter().position(|step| step.name() == wanted);
    assert!(at("stop being root").unwrap() < at("make tmpfs").unwrap());
}

#[test]
fn hidden_files_are_whited_out_before_the_workspace_is_shown() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, ROOT);
    input.layers.clear();
    input.workspace = Some(workspace("/tmp/project"));
    let plan = ProcessRing.plan(&input).unwrap();
    let at = |wanted: &str| plan.ahead.iter().position(|step| step.name() == wanted);
    assert!(at("hide workspace file").unwrap() < at("make overlay").unwrap());
    assert_eq!(plan.working_directory, Path::new("/tmp/project"));
}

#[test]
fn a_path_that_would_cover_the_ring_itself_is_refused() {
    let admitted = admitted("process").unwrap();
    for path in ["/", "/proc/sys", "/dev", "/tmp"] {
        let mut input = input(&admitted, USER);
        input.shown =
            vec![ShownPath { path: PathBuf::from(path), id: ID, is_dir: true, hidden: vec![] }];
        assert!(matches!(ProcessRing.plan(&input), Err(PlanError::Path(..))), "{path}");
    }
}

/// The places that a run covers on a host with these directories.
fn masked(host_dirs: &[&str]) -> Vec<PathBuf> {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    input.host_dirs = host_dirs.iter().map(ToString::to_string).collect();
    let places =
        ProcessRing.plan(&input).unwrap().ahead.into_iter().filter_map(|step| match step {
            Step::Mask { at, .. } => Some(at.path.as_path().to_owned()),
            _ => None,
        });
    places.collect()
}

#[test]
fn a_build_daemon_below_a_visible_directory_cannot_be_reached() {
    let socket = PathBuf::from("nix/var/nix/daemon-socket");
    assert!(masked(&["usr", "nix"]).contains(&socket));
    assert!(!masked(&["usr"]).contains(&socket));
}

#[test]
fn what_is_hidden_of_a_shown_directory_is_covered_wherever_the_ring_has_it() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    for (path, covered) in
        [("/srv/data", &["srv/data/.env"][..]), ("/tmp/data", &["tmp/data/.env", "shown"])]
    {
        let hidden = vec![PathBuf::from(".env")];
        input.shown = vec![ShownPath { path: path.into(), id: ID, is_dir: true, hidden }];
        let plan = ProcessRing.plan(&input).unwrap();
        let masked: Vec<_> = plan
            .ahead
            .iter()
            .filter_map(|step| match step {
                Step::Mask { at, .. } => Some(at.path.as_path()),
                _ => None,
            })
            .filter(|path| !path.starts_with("proc"))
            .collect();
        for path in covered {
            assert!(masked.contains(&Path::new(path)), "{path}: {masked:?}");
        }
    }
}

#[test]
fn what_something_hidden_is_in_stays_where_it_is_in_a_workspace_that_is_written() {
    let admitted = admitted("process").unwrap();
    let mut input = input(&admitted, USER);
    input.layers.clear();
    let mode = WorkspaceMode::ReadWrite;
    input.workspace = Some(WorkspaceInput { mode, ..workspace("/home/someone/project") });
    let plan = ProcessRing.plan(&input).unwrap();
    assert_eq!(faults(&plan), Vec::<String>::new());
    let sub = Path::new("home/someone/project/sub");
    let at = |wanted: &str, path: &Path| {
        plan.ahead.iter().position(|step| match step {
            Step::Attach { at, .. } => wanted == "pin" && at.path.as_path() == path,
            Step::Mask { at, .. } => wanted == "mask" && at.path.as_path() == path,
            _ => false,
        })
    };
    let (pinned, covered) = (at("pin", sub), at("mask", &sub.join(".env")));
    assert!(pinned.is_some() && pinned < covered, "{pinned:?} {covered:?}");
}
