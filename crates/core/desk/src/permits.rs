//! Permits, made from decisions. Nothing else makes one, and the engine raises nothing without.

use std::time::SystemTime;

use ringwall_engine::{Decision, Engine, ForkError, Record, Snapshot};
use ringwall_permit::{CallerName, Issued, Payer, Permit, SystemCaller};
use ringwall_spec::SandboxName;

use crate::caller::Caller;
use crate::elevate::Elevated;

/// What a part of Ringwall raises for itself. The audit log names it. Each product file that calls this
/// stands with its reason in tests/tidy/src/permits.rs.
pub fn system_permit(caller: SystemCaller, decision: impl Into<Decision>) -> Permit {
    permit_for(&Caller::System(caller), decision.into(), None)
}

/// Compilers and wardens of tools, which serve many callers and see no caller's files by themselves.
pub fn tools_permit(decision: Decision) -> Permit {
    system_permit(SystemCaller::Tools, decision)
}

/// A sandbox of the owner that goes on from a snapshot.
pub fn restore(
    engine: &Engine,
    snapshot: &Snapshot,
    name: Option<SandboxName>,
) -> Result<Record, ForkError> {
    engine.restore(snapshot, name, &owner_permit)
}

/// Copies of a sandbox, for the owner.
pub fn fork(engine: &Engine, record: &Record, count: u32) -> Result<Vec<Record>, ForkError> {
    engine.fork(record, count, &owner_permit)
}

fn owner_permit(decision: Decision) -> Permit {
    permit_for(&Caller::Owner, decision, None)
}

/// The permit of a caller, for as long as its grant and the elevation that it goes ahead by are good.
pub(crate) fn permit_for(
    caller: &Caller,
    decision: Decision,
    elevated: Option<&Elevated>,
) -> Permit {
    let Decision { spec, decided } = decision;
    let (name, account) = match caller {
        Caller::Owner => (CallerName::Owner, Payer::Owner),
        Caller::System(system) => (CallerName::System(*system), Payer::Owner),
        Caller::Holder(holder) => {
            let ids = holder.standing().ids.iter().map(ToString::to_string).collect();
            let payer = Payer::Grant { ids, tenant: holder.standing().tenant.clone() };
            (CallerName::Holder { grant: holder.id() }, payer)
        }
    };
    let life = elevated.map_or(caller.life(), |elevated| caller.life().min(elevated.left()));
    let until = SystemTime::now().checked_add(life);
    let record = elevated.and_then(Elevated::record);
    Permit::issue(Issued { spec, decided, caller: name, account, record, until })
}
