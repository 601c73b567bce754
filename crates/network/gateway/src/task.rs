//! One task: its rules as they are now, its meter, its authority and its credentials.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringwall_egress::{TaskInfo, TaskSpec};
use ringwall_rules::{Ask, Destination, Permit, Refusal, Rules, authorize, authorize_name};
use ringwall_spec::{Host, RuleSet, Scheme};
use tokio::sync::watch;

use crate::address::survivors;
use crate::ca::Authority;
use crate::credential::Credentials;
use crate::event::{Door, Event, NotRecorded, Verdict, bounded};
use crate::fakes::Fakes;
use crate::gateway::{Shared, TaskError};
use crate::inference::Inference;
use crate::meter::{Exhausted, Meter};
use crate::resolve::ResolveError;
use crate::secret::Sources;

/// Refusals of one task that are recorded one by one in each minute.
const MOST_REFUSALS: u64 = 3000;

pub(crate) struct Task {
    pub(crate) id: String,
    /// `None` when the task has ended.
    rules: watch::Sender<Option<Arc<Rules>>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) authority: Authority,
    pub(crate) credentials: Credentials,
    pub(crate) inference: Option<Inference>,
    /// Where programs that know no proxy are served.
    pub(crate) fakes: Option<Fakes>,
    pub(crate) shared: Arc<Shared>,
    next_stream: AtomicU64,
}

/// Why a way to a host could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoWay {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Unresolved(#[from] ResolveError),
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

/// A decision for a connection, with the addresses that it may use.
pub(crate) struct Way {
    pub(crate) ask: Ask,
    pub(crate) permit: Permit,
    pub(crate) pinned: Vec<IpAddr>,
}

impl Task {
    pub(crate) fn new(
        spec: &TaskSpec,
        mut sources: Sources,
        shared: Arc<Shared>,
    ) -> Result<Self, TaskError> {
        let rules: Vec<RuleSet> = std::iter::once(&spec.rules).chain(&spec.also).cloned().collect();
        let rules = Arc::new(ringwall_rules::check(&rules)?);
        Ok(Self {
            id: spec.id.clone(),
            rules: watch::Sender::new(Some(rules)),
            meter: Arc::new(Meter::new(spec.limits.clone())),
            authority: match &spec.authority {
                Some(known) => Authority::again(&spec.id, known)?,
                None => Authority::new(&spec.id)?,
            },
            credentials: Credentials::load(&spec.secrets, &mut sources)?,
            inference: spec
                .inference
                .as_ref()
                .map(|spec| Inference::load(spec, &mut sources))
                .transpose()?,
            fakes: spec.transparent.then(Fakes::default),
            shared,
            next_stream: AtomicU64::new(1),
        })
    }

    pub(crate) fn info(&self) -> TaskInfo {
        let owned = |(name, placeholder): (&str, &str)| (name.to_owned(), placeholder.to_owned());
        TaskInfo {
            authority: self.authority.export(),
            placeholders: self.credentials.placeholders().map(owned).collect(),
        }
    }

    pub(crate) fn set_rules(&self, rules: Rules) {
        self.rules.send_modify(|current| {
            // An ended task stays ended.
            if current.is_some() {
                *current = Some(Arc::new(rules));
            }
        });
    }

    pub(crate) fn end(&self) {
        self.rules.send_replace(None);
    }

    fn current_rules(&self) -> Arc<Rules> {
        self.rules.borrow().clone().unwrap_or_default()
    }

    /// The one decision, under the rules of this moment.
    pub(crate) fn authorize(&self, ask: &Ask) -> Result<Permit, Refusal> {
        authorize(&self.current_rules(), ask)
    }

    pub(crate) fn authorize_name(&self, host: &Host) -> Result<Permit, Refusal> {
        authorize_name(&self.current_rules(), host)
    }

    /// Decides about a tunnel, of which only host and port are known: the rule says what must be
    /// spoken in it.
    pub(crate) fn authorize_tunnel(
        &self,
        host: &Host,
        port: u16,
    ) -> Result<(Ask, Permit), Refusal> {
        let ask = |scheme| Ask { host: host.clone(), port, scheme, request: None };
        let secure = ask(Scheme::Https);
        match self.authorize(&secure) {
            Ok(permit) => Ok((secure, permit)),
            Err(refusal) => {
                let plain = ask(Scheme::Http);
                let permit = self.authorize(&plain).map_err(|_| refusal)?;
                Ok((plain, permit))
            }
        }
    }

    /// Resolves after the decision, and keeps the addresses that survive.
    /// The name goes to those who answer for it, so its letters are bytes that go up.
    pub(crate) async fn pin(
        &self,
        to: Destination<'_>,
        permit: &Permit,
    ) -> Result<Vec<IpAddr>, NoWay> {
        self.meter.up(to.host.name().map_or(0, str::len) as u64)?;
        let answers = self.shared.resolver.addresses(to.host).await?;
        Ok(survivors(to, &answers, permit, &self.shared.exempt)?)
    }

    pub(crate) fn stream(self: &Arc<Self>, door: Door) -> Stream {
        let id = self.next_stream.fetch_add(1, Ordering::Relaxed);
        Stream { task: Arc::clone(self), event: Event::new(&self.id, id, door, Verdict::Allowed) }
    }
}

/// One decision and what follows from it, for the record.
#[derive(Clone)]
pub(crate) struct Stream {
    task: Arc<Task>,
    pub(crate) event: Event,
}

impl Stream {
    pub(crate) fn to(mut self, host: &Host, port: u16) -> Self {
        self.event.host = host.to_string();
        self.event.port = port;
        self
    }

    pub(crate) fn asking(mut self, method: &hyper::Method, path: &str) -> Self {
        self.event.method = Some(bounded(method.as_str()));
        let holds_placeholder = self.task.credentials.is_in(path.as_bytes());
        self.event.path = Some(if holds_placeholder { "***".into() } else { bounded(path) });
        self
    }

    pub(crate) fn record(
        &self,
        verdict: Verdict,
        reason: Option<&dyn std::fmt::Display>,
    ) -> Result<(), NotRecorded> {
        let mut event = Event::new(&self.task.id, self.event.stream, self.event.door, verdict);
        let at = event.at;
        event = self.event.clone();
        event.at = at;
        event.verdict = verdict;
        event.reason = reason.map(|reason| bounded(&reason.to_string()));
        self.task.shared.sink.record(&event)
    }

    /// For what is not allowed anyway: there is nothing to take back if it cannot be recorded. A
    /// task that has itself refused all the time must not fill the record for all others.
    pub(crate) fn note(&self, verdict: Verdict, reason: &dyn std::fmt::Display) {
        let before = self.task.meter.refusal();
        if before < MOST_REFUSALS {
            let _ = self.record(verdict, Some(reason));
        } else if before == MOST_REFUSALS {
            let _ = self.record(verdict, Some(&"more refusals in this minute are not recorded"));
        }
    }
}

/// Holds a client's connection to the rules for as long as it lives.
pub(crate) struct Leash {
    task: Arc<Task>,
    open: Mutex<HashMap<u64, Ask>>,
    next: AtomicU64,
}

/// While it lives, new rules are asked about this.
pub(crate) struct Held {
    leash: Arc<Leash>,
    key: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the rules have changed: {0}")]
    Rules(Refusal),
    #[error("the task has ended")]
    Ended,
    #[error(transparent)]
    Limit(Exhausted),
}

impl Leash {
    pub(crate) fn new(task: &Arc<Task>) -> Arc<Self> {
        let open = Mutex::new(HashMap::new());
        Arc::new(Self { task: Arc::clone(task), open, next: AtomicU64::new(0) })
    }

    /// Must come before the decision: a change in between is then not missed.
    pub(crate) fn hold(self: &Arc<Self>, ask: Ask) -> Held {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, ask);
        Held { leash: Arc::clone(self), key }
    }

    /// Comes to an end when the connection must.
    pub(crate) async fn cut(&self) -> Cut {
        let mut changes = self.task.rules.subscribe();
        let end = tokio::time::sleep(self.task.meter.limits.connection());
        tokio::pin!(end);
        loop {
            if let Some(cut) = self.judge(changes.borrow_and_update().as_deref()) {
                return cut;
            }
            tokio::select! {
                () = &mut end => return Cut::Limit(Exhausted::Duration),
                changed = changes.changed() => if changed.is_err() {
                    return Cut::Ended;
                },
            }
        }
    }

    fn judge(&self, rules: Option<&Rules>) -> Option<Cut> {
        let Some(rules) = rules else {
            return Some(Cut::Ended);
        };
        let open = self.lock();
        open.values().find_map(|ask| authorize(rules, ask).err()).map(Cut::Rules)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Ask>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.leash.lock().remove(&self.key);
    }
}
