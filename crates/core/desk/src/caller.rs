//! Who asks: the owner, the holder of a grant, or a part of Ringwall itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringwall_grant::{Ask, Inspected, Request, Standing, Token};
use ringwall_permit::SystemCaller;

use crate::refused::{Kind, Refused};

/// The tenant of what the owner makes. No grant can name it: names are not empty.
pub const OWNER: &str = "";

#[derive(Debug, Clone)]
pub enum Caller {
    /// Who runs Ringwall: over the daemon's own socket, or at the command line without a grant.
    Owner,
    Holder(Arc<Holder>),
    /// A part of Ringwall, by name. It has no more than the policy gives and pays nothing.
    System(SystemCaller),
}

/// Who presented a token. Only [`crate::Books::authenticate`] and [`crate::Books::agent`] make one.
#[derive(Debug)]
pub struct Holder {
    pub(crate) token: Token,
    pub(crate) inspected: Inspected,
    pub(crate) hands: Hands,
}

/// Who acts by a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hands {
    /// Whoever presents it.
    Bearer,
    /// The supervisor of an agent, by a grant of somebody's. Each of its commands pays for its own time, and
    /// people are asked when the model says so.
    Agent,
    /// The same by a grant that the owner made for this agent: where there is no policy the owner's order
    /// counts, and so does what the owner lets its commands reach.
    OwnersAgent,
}

impl Caller {
    /// Whose things the caller makes.
    pub fn tenant(&self) -> &str {
        match self {
            Caller::Owner | Caller::System(_) => OWNER,
            Caller::Holder(holder) => &holder.standing().tenant,
        }
    }

    /// Whether the caller sees what a task of a tenant has done: the owner sees all, a holder what its own
    /// task has done. A grant has the task of the grant that it was narrowed from.
    pub fn sees(&self, tenant: &str, task: &str) -> bool {
        match self {
            Caller::Owner | Caller::System(_) => true,
            Caller::Holder(_) => self.tenant() == tenant && self.task() == task,
        }
    }

    pub fn task(&self) -> &str {
        match self {
            Caller::Owner | Caller::System(_) => "",
            Caller::Holder(holder) => &holder.standing().task,
        }
    }

    /// For how long the caller can do anything.
    pub fn life(&self) -> Duration {
        match self {
            Caller::Owner | Caller::System(_) => Duration::MAX,
            Caller::Holder(holder) => holder.standing().life(SystemTime::now()),
        }
    }

    pub fn must_be_owner(&self) -> Result<(), Refused> {
        let how = "ask for it over the unix socket of the daemon, without a token";
        match self {
            Caller::Owner => Ok(()),
            Caller::Holder(_) | Caller::System(_) => Err(Refused::new(Kind::OwnerOnly, how)),
        }
    }

    pub fn holder(&self) -> Option<&Arc<Holder>> {
        match self {
            Caller::Holder(holder) => Some(holder),
            Caller::Owner | Caller::System(_) => None,
        }
    }

    /// Whether the caller has all that the other has: it is the same, or the other's grant was narrowed
    /// from the caller's.
    pub fn is_above(&self, other: &Caller) -> bool {
        match (self, other) {
            (Caller::Owner | Caller::System(_), _) => true,
            (Caller::Holder(_), Caller::Owner | Caller::System(_)) => false,
            (Caller::Holder(own), Caller::Holder(other)) => {
                let own = &own.standing().ids;
                !own.is_empty() && other.standing().ids.starts_with(own)
            }
        }
    }

    /// What the record of a decision says of who asked.
    pub(crate) fn notes(&self, notes: &mut BTreeMap<String, String>) {
        match self {
            // Its permit says who it is.
            Caller::Owner | Caller::System(_) => {}
            Caller::Holder(holder) => {
                let standing = holder.standing();
                notes.insert("task".to_owned(), standing.task.clone());
                notes.insert("tenant".to_owned(), standing.tenant.clone());
                notes.insert("grant".to_owned(), holder.id());
                notes.insert("grants".to_owned(), standing.all_ids());
            }
        }
    }
}

impl Holder {
    pub fn standing(&self) -> &Standing {
        &self.inspected.standing
    }

    /// Of the grant itself.
    pub fn id(&self) -> String {
        self.standing().ids.last().map(ToString::to_string).unwrap_or_default()
    }

    /// Of the token; whoever has it has the grant.
    pub fn token_text(&self) -> String {
        self.token.to_text().to_string()
    }

    pub(crate) fn is_agent(&self) -> bool {
        self.hands != Hands::Bearer
    }

    pub fn request(&self, ask: Ask) -> Request {
        Request::new(&self.standing().task, &self.standing().tenant, ask)
    }
}
