//! What all decisions share: keys of grants, the ledger of budgets, approvals, and the record of refusals.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ringwall_approval::Approvals;
use ringwall_audit::{AdmissionDenied, AuditLog, AuditPaths, Event, Id, Ids, Record, Text};
use ringwall_engine::Engine;
use ringwall_grant::{
    Account, Allowed, Ask, Authority, Budget, Cost, Inspected, Left, Request, Spending, Token,
    Verifier,
};

use crate::caller::{Caller, Hands, Holder};
use crate::lease::Leases;
use crate::refused::{Kind, Refused};

/// A ledger of tenants' budgets that several hosts have in common, beside the one of this home.
pub trait SharedBudget: std::fmt::Debug + Send + Sync {
    /// What is left, where that is less than here.
    fn least(&self, tenant: &(Account, Budget), left: Left) -> Result<Left, Refused>;
    /// Takes `cost` under this name, or nothing.
    fn reserve(&self, name: &str, tenant: &(Account, Budget), cost: Cost) -> Result<(), Refused>;
    /// Settles by what was used; what nobody knows was all used.
    fn settle(&self, name: &str, used: Option<Cost>) -> Result<(), Refused>;
}

/// Grants, budgets and approvals of one home.
#[derive(Debug)]
pub struct Books {
    home: PathBuf,
    /// Opened when somebody pays: the owner does not.
    spending: OnceLock<Spending>,
    shared: Option<Box<dyn SharedBudget>>,
    verifier: Mutex<Option<Arc<Verifier>>>,
    pub(crate) leases: Leases,
}

/// Where it is decided: the books, and the engine that asks the policy.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) books: &'a Arc<Books>,
}

impl Books {
    pub fn open(home: &Path) -> Result<Arc<Books>, Refused> {
        Books::open_with(home, None)
    }

    /// With a second ledger of what tenants spend.
    pub fn open_with(
        home: &Path,
        shared: Option<Box<dyn SharedBudget>>,
    ) -> Result<Arc<Books>, Refused> {
        Ok(Arc::new(Books {
            home: home.to_owned(),
            spending: OnceLock::new(),
            shared,
            verifier: Mutex::default(),
            leases: Leases::default(),
        }))
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn spending(&self) -> Result<&Spending, Refused> {
        if let Some(spending) = self.spending.get() {
            return Ok(spending);
        }
        let spending = Spending::open(&self.home)?;
        Ok(self.spending.get_or_init(|| spending))
    }

    pub(crate) fn shared(&self) -> Option<&dyn SharedBudget> {
        self.shared.as_deref()
    }

    /// Who has this token. A grant that is good no more is refused, and the record says so.
    pub fn authenticate(&self, token: Token) -> Result<Caller, Refused> {
        self.authenticate_in(token, Hands::Bearer)
    }

    pub(crate) fn authenticate_in(&self, token: Token, hands: Hands) -> Result<Caller, Refused> {
        let mut inspected = self.inspected(&token)?;
        let why = inspected.refused.take();
        let holder = Holder { token, inspected, hands };
        match why {
            None => Ok(Caller::Holder(Arc::new(holder))),
            Some(why) => {
                let why = Refused::new(Kind::Unauthenticated, why.to_string());
                self.write(holder.denied("authenticate", "", &why.why))?;
                Err(why)
            }
        }
    }

    /// Whether the grant is good still.
    pub fn is_good(&self, holder: &Holder) -> Result<(), Refused> {
        match self.inspected(&holder.token)?.refused {
            None => Ok(()),
            Some(why) => Err(Refused::new(Kind::Unauthenticated, why.to_string())),
        }
    }

    fn inspected(&self, token: &Token) -> Result<Inspected, Refused> {
        if let Ok(inspected) = self.verifier(false)?.inspect(token)
            && inspected.refused.is_none()
        {
            return Ok(inspected);
        }
        // Perhaps there are other keys since, for the token or for the list of revoked ones.
        let inspected = self.verifier(true)?.inspect(token);
        inspected.map_err(|error| Refused::new(Kind::Unauthenticated, error.to_string()))
    }

    /// Whether the grant has this right. Nothing is written down.
    pub(crate) fn has_right(&self, caller: &Caller, ask: Ask) -> Result<bool, Refused> {
        match caller {
            Caller::Owner | Caller::System(_) => Ok(true),
            Caller::Holder(holder) => Ok(self.checked(holder, &holder.request(ask)).is_ok()),
        }
    }

    pub(crate) fn checked(&self, holder: &Holder, request: &Request) -> Result<Allowed, Refused> {
        let checked = self.verifier(false)?.check(&holder.token, request);
        checked.map_err(|why| Refused::new(Kind::NotGranted, why.to_string()))
    }

    /// Checks grants with the keys that there are. They may be made while we run.
    pub fn verifier(&self, anew: bool) -> Result<Arc<Verifier>, Refused> {
        let mut verifier = self.verifier.lock().unwrap_or_else(PoisonError::into_inner);
        match &*verifier {
            Some(known) if !anew => Ok(Arc::clone(known)),
            _ => {
                let authority = Authority::open_existing(&self.home).map_err(|_| {
                    Refused::new(Kind::Unauthenticated, "the token was not made here")
                })?;
                let fresh = Arc::new(authority.verifier());
                *verifier = Some(Arc::clone(&fresh));
                Ok(fresh)
            }
        }
    }

    /// Who pays for what is done under a grant.
    pub fn accounts(&self, holder: &Holder) -> Result<Vec<(Account, Budget)>, Refused> {
        Ok(self.spending()?.accounts(&holder.inspected)?)
    }

    pub(crate) fn left(&self, accounts: &[(Account, Budget)]) -> Result<Left, Refused> {
        let left = self.spending()?.left(accounts)?;
        match (self.shared(), tenant_of(accounts)) {
            (Some(shared), Some(tenant)) => shared.least(tenant, left),
            _ => Ok(left),
        }
    }

    pub fn approvals(&self) -> Result<Approvals, Refused> {
        Approvals::open(&self.home).map_err(|error| Refused::internal(&error))
    }

    /// Into the audit log, and onto the disk. Gives the number of the record.
    pub(crate) fn write(&self, (ids, event): Record) -> Result<u64, Refused> {
        let log = AuditLog::open(AuditPaths::in_home(&self.home));
        let log = log.map_err(|error| Refused::internal(&error))?;
        let receipt = log.append(ids, event).map_err(|error| Refused::internal(&error))?;
        Ok(receipt.seq)
    }
}

/// The account of a tenant among those that pay.
pub(crate) fn tenant_of(accounts: &[(Account, Budget)]) -> Option<&(Account, Budget)> {
    accounts.iter().find(|(account, _)| matches!(account, Account::Tenant(_)))
}

impl Holder {
    /// What the log says of a refusal by the grant.
    pub(crate) fn denied(&self, action: &str, resource: &str, why: &str) -> Record {
        self.denied_by((action, resource), &format!("grant {}", self.id()), why)
    }

    pub(crate) fn denied_by(
        &self,
        (action, resource): (&str, &str),
        rule: &str,
        why: &str,
    ) -> Record {
        let denied = AdmissionDenied {
            action: Text::new(action),
            resource: Text::new(resource),
            rule: Text::new(rule),
            reason: Text::new(why),
            fix: None,
        };
        let ids = Ids::default().task(Id::new(&self.standing().task)).grant(Id::new(self.id()));
        (ids, Event::AdmissionDenied(denied))
    }
}

impl<'a> Desk<'a> {
    pub fn new(engine: &'a Engine, books: &'a Arc<Books>) -> Desk<'a> {
        Desk { engine, books }
    }

    /// Asks the grant, if there is one. A no is written down before it is told.
    pub(crate) fn may(&self, caller: &Caller, ask: Ask) -> Result<(), Refused> {
        let Caller::Holder(holder) = caller else { return Ok(()) };
        let request = holder.request(ask);
        self.may_as(holder, &request)
    }

    /// The same for a request that may be of another task than the grant's.
    pub(crate) fn may_as(&self, holder: &Holder, request: &Request) -> Result<(), Refused> {
        match self.books.checked(holder, request) {
            Ok(_) => Ok(()),
            Err(refused) => self.refuse(holder, ("request", &request.ask.to_string()), refused),
        }
    }

    /// Writes down a refusal by the grant or its budget, and gives it.
    pub(crate) fn refuse<T>(
        &self,
        holder: &Holder,
        (action, resource): (&str, &str),
        refused: Refused,
    ) -> Result<T, Refused> {
        self.engine.record(vec![holder.denied(action, resource, &refused.why)])?;
        Err(refused)
    }
}
