//! What calls cost, reserved before and settled after, under every grant above the caller's.

use std::time::{Duration, Instant};

use ringwall_grant::{Budget, GrantId};
use ringwall_policy::AdmittedSpec;
use ringwall_spec::{Limits, Outcome, SandboxSpec};
use ringwall_store::{Amounts, Dimension, Reservation, Scope, Wish, sandbox_reservation};

use crate::caller::{Caller, Holder};
use crate::problem::{Code, Problem};
use crate::service::Service;

const MIB: u64 = 1 << 20;

/// A call that was let in, and what it may take.
#[derive(Debug)]
pub(crate) struct Spending<'a> {
    service: &'a Service,
    reservation: Option<Reservation>,
    wish: Wish,
    begun: Instant,
    /// Less than asked for, where the budget says so.
    pub(crate) timeout: Duration,
    pub(crate) fuel: u64,
    settled: bool,
}

/// Why a job was ended before its own time.
pub(crate) fn stopped_by(spending: &Spending<'_>, timed_out: bool) -> Option<String> {
    let bound = spending.reservation.as_ref()?.bound_by?;
    timed_out.then(|| format!("budget:{}", bound.name()))
}

impl<'a> Spending<'a> {
    /// Reserves for a job of this length.
    pub(crate) fn begin(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        (timeout, limits): (Duration, &Limits),
    ) -> Result<Spending<'a>, Problem> {
        let cpus = u64::from(limits.cpu_milli).div_ceil(1000);
        let per_second = Amounts::default()
            .with(Dimension::WallSeconds, 1)
            .with(Dimension::CpuSeconds, cpus)
            .with(Dimension::MemoryMibSeconds, limits.memory_bytes.div_ceil(MIB));
        let at_once = Amounts::default().with(Dimension::Calls, 1);
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        let wish = Wish { at_once, per_second, seconds, fuel: 0 };
        Spending::reserve(service, caller, id, wish, timeout)
    }

    /// Reserves for the call of a tool.
    pub(crate) fn begin_tool(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        (timeout, fuel, memory): (Duration, u64, u64),
    ) -> Result<Spending<'a>, Problem> {
        let per_second = Amounts::default()
            .with(Dimension::WallSeconds, 1)
            .with(Dimension::CpuSeconds, 1)
            .with(Dimension::MemoryMibSeconds, memory.div_ceil(MIB));
        let at_once = Amounts::default().with(Dimension::Calls, 1);
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        Spending::reserve(service, caller, id, Wish { at_once, per_second, seconds, fuel }, timeout)
    }

    fn reserve(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        wish: Wish,
        timeout: Duration,
    ) -> Result<Spending<'a>, Problem> {
        let begun = Instant::now();
        let spending = |reservation: Option<Reservation>| {
            let bound = reservation.as_ref().filter(|it| it.seconds < wish.seconds);
            let timeout = bound.map_or(timeout, |it| timeout.min(Duration::from_secs(it.seconds)));
            let fuel = reservation.as_ref().map_or(wish.fuel, |it| it.fuel);
            Spending { service, reservation, wish, begun, timeout, fuel, settled: false }
        };
        match caller {
            // The owner set the limits, and has none.
            Caller::Owner => Ok(spending(None)),
            Caller::Holder(holder) => {
                let scopes = scopes(service, holder)?;
                Ok(spending(Some(service.store.reserve(id, &scopes, &wish)?)))
            }
        }
    }

    /// Gives back what was not used. `fuel` and `cpu` as far as they were measured.
    pub(crate) fn settle(mut self, fuel: u64, cpu: Option<Duration>) -> Result<(), Problem> {
        self.settle_as(fuel, cpu)
    }

    /// It was refused before anything was done: all is given back.
    pub(crate) fn give_back(mut self) -> Result<(), Problem> {
        self.settled = true;
        match &self.reservation {
            None => Ok(()),
            Some(reservation) => Ok(self.service.store.settle(reservation, &Amounts::default())?),
        }
    }

    fn settle_as(&mut self, fuel: u64, cpu: Option<Duration>) -> Result<(), Problem> {
        self.settled = true;
        let Some(reservation) = &self.reservation else { return Ok(()) };
        let took = self.begun.elapsed();
        let seconds = whole_seconds(took);
        let rate = |dimension| self.wish.per_second.get(dimension);
        // Where nobody measured, what could have been used counts.
        let most = rate(Dimension::CpuSeconds).saturating_mul(seconds);
        let cpu = cpu.map_or(most, whole_seconds);
        let memory = rate(Dimension::MemoryMibSeconds).saturating_mul(seconds);
        let used = Amounts::default()
            .with(Dimension::Calls, self.wish.at_once.get(Dimension::Calls))
            .with(Dimension::WallSeconds, seconds)
            .with(Dimension::CpuSeconds, cpu)
            .with(Dimension::MemoryMibSeconds, memory)
            .with(Dimension::Fuel, fuel);
        self.service.store.settle(reservation, &used)?;
        Ok(())
    }
}

/// What a sandbox may send, reserved for as long as it lives.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    service: &'a Service,
    id: String,
    most: u64,
    settled: bool,
}

impl<'a> Sending<'a> {
    /// Reserves what the sandbox was admitted with, if anybody has a budget for it.
    pub(crate) fn begin(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        admitted: &AdmittedSpec,
    ) -> Result<Option<Sending<'a>>, Problem> {
        let egress = admitted.spec().egress.as_ref();
        let (Caller::Holder(holder), Some(most)) = (caller, egress.and_then(|it| it.sent_bytes))
        else {
            return Ok(None);
        };
        let id = format!("{id}/network");
        let at_once = Amounts::default().with(Dimension::EgressBytes, most);
        let wish = Wish { at_once, ..Wish::default() };
        service.store.reserve(&id, &scopes(service, holder)?, &wish)?;
        Ok(Some(Sending { service, id, most, settled: false }))
    }

    /// The sandbox has ended. What its gateway could not be asked for was all used.
    pub(crate) fn end(mut self, sent: Option<u64>) -> Result<Option<String>, Problem> {
        self.settled = true;
        let used = sent_amounts(sent.map(|sent| sent.min(self.most)));
        self.service.store.settle_named(&self.id, used.as_ref())?;
        let over = sent.is_none_or(|sent| sent >= self.most);
        Ok(over.then(|| format!("budget:{}", Dimension::EgressBytes.name())))
    }

    /// The sandbox lives on, and keeps it.
    pub(crate) fn keep_for(mut self, sandbox: &str) -> Result<(), Problem> {
        self.settled = true;
        Ok(self.service.store.keep_for_sandbox(&self.id, sandbox)?)
    }
}

fn sent_amounts(sent: Option<u64>) -> Option<Amounts> {
    sent.map(|sent| Amounts::default().with(Dimension::EgressBytes, sent))
}

/// Settles what a sandbox that lived on had reserved, by how it ended.
pub(crate) fn end_sandbox(
    service: &Service,
    id: &str,
    outcome: Option<&Outcome>,
) -> Result<(), Problem> {
    let used = sent_amounts(outcome.and_then(|outcome| outcome.usage.sent_bytes));
    service.store.settle_named(&sandbox_reservation(id), used.as_ref())?;
    Ok(())
}

impl Drop for Sending<'_> {
    /// What failed half-way has sent all that it could.
    fn drop(&mut self) {
        if !self.settled {
            let _ = self.service.store.settle_named(&self.id, None);
        }
    }
}

/// What is left to be sent under the least of all budgets, if there is one.
pub(crate) fn network_left(service: &Service, holder: &Holder) -> Result<Option<u64>, Problem> {
    let mut least = None;
    for scope in scopes(service, holder)? {
        let limit = scope.limits.iter().find(|(it, _)| *it == Dimension::EgressBytes);
        let Some((_, limit)) = limit else { continue };
        let all = service.store.spent(&scope.key)?;
        let taken = all.iter().filter(|it| it.dimension == Dimension::EgressBytes);
        let taken = taken.map(|it| it.spent.saturating_add(it.reserved)).sum::<u64>();
        let left = limit.saturating_sub(taken);
        least = Some(least.map_or(left, |least: u64| least.min(left)));
    }
    Ok(least)
}

/// What a secret pays for at its endpoint nobody counts, so a budget of it allows no secret.
pub(crate) fn refuse_uncounted(
    service: &Service,
    holder: &Holder,
    spec: &SandboxSpec,
) -> Result<(), Problem> {
    let secrets = spec.egress.as_ref().is_some_and(|egress| !egress.secrets.is_empty());
    if !secrets {
        return Ok(());
    }
    let granted = holder.inspected.budgets.iter().flat_map(|(_, budget)| budget.parts());
    let tenants = service.tenant_budget.iter().map(|(dimension, most)| (dimension.name(), *most));
    let mut paid = granted.chain(tenants).filter(|(part, _)| UNCOUNTED.contains(part));
    match paid.next() {
        None => Ok(()),
        Some((part, _)) => Err(Problem::new(Code::NotGranted, uncounted(part))),
    }
}

/// What is counted where a model is asked through the gateway, and nowhere else.
const UNCOUNTED: [&str; 2] = ["tokens", "money_micros"];

fn uncounted(part: &str) -> String {
    format!(
        "there is a budget of {part}, which cannot be kept for a sandbox that uses secrets at their endpoints: what it has done there is not counted; use a grant without secrets, or without that budget"
    )
}

impl Drop for Spending<'_> {
    /// A call that failed half-way has used up to what it had.
    fn drop(&mut self) {
        if !self.settled {
            let _ = self.settle_as(self.fuel, None);
        }
    }
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Everybody whose budget a holder's call counts against. What the command line spent under a grant is
/// gone here, too.
pub(crate) fn scopes(service: &Service, holder: &Holder) -> Result<Vec<Scope>, Problem> {
    let inspected = &holder.inspected;
    let mut scopes = Vec::new();
    for id in &inspected.standing.ids {
        let own = inspected.budgets.iter().find(|(whose, _)| whose == id);
        let limits = match own {
            None => Vec::new(),
            Some((_, budget)) => left(service, (*id, *budget))?,
        };
        scopes.push(Scope { key: format!("grant:{id}"), limits });
    }
    scopes.push(Scope {
        key: format!("tenant:{}", inspected.standing.tenant),
        limits: service.tenant_budget.clone(),
    });
    Ok(scopes)
}

fn left(
    service: &Service,
    (id, budget): (GrantId, Budget),
) -> Result<Vec<(Dimension, u64)>, Problem> {
    let elsewhere = ringwall_grant::Spending::open(&service.home)
        .and_then(|spending| spending.left(&[(id, budget)]))
        .map_err(|error| Problem::internal(&error))?;
    let limits = budget.parts().filter_map(|(name, most)| {
        let dimension = Dimension::ALL.into_iter().find(|it| it.name() == name)?;
        let seconds = |left: Option<u64>| left.map_or(most, |ms| ms / 1000);
        let most = match dimension {
            Dimension::Calls => elsewhere.calls.unwrap_or(most),
            Dimension::WallSeconds => seconds(elsewhere.wall_ms),
            Dimension::CpuSeconds => seconds(elsewhere.cpu_ms),
            Dimension::MemoryMibSeconds => seconds(elsewhere.memory_mib_ms),
            Dimension::Fuel => elsewhere.fuel.unwrap_or(most),
            Dimension::EgressBytes => elsewhere.egress_bytes.unwrap_or(most),
            Dimension::Tokens => elsewhere.tokens.unwrap_or(most),
            Dimension::MoneyMicros => elsewhere.money_micros.unwrap_or(most),
        };
        Some((dimension, most))
    });
    Ok(limits.collect())
}
