//! Layers of the kernel on top of the namespaces, told from facts that were read.

use ringwall_linux::apparmor;
use ringwall_linux::cgroup::{Controller, Hierarchy};
use ringwall_linux::host::{HostFacts, support};

use super::report::{Feature, NeededBy, State};

/// The profile that jobs get where AppArmor is on.
const SANDBOX_PROFILE: &str = "ringwall-sandbox";

/// Before this version Landlock does not hold signals and abstract sockets in.
const LANDLOCK_WITH_SCOPES: u32 = 6;

pub(super) fn seccomp(facts: &HostFacts) -> Feature {
    let present = facts.seccomp_filter;
    Feature {
        name: "seccomp",
        state: if present { State::Ok } else { State::Missing },
        seen: if present { "filters accepted".to_owned() } else { "no filters".to_owned() },
        purpose: "dangerous system calls denied",
        needed_by: NeededBy::EveryWall,
        fix: (!present).then(|| "boot a kernel built with CONFIG_SECCOMP_FILTER=y".to_owned()),
    }
}

pub(super) fn landlock(facts: &HostFacts) -> Feature {
    let abi = facts.landlock_abi;
    let (state, seen, fix) = match abi {
        0 => (
            State::Missing,
            "off".to_owned(),
            Some(
                "put landlock first in lsm= on the kernel command line, or boot a kernel built with \
                 CONFIG_SECURITY_LANDLOCK=y (5.13 or later)"
                    .to_owned(),
            ),
        ),
        1..LANDLOCK_WITH_SCOPES => (
            State::Weaker,
            format!("ABI {abi}: signals and abstract sockets are held in by namespaces alone"),
            support::boot("landlock-scope"),
        ),
        _ => (State::Ok, format!("ABI {abi}"), None),
    };
    let purpose = "files denied by the kernel a second time";
    Feature { name: "landlock", state, seen, purpose, needed_by: NeededBy::EveryWall, fix }
}

pub(super) fn cgroups(hierarchy: &Hierarchy) -> Feature {
    let held: Vec<&str> = hierarchy.controllers().iter().map(Controller::name).collect();
    let missing = Controller::ALL.into_iter().find(|c| hierarchy.means_of(*c).is_none());
    let seen = match hierarchy {
        Hierarchy::None { reason, .. } => reason.clone(),
        Hierarchy::V1(_) => format!("v1: {}", held.join(", ")),
        Hierarchy::Hybrid { .. } => format!("hybrid, on v1: {}", held.join(", ")),
        Hierarchy::V2(_) => format!("v2: {}", held.join(", ")),
    };
    Feature {
        name: "cgroups",
        state: if missing.is_some() { State::Weaker } else { State::Ok },
        seen,
        purpose: "memory, process and CPU limits kept by the kernel",
        needed_by: NeededBy::Nothing,
        fix: missing.map(|controller| hierarchy.fix_for(controller)),
    }
}

pub(super) fn app_armor(facts: &HostFacts) -> Feature {
    let feature = |state, seen: &str, fix: Option<&str>| Feature {
        name: "apparmor",
        state,
        seen: seen.to_owned(),
        purpose: "one more layer of access rules",
        needed_by: NeededBy::Nothing,
        fix: fix.map(str::to_owned),
    };
    if !facts.apparmor {
        let fix = "optional: boot a kernel that has it with lsm=...,apparmor";
        return feature(State::Weaker, "off: the other layers stand alone", Some(fix));
    }
    if apparmor::profile_loaded(SANDBOX_PROFILE) {
        return feature(State::Ok, "on, profile loaded", None);
    }
    let fix = "as root: apparmor_parser -r resources/apparmor/ringwall-sandbox";
    feature(State::Weaker, "on, profile ringwall-sandbox not loaded", Some(fix))
}

pub(super) fn terminal_injection(facts: &HostFacts) -> Feature {
    let off = facts.legacy_tiocsti == Some(false);
    Feature {
        name: "tiocsti-off",
        state: if off { State::Ok } else { State::Weaker },
        seen: if off { "off".to_owned() } else { "on: denied by the filter alone".to_owned() },
        purpose: "no typing into the caller's terminal",
        needed_by: NeededBy::Nothing,
        fix: (!off).then(|| match facts.legacy_tiocsti {
            Some(_) => "as root: sysctl -w dev.tty.legacy_tiocsti=0".to_owned(),
            None => "boot Linux 6.2 or later, then as root: sysctl -w dev.tty.legacy_tiocsti=0"
                .to_owned(),
        }),
    }
}

pub(super) fn subordinate_ids(facts: &HostFacts) -> Feature {
    let total: u64 = facts.subordinate_uids.iter().map(|range| u64::from(range.count)).sum();
    let seen = if facts.is_root() {
        "not needed: root takes a private range".to_owned()
    } else {
        format!("{total} given; not needed: rings have one id")
    };
    Feature {
        name: "subordinate-ids",
        state: State::Ok,
        seen,
        purpose: "several users in a ring of an ordinary user",
        needed_by: NeededBy::Nothing,
        fix: None,
    }
}
