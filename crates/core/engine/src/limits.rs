//! By which means each limit is kept on this host, or why it cannot be.

use ringwall_linux::cgroup::{Controller, GroupLimits, Hierarchy, Means};
use ringwall_ring::EvidenceError;
use ringwall_spec::{
    CheckedFact, KeptLimit, LimitMeans, LimitName, Limits, RingKind, SandboxSpec, WorkspaceMode,
    show_bytes, show_duration,
};

use crate::place::PlaceError;

/// What a control group is asked to keep: what this host has controllers for.
pub(crate) fn group_limits(spec: &SandboxSpec, cgroups: &Hierarchy) -> GroupLimits {
    let limits = &spec.limits;
    // A monitor needs some for itself, and its threads are not the guest's processes.
    let (memory_bytes, pids) = match spec.wall.outermost() {
        RingKind::Vm => {
            let both = limits.memory_bytes.saturating_add(ringwall_ring_vm::MONITOR_BYTES);
            (both, ringwall_ring_vm::MONITOR_THREADS)
        }
        _ => (limits.memory_bytes, limits.pids),
    };
    let has = |controller| cgroups.means_of(controller).is_some();
    GroupLimits {
        memory_bytes: has(Controller::Memory).then_some(memory_bytes),
        pids: has(Controller::Pids).then_some(pids),
        cpu_milli: has(Controller::Cpu).then_some(limits.cpu_milli),
    }
}

/// Compares what a control group keeps with what it was asked to keep.
pub(crate) fn compare(
    ring: RingKind,
    asked: &GroupLimits,
    found: &GroupLimits,
) -> Result<CheckedFact, EvidenceError> {
    // The kernel rounds memory down to whole pages.
    let page = 4096;
    let memory = asked.memory_bytes.map(|bytes| bytes / page);
    let kept = found.memory_bytes.map(|bytes| bytes / page) == memory
        && found.pids == asked.pids
        && found.cpu_milli == asked.cpu_milli;
    let layer = "control group".to_owned();
    if !kept {
        let (expected, seen) = (format!("{asked:?}"), format!("{found:?}"));
        return Err(EvidenceError { ring, layer, expected, seen });
    }
    let mut seen = Vec::new();
    seen.extend(found.memory_bytes.map(|bytes| format!("memory {}", show_bytes(bytes))));
    seen.extend(found.pids.map(|pids| format!("{pids} processes")));
    seen.extend(found.cpu_milli.map(|milli| format!("{milli} thousandths of a CPU")));
    Ok(CheckedFact { layer, seen: seen.join(", ") })
}

/// Names the means for every limit. Without a controller for it, a share of a CPU cannot be kept,
/// and the run is refused.
pub(crate) fn kept(spec: &SandboxSpec, cgroups: &Hierarchy) -> Result<Vec<KeptLimit>, PlaceError> {
    let limits = &spec.limits;
    let in_vm = spec.wall.outermost() == RingKind::Vm;
    let by = |controller, otherwise| match cgroups.means_of(controller) {
        Some(Means::V1) => LimitMeans::CgroupV1,
        Some(Means::V2) => LimitMeans::CgroupV2,
        None => otherwise,
    };
    let memory = by(Controller::Memory, LimitMeans::Watchdog);
    let cpu = by(Controller::Cpu, LimitMeans::Affinity);
    let pids = by(Controller::Pids, LimitMeans::Rlimit);
    // A guest has what it was given, whatever its host counts besides.
    let in_guest = |means| if in_vm { LimitMeans::Guest } else { means };
    let (memory, pids) = (in_guest(memory), in_guest(pids));
    let disk = in_guest(LimitMeans::Tmpfs);
    if cpu == LimitMeans::Affinity && !limits.cpu_milli.is_multiple_of(1000) {
        return Err(no_cpu_share(cgroups, limits));
    }
    let entry = |limit, value: String, means| KeptLimit { limit, value, means };
    let mut kept = vec![
        entry(LimitName::Timeout, show_duration(limits.timeout), LimitMeans::Engine),
        entry(LimitName::Memory, show_bytes(limits.memory_bytes), memory),
        entry(LimitName::Cpu, show_cpus(limits.cpu_milli), cpu),
        entry(LimitName::Pids, limits.pids.to_string(), pids),
        entry(LimitName::Output, show_bytes(limits.output_bytes), LimitMeans::Engine),
        entry(LimitName::OpenFiles, limits.open_files.to_string(), LimitMeans::Rlimit),
    ];
    let written_through =
        spec.workspace.as_ref().is_some_and(|w| w.mode == WorkspaceMode::ReadWrite);
    let note = if written_through { " (outside the workspace)" } else { "" };
    kept.push(entry(LimitName::Disk, format!("{}{note}", show_bytes(limits.disk_bytes)), disk));
    kept.push(entry(LimitName::Inodes, format!("{}{note}", limits.disk_inodes), disk));
    Ok(kept)
}

/// The limits that the ring itself has to keep.
pub(crate) fn without_cgroup(kept: &[KeptLimit]) -> Vec<LimitName> {
    let by_ring = |kept: &&KeptLimit| {
        let means = [LimitMeans::Watchdog, LimitMeans::Affinity];
        means.contains(&kept.means)
            || (kept.limit == LimitName::Pids && kept.means == LimitMeans::Rlimit)
    };
    kept.iter().filter(by_ring).map(|kept| kept.limit).collect()
}

fn no_cpu_share(cgroups: &Hierarchy, limits: &Limits) -> PlaceError {
    let (reason, fix) = match cgroups {
        Hierarchy::None { reason, fix } => (reason.clone(), fix.clone()),
        _ => ("no cpu controller".to_owned(), cgroups.fix_for(Controller::Cpu)),
    };
    PlaceError::CpuShare { asked: show_cpus(limits.cpu_milli), reason, fix }
}

fn show_cpus(milli: u32) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use ringwall_spec::Wall;

    use super::*;

    fn without_cgroups() -> Hierarchy {
        Hierarchy::None { reason: "none here".into(), fix: "delegate one".into() }
    }

    fn a_process(limits: Limits) -> SandboxSpec {
        SandboxSpec { limits, ..SandboxSpec::new(Wall::single(RingKind::Process)) }
    }

    #[test]
    fn every_limit_is_kept_by_some_means() {
        let kept = kept(&a_process(Limits::default()), &without_cgroups()).unwrap();
        assert_eq!(kept.len(), 8);
        let memory = kept.iter().find(|k| k.limit == LimitName::Memory).unwrap();
        assert_eq!(memory.means, LimitMeans::Watchdog);
    }

    #[test]
    fn a_share_of_a_cpu_needs_a_control_group() {
        let limits = Limits { cpu_milli: 500, ..Limits::default() };
        let refused = kept(&a_process(limits), &without_cgroups()).unwrap_err();
        assert!(refused.to_string().contains("0.5"), "{refused}");
        assert!(refused.to_string().contains("delegate one"), "{refused}");
    }
}
