//! The wasm ring's plan, without a kernel.

use std::path::Path;

use ringwall_ring::testing::{admitted, faults, golden_fault, input};

use super::*;

const ROOT: Identity = Identity::root(1 << 30);
const USER: Identity = Identity::User { uid: 1234, gid: 1234 };

fn ring() -> WasmRing {
    let grant = |path: &str, access| GrantedDir {
        path: path.into(),
        id: Some(FileId { device: 1, inode: 2 }),
        access,
        owner: (1000, 1000),
        hidden: vec![".env".into()],
    };
    WasmRing {
        grants: vec![grant("/home/a", DirAccess::Read), grant("/home/b", DirAccess::Write)],
        cache: Some("/var/lib/ringwall/tools-cache".into()),
    }
}

fn plan(ring: &WasmRing, identity: Identity) -> RingPlan {
    let admitted = admitted("wasm").unwrap();
    let mut input = input(&admitted, identity);
    input.layers.clear();
    ring.plan(&input).unwrap()
}

#[test]
fn the_rules_for_every_ring_hold_for_root_and_for_a_user() {
    for identity in [ROOT, USER] {
        assert_eq!(faults(&plan(&ring(), identity)), Vec::<String>::new());
    }
}

#[test]
fn the_plans_are_those_that_were_reviewed() {
    let plans = [("root", ROOT), ("user", USER)].map(|(name, who)| (name, plan(&ring(), who)));
    let faults = plans
        .iter()
        .filter_map(|(name, plan)| golden_fault(env!("CARGO_MANIFEST_DIR"), name, plan));
    assert_eq!(faults.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_root_that_may_not_mount_runs_tools_without_directories_only() {
    let ids = ringwall_linux::host::PrivateIds { first: 2048, count: 512 };
    let confined = Identity::ConfinedRoot { ids };
    let bare = WasmRing { grants: Vec::new(), ..ring() };
    let plan = plan(&bare, confined);
    assert_eq!(faults(&plan), Vec::<String>::new());
    let names: Vec<_> = plan.template.iter().map(Step::name).collect();
    // The directory of compiled code is root's.
    assert_eq!(names[..2], ["open directory", "stop being root"], "{names:?}");
    let admitted = admitted("wasm").unwrap();
    let refused = ring().plan(&input(&admitted, confined)).unwrap_err();
    assert!(matches!(refused, PlanError::ConfinedRoot(_)), "{refused}");
}

#[test]
fn nothing_of_the_host_is_opened_but_the_warden_the_grants_and_devices() {
    let plan = plan(&ring(), ROOT);
    let opened: Vec<&Path> = plan
        .template
        .iter()
        .filter_map(|step| match step {
            Step::OpenHostTree { path, .. } | Step::OpenCheckedTree { path, .. } => {
                Some(path.as_path())
            }
            _ => None,
        })
        .filter(|path| !path.starts_with("/dev"))
        .collect();
    let allowed = [
        "/home/a",
        "/home/b",
        "/var/lib/ringwall/tools-cache",
        "/opt/ringwall/ringwall-warden",
        "/proc",
    ];
    assert_eq!(opened, allowed.map(Path::new));
}

#[test]
fn the_cache_is_never_attached() {
    for step in plan(&ring(), ROOT).template {
        assert!(!matches!(step, Step::Attach { tree: CACHE, .. }), "{step:?}");
    }
}

#[test]
fn a_read_only_grant_is_mounted_and_ruled_read_only() {
    let plan = plan(&ring(), ROOT);
    let flags = |tree| {
        plan.template.iter().find_map(|step| match step {
            Step::SetMountFlags { tree: of, flags } if *of == tree => Some(flags.read_only),
            _ => None,
        })
    };
    assert_eq!(flags(Slot(FIRST_GRANT)), Some(true));
    assert_eq!(flags(Slot(FIRST_GRANT + 1)), Some(false));
    let rules = plan.last.iter().find_map(|step| match step {
        Step::LandlockWithHeld { rules, .. } => Some(rules),
        _ => None,
    });
    let rules: Vec<(&Path, PathAccess)> =
        rules.unwrap().iter().map(|(path, access)| (path.as_path(), *access)).collect();
    assert!(rules.contains(&(Path::new("/grants/0"), PathAccess::Read)));
    assert!(rules.contains(&(Path::new("/grants/1"), PathAccess::Write)));
    assert!(rules.iter().all(|(path, _)| *path != Path::new("/")));
}

#[test]
fn the_scratch_space_is_reported_before_the_loader() {
    let plan = plan(&ring(), USER);
    let reported: Vec<Slot> = plan
        .last
        .iter()
        .filter_map(|step| match step {
            Step::Report { slot } => Some(*slot),
            _ => None,
        })
        .collect();
    assert_eq!(reported, [slot::SCRATCH, LOADER_OUTSIDE]);
}

#[test]
fn what_is_hidden_of_a_grant_is_covered_before_anything_runs() {
    let masked: Vec<PathBuf> = plan(&ring(), ROOT)
        .template
        .iter()
        .filter_map(|step| match step {
            Step::Mask { at, .. } => Some(at.path.as_path().to_owned()),
            _ => None,
        })
        .collect();
    for hidden in ["grants/0/.env", "grants/1/.env"] {
        assert!(masked.contains(&PathBuf::from(hidden)), "{masked:?}");
    }
}

#[test]
fn what_something_hidden_is_in_stays_where_it_is_if_tools_can_write_there() {
    let mut ring = ring();
    for grant in &mut ring.grants {
        grant.hidden = vec!["a/.docker/config.json".into(), "a/.env".into()];
    }
    let pinned: Vec<PathBuf> = plan(&ring, ROOT)
        .template
        .iter()
        .filter_map(|step| match step {
            Step::Attach { tree: slot::FOUND, at } => Some(at.path.as_path().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(pinned, [Path::new("grants/1/a"), Path::new("grants/1/a/.docker")]);
}
