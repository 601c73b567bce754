//! Walls with protections missing, so that it can be shown that attacks notice. Only compiled for
//! the tests that do so; no program of Ringwall has it.

use std::time::Instant;

use ringwall_linux::step::{MountFlags, Place, ResourceLimit, Step};
use ringwall_permit::Permit;
use ringwall_ring::{RingPlan, run_slots as slot};
use ringwall_spec::WriteRights;

use crate::config::Engine;
use crate::hiding::Hiding;
use crate::host;
use crate::place::Purpose;
use crate::raise::RaiseError;
use crate::record::{Record, RecordKind};
use crate::rights::{ChangeRightsError, RightsOrder};
use crate::sandbox::Sandbox;

/// What can be left out of a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protection {
    Seccomp,
    Landlock,
    DroppedCapabilities,
    NetworkNamespace,
    ControlGroups,
    /// The hiding of files that come to the workspace later.
    Hiding,
    /// What lies on files that must not be seen, from the first moment on and later.
    Covers,
    /// The overlays of the host's files, in which sockets, locks and watches reach nothing outside.
    ShownOverlays,
    /// The overlays of requested paths, through which nothing can be written.
    ReadOnlyShown,
    /// The mounts that keep the directories above a workspace where they are.
    PinnedAbove,
    /// The mounts that keep commands from writing where they may not.
    Rights,
    /// The ring's own proc, which lists its own processes only.
    OwnProc,
    /// The flag of that proc, through which nothing can be written.
    ReadOnlyProc,
    /// The limit with which a crash starts no program of the host.
    CoreDumpLimit,
    /// The cap of all that a sandbox can write.
    ScratchCap,
    /// The number of files that a process may have open.
    OpenFiles,
    /// The number of queues of file events.
    FileEvents,
    /// The bound of what connections of the ring buffer.
    Connections,
}

/// More than any attack on a disk writes.
const ROOMY_BYTES: u64 = 1 << 30;
const ROOMY_INODES: u64 = 1 << 18;

const READ_ONLY_TREE: MountFlags =
    MountFlags { read_only: true, no_exec: false, devices: false, recursive: true };

impl Protection {
    /// Whether it is this step, which is left out.
    fn is(self, step: &Step) -> bool {
        match self {
            Protection::Seccomp => {
                matches!(step, Step::Seccomp | Step::SeccompNesting | Step::SeccompWatched)
            }
            Protection::Landlock => matches!(step, Step::Landlock { .. }),
            Protection::DroppedCapabilities => matches!(step, Step::DropCapabilities),
            Protection::NetworkNamespace => {
                // Without it, the settings of the ring's connections would be those of the host.
                let own = matches!(step, Step::PrepareNetwork | Step::EnterNetwork);
                own || Protection::Connections.is(step)
            }
            Protection::Connections => matches!(step, Step::LimitConnections { .. }),
            Protection::ControlGroups => matches!(step, Step::JoinCgroups { .. }),
            Protection::Covers => {
                matches!(step, Step::Mask { .. } | Step::Cover { .. } | Step::Whiteout { .. })
            }
            Protection::ReadOnlyProc => {
                matches!(step, Step::SetMountFlags { tree: slot::RUN_PROC, .. })
            }
            Protection::CoreDumpLimit => {
                matches!(step, Step::LimitResource(ResourceLimit::NoCoreDump))
            }
            Protection::FileEvents => matches!(step, Step::LimitFileEvents { .. }),
            Protection::Hiding
            | Protection::ShownOverlays
            | Protection::ReadOnlyShown
            | Protection::PinnedAbove
            | Protection::Rights
            | Protection::OwnProc
            | Protection::ScratchCap
            | Protection::OpenFiles => false,
        }
    }

    /// The steps in place of one that would protect.
    fn instead_of(self, step: Step) -> Vec<Step> {
        match (self, step) {
            (_, step) if self.is(&step) => Vec::new(),
            // What most sandboxes do with what they show: a read-only bind mount.
            (Protection::ShownOverlays, Step::ShowDirectory { source, into, .. }) => {
                let flags = Step::SetMountFlags { tree: into, flags: READ_ONLY_TREE };
                vec![Step::OpenTree { at: source, recursive: true, into }, flags]
            }
            (Protection::ShownOverlays, Step::ShowFile { path, id, into, .. }) => {
                let flags = Step::SetMountFlags { tree: into, flags: READ_ONLY_TREE };
                vec![Step::OpenCheckedTree { path, id, recursive: false, into }, flags]
            }
            (Protection::ReadOnlyShown, Step::ShowDirectory { source, into, .. })
                if source.dir == slot::FOUND =>
            {
                vec![Step::OpenTree { at: source, recursive: true, into }]
            }
            (Protection::ReadOnlyShown, Step::ShowFile { path, id, into, .. }) => {
                vec![Step::OpenCheckedTree { path, id, recursive: false, into }]
            }
            (Protection::OwnProc, Step::Proc { into }) => {
                let at = Place::new(slot::ROOT, "proc");
                vec![Step::OpenTree { at, recursive: true, into }]
            }
            (Protection::ScratchCap, Step::Tmpfs { mode, into, .. }) if into == slot::SCRATCH => {
                vec![Step::Tmpfs { bytes: ROOMY_BYTES, inodes: ROOMY_INODES, mode, into }]
            }
            (
                Protection::OpenFiles,
                Step::Exec { program, arguments, environment, descriptors, .. },
            ) => {
                let open_files = None;
                vec![Step::Exec { program, arguments, environment, descriptors, open_files }]
            }
            (_, step) => vec![step],
        }
    }

    fn take_out_of(self, plan: &mut RingPlan) {
        for steps in [&mut plan.template, &mut plan.ahead, &mut plan.last] {
            let all = std::mem::take(steps);
            *steps = all.into_iter().flat_map(|step| self.instead_of(step)).collect();
            if self == Protection::PinnedAbove {
                unpin(steps);
            }
        }
    }
}

/// Takes out each pair of steps that lays a directory over itself.
fn unpin(steps: &mut Vec<Step>) {
    let is_pin = |pair: &[Step]| match pair {
        [Step::OpenTree { at, into, .. }, Step::Attach { tree, at: over }] => {
            into == tree && at == over
        }
        _ => false,
    };
    while let Some(first) = steps.windows(2).position(is_pin) {
        steps.drain(first..first + 2);
    }
}

impl Engine {
    /// Raises a wall of one ring without these protections, and without asking for evidence of them.
    pub fn raise_without(
        &self,
        permit: &Permit,
        missing: &[Protection],
    ) -> Result<Sandbox, RaiseError> {
        let begun = Instant::now();
        let id = host::new_id();
        let mut placement = self.place(permit, &id, Purpose::Raise)?;
        missing.iter().for_each(|one| one.take_out_of(&mut placement.plan));
        let spec = permit.spec();
        let record = Record::new(id, spec, RecordKind::Run, &self.home);
        let (mut sandbox, outside) = self.start_sandbox(record, spec, placement, begun)?;
        outside?;
        let ring = spec.wall.outermost();
        let client = sandbox.connect().map_err(|source| RaiseError::Warden { ring, source })?;
        sandbox.take_scratch()?;
        sandbox.serve_network(&self.ledger)?;
        sandbox.set_raised(client, Vec::new());
        if !missing.contains(&Protection::Rights) {
            self.set_first_rights(&mut sandbox)?;
        }
        // The watch would put the covers back.
        let hides = [Protection::Hiding, Protection::Covers];
        if !hides.iter().any(|one| missing.contains(one)) {
            let hiding = Hiding::start(&mut sandbox, &self.programs.launcher);
            sandbox.hiding = hiding.map_err(RaiseError::Hiding)?;
        }
        Ok(sandbox)
    }

    /// Changes the rights of a sandbox that was raised so, and that no shim holds.
    pub fn change_rights_without(
        &self,
        sandbox: &mut Sandbox,
        rights: &WriteRights,
        missing: &[Protection],
    ) -> Result<(), ChangeRightsError> {
        if missing.contains(&Protection::Rights) {
            return Ok(());
        }
        let order = RightsOrder::of(rights);
        self.change_rights_of(sandbox, &order)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ringwall_linux::step::Slot;

    use super::*;

    fn pin(path: &str) -> [Step; 2] {
        let at = Place::new(slot::TMP, Path::new(path));
        let into = slot::RUN_TEMPORARY;
        let opened = Step::OpenTree { at: at.clone(), recursive: true, into };
        [opened, Step::Attach { tree: into, at }]
    }

    #[test]
    fn pins_are_taken_out_and_other_mounts_stay() {
        let place = |path: &str| Place::new(slot::TMP, Path::new(path));
        let opened = Step::OpenTree { at: place("from"), recursive: true, into: Slot(1) };
        let other = [opened, Step::Attach { tree: Slot(1), at: place("to") }];
        let mut steps = [&pin("a")[..], &other, &pin("a/b"), &pin("a/b/c")].concat();
        unpin(&mut steps);
        assert_eq!(steps, other);
    }

    #[test]
    fn a_missing_protection_is_all_that_differs() {
        let steps = vec![
            Step::NoNewPrivileges,
            Step::Seccomp,
            Step::Proc { into: slot::RUN_PROC },
            Step::LimitResource(ResourceLimit::NoCoreDump),
            Step::Tmpfs { bytes: 1, inodes: 1, mode: 0o755, into: slot::SCRATCH },
        ];
        let without = |missing: Protection| -> Vec<Step> {
            steps.iter().cloned().flat_map(|step| missing.instead_of(step)).collect()
        };
        assert_eq!(without(Protection::Rights), steps);
        for missing in [Protection::Seccomp, Protection::CoreDumpLimit] {
            assert_eq!(without(missing).len(), steps.len() - 1, "{missing:?}");
        }
        for missing in [Protection::OwnProc, Protection::ScratchCap] {
            let changed = without(missing);
            let kept = steps.iter().filter(|step| changed.contains(step)).count();
            assert_eq!((changed.len(), kept), (steps.len(), steps.len() - 1), "{missing:?}");
        }
    }
}
