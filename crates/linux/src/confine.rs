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
    let (resource, value) = match limit {
        ResourceLimit::Processes(value) => (Resource::Nproc, value),
        ResourceLimit::DataBytes(value) => (Resource::Data, value),
        ResourceLimit::CoreBytes(value) => (Resource::Core, value),
    };
    lower(resource, value)
}

pub fn limit_open_files(most: u64) -> io::Result<()> {
    lower(Resource::Nofile, most)
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
