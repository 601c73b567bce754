//! Giving up power: capabilities, Landlock, resource limits, CPUs.

use std::io;
use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::step::{PathAccess, RawPath, ResourceLimit};

/// Empties every capability set, the bounding set too, so that no exec can bring one back.
pub fn drop_capabilities() -> io::Result<()> {
    for number in 0..64 {
        let Some(capability) = CapabilitySet::from_bits(1 << number) else {
            break;
        };
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // The kernel knows fewer capabilities than there are bits.
            Err(rustix::io::Errno::INVAL) => break,
            other => other?,
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(rustix::thread::set_capabilities(None, none)?)
}

pub fn no_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

const NO_LANDLOCK: &str = "this kernel does not enforce Landlock; boot Linux 5.13 or later with \
                           landlock in lsm= on its command line";

/// Applies a Landlock domain: file access only below `rules`, no signals and no abstract sockets
/// across its border. `held` are directories that no path leads to. Rights that this kernel's Landlock
/// does not know yet are left out. A kernel without Landlock is an error.
pub fn landlock(
    rules: &[(RawPath, PathAccess)],
    held: &[(BorrowedFd<'_>, PathAccess)],
) -> io::Result<()> {
    let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("Landlock: {error}"));
    let all = AccessFs::from_all(ABI::V5);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|_| io::Error::other(NO_LANDLOCK))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(|e| wrong(&e))?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(|e| wrong(&e))?
        .create()
        .map_err(|e| wrong(&e))?;
    for (path, access) in rules {
        let fd = PathFd::new(path.as_path()).map_err(|e| wrong(&e))?;
        // A rule on a single file may only name rights that make sense for files.
        let is_dir = std::fs::metadata(path.as_path())?.is_dir();
        let all = granted(*access);
        let granted = if is_dir { all } else { all & AccessFs::from_file(ABI::V5) };
        ruleset = ruleset.add_rule(PathBeneath::new(fd, granted)).map_err(|e| wrong(&e))?;
    }
    for (directory, access) in held {
        let rule = PathBeneath::new(directory, granted(*access));
        ruleset = ruleset.add_rule(rule).map_err(|e| wrong(&e))?;
    }
    let status = ruleset.restrict_self().map_err(|e| wrong(&e))?;
    if status.ruleset == landlock::RulesetStatus::NotEnforced {
        return Err(io::Error::other(NO_LANDLOCK));
    }
    Ok(())
}

fn granted(access: PathAccess) -> BitFlags<AccessFs> {
    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    match access {
        PathAccess::Read => read,
        PathAccess::ReadFiles => AccessFs::ReadFile.into(),
        PathAccess::Device => {
            AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::WriteFile | AccessFs::IoctlDev
        }
        PathAccess::Write => {
            AccessFs::from_all(ABI::V5) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
        }
    }
}

pub fn limit_resource(limit: ResourceLimit) -> io::Result<()> {
    match limit {
        ResourceLimit::Processes(value) => lower(Resource::Nproc, value),
        ResourceLimit::DataBytes(value) => lower(Resource::Data, value),
        ResourceLimit::NoCoreDump => no_core_dump(),
        ResourceLimit::WaitingSignals(value) => lower(Resource::Sigpending, value),
        ResourceLimit::QueueBytes(value) => lower(Resource::Msgqueue, value),
    }
}

/// With this core size the kernel makes no dump, neither to a file nor to a program (core(5)). With 0
/// it makes none to a file.
const NO_DUMP: u64 = 1;

const DUMPS: &str = "a crash would start the host's core dump program: the hard limit on core size is 0, \
                     which does not stop it, and only root can set 1; set `ulimit -Hc` to unlimited for \
                     whoever starts Ringwall, or kernel.core_pattern to a file name";

/// Sees to it that a crash starts no program of the host.
fn no_core_dump() -> io::Result<()> {
    let limit = Rlimit { current: Some(NO_DUMP), maximum: Some(NO_DUMP) };
    if rustix::process::setrlimit(Resource::Core, limit).is_ok() {
        return Ok(());
    }
    // Somebody has set the hard limit to 0, which is enough only where dumps are files.
    lower(Resource::Core, 0)?;
    match std::fs::read("/proc/sys/kernel/core_pattern") {
        Ok(pattern) if dumps_are_files(&pattern) => Ok(()),
        _ => Err(io::Error::other(DUMPS)),
    }
}

/// Whether a `core_pattern` names a file, rather than a program (`|`) or a socket (`@`).
fn dumps_are_files(pattern: &[u8]) -> bool {
    !matches!(pattern.first(), Some(b'|' | b'@'))
}

/// Limits what a ring's programs can have open. At most half of what this process may have: see
/// [`stay_above_jobs`].
pub fn limit_open_files(most: u64) -> io::Result<()> {
    let own = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    lower(Resource::Nofile, most.min(own / 2))
}

/// Takes all the open files that this process may have. The kernel counts descriptors that are on
/// their way in sockets by user, over all sandboxes, and compares their number with the limit of
/// whoever sends one more (`too_many_unix_fds`). A job that leaves as many on their way as it can must
/// not keep the engine and the launcher, which may be the same user, from sending theirs.
pub fn stay_above_jobs() -> io::Result<()> {
    let own = rustix::process::getrlimit(Resource::Nofile);
    if own.current == own.maximum {
        return Ok(());
    }
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: own.maximum, ..own })?)
}

/// A limit can only be lowered; a host that is stricter than the plan stays stricter.
fn lower(resource: Resource, value: u64) -> io::Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum.map_or(value, |now| now.min(value));
    let limit = Rlimit { current: Some(hard), maximum: Some(hard) };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

/// Runs only on the first `count` of the CPUs that this process may use.
pub fn pin_cpus(count: u32) -> io::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut chosen = rustix::thread::CpuSet::new();
    let usable = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    for cpu in usable.take(usize::try_from(count).unwrap_or(usize::MAX)) {
        chosen.set(cpu);
    }
    Ok(rustix::thread::sched_setaffinity(None, &chosen)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_file_a_program_or_a_socket() {
        for (pattern, file) in [
            (&b"core\n"[..], true),
            (b"/var/crash/core.%p", true),
            (b"\n", true),
            (b"|/usr/lib/systemd/systemd-coredump %P", false),
            (b"@/run/coredump.socket", false),
        ] {
            assert_eq!(dumps_are_files(pattern), file, "{}", String::from_utf8_lossy(pattern));
        }
    }
}
