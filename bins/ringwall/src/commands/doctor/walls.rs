//! What follows from the features: the walls that can be raised and the means for every limit.

use ringwall_linux::cgroup::{Controller, Hierarchy, Means};
use ringwall_linux::host::Place;
use ringwall_spec::{LimitMeans, LimitName, RingKind};

use super::advice::{Need, setting};
use super::report::{Answer, Feature, LimitFinding, NeededBy, State, VmStart, WallFinding};
use super::trial::{Raised, Trial};

/// All that the answers follow from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) features: &'a [Feature],
    pub(super) trial: &'a Trial,
    /// A guest that was started, where that was asked for.
    pub(super) guest: Option<&'a VmStart>,
    pub(super) place: Place,
}

pub(super) fn walls(seen: &Seen<'_>) -> Vec<WallFinding> {
    let trial = seen.trial;
    let mut process = seen.of("process", RingKind::Process, &trial.process);
    if let (Raised::Up { .. }, Raised::Failed(error)) = (&trial.process, &trial.workspace) {
        process.because = Some(format!("without a workspace: {error:#}"));
        process.fix = Some(seen.fix(RingKind::Container, "process", error));
    }
    vec![
        process,
        seen.of("container", RingKind::Container, &trial.container),
        seen.of("container/process", RingKind::Container, &trial.nested),
        seen.of("wasm", RingKind::Wasm, &trial.wasm),
        seen.of_guest(),
    ]
}

impl Seen<'_> {
    fn of(&self, wall: &'static str, ring: RingKind, raised: &Raised) -> WallFinding {
        match raised {
            Raised::Up { took, facts } => WallFinding {
                wall,
                result: Answer::Yes,
                possible: true,
                seen: format!("raised in {} ms, {facts} facts checked", took.as_millis()),
                because: None,
                fix: None,
                took_ms: u64::try_from(took.as_millis()).ok(),
            },
            Raised::Failed(error) => WallFinding {
                wall,
                result: Answer::No,
                possible: false,
                seen: format!("{error:#}"),
                because: Some(
                    self.missing(ring)
                        .map_or_else(|| format!("{error:#}"), |names| format!("missing: {names}")),
                ),
                fix: Some(self.fix(ring, wall, error)),
                took_ms: None,
            },
        }
    }

    fn of_guest(&self) -> WallFinding {
        let finding = |result, seen: String, because: Option<String>, fix: Option<String>| {
            let possible = result == Answer::Yes;
            WallFinding { wall: "vm", result, possible, seen, because, fix, took_ms: None }
        };
        if let Some(names) = self.missing(RingKind::Vm) {
            let because = format!("missing: {names}");
            return finding(
                Answer::No,
                "not started".to_owned(),
                Some(because),
                self.first_fix(RingKind::Vm),
            );
        }
        match self.guest {
            Some(VmStart::TookMs(ms)) => WallFinding {
                took_ms: Some(*ms),
                ..finding(Answer::Yes, format!("a guest started in {ms} ms"), None, None)
            },
            Some(VmStart::Failed(reason)) => {
                let fix = again("vm --image IMAGE");
                finding(Answer::No, reason.clone(), Some(reason.clone()), Some(fix))
            }
            None => {
                let fix = "ringwall doctor --vm-start IMAGE".to_owned();
                let seen = format!("not started: `{fix}` starts one");
                finding(Answer::Unknown, seen, None, Some(fix))
            }
        }
    }

    /// What a person can do about a wall that could not be raised.
    fn fix(&self, ring: RingKind, wall: &str, error: &anyhow::Error) -> String {
        let text = format!("{error:#}");
        if text.contains("cannot be used for state") {
            let volume = setting(self.place, Need::OwnVolume);
            return volume.unwrap_or_else(|| {
                "set RINGWALL_HOME to a directory that you can write: export \
                 RINGWALL_HOME=$HOME/.ringwall"
                    .to_owned()
            });
        }
        if let Some(fix) = self.first_fix(ring) {
            return fix;
        }
        let refused = ["Operation not permitted", "Permission denied", "Read-only file system"];
        let refuses = refused.iter().any(|words| text.contains(words));
        setting(self.place, Need::Namespaces).filter(|_| refuses).unwrap_or_else(|| again(wall))
    }

    fn first_fix(&self, ring: RingKind) -> Option<String> {
        let missing = |feature: &&Feature| feature.state == State::Missing && needs(ring, feature);
        self.features.iter().filter(missing).find_map(|feature| feature.fix.clone())
    }

    fn missing(&self, ring: RingKind) -> Option<String> {
        names_of_missing(self.features, |feature| needs(ring, feature))
    }
}

fn again(wall: &str) -> String {
    format!(
        "ringwall run --wall {wall} -- true shows it again; report it with what `ringwall doctor \
         -o json` says"
    )
}

fn needs(ring: RingKind, feature: &Feature) -> bool {
    match feature.needed_by {
        NeededBy::EveryWall => true,
        NeededBy::ContainerAndWorkspace => ring == RingKind::Container,
        NeededBy::Wasm => ring == RingKind::Wasm,
        NeededBy::Vm => ring == RingKind::Vm,
        NeededBy::Nothing => false,
    }
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
    use std::time::Duration;

    use super::*;

    fn feature(name: &'static str, state: State, needed_by: NeededBy) -> Feature {
        Feature { name, state, seen: String::new(), purpose: "", needed_by, fix: None }
    }

    fn up() -> Raised {
        Raised::Up { took: Duration::from_millis(12), facts: 20 }
    }

    fn failed(reason: &'static str) -> Raised {
        Raised::Failed(anyhow::anyhow!(reason))
    }

    fn all_up() -> Trial {
        Trial { process: up(), workspace: up(), container: up(), nested: up(), wasm: up() }
    }

    fn of(features: &[Feature], trial: &Trial, place: Place) -> Vec<WallFinding> {
        walls(&Seen { features, trial, guest: None, place })
    }

    fn find<'a>(found: &'a [WallFinding], wall: &str) -> &'a WallFinding {
        found.iter().find(|finding| finding.wall == wall).unwrap()
    }

    #[test]
    fn a_wall_that_rose_is_there_and_a_guest_that_was_not_started_is_unknown() {
        let found = of(&[], &all_up(), Place::Host);
        for wall in ["process", "container", "container/process", "wasm"] {
            let finding = find(&found, wall);
            assert_eq!((finding.result, finding.possible), (Answer::Yes, true));
            assert_eq!(finding.seen, "raised in 12 ms, 20 facts checked");
        }
        let guest = find(&found, "vm");
        assert_eq!((guest.result, guest.possible), (Answer::Unknown, false));
    }

    #[test]
    fn what_could_not_be_raised_is_a_no_whatever_the_features_say() {
        let trial = Trial { container: failed("could not make overlay"), ..all_up() };
        let fine = feature("overlayfs", State::Ok, NeededBy::ContainerAndWorkspace);
        let found = of(&[fine], &trial, Place::Host);
        let container = find(&found, "container");
        assert_eq!(container.result, Answer::No);
        assert_eq!(container.because.as_deref(), Some("could not make overlay"));
        assert!(container.fix.as_deref().unwrap().contains("ringwall run --wall container"));
        assert_eq!(find(&found, "process").result, Answer::Yes);
    }

    #[test]
    fn every_no_has_a_fix_and_a_missing_feature_names_it() {
        let mut overlay = feature("overlayfs", State::Missing, NeededBy::ContainerAndWorkspace);
        overlay.fix = Some("as root: modprobe overlay".to_owned());
        let trial = Trial {
            workspace: failed("no overlay"),
            container: failed("no overlay"),
            nested: failed("no overlay"),
            ..all_up()
        };
        let found = of(&[overlay], &trial, Place::Host);
        for wall in ["container", "container/process"] {
            assert_eq!(find(&found, wall).because.as_deref(), Some("missing: overlayfs"));
            assert_eq!(find(&found, wall).fix.as_deref(), Some("as root: modprobe overlay"));
        }
        let process = find(&found, "process");
        assert_eq!(process.result, Answer::Yes);
        assert_eq!(process.because.as_deref(), Some("without a workspace: no overlay"));
        assert!(process.fix.is_some());
    }

    #[test]
    fn in_a_container_the_fix_is_a_setting_of_it() {
        let refused = "could not make user namespace: Operation not permitted (os error 1)";
        let trial = Trial { process: failed(refused), ..all_up() };
        let found = of(&[], &trial, Place::Docker);
        assert!(find(&found, "process").fix.as_deref().unwrap().starts_with("docker run --"));
        let nowhere = Trial { wasm: failed("/h cannot be used for state: denied"), ..all_up() };
        let found = of(&[], &nowhere, Place::Pod);
        assert!(find(&found, "wasm").fix.as_deref().unwrap().contains("emptyDir"));
    }

    #[test]
    fn what_only_waits_for_another_feature_is_not_named_as_a_reason() {
        let mut cause = feature("user-namespace", State::Missing, NeededBy::EveryWall);
        cause.fix = Some("allow it".to_owned());
        let waits = feature("tmpfs", State::Missing, NeededBy::EveryWall);
        let trial = Trial { process: failed("refused"), ..all_up() };
        let found = of(&[cause, waits], &trial, Place::Host);
        assert_eq!(found[0].because.as_deref(), Some("missing: user-namespace"));
        assert_eq!(found[0].fix.as_deref(), Some("allow it"));
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
