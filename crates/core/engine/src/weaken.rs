//! Walls with one protection missing, so that it can be shown that attacks notice. Only compiled for
//! the tests that do so; no program of Ringwall has it.

use std::time::Instant;

use ringwall_linux::step::Step;
use ringwall_permit::Permit;
use ringwall_ring::RingPlan;

use crate::config::Engine;
use crate::hiding::Hiding;
use crate::host;
use crate::place::Purpose;
use crate::raise::RaiseError;
use crate::record::{Record, RecordKind};
use crate::sandbox::Sandbox;

/// What can be left out of a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    Seccomp,
    Landlock,
    DroppedCapabilities,
    NetworkNamespace,
    ControlGroups,
    /// The hiding of files that come to the workspace later.
    Hiding,
}

impl Protection {
    fn is(self, step: &Step) -> bool {
        match self {
            Protection::Seccomp => {
                matches!(step, Step::Seccomp | Step::SeccompNesting | Step::SeccompWatched)
            }
            Protection::Landlock => matches!(step, Step::Landlock { .. }),
            Protection::DroppedCapabilities => matches!(step, Step::DropCapabilities),
            Protection::NetworkNamespace => {
                matches!(step, Step::PrepareNetwork | Step::EnterNetwork)
            }
            Protection::ControlGroups => matches!(step, Step::JoinCgroups { .. }),
            Protection::Hiding => false,
        }
    }

    fn take_out_of(self, plan: &mut RingPlan) {
        for steps in [&mut plan.template, &mut plan.ahead, &mut plan.last] {
            steps.retain(|step| !self.is(step));
        }
    }
}

impl Engine {
    /// Raises a wall of one ring without a protection, and without asking for evidence of it.
    pub fn raise_without(
        &self,
        permit: &Permit,
        missing: Protection,
    ) -> Result<Sandbox, RaiseError> {
        let begun = Instant::now();
        let id = host::new_id();
        let mut placement = self.place(permit, &id, Purpose::Raise)?;
        missing.take_out_of(&mut placement.plan);
        let spec = permit.spec();
        let record = Record::new(id, spec, RecordKind::Run, &self.home);
        let (mut sandbox, outside) = self.start_sandbox(record, spec, placement, begun)?;
        outside?;
        let ring = spec.wall.outermost();
        let client = sandbox.connect().map_err(|source| RaiseError::Warden { ring, source })?;
        sandbox.take_scratch()?;
        sandbox.serve_network(&self.ledger)?;
        sandbox.set_raised(client, Vec::new());
        if missing != Protection::Hiding {
            let hiding = Hiding::start(&mut sandbox, &self.programs.launcher);
            sandbox.hiding = hiding.map_err(RaiseError::Hiding)?;
        }
        Ok(sandbox)
    }
}
