//! A shim asks the reference monitor while its sandbox runs. The engine is below the reference monitor, so the
//! program of the shim brings it along.

use std::time::{Duration, Instant};

use ringwall_permit::{Payer, Permit};
use ringwall_spec::SandboxId;

use crate::meter::{Meter, Unattended};
use crate::sandbox::Sandbox;

/// How often a shim asks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Decides about a sandbox that runs under a grant.
pub trait Oversight {
    /// Whether the sandbox of this permit may continue. `used` is new since the last time.
    fn may_continue(&mut self, sandbox: &SandboxId, permit: &Permit, used: Unattended) -> bool;

    /// The sandbox ends, for whatever reason.
    fn ends(&mut self, sandbox: &SandboxId, used: Unattended);
}

/// When a shim asks again.
pub(crate) struct Looks<'a> {
    oversight: &'a mut dyn Oversight,
    meter: &'a Meter,
    next: Instant,
}

impl<'a> Looks<'a> {
    pub(crate) fn new(oversight: &'a mut dyn Oversight, meter: &'a Meter) -> Looks<'a> {
        Looks { oversight, meter, next: Instant::now() + LOOK_EVERY }
    }

    /// When to come again. A sandbox of the owner has no grant that could end, so it is never looked at.
    pub(crate) fn next(&self, sandbox: &Sandbox) -> Option<Instant> {
        let permit = &sandbox.placement.permit;
        matches!(permit.account(), Payer::Grant { .. }).then_some(self.next)
    }

    /// Whether the sandbox may continue, asked if it is time to.
    pub(crate) fn may_continue(&mut self, sandbox: &Sandbox) -> bool {
        let now = Instant::now();
        if self.next(sandbox).is_none_or(|next| now < next) {
            return true;
        }
        self.next = now + LOOK_EVERY;
        let used = self.meter.take_unattended();
        self.oversight.may_continue(&sandbox.id, &sandbox.placement.permit, used)
    }

    pub(crate) fn ends(self, sandbox: &Sandbox) {
        if self.next(sandbox).is_some() {
            self.oversight.ends(&sandbox.id, self.meter.take_unattended());
        }
    }
}
