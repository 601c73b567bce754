//! A shim asks this module while its sandbox runs under a grant. The sandbox ends with the grant, whether or not
//! a daemon runs. Processes that an agent's commands leave behind are paid for, and end with the budget.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ringwall_audit::{AdmissionDenied, Event, Id, Ids, Record, Text};
use ringwall_engine::{Oversight, Unattended};
use ringwall_grant::{Authority, GrantId, Revocations};
use ringwall_permit::{CallerName, Payer, Permit};
use ringwall_spec::SandboxId;

use crate::books::Books;
use crate::held::Between;

/// Looks after the one sandbox of a shim.
#[derive(Debug)]
pub struct Overseer {
    books: Arc<Books>,
    revocations: Option<Revocations>,
    pays: Option<Between>,
    /// Not charged yet.
    used: Unattended,
}

impl Books {
    pub fn oversee(self: &Arc<Self>) -> Overseer {
        let (revocations, pays, used) = (None, None, Unattended::NOTHING);
        Overseer { books: Arc::clone(self), revocations, pays, used }
    }
}

impl Oversight for Overseer {
    fn may_continue(&mut self, sandbox: &SandboxId, permit: &Permit, used: Unattended) -> bool {
        let why = match self.revoked(permit) {
            Some(_) => {
                let by = permit.record().map(|number| format!("; record {number} placed it"));
                let by = by.unwrap_or_default();
                Some(format!("the grant that it was made with was revoked{by}"))
            }
            None => self.charge(sandbox, used),
        };
        let Some(why) = why else { return true };
        // It ends all the same if this cannot be written: a log that is broken stops whatever comes next.
        let _ = self.books.write(ended(sandbox, permit, &why));
        false
    }

    fn ends(&mut self, sandbox: &SandboxId, used: Unattended) {
        let _ = self.charge(sandbox, used);
    }
}

impl Overseer {
    /// The grant under which the sandbox was made, if it was revoked since. If the list of revoked grants cannot
    /// be read, no grant is good. Nothing new starts then, and sandboxes that run are left alone.
    fn revoked(&mut self, permit: &Permit) -> Option<GrantId> {
        let Payer::Grant { ids, .. } = permit.account() else { return None };
        let ids: Vec<GrantId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
        if self.revocations.is_none() {
            let authority = Authority::open_existing(self.books.home()).ok()?;
            self.revocations = Some(authority.revocations());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.revocations.as_ref()?.find(&ids, now).ok()?
    }

    /// Why the sandbox ends, if what it used was the last that there was. What cannot be charged ends it, too.
    fn charge(&mut self, sandbox: &SandboxId, used: Unattended) -> Option<String> {
        self.used = self.used.and(used);
        if self.pays.is_none() {
            // The process that made the sandbox writes it down when the sandbox is up.
            self.pays = self.books.between(sandbox.as_str()).ok().flatten();
        }
        match self.books.charge_between(self.pays.as_ref()?, &mut self.used) {
            Ok(part) => part.map(|part| format!("the budget of {part} is spent")),
            Err(refused) => Some(format!("its budget cannot be charged: {}", refused.why)),
        }
    }
}

fn ended(sandbox: &SandboxId, permit: &Permit, why: &str) -> Record {
    let grant = match permit.caller() {
        CallerName::Holder { grant } => grant.as_str(),
        CallerName::Owner | CallerName::System(_) => "",
    };
    let denied = AdmissionDenied {
        action: Text::new("go on"),
        resource: Text::new(format!("the sandbox {sandbox}")),
        rule: Text::new(format!("grant {grant}")),
        reason: Text::new(why),
        fix: None,
    };
    (Ids::default().sandbox(sandbox).grant(Id::new(grant)), Event::AdmissionDenied(denied))
}
