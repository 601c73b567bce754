//! Namespaces, mounts and system calls: without them no ring is raised. Most were tried for real.

use ringwall_engine::Programs;
use ringwall_linux::host::{HostFacts, Place, Probe, Trial, Tried, raise_limit, support};

use super::advice::{Need, setting};
use super::layers;
use super::report::{Feature, NeededBy, State};

pub(super) fn of_kernel(facts: &HostFacts, probe: &Probe, place: Place) -> Vec<Feature> {
    let mut features = Vec::new();
    features.extend(namespaces(facts, probe, place));
    features.extend(mounts(facts, probe, place));
    features.extend(calls(facts, place));
    features.extend([layers::seccomp(facts), layers::landlock(facts)]);
    features.extend([layers::cgroups(&facts.cgroup), layers::app_armor(facts)]);
    features.extend([layers::terminal_injection(facts), layers::subordinate_ids(facts)]);
    features
}

pub(super) fn of_programs(programs: &Programs) -> Feature {
    let missing: Vec<String> = [&programs.launcher, &programs.warden]
        .into_iter()
        .filter(|path| !path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    let purpose = "launcher and warden, which raise a ring and live in it";
    if missing.is_empty() {
        return Feature {
            name: "programs",
            state: State::Ok,
            seen: "launcher and warden found".to_owned(),
            purpose,
            needed_by: NeededBy::EveryWall,
            fix: None,
        };
    }
    Feature {
        name: "programs",
        state: State::Missing,
        seen: format!("not found: {}", missing.join(", ")),
        purpose,
        needed_by: NeededBy::EveryWall,
        fix: Some(
            "install ringwall, ringwall-launcher and ringwall-warden in one directory (or name \
             it in RINGWALL_PROGRAMS)"
                .to_owned(),
        ),
    }
}

/// The programs of the wasm ring.
pub(super) fn of_wasm_programs(programs: &Programs) -> Feature {
    let names = ["ringwall-wasm-warden", "ringwall-wasm-compiler"];
    let paths = names.map(|name| programs.warden.with_file_name(name));
    let missing: Vec<String> = paths
        .iter()
        .filter(|path| !path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    Feature {
        name: "wasm-programs",
        state: if missing.is_empty() { State::Ok } else { State::Missing },
        seen: match missing.is_empty() {
            true => "warden and compiler found".to_owned(),
            false => format!("not found: {}", missing.join(", ")),
        },
        purpose: "compile and run tools",
        needed_by: NeededBy::Wasm,
        fix: (!missing.is_empty())
            .then(|| format!("install {} beside ringwall (make install)", names.join(" and "))),
    }
}

pub(super) fn of_gateway(programs: &Programs) -> Feature {
    let program = programs.warden.with_file_name("ringwall-gateway");
    let there = program.is_file();
    Feature {
        name: "gateway",
        state: if there { State::Ok } else { State::Missing },
        seen: if there { "found" } else { "not found" }.to_owned(),
        purpose: "the only way of a sandbox to the network",
        needed_by: NeededBy::Nothing,
        fix: (!there).then(|| "install ringwall-gateway beside ringwall (make install)".to_owned()),
    }
}

/// A feature that was tried for real.
fn tried(
    name: &'static str,
    result: Tried,
    purpose: &'static str,
    needed_by: NeededBy,
    fix: impl FnOnce() -> String,
) -> Feature {
    let state = if result == Tried::Works { State::Ok } else { State::Missing };
    // An untried feature depends on one that failed; fixing that comes first.
    let fix = matches!(result, Tried::Fails(_)).then(fix);
    Feature { name, state, seen: result.to_string(), purpose, needed_by, fix }
}

fn namespaces(facts: &HostFacts, probe: &Probe, place: Place) -> Vec<Feature> {
    let every = NeededBy::EveryWall;
    let result = |trial| probe.result(trial);
    vec![
        user_namespace(facts, probe, place),
        tried(
            "mount-namespace",
            result(Trial::MountNamespace),
            "own view of the files",
            every,
            || raise_limit("mnt"),
        ),
        tried("pid-namespace", result(Trial::PidNamespace), "own processes only", every, || {
            raise_limit("pid")
        }),
        tried(
            "fresh-proc",
            result(Trial::Proc),
            "/proc without the host's processes",
            every,
            || {
                setting(place, Need::WholeProc).unwrap_or_else(|| {
                    "something is mounted over parts of /proc: as root, umount what \
                     `grep ' /proc/' /proc/self/mountinfo` shows"
                        .to_owned()
                })
            },
        ),
        tried(
            "network-namespace",
            result(Trial::NetworkNamespace),
            "no network device",
            every,
            || raise_limit("net"),
        ),
        tried("ipc-namespace", result(Trial::IpcNamespace), "own shared memory", every, || {
            raise_limit("ipc")
        }),
        tried("uts-namespace", result(Trial::UtsNamespace), "own host name", every, || {
            raise_limit("uts")
        }),
        tried(
            "cgroup-namespace",
            result(Trial::CgroupNamespace),
            "own control group as root",
            every,
            || raise_limit("cgroup"),
        ),
    ]
}

fn user_namespace(facts: &HostFacts, probe: &Probe, place: Place) -> Feature {
    let result = probe.result(Trial::UserNamespace);
    // Where user namespaces are restricted by AppArmor they can be made, but nothing can be done in
    // them: the first mount fails.
    let powerless = result == Tried::Works && !probe.works(Trial::MountNamespace);
    let result = if powerless { probe.result(Trial::MountNamespace) } else { result };
    let obstacle = facts.user_namespace_obstacle();
    let mut feature = tried(
        "user-namespace",
        result,
        "root inside is nobody outside",
        NeededBy::EveryWall,
        || match &obstacle {
            Some(obstacle) => obstacle.fix.clone(),
            None => setting(place, Need::Namespaces).unwrap_or_else(|| {
                "a security module or a seccomp filter round this process refuses it: start \
                 Ringwall from a shell of its own, or allow user namespaces there"
                    .to_owned()
            }),
        },
    );
    if let (State::Missing, Some(obstacle)) = (feature.state, obstacle) {
        feature.seen = obstacle.reason;
    }
    feature
}

fn mounts(facts: &HostFacts, probe: &Probe, place: Place) -> Vec<Feature> {
    let layers = NeededBy::ContainerAndWorkspace;
    let kernel = |feature: &str| support::boot(feature).unwrap_or_default();
    let mut marks = tried(
        "tmpfs-user-xattr",
        probe.result(Trial::TmpfsXattr),
        "overlay marks for replaced directories",
        NeededBy::Nothing,
        || kernel("tmpfs-user-xattr"),
    );
    if marks.state == State::Missing && probe.works(Trial::Tmpfs) {
        marks.state = State::Weaker;
        marks.seen = support::without("tmpfs-user-xattr").unwrap_or(marks.seen);
    }
    let id_mapped = match probe.result(Trial::IdMappedMount) {
        Tried::NotTried if !facts.is_root() => Feature {
            name: "idmapped-mount",
            state: State::Ok,
            seen: format!("not needed: rings of uid {} have one id", facts.uid),
            purpose: "files of the host shown with the ring's owners",
            needed_by: layers,
            fix: None,
        },
        // A root that may not copy mounts does not get as far.
        Tried::NotTried if probe.works(Trial::UserNamespace) => Feature {
            name: "idmapped-mount",
            state: State::Missing,
            seen: "this root may not mount (no CAP_SYS_ADMIN)".to_owned(),
            purpose: "files of the host shown with the ring's owners",
            needed_by: layers,
            fix: setting(place, Need::OrdinaryUser)
                .or_else(|| Some("run Ringwall as an ordinary user".to_owned())),
        },
        result => tried(
            "idmapped-mount",
            result,
            "files of the host shown with the ring's owners",
            layers,
            || {
                setting(place, Need::OwnVolume).unwrap_or_else(|| {
                    let newer = kernel("idmapped-mount");
                    format!("{newer}, and keep RINGWALL_HOME on ext4, xfs or btrfs")
                })
            },
        ),
    };
    vec![
        tried(
            "tmpfs",
            probe.result(Trial::Tmpfs),
            "capped space to write",
            NeededBy::EveryWall,
            || kernel("mount-setattr"),
        ),
        marks,
        tried("overlayfs", probe.result(Trial::Overlay), "copy-on-write layers", layers, || {
            if facts.overlay_listed {
                kernel("overlayfs")
            } else {
                "as root: modprobe overlay".to_owned()
            }
        }),
        id_mapped,
    ]
}

fn calls(facts: &HostFacts, place: Place) -> Vec<Feature> {
    let calls = facts.syscalls;
    let call = |name, present: bool, purpose| Feature {
        name,
        state: if present { State::Ok } else { State::Missing },
        seen: if present { "answers".to_owned() } else { "no such system call".to_owned() },
        purpose,
        needed_by: NeededBy::EveryWall,
        fix: (!present).then(|| {
            // A kernel that is new enough has it, so a filter refuses it.
            let filtered =
                setting(place, Need::SystemCalls).filter(|_| facts.kernel.at_least(5, 12));
            filtered.or_else(|| support::boot(name)).unwrap_or_default()
        }),
    };
    vec![
        call("clone3", calls.clone3, "all namespaces in one call"),
        call("pidfd", calls.pidfd_open, "processes that cannot be mixed up"),
        call("openat2", calls.openat2, "paths that cannot lead outside"),
        call("close-range", calls.close_range, "no inherited descriptor"),
        call("new-mount-api", calls.new_mount_api, "mounts made before they are seen"),
        call("mount-setattr", calls.mount_setattr, "whole trees read-only"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_system_call_names_the_kernel_that_has_it() {
        let mut facts = HostFacts::read();
        let all = &mut facts.syscalls;
        (all.clone3, all.pidfd_open, all.openat2) = (false, false, false);
        (all.close_range, all.new_mount_api, all.mount_setattr) = (false, false, false);
        for feature in calls(&facts, Place::Host) {
            let fix = feature.fix.unwrap_or_default();
            assert!(fix.starts_with("boot Linux 5."), "{}: {fix}", feature.name);
        }
    }
}
