//! A layer that is missing, or a warden that tells of another than was planned, stops the run.

use std::path::PathBuf;

use ringwall_linux::seccomp;
use ringwall_linux::step::{IdMaps, IdRange};
use ringwall_spec::{
    DeniedOpen, IdMapLine, LandlockFacts, MountFact, Namespace, NamespaceKind, RingFacts, RingKind,
    SeccompFacts,
};

use super::{Expected, HostNamespaces, check};
use crate::JobFilter;

const FIRST_ID: u32 = 1 << 30;

fn expected() -> Expected {
    let range = IdRange { inside: 0, outside: FIRST_ID, count: 65_536 };
    Expected {
        of_host: Vec::new(),
        workspace: None,
        maps: IdMaps { uids: vec![range], gids: vec![range] },
        user: (1000, 1000),
        root_read_only: true,
        open_files: 1024,
        apparmor: Some("ringwall-sandbox".to_owned()),
        own_namespaces: true,
        seccomp_filters: 1,
        filter: JobFilter::Sealed,
    }
}

fn namespaces(first: u64) -> Vec<Namespace> {
    (first..).zip(NamespaceKind::ALL).map(|(id, kind)| Namespace { kind, id }).collect()
}

fn host() -> HostNamespaces {
    HostNamespaces(namespaces(100))
}

/// What an honest warden tells of the ring that `expected` describes.
fn honest() -> RingFacts {
    let line = IdMapLine { inside: 0, outside: FIRST_ID, count: 65_536 };
    RingFacts {
        kernel_release: "6.12.0".to_owned(),
        pid: 1,
        uid: 1000,
        gid: 1000,
        namespaces: namespaces(200),
        uid_map: vec![line],
        gid_map: vec![line],
        no_new_privs: true,
        seccomp: SeccompFacts {
            mode: 2,
            filters: 1,
            fingerprint: seccomp::JOB_FINGERPRINT,
            refuses_io_uring: true,
            refuses_user_namespace: true,
        },
        landlock: LandlockFacts { abi: 6, denied_open: DeniedOpen::Denied },
        network_devices: vec!["lo".to_owned()],
        root_read_only: true,
        open_files: (1024, 1024),
        core_bytes: 1,
        apparmor: Some("ringwall-sandbox (enforce)".to_owned()),
        ..RingFacts::default()
    }
}

/// The layer that stops a ring whose facts were changed.
#[track_caller]
fn stopped_by(change: impl FnOnce(&mut RingFacts)) -> String {
    let mut facts = honest();
    change(&mut facts);
    let error = check(RingKind::Process, &expected(), &host(), facts).expect_err("must be noticed");
    error.layer
}

#[test]
fn an_honest_ring_passes_with_every_layer_named() {
    let evidence = check(RingKind::Process, &expected(), &host(), honest()).unwrap();
    let layers: Vec<&str> = evidence.checks.iter().map(|check| check.layer.as_str()).collect();
    for layer in ["user namespace", "uid map", "capabilities", "seccomp filter", "Landlock"] {
        assert!(layers.contains(&layer), "{layer} is not in {layers:?}");
    }
}

#[test]
fn a_namespace_shared_with_the_host_is_noticed() {
    for (number, kind) in NamespaceKind::ALL.into_iter().enumerate() {
        let layer = format!("{} namespace", kind.proc_name());
        let shared = host().0[number].id;
        assert_eq!(stopped_by(|facts| facts.namespaces[number].id = shared), layer);
        let forget = |facts: &mut RingFacts| facts.namespaces.retain(|told| told.kind != kind);
        assert_eq!(stopped_by(forget), layer);
    }
    assert_eq!(stopped_by(|facts| facts.namespaces.clear()), "user namespace");
    assert_eq!(stopped_by(|facts| facts.pid = 2), "process numbering");
}

#[test]
fn a_namespace_told_twice_counts_as_the_first() {
    let shared = host().0[0];
    assert_eq!(stopped_by(|facts| facts.namespaces.insert(0, shared)), "user namespace");
}

#[test]
fn another_user_map_is_noticed() {
    let root = IdMapLine { inside: 5, outside: 0, count: 1 };
    assert_eq!(stopped_by(|facts| facts.uid_map.push(root)), "uid map");
    assert_eq!(stopped_by(|facts| facts.uid_map[0].outside = 0), "uid map");
    assert_eq!(stopped_by(|facts| facts.uid_map[0].count += 1), "uid map");
    assert_eq!(stopped_by(|facts| facts.uid_map.clear()), "uid map");
    assert_eq!(stopped_by(|facts| facts.gid_map[0].outside = 0), "gid map");
    assert_eq!(stopped_by(|facts| facts.uid = 0), "user");
    assert_eq!(stopped_by(|facts| facts.gid = 0), "user");
}

#[test]
fn host_root_is_refused_even_if_it_was_planned() {
    let range = IdRange { inside: 0, outside: 0, count: 1 };
    let maps = IdMaps { uids: vec![range], gids: vec![range] };
    let line = IdMapLine { inside: 0, outside: 0, count: 1 };
    let facts = RingFacts { uid_map: vec![line], gid_map: vec![line], ..honest() };
    let error = check(RingKind::Process, &Expected { maps, ..expected() }, &host(), facts);
    assert_eq!(error.unwrap_err().layer, "uid map");
}

#[test]
fn a_capability_left_in_any_set_is_noticed() {
    for change in [
        |facts: &mut RingFacts| facts.capabilities.inheritable = 1,
        |facts: &mut RingFacts| facts.capabilities.permitted = 1,
        |facts: &mut RingFacts| facts.capabilities.effective = 1,
        |facts: &mut RingFacts| facts.capabilities.bounding = 1 << 40,
        |facts: &mut RingFacts| facts.capabilities.ambient = 1,
    ] {
        assert_eq!(stopped_by(change), "capabilities");
    }
    assert_eq!(stopped_by(|facts| facts.no_new_privs = false), "no-new-privileges");
}

#[test]
fn a_missing_or_another_filter_is_noticed() {
    for change in [
        |facts: &mut RingFacts| facts.seccomp.mode = 0,
        |facts: &mut RingFacts| facts.seccomp.mode = 1,
        |facts: &mut RingFacts| facts.seccomp.filters = 0,
        |facts: &mut RingFacts| facts.seccomp.filters = 2,
        |facts: &mut RingFacts| facts.seccomp.fingerprint ^= 1,
    ] {
        assert_eq!(stopped_by(change), "seccomp filter");
    }
    assert_eq!(stopped_by(|facts| facts.seccomp.refuses_io_uring = false), "refused syscalls");
    assert_eq!(
        stopped_by(|facts| facts.seccomp.refuses_user_namespace = false),
        "refused syscalls"
    );
}

#[test]
fn landlock_that_forbids_nothing_is_noticed() {
    assert_eq!(stopped_by(|facts| facts.landlock.abi = 0), "Landlock");
    for seen in [DeniedOpen::Allowed, DeniedOpen::NotTried] {
        assert_eq!(stopped_by(|facts| facts.landlock.denied_open = seen), "Landlock");
    }
}

#[test]
fn a_view_other_than_planned_is_noticed() {
    assert_eq!(stopped_by(|facts| facts.network_devices.push("eth0".into())), "network devices");
    assert_eq!(stopped_by(|facts| facts.root_read_only = false), "root file system");
    assert_eq!(stopped_by(|facts| facts.open_files.1 = 1 << 20), "open files limit");
    assert_eq!(stopped_by(|facts| facts.core_bytes = u64::MAX), "core dumps");
    assert_eq!(stopped_by(|facts| facts.open_files.0 = 1 << 20), "open files limit");
    assert_eq!(stopped_by(|facts| facts.kernel_release.clear()), "kernel");
}

#[test]
fn another_apparmor_profile_is_noticed() {
    assert_eq!(stopped_by(|facts| facts.apparmor = None), "AppArmor");
    assert_eq!(stopped_by(|facts| facts.apparmor = Some("unconfined".into())), "AppArmor");
    let complain = Some("ringwall-sandbox (complain)".into());
    assert_eq!(stopped_by(|facts| facts.apparmor = complain), "AppArmor");
    let other = Some("ringwall-sandbox-of-others (enforce)".into());
    assert_eq!(stopped_by(|facts| facts.apparmor = other), "AppArmor");
}

#[test]
fn facts_that_are_all_missing_stop_the_run() {
    let error = check(RingKind::Process, &expected(), &host(), RingFacts::default());
    assert!(error.is_err());
    let inner = Expected { own_namespaces: false, ..expected() };
    assert!(check(RingKind::Process, &inner, &host(), RingFacts::default()).is_err());
}

/// What a ring that shows `/usr` tells of its mounts.
fn check_mounts(mounts: &[(&str, &str, bool)]) -> Result<(), String> {
    let mount = |(path, file_system, read_only): &(&str, &str, bool)| MountFact {
        path: (*path).to_owned(),
        file_system: (*file_system).to_owned(),
        read_only: *read_only,
    };
    let facts = RingFacts { mounts: mounts.iter().map(mount).collect(), ..honest() };
    let of_host = vec![PathBuf::from("/usr"), PathBuf::from("/srv/data")];
    let workspace = Some(PathBuf::from("/usr/src/own"));
    let expected = Expected { of_host, workspace, ..expected() };
    check(RingKind::Process, &expected, &host(), facts).map(drop).map_err(|error| error.layer)
}

#[test]
fn a_mount_of_the_hosts_own_is_noticed_and_the_workspace_is_none() {
    let usr = ("/usr", "overlay", true);
    let dev = ("/dev/null", "devtmpfs", false);
    check_mounts(&[usr, dev, ("/usr/src/own", "ext4", false)]).unwrap();
    check_mounts(&[usr, ("/usr/share", "tmpfs", true)]).unwrap();
    let others = [
        ("/usr", "ext4", true),
        ("/usr", "overlay", false),
        ("/usr/local", "nfs4", true),
        ("/srv/data", "ext4", true),
        ("/usr/src/owner", "ext4", true),
    ];
    for other in others {
        let layer = check_mounts(&[usr, other]).unwrap_err();
        assert_eq!(layer, "view of the host's files", "{other:?}");
    }
}
