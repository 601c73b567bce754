//! A plan that people can read: one step a line, with what it is done for.
//!
//! `ringwall plan` prints it, and golden files in the ring crates hold it, so that every change of a plan
//! is visible in review.

use std::fmt::Write as _;

use ringwall_linux::step::{
    FileId, IdMaps, IdRange, MountFlags, PathAccess, Place, RawPath, ResourceLimit, Slot, Step,
};

use crate::plan::RingPlan;
use crate::run_slots as slot;

impl RingPlan {
    /// The three lists of the plan, one step a line.
    pub fn explain(&self) -> String {
        let parts = [
            ("once for all sandboxes with these files", &self.template),
            ("before the sandbox is assigned", &self.ahead),
            ("for this sandbox", &self.last),
        ];
        let parts = parts.iter().filter(|(_, steps)| !steps.is_empty());
        let parts = parts.map(|(when, steps)| format!("  {when}:\n{}", explain_steps(steps)));
        parts.collect()
    }
}

/// One line a step: what it does, with what, and why.
pub fn explain_steps(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        let (name, with, why) = (step.name(), operands(step), reason(step));
        let what = if with.is_empty() { name.to_owned() } else { format!("{name} {with}") };
        let _ = writeln!(text, "    {what}  # {why}");
    }
    text
}

/// The reason that stands behind a step.
fn reason(step: &Step) -> &'static str {
    match step {
        Step::MakeUserNamespace { .. }
        | Step::UnshareUserNamespace { .. }
        | Step::EnterUserNamespace { .. } => "no id inside is root of the host",
        Step::EnterMountNamespace { .. } => "changes reach the mounts of a running ring",
        Step::LeaveRoot { .. } => "the rest is done without power over the host",
        Step::BecomeUser { .. } => "commands run as this user",
        Step::DenyNestedUserNamespaces { .. } => "no command gains capabilities in a new namespace",
        Step::LimitFileEvents { .. } => "file watches are counted by user, not by memory limit",
        Step::LimitConnections { .. } => "socket buffers stay below the memory limit",
        Step::UnshareMounts => "no mount spreads to the host",
        Step::OpenHostTree { .. } | Step::OpenTree { .. } => "only this tree is taken along",
        Step::OpenCheckedTree { .. } | Step::FindChecked { .. } => {
            "exactly the file or directory that was decided about"
        }
        Step::ShowDirectory { .. } | Step::ShowFile { .. } => {
            "read-only, and sockets, locks and watches of the host do not work through it"
        }
        Step::CopyFile { .. } => "a copy shows nothing of the host's file but its content",
        Step::SetMountFlags { .. } => "what the mount must not allow",
        Step::IdMapTree { .. } => "files have their owners inside, unchanged on disk",
        Step::Tmpfs { .. } => "all that can be written is bounded in bytes and files",
        Step::OwnDevice { .. } => "a device that belongs to this user only",
        Step::Proc { .. } => "shows the processes of this ring only",
        Step::Devpts { .. } => "terminals of this ring only",
        Step::Overlay { .. } => "changes go to the upper directory, never to the layers",
        Step::Attach { .. } | Step::AttachHost { .. } => "the ring sees it here",
        Step::MakeDir { .. } | Step::MakeDirs { .. } | Step::MakeFile { .. } => {
            "a place to mount on"
        }
        Step::WriteFile { .. } => "a file of Ringwall's own",
        Step::MakeSymlink { .. } => "as on the host",
        Step::Whiteout { .. } | Step::Mask { .. } => "nobody inside sees what is there",
        Step::Cover { .. } => "programs inside read this file instead",
        Step::OpenHere { .. } => "each ring works on its own copy of the mounts",
        Step::ForbidWrites { .. } | Step::KeepReadOnly { .. } => {
            "the rights do not include this part"
        }
        Step::AllowWrites { .. } => "the rights include this part",
        Step::PivotRoot { .. } | Step::OldRootGone => "the host's files are out of reach for good",
        Step::JoinCgroups { .. } => "memory, CPU and processes are limited and counted",
        Step::Hostname { .. } => "the host's name stays unknown",
        Step::PrepareNetwork | Step::EnterNetwork => "no network device but loopback",
        Step::TakeAllAddresses => "every connection arrives at the gateway",
        Step::FreePorts { .. } => "the warden listens without power over the network",
        Step::Listen { .. } => "programs inside reach the gateway here",
        Step::LimitResource(_) => "counted by the kernel for each process or user",
        Step::NoHugePages => "memory is used as it is touched",
        Step::PinCpus { .. } => "no more CPUs than allowed",
        Step::MessageSockets { .. } => "descriptors of tools come in here",
        Step::Report { .. } => "the engine holds it, and needs no path later",
        Step::AppArmorOnExec { .. } => "one more layer, where the host has it",
        Step::DropCapabilities => "no power is left",
        Step::NoNewPrivileges => "no program gets power back",
        Step::Landlock { .. } | Step::LandlockWithHeld { .. } => "all other files are denied",
        Step::Seccomp | Step::SeccompNesting => "all other system calls are denied",
        Step::SeccompWatched => "no memory that the watchdog cannot see",
        Step::Exec { .. } => "the warden reports what it sees before anything runs",
    }
}

/// What a step is done with.
fn operands(step: &Step) -> String {
    match step {
        Step::OpenHostTree { path, recursive, into } => {
            format!("{}{} -> {}", show(path), below(*recursive), name(*into))
        }
        Step::OpenCheckedTree { path, id, recursive, into } => {
            format!("{}{} {} -> {}", show(path), below(*recursive), checked(id), name(*into))
        }
        Step::FindChecked { path, id, into } | Step::ShowFile { path, id, into, .. } => {
            format!("{} {} -> {}", show(path), checked(id), name(*into))
        }
        Step::ShowDirectory { path, into, .. } => format!("{} -> {}", show(path), name(*into)),
        Step::OpenHere { path, into } => format!("{} -> {}", show(path), name(*into)),
        Step::OpenTree { at, recursive, into } => {
            format!("{}{} -> {}", place(at), below(*recursive), name(*into))
        }
        Step::CopyFile { from, at, most } => {
            format!("{} at {}, {most} bytes at most", place(from), place(at))
        }
        Step::SetMountFlags { tree, flags } => format!("{}: {}", name(*tree), mount_flags(*flags)),
        Step::IdMapTree { tree, user_namespace } => {
            format!("{} by {}", name(*tree), name(*user_namespace))
        }
        Step::Tmpfs { bytes, inodes, mode, into } => {
            format!("{bytes} bytes, {inodes} files, mode {mode:o} -> {}", name(*into))
        }
        Step::OwnDevice { device, uid, gid, into } => {
            format!("{} for {uid}:{gid} -> {}", show(device), name(*into))
        }
        Step::Proc { into } | Step::Devpts { into } => format!("-> {}", name(*into)),
        Step::Overlay { lower, upper, into, .. } => {
            let lower: Vec<_> = lower.iter().map(place).collect();
            format!("{} below {} -> {}", lower.join(", "), place(upper), name(*into))
        }
        Step::Attach { tree, at } => format!("{} at {}", name(*tree), place(at)),
        Step::AttachHost { tree, path } => format!("{} at {}", name(*tree), show(path)),
        Step::MakeDir { at, mode } | Step::MakeDirs { at, mode } | Step::MakeFile { at, mode } => {
            format!("{}, mode {mode:o}", place(at))
        }
        Step::WriteFile { at, .. } | Step::Whiteout { at } | Step::Mask { at, .. } => place(at),
        Step::MakeSymlink { at, target } => format!("{} to {}", place(at), show(target)),
        Step::Cover { cover, at } => format!("{} with {}", place(at), place(cover)),
        Step::ForbidWrites { mount } | Step::AllowWrites { mount } => name(*mount),
        Step::KeepReadOnly { at, .. } => place(at),
        other => other_operands(other),
    }
}

/// What a step is done with, if it is not about files.
fn other_operands(step: &Step) -> String {
    match step {
        Step::MakeUserNamespace { maps, into } => format!("{} -> {}", ids(maps), name(*into)),
        Step::UnshareUserNamespace { maps } => ids(maps),
        Step::EnterUserNamespace { from } | Step::EnterMountNamespace { from } => name(*from),
        Step::LeaveRoot { uid, gid } | Step::BecomeUser { uid, gid } => format!("{uid}:{gid}"),
        Step::LimitFileEvents { queues, watches, .. } => {
            format!("{queues} queues, {watches} watches")
        }
        Step::LimitConnections { buffer_bytes, closed, .. } => {
            format!("{buffer_bytes} bytes each way, {closed} closed ones")
        }
        Step::PivotRoot { tree } => format!("to {}", name(*tree)),
        Step::JoinCgroups { from } => format!("{} of them", from.len()),
        Step::Hostname { name } => name.clone(),
        Step::Listen { port, datagrams, all_addresses, into } => {
            let kind = if *datagrams { "UDP" } else { "TCP" };
            let at = if *all_addresses { "all addresses" } else { "loopback" };
            format!("{kind} port {port}, {at} -> {}", name(*into))
        }
        Step::FreePorts { from, .. } => format!("from {from}"),
        Step::LimitResource(limit) => resource(*limit),
        Step::PinCpus { count } => count.to_string(),
        Step::MessageSockets { into, other } => format!("{} and {}", name(*into), name(*other)),
        Step::Report { slot } => name(*slot),
        Step::AppArmorOnExec { profile, .. } => profile.clone(),
        Step::Landlock { rules } => landlock(rules),
        Step::LandlockWithHeld { rules, held } => {
            let held = held.iter().map(|(slot, access)| format!("{}: {access:?}", name(*slot)));
            format!("{}, {}", landlock(rules), held.collect::<Vec<_>>().join(", "))
        }
        Step::Exec { program, arguments, .. } => {
            let words = arguments.iter().map(|word| format!(" {word}")).collect::<String>();
            format!("{}{words}", show(program))
        }
        _ => String::new(),
    }
}

fn show(path: &RawPath) -> String {
    path.as_path().to_string_lossy().escape_debug().to_string()
}

fn below(recursive: bool) -> &'static str {
    if recursive { " with all mounts below" } else { "" }
}

fn checked(id: &FileId) -> String {
    format!("(device {}, inode {})", id.device, id.inode)
}

fn place(place: &Place) -> String {
    match show(&place.path).as_str() {
        "" => name(place.dir),
        path => format!("{}/{path}", name(place.dir)),
    }
}

fn ids(maps: &IdMaps) -> String {
    let range = |range: &IdRange| format!("{}+{} is {}", range.inside, range.count, range.outside);
    let all = |ranges: &[IdRange]| ranges.iter().map(range).collect::<Vec<_>>().join(" and ");
    format!("users {}, groups {}", all(&maps.uids), all(&maps.gids))
}

fn mount_flags(flags: MountFlags) -> String {
    let words = [
        (flags.read_only, "read-only"),
        (flags.no_exec, "no programs"),
        (!flags.devices, "no devices"),
        (flags.recursive, "and all mounts below"),
    ];
    let words = words.into_iter().filter_map(|(set, word)| set.then_some(word));
    words.collect::<Vec<_>>().join(", ")
}

fn landlock(rules: &[(RawPath, PathAccess)]) -> String {
    let rules = rules.iter().map(|(path, access)| format!("{}: {access:?}", show(path)));
    rules.collect::<Vec<_>>().join(", ")
}

fn resource(limit: ResourceLimit) -> String {
    match limit {
        ResourceLimit::Processes(most) => format!("{most} processes of the user"),
        ResourceLimit::DataBytes(most) => format!("{most} bytes of data for each process"),
        ResourceLimit::NoCoreDump => "no core dump".to_owned(),
        ResourceLimit::WaitingSignals(most) => format!("{most} timers and waiting signals"),
        ResourceLimit::QueueBytes(most) => format!("{most} bytes in message queues"),
    }
}

/// What a slot of the plan holds.
fn name(of: Slot) -> String {
    let known = [
        (slot::USER_NAMESPACE, "user-namespace"),
        (slot::WORKSPACE_NAMESPACE, "workspace-users"),
        (slot::WORKSPACE, "workspace"),
        (slot::BASE, "base"),
        (slot::DEV, "dev"),
        (slot::CANARY, "canary"),
        (slot::WARDEN, "warden"),
        (slot::HOST_PROC, "host-proc"),
        (slot::WASM_WARDEN, "wasm-warden"),
        (slot::HOST_ROOT, "host-root"),
        (slot::FOUND, "found"),
        (slot::SHOWING, "showing"),
        (slot::PARTS, "parts"),
        (slot::ROOT, "root"),
        (slot::SCRATCH, "scratch"),
        (slot::TMP, "tmp"),
        (slot::NEW_ROOT, "new-root"),
        (slot::RUN_TEMPORARY, "temporary"),
        (slot::SHM, "shm"),
        (slot::RUN_DEV, "run-dev"),
        (slot::RUN_PROC, "run-proc"),
        (slot::RUN_WORKSPACE, "run-workspace"),
        (slot::NETWORK_FILES, "network-files"),
        (slot::VIEW, "view"),
        (slot::DIRECT, "direct"),
        (slot::STREAM, "stream"),
    ];
    if let Some((_, name)) = known.iter().find(|(known, _)| *known == of) {
        return (*name).to_owned();
    }
    let families = [
        (Slot::FIRST_PASSED, "passed"),
        (slot::FIRST_SHOWN, "shown"),
        (slot::FIRST_LAYER, "layer"),
        (slot::FIRST_VISIBLE, "visible"),
        (slot::FIRST_DEVICE, "device"),
    ];
    if let Some(number) = slot::LISTENING.iter().position(|listening| *listening == of) {
        return format!("listening-{number}");
    }
    match families.iter().find(|(first, _)| of.0 >= *first) {
        Some((first, family)) if of.0 < slot::ROOT.0 || *first == Slot::FIRST_PASSED => {
            format!("{family}-{}", of.0 - first)
        }
        _ => format!("slot-{}", of.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line_with_its_reason() {
        let steps = [
            Step::NoNewPrivileges,
            Step::Attach { tree: slot::SCRATCH, at: Place::new(slot::ROOT, "a\nb") },
        ];
        let text = explain_steps(&steps);
        let expected = "    set no-new-privileges  # no program gets power back\n    \
                        attach mount scratch at root/a\\nb  # the ring sees it here\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn slots_without_a_name_of_their_own_go_by_their_family() {
        assert_eq!(name(Slot(slot::FIRST_LAYER + 3)), "layer-3");
        assert_eq!(name(Slot::passed(1)), "passed-1");
        assert_eq!(name(slot::LISTENING[1]), "listening-1");
        assert_eq!(name(Slot(6)), "slot-6");
    }
}
