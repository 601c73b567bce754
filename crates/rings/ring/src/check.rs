//! Facts against the plan. A layer that cannot be shown stops the run.

use std::path::{Path, PathBuf};

use ringwall_linux::seccomp;
use ringwall_linux::step::{IdMaps, IdRange};
use ringwall_spec::{
    CheckedFact, DeniedOpen, Evidence, IdMapLine, Namespace, NamespaceKind, RingFacts, RingKind,
};

use crate::input::{JobFilter, RingInput};

/// What a ring's facts must show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    pub maps: IdMaps,
    pub user: (u32, u32),
    pub root_read_only: bool,
    pub open_files: u64,
    pub apparmor: Option<String>,
    /// False for a ring inside a ring: it shares the namespaces of the outer one.
    pub own_namespaces: bool,
    /// Filters stack: those on the engine, one per ring, and one more for the outermost where its
    /// memory is watched.
    pub seccomp_filters: u32,
    /// Which filter is the last one that was put on.
    pub filter: JobFilter,
    /// Paths at which the ring sees files of the host. Nothing there is a mount of the host's own.
    pub of_host: Vec<PathBuf>,
    /// The one path below which that may be so.
    pub workspace: Option<PathBuf>,
}

impl Expected {
    /// For a ring with one user and a root of its own that no process can write to.
    pub fn of_one_user(input: &RingInput<'_>) -> Expected {
        let user = input.identity.user_inside();
        Expected {
            maps: input.identity.one_user(user),
            user,
            root_read_only: true,
            open_files: input.admitted.spec().limits.open_files.into(),
            apparmor: input.apparmor.clone(),
            own_namespaces: true,
            seccomp_filters: input.seccomp_filters(),
            filter: input.filter(),
            of_host: shown_paths(input),
            workspace: input.workspace.as_ref().map(|workspace| workspace.inside.clone()),
        }
    }
}

/// The paths of the host that the request shows, besides a workspace.
pub fn shown_paths(input: &RingInput<'_>) -> Vec<PathBuf> {
    input.shown.iter().map(|shown| shown.path.clone()).collect()
}

/// The namespaces of the engine itself: a ring must share none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNamespaces(pub Vec<Namespace>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {layer} of the {ring} ring is not in place: expected {expected}, found {seen}; the run was stopped (see `ringwall doctor`)"
)]
pub struct EvidenceError {
    pub ring: RingKind,
    pub layer: String,
    pub expected: String,
    pub seen: String,
}

/// Checks every layer that the plan promised.
pub fn check(
    ring: RingKind,
    expected: &Expected,
    host: &HostNamespaces,
    facts: RingFacts,
) -> Result<Evidence, EvidenceError> {
    let mut checker = Checker::new(ring);
    if expected.own_namespaces {
        checker.namespaces(host, &facts)?;
    }
    checker.users(expected, &facts)?;
    checker.privileges(expected, &facts)?;
    checker.filters(expected, &facts)?;
    checker.view(expected, &facts)?;
    Ok(Evidence { ring, checks: checker.checks, facts })
}

/// Collects the facts that were read about one ring.
#[derive(Debug)]
pub struct Checker {
    ring: RingKind,
    checks: Vec<CheckedFact>,
}

impl Checker {
    pub fn new(ring: RingKind) -> Checker {
        Checker { ring, checks: Vec::new() }
    }

    pub fn into_checks(self) -> Vec<CheckedFact> {
        self.checks
    }

    /// Records a layer as seen, or stops.
    pub fn require(
        &mut self,
        layer: &str,
        holds: bool,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Result<(), EvidenceError> {
        let seen = seen.into();
        if holds {
            self.checks.push(CheckedFact { layer: layer.to_owned(), seen });
            return Ok(());
        }
        let (ring, layer, expected) = (self.ring, layer.to_owned(), expected.into());
        Err(EvidenceError { ring, layer, expected, seen })
    }

    fn namespaces(
        &mut self,
        host: &HostNamespaces,
        facts: &RingFacts,
    ) -> Result<(), EvidenceError> {
        for kind in NamespaceKind::ALL {
            let find = |list: &[Namespace]| list.iter().find(|n| n.kind == kind).map(|n| n.id);
            let (inside, outside) = (find(&facts.namespaces), find(&host.0));
            let own = matches!((inside, outside), (Some(i), Some(o)) if i != o);
            let show = |id: Option<u64>| id.map_or("unknown".to_owned(), |id| id.to_string());
            self.require(
                &format!("{} namespace", kind.proc_name()),
                own,
                format!("another than the host's {}", show(outside)),
                format!("{} (host {})", show(inside), show(outside)),
            )?;
        }
        self.require("process numbering", facts.pid == 1, "warden is process 1", {
            format!("warden is process {}", facts.pid)
        })
    }

    fn users(&mut self, expected: &Expected, facts: &RingFacts) -> Result<(), EvidenceError> {
        let check = |planned: &[IdRange], seen: &[IdMapLine]| {
            let same = planned.len() == seen.len()
                && planned
                    .iter()
                    .zip(seen)
                    .all(|(p, s)| (p.inside, p.outside, p.count) == (s.inside, s.outside, s.count));
            // Independent of the plan: host root must never be in a ring.
            same && seen.iter().all(|line| line.outside != 0)
        };
        let maps = [
            ("uid map", &expected.maps.uids, &facts.uid_map),
            ("gid map", &expected.maps.gids, &facts.gid_map),
        ];
        for (layer, planned, seen) in maps {
            let text: Vec<_> = seen
                .iter()
                .map(|line| format!("{}->{} x{}", line.inside, line.outside, line.count))
                .collect();
            self.require(layer, check(planned, seen), format!("{planned:?}"), text.join(", "))?;
        }
        let user = (facts.uid, facts.gid);
        self.require(
            "user",
            user == expected.user,
            format!("{:?}", expected.user),
            format!("uid {} gid {}", facts.uid, facts.gid),
        )
    }

    fn privileges(&mut self, expected: &Expected, facts: &RingFacts) -> Result<(), EvidenceError> {
        let caps = facts.capabilities;
        self.require(
            "capabilities",
            caps.is_empty(),
            "none in any set",
            if caps.is_empty() {
                "none in any set".to_owned()
            } else {
                format!("effective {:x}, bounding {:x}", caps.effective, caps.bounding)
            },
        )?;
        self.require("no-new-privileges", facts.no_new_privs, "on", on(facts.no_new_privs))?;
        let (soft, hard) = facts.open_files;
        let kept = soft <= expected.open_files && hard <= expected.open_files;
        let most = format!("at most {}", expected.open_files);
        self.require("open files limit", kept, most, hard.to_string())?;
        // 0 is what a host without a dump program may have as its hard limit.
        let dumps = facts.core_bytes;
        self.require("core dumps", dumps <= 1, "none", format!("a limit of {dumps} bytes"))?;
        if let Some(profile) = &expected.apparmor {
            let seen = facts.apparmor.clone().unwrap_or_default();
            // A profile that only complains denies nothing.
            let enforced = format!("{profile} (enforce)");
            self.require("AppArmor", seen == enforced, &enforced, seen)?;
        }
        Ok(())
    }

    fn filters(&mut self, expected: &Expected, facts: &RingFacts) -> Result<(), EvidenceError> {
        let seen = &facts.seccomp;
        // The innermost filter answers.
        let fingerprint = match self.ring {
            RingKind::Wasm => seccomp::WASM_FINGERPRINT,
            // The guest's own ring is checked otherwise; it has no filter of ours.
            RingKind::Process | RingKind::Container | RingKind::Vm => match expected.filter {
                JobFilter::Sealed => seccomp::JOB_FINGERPRINT,
                JobFilter::Nesting | JobFilter::Open => seccomp::NESTING_FINGERPRINT,
            },
        };
        self.require(
            "seccomp filter",
            seen.mode == 2
                && seen.filters == expected.seccomp_filters
                && seen.fingerprint == fingerprint,
            format!("{} with fingerprint {:011x}", expected.seccomp_filters, fingerprint),
            format!("{} with fingerprint {:011x}", seen.filters, seen.fingerprint),
        )?;
        let refused = seen.refuses_io_uring && seen.refuses_user_namespace;
        self.require("refused syscalls", refused, "io_uring and user namespaces refused", {
            format!("io_uring {}, user namespaces {}", refusal(seen.refuses_io_uring), {
                refusal(seen.refuses_user_namespace)
            })
        })?;
        let landlock = facts.landlock;
        // A ring inside a ring has no canary. A wasm ring tries something else; in the others the
        // engine tries a write.
        let tries_itself = expected.own_namespaces || self.ring == RingKind::Wasm;
        let denied = landlock.denied_open == DeniedOpen::Denied
            || (!tries_itself && landlock.denied_open == DeniedOpen::NotTried);
        self.require("Landlock", landlock.abi > 0 && denied, "a forbidden open is denied", {
            format!("ABI {}, forbidden open: {:?}", landlock.abi, landlock.denied_open)
        })
    }

    fn view(&mut self, expected: &Expected, facts: &RingFacts) -> Result<(), EvidenceError> {
        self.host_files(expected, facts)?;
        let only_loopback = facts.network_devices.iter().all(|name| name == "lo");
        let devices = facts.network_devices.join(", ");
        self.require("network devices", only_loopback, "loopback at most", devices)?;
        let wanted = if expected.root_read_only { "read-only" } else { "own writable layer" };
        let seen = if facts.root_read_only { "read-only" } else { "own writable layer" };
        let same = expected.root_read_only == facts.root_read_only;
        self.require("root file system", same, wanted, seen)?;
        self.require("kernel", !facts.kernel_release.is_empty(), "a release", &facts.kernel_release)
    }

    /// A mount of the host's own file system has living sockets, locks and watches.
    fn host_files(&mut self, expected: &Expected, facts: &RingFacts) -> Result<(), EvidenceError> {
        if expected.of_host.is_empty() {
            return Ok(());
        }
        let in_workspace =
            |path: &Path| expected.workspace.as_ref().is_some_and(|own| path.starts_with(own));
        let is_of_host = |path: &Path| expected.of_host.iter().any(|top| path.starts_with(top));
        let own = ["overlay", "tmpfs"];
        let other = facts.mounts.iter().find(|mount| {
            let path = Path::new(&mount.path);
            let is_own = own.contains(&mount.file_system.as_str()) && mount.read_only;
            is_of_host(path) && !in_workspace(path) && !is_own
        });
        let seen = other.map_or_else(
            || "read-only overlays".to_owned(),
            |mount| {
                let writable = if mount.read_only { "" } else { ", writable" };
                format!("{} at {}{writable}", mount.file_system, mount.path)
            },
        );
        self.require("view of the host's files", other.is_none(), "read-only overlays", seen)
    }
}

fn on(state: bool) -> &'static str {
    if state { "on" } else { "off" }
}

fn refusal(refused: bool) -> &'static str {
    if refused { "refused" } else { "ALLOWED" }
}

#[cfg(test)]
mod tests;
