//! Evidence of a vm ring: what the guest says of itself, and what the host's kernel says of the
//! monitor's jail.

use ringwall_ring::{Checker, EvidenceError};
use ringwall_spec::{CheckedFact, Evidence, RingFacts, RingKind};

/// What a guest's kernel must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKernel {
    pub boot_id: String,
}

impl HostKernel {
    pub fn read() -> std::io::Result<HostKernel> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(HostKernel { boot_id: boot_id.trim().to_owned() })
    }
}

/// Checks what the guest's first process sees. `kernel` is the release that was booted.
pub fn check_guest(
    kernel: &str,
    host: &HostKernel,
    facts: RingFacts,
) -> Result<Evidence, EvidenceError> {
    let mut checker = Checker::new(RingKind::Vm);
    let release = facts.kernel_release.clone();
    checker.require("own kernel", release == kernel, kernel, release)?;
    let boot = facts.boot_id.clone();
    let own = !boot.is_empty() && boot != host.boot_id;
    checker.require("own boot", own, format!("another than the host's {}", host.boot_id), boot)?;
    let first = format!("warden is process {}", facts.pid);
    checker.require("process numbering", facts.pid == 1, "warden is process 1", first)?;
    let only_loopback = facts.network_devices.iter().all(|name| name == "lo");
    let devices = facts.network_devices.join(", ");
    checker.require("network devices", only_loopback, "loopback at most", devices)?;
    let shared: Vec<&str> = facts
        .mounts
        .iter()
        .map(|mount| mount.file_system.as_str())
        .filter(|system| SHARED_WITH_HOST.contains(system))
        .collect();
    let seen = if shared.is_empty() { "none".to_owned() } else { shared.join(", ") };
    checker.require("file systems of the host", shared.is_empty(), "none", seen)?;
    Ok(Evidence { ring: RingKind::Vm, checks: checker.into_checks(), facts })
}

/// File systems through which a guest could reach the host's files.
const SHARED_WITH_HOST: [&str; 5] = ["9p", "virtiofs", "nfs", "nfs4", "cifs"];

/// Checks the VMM's jail as the host's kernel shows it: here no process inside can lie.
pub fn check_monitor(pid: u32) -> Result<Vec<CheckedFact>, EvidenceError> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    let mut checker = Checker::new(RingKind::Vm);
    let mode = field("Seccomp");
    checker.require("VMM: seccomp filter", mode == "2", "mode 2", format!("mode {mode}"))?;
    let privileges = field("NoNewPrivs");
    checker.require("VMM: no-new-privileges", privileges == "1", "on", privileges)?;
    for (set, layer) in [("CapEff", "VMM: capabilities"), ("CapBnd", "VMM: capabilities to be had")]
    {
        let bits = field(set);
        let none = !bits.is_empty() && bits.bytes().all(|digit| digit == b'0');
        checker.require(layer, none, "none", if none { "none".to_owned() } else { bits })?;
    }
    let user = field("Uid");
    let ids: Vec<&str> = user.split_whitespace().collect();
    let ordinary = ids.len() == 4 && !ids.contains(&"0");
    let seen = format!("uid {}", ids.first().copied().unwrap_or_default());
    checker.require("VMM: user", ordinary, "not root", seen)?;
    let namespaces = ["mnt", "net", "pid", "ipc", "uts", "user"].iter().all(|kind| {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
        let (inside, outside) = (of(&pid.to_string()), of("self"));
        inside.is_some() && inside != outside
    });
    let seen = if namespaces { "its own" } else { "some are the host's, or cannot be read" };
    checker.require("VMM: namespaces", namespaces, "its own", seen)?;
    Ok(checker.into_checks())
}

#[cfg(test)]
mod tests {
    use ringwall_spec::MountFact;

    use super::*;

    fn host() -> HostKernel {
        HostKernel { boot_id: "host".into() }
    }

    fn facts() -> RingFacts {
        RingFacts {
            kernel_release: "6.1".into(),
            boot_id: "guest".into(),
            pid: 1,
            network_devices: vec!["lo".into()],
            ..RingFacts::default()
        }
    }

    #[test]
    fn a_guest_of_its_own_kernel_is_believed() {
        let evidence = check_guest("6.1", &host(), facts()).unwrap();
        assert_eq!(evidence.checks.len(), 5);
    }

    #[test]
    fn the_host_in_disguise_is_not() {
        let layer = |facts| check_guest("6.1", &host(), facts).unwrap_err().layer;
        assert_eq!(layer(RingFacts { boot_id: "host".into(), ..facts() }), "own boot");
        assert_eq!(layer(RingFacts { boot_id: String::new(), ..facts() }), "own boot");
        assert_eq!(layer(RingFacts { kernel_release: "6.9".into(), ..facts() }), "own kernel");
        assert_eq!(layer(RingFacts { pid: 7, ..facts() }), "process numbering");
        let devices = vec!["lo".into(), "eth0".into()];
        assert_eq!(layer(RingFacts { network_devices: devices, ..facts() }), "network devices");
        let mount = MountFact { path: "/h".into(), file_system: "9p".into(), read_only: true };
        let mounts = vec![mount];
        assert_eq!(layer(RingFacts { mounts, ..facts() }), "file systems of the host");
    }

    #[test]
    fn a_process_without_a_jail_is_not_taken_for_a_monitor() {
        assert!(check_monitor(std::process::id()).is_err());
        assert!(check_monitor(u32::MAX).is_err());
    }
}
