//! Threads for work that blocks. Holders, the owner and the daemon itself have their own, and none waits for
//! the threads of another: the runtime has room for all of them together.
//!
//! Jobs have their slots ([`crate::admission`]). All other work takes a lane here, and so does a file on its
//! way, which can take as long as its client wants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringwall_desk::Caller;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Code, Problem};

/// Short pieces of work at once: of all holders, of one tenant, and of the owner.
const MAX_WORK_OF_HOLDERS: usize = 32;
const MAX_WORK_OF_TENANT: usize = 8;
const MAX_WORK_OF_OWNER: usize = 64;
/// Files on their way at once: of all holders, of one tenant, and of the owner.
const MAX_TRANSFERS_OF_HOLDERS: usize = 32;
const MAX_TRANSFERS_OF_TENANT: usize = 8;
const MAX_TRANSFERS_OF_OWNER: usize = 32;
/// How long a client waits for a lane before it is told to ask again.
const LANE_TIMEOUT: Duration = Duration::from_secs(30);
/// A job has one thread, and another one for the client's input.
const THREADS_OF_JOB: usize = 2;
/// Threads for the daemon's own work: it looks round, keeps sandboxes ready, and resolves names.
const THREADS_OF_DAEMON: usize = 8;
/// Beyond this number the semaphores of tenants without work are forgotten.
const MAX_IDLE_TENANTS: usize = 64;

/// The threads that the runtime must have so that no caller waits for those of another.
pub(crate) fn threads(jobs: usize) -> usize {
    let work = MAX_WORK_OF_HOLDERS + MAX_WORK_OF_OWNER;
    let transfers = MAX_TRANSFERS_OF_HOLDERS + MAX_TRANSFERS_OF_OWNER;
    jobs.saturating_mul(THREADS_OF_JOB).saturating_add(work + transfers + THREADS_OF_DAEMON)
}

/// For whom something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    Owner,
    /// A holder of this tenant. A caller without a token has the empty name, which no grant can have.
    Holder(String),
}

impl Whose {
    pub(crate) fn of(caller: &Caller) -> Whose {
        match caller {
            Caller::Owner | Caller::System(_) => Whose::Owner,
            Caller::Holder(_) => Whose::Holder(caller.tenant().to_owned()),
        }
    }
}

/// So many at once.
#[derive(Debug)]
pub(crate) struct Lanes {
    owner: Arc<Semaphore>,
    holders: Arc<Semaphore>,
    most_of_tenant: usize,
    tenants: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A lane, until dropped. The thread that works in it must hold it, not the request alone.
#[derive(Debug)]
pub(crate) struct Lane {
    _of_all: OwnedSemaphorePermit,
    _of_tenant: Option<OwnedSemaphorePermit>,
}

impl Lanes {
    pub(crate) fn for_work() -> Lanes {
        Lanes::new(MAX_WORK_OF_OWNER, MAX_WORK_OF_HOLDERS, MAX_WORK_OF_TENANT)
    }

    pub(crate) fn for_transfers() -> Lanes {
        Lanes::new(MAX_TRANSFERS_OF_OWNER, MAX_TRANSFERS_OF_HOLDERS, MAX_TRANSFERS_OF_TENANT)
    }

    fn new(owner: usize, holders: usize, most_of_tenant: usize) -> Lanes {
        Lanes {
            owner: Arc::new(Semaphore::new(owner)),
            holders: Arc::new(Semaphore::new(holders)),
            most_of_tenant,
            tenants: Mutex::default(),
        }
    }

    /// Waits for as long as it takes. At most a tenant's own share of requests waits in the line of all.
    pub(crate) async fn take(&self, whose: &Whose) -> Result<Lane, Problem> {
        let of_tenant = match whose {
            Whose::Owner => None,
            Whose::Holder(tenant) => Some(permit(self.of_tenant(tenant)).await?),
        };
        let all = if of_tenant.is_some() { &self.holders } else { &self.owner };
        let of_all = permit(Arc::clone(all)).await?;
        Ok(Lane { _of_all: of_all, _of_tenant: of_tenant })
    }

    /// Tells a client that has waited for some time to come again.
    pub(crate) async fn take_soon(&self, whose: &Whose) -> Result<Lane, Problem> {
        let busy = |_| {
            let why = "too many files are on their way; ask again after a moment";
            Problem::new(Code::Busy, why)
        };
        tokio::time::timeout(LANE_TIMEOUT, self.take(whose)).await.map_err(busy)?
    }

    fn of_tenant(&self, tenant: &str) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= MAX_IDLE_TENANTS && !tenants.contains_key(tenant) {
            // Each permit and each request that waits holds its semaphore.
            tenants.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.most_of_tenant));
        Arc::clone(tenants.entry(tenant.to_owned()).or_insert_with(new))
    }
}

async fn permit(semaphore: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Problem> {
    let ending = |_| Problem::new(Code::Ending, "the daemon is about to end");
    semaphore.acquire_owned().await.map_err(ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Whose {
        Whose::Holder(name.to_owned())
    }

    /// Whether there is a lane at this moment.
    async fn has_lane(lanes: &Lanes, whose: &Whose) -> bool {
        tokio::time::timeout(Duration::ZERO, lanes.take(whose)).await.is_ok()
    }

    #[tokio::test]
    async fn no_tenant_takes_the_lanes_of_another_and_no_holder_those_of_the_owner() {
        let lanes = Lanes::new(1, 3, 2);
        let _acme = [lanes.take(&tenant("a")).await, lanes.take(&tenant("a")).await];
        assert!(!has_lane(&lanes, &tenant("a")).await);
        let other = lanes.take(&tenant("b")).await.unwrap();
        assert!(!has_lane(&lanes, &tenant("b")).await, "all holders together have three");
        let owner = lanes.take(&Whose::Owner).await.unwrap();
        assert!(!has_lane(&lanes, &Whose::Owner).await);
        drop(other);
        assert!(has_lane(&lanes, &tenant("b")).await);
        drop(owner);
        assert!(has_lane(&lanes, &Whose::Owner).await);
    }

    #[tokio::test]
    async fn a_tenant_with_work_is_not_forgotten_for_new_ones() {
        let lanes = Lanes::new(1, 1000, 1);
        let _busy = lanes.take(&tenant("busy")).await.unwrap();
        for number in 0..2 * MAX_IDLE_TENANTS {
            assert!(has_lane(&lanes, &tenant(&number.to_string())).await);
        }
        assert!(!has_lane(&lanes, &tenant("busy")).await);
        assert!(lanes.tenants.lock().unwrap().len() <= MAX_IDLE_TENANTS + 1);
    }
}
