//! Keeps the rules of a running gateway those that would be decided now: a policy file changes, the task
//! comes to another phase or is tainted, its grant is taken back, a person orders something else.
//!
//! The process that holds the sandbox looks at policy, phase, taint and grant twice a second. Others leave
//! their orders in a file next to the record, and wait until they are answered there.
//!
//! Invariant: a network that can no longer be decided about is closed, and a closed network stays closed.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwall_audit::{Egress, Event as Recorded, Ids, Text};
use ringwall_policy::{LayerText, Stack, Task};
use ringwall_safekeeping::{Access, Content, Hold, Trust, Wait, hold, open_for, replace};
use ringwall_spec::{Decided, EgressSpec, RuleSet, SandboxSpec};
use serde::{Deserialize, Serialize};

use super::watch::Shared;
use super::{TaskOfGateway, Whose};
use crate::admit::deciding;
use crate::config::Engine;
use crate::egress::{EgressError, NetworkBounds, egress_by, within};
use crate::ledger::Ledger;
use crate::policy_files::PolicySearch;
use crate::record::{Record, RecordState, rewrite};
use crate::rights::History;

const LOOK: Duration = Duration::from_millis(500);
/// Who writes a file may be half-way; what cannot be read for longer than that closes the network.
const TRIES: u32 = 3;
/// How long an order may wait for the process that holds the sandbox.
const PATIENCE: Duration = Duration::from_secs(20);
const MAX_ORDER_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ChangeNetworkError {
    #[error("sandbox {0} is not running, so it reaches nothing")]
    NotRunning(String),
    #[error(
        "sandbox {0} was made without a network, and gets none while it lives; create another with --net"
    )]
    NoNetwork(String),
    #[error(transparent)]
    Egress(#[from] EgressError),
    #[error("sandbox {0} did not take the new rules in time; `ringwall stop {0}` ends it")]
    NoAnswer(String),
    #[error("the new rules of sandbox {id} could not be written down or read back")]
    Io { id: String, source: io::Error },
}

/// A change that a caller wants of a network that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkChange {
    /// Decide again, by what the files say now.
    Again,
    /// This is asked for from now on. A policy, if there was one, decides as it did at the start.
    Ask(EgressSpec),
    /// The task has read what may try to talk it into something.
    Taint,
    /// Nothing more, for this reason.
    Close(String),
}

/// A sandbox whose network was to be closed, and whether it was.
pub type Closing = (String, Result<(), ChangeNetworkError>);

/// What a network was decided by, kept with the decision.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Basis {
    pub(crate) search: PolicySearch,
    pub(crate) task: Task,
    pub(crate) asked: Option<EgressSpec>,
    pub(crate) at_most: Option<NetworkBounds>,
}

impl Basis {
    /// The basis that is kept with a decision, if a policy decided the network.
    pub(crate) fn of(decided: Option<&Decided>) -> io::Result<Option<Basis>> {
        let text = decided.and_then(|decided| decided.network.as_deref());
        Ok(text.map(serde_json::from_str).transpose()?)
    }

    /// What the policy gives in this phase; nothing where it gives nothing.
    pub(crate) fn decide(
        &self,
        stack: &Stack,
        phase: Option<String>,
    ) -> Result<Option<EgressSpec>, EgressError> {
        let task = Task { phase, ..self.task.clone() };
        let given = egress_by(stack, &task, self.asked.clone())?;
        Ok(given.and_then(|given| within(given, self.at_most.as_ref())))
    }

    /// The basis with all later orders in it.
    fn after(mut self, orders: &Orders) -> Basis {
        self.task.tainted |= orders.tainted;
        self.asked = orders.asked.clone().or(self.asked);
        self
    }
}

/// Puts the orders about a sandbox's network since its start into its specification, for its
/// copies.
pub(crate) fn network_as_it_is_now(
    record: &Record,
    spec: &mut SandboxSpec,
    decided: Option<&mut Decided>,
) -> io::Result<()> {
    let orders = update(&orders_path(record), |orders| orders.clone())?;
    let basis = Basis::of(decided.as_deref())?;
    if orders.closed.is_some() || (basis.is_none() && orders.tainted) {
        spec.egress = None;
    }
    match (basis, decided) {
        (Some(basis), Some(decided)) => {
            decided.network = Some(serde_json::to_string(&basis.after(&orders))?);
        }
        (_, decided) => {
            let by_policy = decided.is_some();
            let asked = orders.asked.as_ref();
            spec.egress = spec.egress.take().map(|first| ordered(first, asked, by_policy));
        }
    }
    Ok(())
}

/// What others have ordered since, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Orders {
    /// The number of the last order.
    number: u64,
    asked: Option<EgressSpec>,
    tainted: bool,
    closed: Option<String>,
    /// The last order that was carried out.
    done: u64,
    /// What can be reached since then.
    reach: Vec<String>,
}

impl Engine {
    /// Changes what a sandbox reaches; streams that may no longer be are closed. Gives what can be
    /// reached then.
    pub fn change_network(
        &self,
        record: &Record,
        change: NetworkChange,
    ) -> Result<Vec<String>, ChangeNetworkError> {
        let id = || record.id.to_string();
        if record.state != RecordState::Running {
            return Err(ChangeNetworkError::NotRunning(id()));
        }
        let decided_by_policy = record.decided.is_some();
        let change = match change {
            NetworkChange::Ask(asked) if !decided_by_policy => {
                NetworkChange::Ask(self.egress_ordered(asked)?)
            }
            other => other,
        };
        let wrong = |source| ChangeNetworkError::Io { id: id(), source };
        let path = orders_path(record);
        if !path.exists() {
            return Err(ChangeNetworkError::NoNetwork(id()));
        }
        let number = update(&path, |orders| {
            orders.number += 1;
            match change {
                NetworkChange::Again => {}
                NetworkChange::Ask(asked) => orders.asked = Some(asked),
                NetworkChange::Taint => orders.tainted = true,
                NetworkChange::Close(why) => orders.closed = Some(why),
            }
            orders.number
        })
        .map_err(wrong)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let orders = update(&path, |orders| orders.clone());
            let gone = orders.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
            if gone || !crate::record::is_held(&record.dir) {
                // It has ended, perhaps because a stream of its was closed.
                return Ok(reach(&closed()));
            }
            let orders = orders.map_err(wrong)?;
            if orders.done >= number {
                return Ok(orders.reach);
            }
            if Instant::now() > until {
                return Err(ChangeNetworkError::NoAnswer(id()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether a sandbox has a network that could be changed.
    pub(crate) fn has_network(record: &Record) -> bool {
        record.state == RecordState::Running && orders_path(record).exists()
    }

    /// Closes the networks of all sandboxes that one of these grants was presented for. Gives their ids, and
    /// why one could not be closed.
    pub fn close_networks_of_grant(
        &self,
        grant: &str,
        why: &str,
    ) -> Result<Vec<Closing>, crate::record::RecordError> {
        let mut closed = Vec::new();
        for record in self.records()? {
            let inputs = record.decided.as_ref().map(|decided| &decided.inputs);
            let grants = inputs.and_then(|inputs| inputs.get("grants"));
            let held = grants.is_some_and(|all| all.split(' ').any(|one| one == grant));
            if held && Engine::has_network(&record) {
                let change = NetworkChange::Close(why.to_owned());
                let closing = self.change_network(&record, change);
                closed.push((record.id.to_string(), closing.map(drop)));
            }
        }
        Ok(closed)
    }
}

fn orders_path(record: &Record) -> PathBuf {
    record.dir.join("network.json")
}

fn update<T>(path: &Path, change: impl FnOnce(&mut Orders) -> T) -> io::Result<T> {
    let file = open_for(path, Trust::Own, Access::Change)?;
    let mut text = Vec::new();
    hold(&file, Hold::Alone, Wait::Forever)?;
    io::Read::take(&file, MAX_ORDER_BYTES).read_to_end(&mut text)?;
    let before: Orders =
        if text.is_empty() { Orders::default() } else { serde_json::from_slice(&text)? };
    let mut after = before.clone();
    let result = change(&mut after);
    if after != before {
        rewrite(&file, &serde_json::to_vec(&after)?)?;
    }
    Ok(result)
}

/// The one who looks.
pub(super) struct Renewal {
    record: Record,
    basis: Option<Basis>,
    /// What it was at the start.
    first: EgressSpec,
    task: Arc<TaskOfGateway>,
    gateway: Arc<Shared>,
    ids: Ids,
    ledger: Arc<Ledger>,
}

/// All that decides.
#[derive(PartialEq, Eq)]
struct Seen {
    orders: Orders,
    phase: Option<String>,
    layers: Option<Result<Vec<LayerText>, String>>,
}

/// Why nothing may be reached.
enum Nothing {
    /// It may be otherwise in a moment.
    Unreadable(String),
    Decided(String),
}

impl Renewal {
    /// Begins to look, on a thread of its own, until the gateway is ended.
    pub(super) fn start(
        record: &Record,
        whose: &Whose<'_>,
        task: &Arc<TaskOfGateway>,
        gateway: Arc<Shared>,
    ) -> io::Result<()> {
        let renewal = Renewal {
            record: record.clone(),
            basis: Basis::of(record.decided.as_ref())?,
            first: whose.egress.clone(),
            task: Arc::clone(task),
            gateway,
            ids: whose.ids.clone(),
            ledger: whose.ledger.clone(),
        };
        let path = orders_path(record);
        replace(&path, Content::quick(b""))?;
        let thread = std::thread::Builder::new().name("rules".to_owned());
        thread.spawn(move || renewal.run())?;
        Ok(())
    }

    fn run(&self) {
        let (mut tries, mut rules, mut last) = (0, self.known(self.first.clone()).layers, None);
        // At once for the first time: something may have changed since it was decided.
        let mut pause = Duration::ZERO;
        while self.gateway.goes_on_after(std::mem::replace(&mut pause, LOOK)) {
            let seen = match self.look() {
                Ok(seen) => seen,
                Err(_) if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Err(error) => {
                    return self.close(&format!("what decides about it cannot be read: {error}"));
                }
            };
            if last.as_ref() == Some(&seen) {
                continue;
            }
            let (decided, why) = match self.decide(&seen) {
                Ok(decided) => (decided, "what decides about the network has changed".to_owned()),
                Err(Nothing::Unreadable(_)) if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Err(Nothing::Unreadable(why) | Nothing::Decided(why)) => (closed(), why),
            };
            tries = 0;
            if decided.layers != rules && self.put(&decided, &why).is_err() {
                return;
            }
            let number = seen.orders.number;
            let reach = reach(&decided);
            let _ = update(&orders_path(&self.record), |orders| {
                (orders.done, orders.reach) = (number, reach);
            });
            (rules, last) = (decided.layers, Some(seen));
        }
    }

    fn look(&self) -> io::Result<Seen> {
        let mut orders = update(&orders_path(&self.record), |orders| orders.clone())?;
        (orders.done, orders.reach) = (0, Vec::new());
        let phases = History::load(&self.record)?.phases;
        let first = self.record.decided.as_ref().and_then(|decided| decided.phase.clone());
        let layers = self.basis.as_ref().map(|basis| {
            let read = basis.search.read();
            read.map_err(|error| crate::with_causes(&error))
        });
        Ok(Seen { orders, phase: phases.last().cloned().or(first), layers })
    }

    /// What may be reached now, or why nothing.
    fn decide(&self, seen: &Seen) -> Result<EgressSpec, Nothing> {
        let nothing = |why: &str| Err(Nothing::Decided(why.to_owned()));
        if let Some(why) = &seen.orders.closed {
            return nothing(why);
        }
        let (Some(basis), Some(layers)) = (&self.basis, &seen.layers) else {
            if seen.orders.tainted {
                return nothing("the task is tainted, and there is no policy that lets it go on");
            }
            let (first, by_policy) = (self.first.clone(), self.record.decided.is_some());
            return Ok(self.known(ordered(first, seen.orders.asked.as_ref(), by_policy)));
        };
        let layers = layers.clone().map_err(Nothing::Unreadable)?;
        if layers.is_empty() {
            return nothing("the policy that gave it is gone");
        }
        let basis = basis.clone().after(&seen.orders);
        let given = deciding(|| -> Result<_, Nothing> {
            let unreadable = |error| Nothing::Unreadable(crate::with_causes(&error));
            let stack = PolicySearch::stack(layers).map_err(unreadable)?;
            let given = basis.decide(&stack, seen.phase.clone());
            given.map_err(|error| Nothing::Decided(error.to_string()))
        })?;
        match given {
            Some(given) => Ok(self.known(given)),
            None => nothing("the policy gives it no more"),
        }
    }

    /// Secrets were opened when the sandbox began; no other can be had now.
    fn known(&self, mut egress: EgressSpec) -> EgressSpec {
        egress.secrets.retain(|name| self.first.secrets.contains(name));
        for allow in egress.layers.iter_mut().flat_map(|rules| &mut rules.allow) {
            allow.secret = allow.secret.take().filter(|name| egress.secrets.contains(name));
        }
        if egress.is_nothing() { closed() } else { egress }
    }

    fn put(&self, decided: &EgressSpec, why: &str) -> Result<(), ()> {
        self.task.set_rules(decided.layers.clone());
        let told = format!("{why}; from now on: {}", reach(decided).join(", and of that "));
        let note = Egress { reason: Some(Text::new(told)), ..Egress::default() };
        let noted = self.ledger.record(vec![(self.ids.clone(), Recorded::Egress(note))]);
        // A gateway that is being started gets the rules with its task.
        let put = self.gateway.reload(&self.task);
        if noted.is_err() || put.is_err() {
            self.gateway.give_up();
            return Err(());
        }
        Ok(())
    }

    fn close(&self, why: &str) {
        let _ = self.put(&closed(), why);
    }
}

/// A person's own order, where there is no policy. What a policy gave that is not known any more
/// can only be narrowed.
fn ordered(mut first: EgressSpec, asked: Option<&EgressSpec>, by_policy: bool) -> EgressSpec {
    match asked {
        Some(asked) if by_policy => {
            first.layers.extend(asked.layers.iter().cloned().map(RuleSet::narrowing));
            first
        }
        Some(asked) => asked.clone(),
        None => first,
    }
}

fn closed() -> EgressSpec {
    EgressSpec { layers: vec![RuleSet::default()], ..EgressSpec::default() }
}

fn reach(egress: &EgressSpec) -> Vec<String> {
    if egress.is_nothing() { vec!["nothing".to_owned()] } else { egress.summary() }
}
