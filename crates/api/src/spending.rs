//! What calls cost, reserved before and settled after: in the home's ledger, which the daemon has in common
//! with the command line and agents. Where several daemons share a database, what tenants spend is there, too.

use std::time::{Duration, Instant};

use ringwall_grant::{Account, Budget, Cost, Held, Left, Reserved, SpendError};
use ringwall_policy::AdmittedSpec;
use ringwall_spec::{Limits, Outcome, SandboxSpec};
use ringwall_store::{
    Amounts, Dimension, Reservation, ReserveError, Scope, Wish, sandbox_reservation,
};

use crate::caller::{Caller, Holder};
use crate::problem::{Code, Problem};
use crate::service::Service;

const MIB: u64 = 1 << 20;
const ONE_CPU: u64 = 1000;
/// Below these nothing could be done: they are asked for all the same, so that the refusal names the budget.
const SHORTEST_JOB: Duration = Duration::from_secs(1);
const SHORTEST_CALL: Duration = Duration::from_millis(1);

/// What a call asks for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    timeout: Duration,
    shortest: Duration,
    cpu_milli: u64,
    memory_mib: u64,
    /// The most; less will do.
    fuel: u64,
}

/// What it got of that, and the part of a budget that made it less.
#[derive(Debug, Clone, Copy)]
struct Got {
    time: Duration,
    fuel: u64,
    bound_by: Option<&'static str>,
}

impl Asked {
    fn whole(self) -> Got {
        Got { time: self.timeout, fuel: self.fuel, bound_by: None }
    }

    fn within(self, left: Left) -> Got {
        let mut got = self.whole();
        if let Some((time, part)) = left.time(self.cpu_milli, self.memory_mib)
            && time < got.time
        {
            got.time = time.max(self.shortest.min(self.timeout));
            got.bound_by = Some(part);
        }
        if let Some(fuel) = left.fuel.filter(|fuel| *fuel < got.fuel) {
            got.fuel = fuel.max(1);
            got.bound_by = Some(Dimension::Fuel.name());
        }
        got
    }

    fn cost(self, time: Duration, fuel: u64) -> Cost {
        let running = Cost::running(millis(time), self.cpu_milli, self.memory_mib);
        Cost { calls: 1, fuel, ..running }
    }

    /// As the store counts: in seconds.
    fn wish(self, got: Got) -> Wish {
        let per_second = Amounts::default()
            .with(Dimension::WallSeconds, 1)
            .with(Dimension::CpuSeconds, self.cpu_milli.div_ceil(1000))
            .with(Dimension::MemoryMibSeconds, self.memory_mib);
        let at_once = Amounts::default().with(Dimension::Calls, 1);
        Wish { at_once, per_second, seconds: whole_seconds(got.time), fuel: got.fuel }
    }
}

/// A call that was let in, and what it may take.
#[derive(Debug)]
pub(crate) struct Spending<'a> {
    service: &'a Service,
    asked: Asked,
    reserved: Option<(Reserved, Option<Reservation>)>,
    begun: Instant,
    /// Less than asked for, where the budget says so.
    pub(crate) timeout: Duration,
    pub(crate) fuel: u64,
    bound_by: Option<&'static str>,
    settled: bool,
}

/// Why a job was ended before its own time.
pub(crate) fn stopped_by(spending: &Spending<'_>, timed_out: bool) -> Option<String> {
    let bound = spending.bound_by?;
    timed_out.then(|| format!("budget:{bound}"))
}

impl<'a> Spending<'a> {
    /// Reserves for a job of this length.
    pub(crate) fn begin(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        (timeout, limits): (Duration, &Limits),
    ) -> Result<Spending<'a>, Problem> {
        let asked = Asked {
            timeout,
            shortest: SHORTEST_JOB,
            cpu_milli: limits.cpu_milli.into(),
            memory_mib: limits.memory_bytes.div_ceil(MIB),
            fuel: 0,
        };
        Spending::reserve(service, caller, id, asked)
    }

    /// Reserves for the call of a tool.
    pub(crate) fn begin_tool(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        (timeout, fuel, memory): (Duration, u64, u64),
    ) -> Result<Spending<'a>, Problem> {
        let memory_mib = memory.div_ceil(MIB);
        let shortest = SHORTEST_CALL;
        let asked = Asked { timeout, shortest, cpu_milli: ONE_CPU, memory_mib, fuel };
        Spending::reserve(service, caller, id, asked)
    }

    fn reserve(
        service: &'a Service,
        caller: &Caller,
        id: &str,
        asked: Asked,
    ) -> Result<Spending<'a>, Problem> {
        let (reserved, got) = match caller {
            // The owner set the limits, and has none.
            Caller::Owner => (None, asked.whole()),
            Caller::Holder(holder) => {
                let (reserved, got) = take(service, holder, id, asked)?;
                (Some(reserved), got)
            }
        };
        let Got { time: timeout, fuel, bound_by } = got;
        let begun = Instant::now();
        Ok(Spending { service, asked, reserved, begun, timeout, fuel, bound_by, settled: false })
    }

    /// Gives back what was not used. `fuel` and `cpu` as far as they were measured.
    pub(crate) fn settle(mut self, fuel: u64, cpu: Option<Duration>) -> Result<(), Problem> {
        self.settle_as(fuel, cpu)
    }

    /// It was refused before anything was done: all is given back.
    pub(crate) fn give_back(mut self) -> Result<(), Problem> {
        self.pay(Cost::default())
    }

    fn settle_as(&mut self, fuel: u64, cpu: Option<Duration>) -> Result<(), Problem> {
        let mut used = self.asked.cost(self.begun.elapsed(), fuel);
        // Where nobody measured, what could have been used counts.
        used.cpu_ms = cpu.map_or(used.cpu_ms, millis);
        self.pay(used)
    }

    fn pay(&mut self, used: Cost) -> Result<(), Problem> {
        self.settled = true;
        let Some((reserved, reservation)) = &self.reserved else { return Ok(()) };
        reserved.settle(&self.service.spending, used)?;
        if let Some(reservation) = reservation {
            self.service.store.settle(reservation, &amounts(used))?;
        }
        Ok(())
    }
}

/// Takes what there is for a call.
fn take(
    service: &Service,
    holder: &Holder,
    id: &str,
    asked: Asked,
) -> Result<((Reserved, Option<Reservation>), Got), Problem> {
    let accounts = service.spending.accounts(&holder.inspected)?;
    let mut got = asked.whole();
    let cost = |left| {
        got = asked.within(left);
        asked.cost(got.time, got.fuel)
    };
    let cost = service.spending.reserve_of(&accounts, cost).map_err(|it| spent(service, it))?;
    let reserved = Reserved { accounts, cost };
    let reservation = take_shared(service, (holder, id), &asked.wish(got), &reserved)?;
    if let Some(reservation) = &reservation
        && let Some(bound) = reservation.bound_by
    {
        got.time = got.time.min(Duration::from_secs(reservation.seconds));
        got.fuel = reservation.fuel;
        got.bound_by = Some(bound.name());
    }
    Ok(((reserved, reservation), got))
}

/// The same from what all daemons on one database let the tenant spend, if there are others. Where that is
/// refused, nothing was taken here either.
fn take_shared(
    service: &Service,
    (holder, id): (&Holder, &str),
    wish: &Wish,
    reserved: &Reserved,
) -> Result<Option<Reservation>, Problem> {
    if !service.shared {
        return Ok(None);
    }
    let tenant = tenant_scope(holder, &reserved.accounts);
    match service.store.reserve(id, &[tenant], wish) {
        Ok(reservation) => Ok(Some(reservation)),
        Err(refused) => {
            reserved.settle(&service.spending, Cost::default())?;
            if let ReserveError::Exhausted { dimension, .. } = &refused {
                service.metrics.spent(dimension.name());
            }
            Err(refused.into())
        }
    }
}

fn spent(service: &Service, error: SpendError) -> Problem {
    if let SpendError::Spent { part, .. } = &error {
        service.metrics.spent(part);
    }
    error.into()
}

/// What a sandbox may send, reserved for as long as it lives.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    service: &'a Service,
    id: String,
    reserved: Reserved,
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
        let accounts = service.spending.accounts(&holder.inspected)?;
        let cost = Cost { egress_bytes: most, ..Cost::default() };
        service.spending.reserve(&accounts, cost).map_err(|it| spent(service, it))?;
        let reserved = Reserved { accounts, cost };
        let wish = Wish { at_once: amounts(cost), ..Wish::default() };
        take_shared(service, (holder, &id), &wish, &reserved)?;
        Ok(Some(Sending { service, id, reserved, settled: false }))
    }

    /// The sandbox has ended. What its gateway could not be asked for was all used.
    pub(crate) fn end(mut self, sent: Option<u64>) -> Result<Option<String>, Problem> {
        self.settled = true;
        settle_sent(self.service, &self.id, Some(&self.reserved), sent)?;
        let over = sent.is_none_or(|sent| sent >= self.reserved.cost.egress_bytes);
        Ok(over.then(|| format!("budget:{}", Dimension::EgressBytes.name())))
    }

    /// The sandbox lives on, and keeps it.
    pub(crate) fn keep_for(mut self, sandbox: &str) -> Result<(), Problem> {
        self.settled = true;
        let words =
            serde_json::to_vec(&self.reserved).map_err(|error| Problem::internal(&error))?;
        Held::open(&self.service.home)?.put(&held_name(sandbox), &words)?;
        Ok(self.service.store.keep_for_sandbox(&self.id, sandbox)?)
    }
}

/// Where nobody knows what was sent, all of it was.
fn settle_sent(
    service: &Service,
    id: &str,
    reserved: Option<&Reserved>,
    sent: Option<u64>,
) -> Result<(), Problem> {
    if let Some(reserved) = reserved {
        let most = reserved.cost.egress_bytes;
        let egress_bytes = sent.map_or(most, |sent| sent.min(most));
        reserved.settle(&service.spending, Cost { egress_bytes, ..Cost::default() })?;
    }
    let used = sent.map(|sent| {
        let most = reserved.map_or(sent, |reserved| reserved.cost.egress_bytes);
        Amounts::default().with(Dimension::EgressBytes, sent.min(most))
    });
    Ok(service.store.settle_named(id, used.as_ref())?)
}

/// Settles what a sandbox that lived on had reserved, by how it ended.
pub(crate) fn end_sandbox(
    service: &Service,
    id: &str,
    outcome: Option<&Outcome>,
) -> Result<(), Problem> {
    let words = Held::open(&service.home)?.take(&held_name(id))?;
    // What cannot be read stays spent.
    let reserved = words.and_then(|words| serde_json::from_slice::<Reserved>(&words).ok());
    let sent = outcome.and_then(|outcome| outcome.usage.sent_bytes);
    settle_sent(service, &sandbox_reservation(id), reserved.as_ref(), sent)
}

/// What the command line's sandboxes hold is kept by their ids, and is their keepers' to settle.
fn held_name(sandbox: &str) -> String {
    format!("daemon-{sandbox}")
}

impl Drop for Sending<'_> {
    /// What failed half-way has sent all that it could.
    fn drop(&mut self) {
        if !self.settled {
            let _ = settle_sent(self.service, &self.id, Some(&self.reserved), None);
        }
    }
}

/// What is left to be sent under the least of all budgets, if there is one.
pub(crate) fn network_left(service: &Service, holder: &Holder) -> Result<Option<u64>, Problem> {
    let accounts = service.spending.accounts(&holder.inspected)?;
    let here = service.spending.left(&accounts)?.egress_bytes;
    if !service.shared {
        return Ok(here);
    }
    let tenant = tenant_scope(holder, &accounts);
    let limit = tenant.limits.iter().find(|(it, _)| *it == Dimension::EgressBytes);
    let Some((_, limit)) = limit else { return Ok(here) };
    let all = service.store.spent(&tenant.key)?;
    let taken = all.iter().filter(|it| it.dimension == Dimension::EgressBytes);
    let taken = taken.map(|it| it.spent.saturating_add(it.reserved)).sum::<u64>();
    let left = limit.saturating_sub(taken);
    Ok(Some(here.map_or(left, |here| here.min(left))))
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
    let accounts = service.spending.accounts(&holder.inspected)?;
    let mut paid = accounts.iter().flat_map(|(_, budget)| budget.parts());
    match paid.find(|(part, _)| UNCOUNTED.contains(part)) {
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

/// The holder's tenant, as all daemons on one database know it.
fn tenant_scope(holder: &Holder, accounts: &[(Account, Budget)]) -> Scope {
    let tenant = Account::Tenant(holder.inspected.standing.tenant.clone());
    let budget = accounts.iter().find(|(account, _)| *account == tenant);
    let parts = budget.into_iter().flat_map(|(_, budget)| budget.parts());
    let named = |(name, most)| {
        let dimension = Dimension::ALL.into_iter().find(|it| it.name() == name)?;
        Some((dimension, most))
    };
    Scope { key: tenant.to_string(), limits: parts.filter_map(named).collect() }
}

/// One part of an account, for people to look at.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) part: &'static str,
    pub(crate) spent: u64,
    pub(crate) reserved: u64,
    pub(crate) limit: Option<u64>,
}

/// All parts of an account.
pub(crate) fn figures(
    service: &Service,
    (account, budget): &(Account, Budget),
) -> Result<Vec<Figure>, Problem> {
    let here = service.spending.spent(account)?;
    let (spent, reserved) = (amounts(here.spent), amounts(here.reserved));
    let shared = match account {
        Account::Tenant(_) if service.shared => service.store.spent(&account.to_string())?,
        _ => Vec::new(),
    };
    let part = |dimension: Dimension| {
        let part = dimension.name();
        let limit = budget.parts().find(|(name, _)| *name == part).map(|(_, most)| most);
        let (mut spent, mut reserved) = (spent.get(dimension), reserved.get(dimension));
        // Others may have spent more of it.
        if let Some(all) = shared.iter().find(|it| it.dimension == dimension)
            && all.spent.saturating_add(all.reserved) > spent.saturating_add(reserved)
        {
            (spent, reserved) = (all.spent, all.reserved);
        }
        Figure { part, spent, reserved, limit }
    };
    Ok(Dimension::ALL.into_iter().map(part).collect())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// As the store counts: seconds, rounded up.
fn amounts(cost: Cost) -> Amounts {
    let seconds = |ms: u64| ms.div_ceil(1000);
    Amounts::default()
        .with(Dimension::Calls, cost.calls)
        .with(Dimension::WallSeconds, seconds(cost.wall_ms))
        .with(Dimension::CpuSeconds, seconds(cost.cpu_ms))
        .with(Dimension::MemoryMibSeconds, seconds(cost.memory_mib_ms))
        .with(Dimension::Fuel, cost.fuel)
        .with(Dimension::EgressBytes, cost.egress_bytes)
        .with(Dimension::Tokens, cost.tokens)
        .with(Dimension::MoneyMicros, cost.money_micros)
}
