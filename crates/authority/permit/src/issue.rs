//! The permit itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_spec::{Decided, SandboxSpec, ValidSpec};

use crate::caller::{CallerName, Payer};

/// What [`Permit::issue`] makes a permit from.
#[derive(Debug, Clone)]
pub struct Issued {
    pub spec: ValidSpec,
    /// What the policy said. There is none where the owner's own order counts.
    pub decided: Option<Decided>,
    pub caller: CallerName,
    pub account: Payer,
    /// The number of the audit record of an elevation that allowed it.
    pub record: Option<u64>,
    /// After this nothing more is raised by it.
    pub until: Option<SystemTime>,
}

/// Allows the engine to raise what its spec says, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permit {
    pub(crate) spec: ValidSpec,
    pub(crate) decided: Option<Box<Decided>>,
    pub(crate) caller: CallerName,
    pub(crate) account: Payer,
    pub(crate) record: Option<u64>,
    /// In whole milliseconds, so that a sealed permit is the same when it is opened.
    pub(crate) until_unix_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the permit of {caller} expired {} s ago, so nothing was raised; ask again", .ago.as_secs())]
pub struct PermitExpired {
    pub caller: CallerName,
    pub ago: Duration,
}

impl Permit {
    /// Makes a permit. For `crates/core/desk` alone.
    pub fn issue(issued: Issued) -> Permit {
        let Issued { spec, decided, caller, account, record, until } = issued;
        let until_unix_ms = until.map(|until| {
            let since = until.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        });
        Permit { spec, decided: decided.map(Box::new), caller, account, record, until_unix_ms }
    }

    pub fn spec(&self) -> &SandboxSpec {
        self.spec.spec()
    }

    pub fn valid_spec(&self) -> &ValidSpec {
        &self.spec
    }

    /// What a policy said, if there is one.
    pub fn decided(&self) -> Option<&Decided> {
        self.decided.as_deref()
    }

    /// The rules that decided, with file and line.
    pub fn rules(&self) -> &[String] {
        self.decided().map_or(&[], |decided| &decided.rules)
    }

    /// The kind of work that was decided about: unknown work is untrusted.
    pub fn kind(&self) -> &str {
        Decided::kind_of(self.decided())
    }

    pub fn caller(&self) -> &CallerName {
        &self.caller
    }

    pub fn account(&self) -> &Payer {
        &self.account
    }

    /// The number of the audit record under which it was given: of the use of an elevation, or else that of the
    /// sandbox that was placed by it, once there is one.
    pub fn record(&self) -> Option<u64> {
        self.record
    }

    /// Notes the number of the record of the sandbox that was placed by it.
    pub fn is_recorded(&mut self, placed: Option<u64>) {
        self.record = self.record.or(placed);
    }

    /// Refuses a permit whose time is over.
    pub fn check(&self, now: SystemTime) -> Result<(), PermitExpired> {
        let Some(until) = self.until_unix_ms.map(Duration::from_millis) else { return Ok(()) };
        match now.duration_since(UNIX_EPOCH).unwrap_or_default().checked_sub(until) {
            None => Ok(()),
            Some(ago) => Err(PermitExpired { caller: self.caller.clone(), ago }),
        }
    }
}
