//! One protection after the other is taken out, and attacks notice.

use ringwall_engine::Protection;

use crate::flaw::{Flaw, Ground, WITHOUT_READ_ONLY, findings, noticed};

pub(crate) const WITHOUT_SECCOMP: Flaw = Flaw::Without(&[Protection::Seccomp]);
pub(crate) const WITHOUT_NETWORK: Flaw = Flaw::Without(&[Protection::NetworkNamespace]);
pub(crate) const WITHOUT_COVERS: Flaw = Flaw::Without(&[Protection::Covers]);
pub(crate) const WITHOUT_OVERLAYS: Flaw = Flaw::Without(&[Protection::ShownOverlays]);
pub(crate) const WITHOUT_OWN_PROC: Flaw = Flaw::Without(&[Protection::OwnProc]);
/// Without control groups, connections are still bound, so that bound is missing, too.
pub(crate) const WITHOUT_GROUPS: Flaw =
    Flaw::Without(&[Protection::ControlGroups, Protection::Connections]);
/// Landlock lets jobs write to device files and directories of theirs only, so that is missing, too.
pub(crate) const WITHOUT_READ_ONLY_PROC: Flaw =
    Flaw::Without(&[Protection::ReadOnlyProc, Protection::Landlock]);
pub(crate) const WITHOUT_BOUNDS: Flaw =
    Flaw::Without(&[Protection::ScratchCap, Protection::OpenFiles, Protection::FileEvents]);

#[track_caller]
fn is_noticed_by(flaw: Flaw, probes: &[&str]) {
    for wall in ["process", "container"] {
        is_noticed_in(wall, flaw, probes);
    }
}

#[track_caller]
fn is_noticed_in(wall: &str, flaw: Flaw, probes: &[&str]) {
    let noticed = noticed(wall, flaw);
    for probe in probes {
        let all = findings(&Ground { wall: wall.to_owned(), flaw });
        let made = all.into_iter().find(|one| one.probe == *probe);
        assert!(noticed.contains(probe), "{wall}: {made:?} is not among {noticed:?}");
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
    is_noticed_by(WITHOUT_SECCOMP, &all);
}

#[test]
fn a_wall_whose_jobs_keep_capabilities_is_noticed() {
    let flaw = Flaw::Without(&[Protection::DroppedCapabilities]);
    is_noticed_by(flaw, &["bounding-capabilities"]);
}

#[test]
fn a_wall_without_landlock_is_noticed() {
    // What it refuses, capabilities and the filter refuse too, and nothing gets through for want of it; but
    // an attack tells by which of them it was refused.
    let why = |wall: &str, flaw: Flaw| {
        let all = findings(&Ground { wall: wall.to_owned(), flaw });
        let device = all.into_iter().find(|one| one.probe == "make-device");
        device.expect("an attack that makes devices").detail
    };
    for wall in ["process", "container"] {
        let without = why(wall, Flaw::Without(&[Protection::Landlock]));
        let with = why(wall, Flaw::SharedVolume);
        assert!(with.contains("Permission denied"), "{wall}: {with}");
        assert!(without.contains("Operation not permitted"), "{wall}: {without}");
    }
}

#[test]
fn a_wall_with_the_hosts_network_is_noticed() {
    let probes = ["tcp", "udp", "abstract-socket"];
    let noticed = noticed("container", WITHOUT_NETWORK);
    assert!(probes.iter().any(|probe| noticed.contains(probe)), "{noticed:?}");
}

#[test]
fn a_wall_without_control_groups_is_noticed() {
    is_noticed_by(
        WITHOUT_GROUPS,
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

#[test]
fn hidden_files_without_their_covers_are_noticed() {
    let probes = ["hidden-read", "hidden-read-by-own-root", "hidden-read-by-kernel-copy"];
    is_noticed_by(WITHOUT_COVERS, &probes);
}

#[test]
fn files_of_the_host_that_are_not_under_overlays_are_noticed() {
    let probes = ["lock-host-programs", "watch-host-programs"];
    is_noticed_in("process", WITHOUT_OVERLAYS, &probes);
}

#[test]
fn shown_paths_that_can_be_written_are_noticed() {
    let probes = ["shown-append", "shown-truncate", "shown-replace", "shown-create-file"];
    is_noticed_by(Flaw::Without(WITHOUT_READ_ONLY), &probes);
}

#[test]
fn directories_above_a_workspace_that_can_be_moved_are_noticed() {
    is_noticed_by(Flaw::Without(&[Protection::PinnedAbove]), &["move-above-workspace"]);
}

#[test]
fn a_wall_that_shows_the_hosts_processes_is_noticed() {
    // The attacks that read of every process can take longer than they may, where a host has many.
    is_noticed_by(WITHOUT_OWN_PROC, &["see-process"]);
}

#[test]
fn a_proc_that_can_be_written_is_noticed() {
    is_noticed_by(WITHOUT_READ_ONLY_PROC, &["own-name"]);
}

#[test]
fn a_crash_that_starts_the_hosts_program_is_noticed() {
    is_noticed_by(Flaw::Without(&[Protection::CoreDumpLimit]), &["core-dump-limit"]);
}

#[test]
fn bounds_that_are_missing_are_noticed() {
    let probes = ["exhaust-disk", "exhaust-inodes", "exhaust-open-files", "exhaust-watch-queues"];
    is_noticed_by(WITHOUT_BOUNDS, &probes);
}

#[test]
fn a_job_that_is_never_ended_is_noticed() {
    is_noticed_by(Flaw::NoTimeout, &["exhaust-time"]);
}
