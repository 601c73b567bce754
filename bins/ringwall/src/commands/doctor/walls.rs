//! What follows from the features: the walls that can be raised and the means for every limit.

use ringwall_linux::cgroup::{Controller, Hierarchy, Means};
use ringwall_spec::{LimitMeans, LimitName, RingKind};

use super::report::{Feature, LimitFinding, NeededBy, State, WallFinding};

pub(super) fn walls(features: &[Feature]) -> Vec<WallFinding> {
    let needs = |ring: RingKind, feature: &Feature| match feature.needed_by {
        NeededBy::EveryWall => true,
        NeededBy::ContainerAndWorkspace => ring == RingKind::Container,
        NeededBy::Vm => ring == RingKind::Vm,
        NeededBy::Nothing => false,
    };
    RingKind::ALL
        .into_iter()
        .map(|ring| {
            let because = names_of_missing(features, |feature| needs(ring, feature));
            let possible = because.is_none();
            let because = because.map(|names| format!("missing: {names}")).or_else(|| {
                let for_layers = |feature: &Feature| {
                    ring == RingKind::Process
                        && feature.needed_by == NeededBy::ContainerAndWorkspace
                };
                let names = names_of_missing(features, for_layers)?;
                Some(format!("without a workspace; missing: {names}"))
            });
            WallFinding { wall: ring.name(), possible, because }
        })
        .collect()
}

/// The missing features of one kind. Those that only wait for another one to be fixed are left
/// out, unless there is no other.
fn names_of_missing(features: &[Feature], of: impl Fn(&Feature) -> bool) -> Option<String> {
    let missing: Vec<&Feature> =
        features.iter().filter(|feature| feature.state == State::Missing && of(feature)).collect();
    let names = |to_fix_only: bool| -> Vec<&str> {
        let counts = |feature: &&&Feature| !to_fix_only || feature.fix.is_some();
        missing.iter().filter(counts).map(|feature| feature.name).collect()
    };
    let to_fix = names(true);
    let shown = if to_fix.is_empty() { names(false) } else { to_fix };
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Every limit and the means by which it would be kept here.
pub(super) fn limits(hierarchy: &Hierarchy) -> Vec<LimitFinding> {
    let by_group =
        |controller, otherwise: (LimitMeans, &'static str)| match hierarchy.means_of(controller) {
            Some(Means::V1) => (LimitMeans::CgroupV1, "the kernel, for the whole tree"),
            Some(Means::V2) => (LimitMeans::CgroupV2, "the kernel, for the whole tree"),
            None => otherwise,
        };
    let watchdog = (LimitMeans::Watchdog, "added up many times a second; a cap on each process");
    let affinity = (LimitMeans::Affinity, "whole CPUs only; a share of one is refused");
    let rlimit = (LimitMeans::Rlimit, "counted in the sandbox's own user namespace");
    let tmpfs = (LimitMeans::Tmpfs, "a file system of that size");
    let engine = (LimitMeans::Engine, "the whole tree is killed");
    [
        (LimitName::Timeout, engine),
        (LimitName::Memory, by_group(Controller::Memory, watchdog)),
        (LimitName::Cpu, by_group(Controller::Cpu, affinity)),
        (LimitName::Pids, by_group(Controller::Pids, rlimit)),
        (LimitName::Disk, tmpfs),
        (LimitName::Inodes, tmpfs),
        (LimitName::Output, engine),
        (LimitName::OpenFiles, (LimitMeans::Rlimit, "each process")),
    ]
    .map(|(limit, (means, note))| LimitFinding { limit, means, note })
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(name: &'static str, state: State, needed_by: NeededBy) -> Feature {
        Feature { name, state, seen: String::new(), purpose: "", needed_by, fix: None }
    }

    fn stopped(feature: Feature) -> Vec<&'static str> {
        let walls = walls(&[feature]).into_iter();
        walls.filter(|wall| !wall.possible).map(|wall| wall.wall).collect()
    }

    #[test]
    fn a_missing_feature_stops_exactly_the_walls_that_need_it() {
        let every = feature("landlock", State::Missing, NeededBy::EveryWall);
        assert_eq!(stopped(every), ["process", "container", "wasm", "vm"]);
        let layers = feature("overlayfs", State::Missing, NeededBy::ContainerAndWorkspace);
        assert_eq!(stopped(layers), ["container"]);
        assert_eq!(stopped(feature("guest-kernel", State::Missing, NeededBy::Vm)), ["vm"]);
        assert!(stopped(feature("kvm", State::Missing, NeededBy::Nothing)).is_empty());
    }

    #[test]
    fn a_weaker_feature_stops_no_wall() {
        assert!(stopped(feature("landlock", State::Weaker, NeededBy::EveryWall)).is_empty());
    }

    #[test]
    fn the_reason_names_what_is_missing() {
        let features = [
            feature("pidfd", State::Missing, NeededBy::EveryWall),
            feature("clone3", State::Missing, NeededBy::EveryWall),
        ];
        let because = walls(&features)[0].because.clone();
        assert_eq!(because.as_deref(), Some("missing: pidfd, clone3"));
    }

    #[test]
    fn what_only_waits_for_another_feature_is_not_named_as_a_reason() {
        let mut cause = feature("user-namespace", State::Missing, NeededBy::EveryWall);
        cause.fix = Some("allow it".to_owned());
        let waits = feature("tmpfs", State::Missing, NeededBy::EveryWall);
        let found = walls(&[cause, waits]);
        assert!(found.iter().all(|wall| !wall.possible));
        assert_eq!(found[0].because.as_deref(), Some("missing: user-namespace"));
    }

    #[test]
    fn without_control_groups_every_limit_still_has_a_means() {
        let none = Hierarchy::None { reason: String::new(), fix: String::new() };
        let limits = limits(&none);
        assert_eq!(limits.len(), 8);
        let memory = limits.iter().find(|found| found.limit == LimitName::Memory).unwrap();
        assert_eq!(memory.means, LimitMeans::Watchdog);
    }
}
