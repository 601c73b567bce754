//! The proof, as a table: the facts that were read inside every ring, and how each limit was kept.

use std::io::{self, Write};

use ringwall_spec::{LimitMeans, Outcome};

use super::Table;

/// Writes the checked evidence of a finished run.
pub(crate) fn write_evidence(out: &mut impl Write, outcome: &Outcome) -> io::Result<()> {
    let usage = &outcome.usage;
    writeln!(
        out,
        "wall {} of sandbox {}, raised in {} ms, ran {} ms",
        outcome.wall, outcome.id, usage.raise_ms, usage.wall_ms
    )?;
    let mut rings = Table::new(["RING", "LAYER", "SEEN FROM INSIDE"]);
    for evidence in &outcome.evidence {
        for check in &evidence.checks {
            rings.row([evidence.ring.name(), &check.layer, &check.seen]);
        }
    }
    write!(out, "{rings}")?;
    let mut limits = Table::new(["LIMIT", "VALUE", "KEPT BY"]);
    for kept in &outcome.limits {
        limits.row([&kept.limit.to_string(), &kept.value, means(kept.means)]);
    }
    write!(out, "{limits}")
}

fn means(means: LimitMeans) -> &'static str {
    match means {
        LimitMeans::CgroupV1 => "cgroup v1",
        LimitMeans::CgroupV2 => "cgroup v2",
        LimitMeans::Tmpfs => "size-capped tmpfs",
        LimitMeans::Rlimit => "resource limit",
        LimitMeans::Watchdog => "watchdog",
        LimitMeans::Affinity => "CPU affinity",
        LimitMeans::Engine => "engine",
        LimitMeans::Guest => "guest",
    }
}
