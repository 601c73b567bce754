//! The grants of agents: made for one, narrowed for those that it starts.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use ringwall_grant::{Authority, Budget, Name, NameError, Narrowing, Rights, Token};
use ringwall_policy::known_walls;

use crate::books::Books;
use crate::caller::{Caller, Hands};
use crate::refused::{Kind, Refused};

/// The grant of an agent that was given none lives as long.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Its tenant.
const TENANT: &str = "local";
const KINDS: [&str; 4] = ["build", "files", "compute", "untrusted"];

/// An agent that the owner starts.
#[derive(Debug, Clone, Copy)]
pub struct NewAgent<'a> {
    pub id: &'a str,
    pub workspace: Option<&'a Path>,
    /// Those of the policy.
    pub phases: &'a [String],
}

/// An agent with less than the one that starts it.
#[derive(Debug, Clone, Copy)]
pub struct SubAgent<'a> {
    pub id: &'a str,
    /// It may call no others.
    pub tools: Option<&'a [String]>,
    /// It can write nothing. That no tool runs commands is up to the list.
    pub read_only: bool,
}

/// What budgets let an agent use of what they count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    pub calls: Option<u64>,
    pub wall_seconds: Option<u64>,
    /// What is left of these.
    pub tokens: Option<u64>,
    pub money_micros: Option<u64>,
}

impl Books {
    /// Makes the grant of a new agent: its workspace, every kind of work that policy places, all tools.
    pub fn start_agent(&self, new: NewAgent<'_>) -> Result<Caller, Refused> {
        let rights = rights(new).map_err(|error| Refused::internal(&error))?;
        let authority = Authority::open(self.home()).map_err(|error| Refused::internal(&error))?;
        let minted = authority.mint(&rights, LIFETIME);
        let token = minted.map_err(|error| Refused::internal(&error))?.token;
        self.authenticate_in(token, Hands::OwnersAgent)
    }

    /// The agent that has this token.
    pub fn agent(&self, token: &str, hands: Hands) -> Result<Caller, Refused> {
        let token = token.trim().parse::<Token>();
        let token =
            token.map_err(|error| Refused::new(Kind::Unauthenticated, error.to_string()))?;
        self.authenticate_in(token, hands)
    }

    /// The same with less, for an agent that this one starts.
    pub fn start_sub_agent(&self, caller: &Caller, sub: SubAgent<'_>) -> Result<Caller, Refused> {
        let Some(holder) = caller.holder() else {
            return Err(Refused::new(Kind::NotGranted, "only an agent starts sub-agents"));
        };
        let narrowed = narrowing(sub).map_err(|error| Refused::internal(&error))?;
        let token = holder.token.narrow(&narrowed).map_err(|error| Refused::internal(&error))?;
        self.authenticate_in(token, holder.hands)
    }

    /// What the caller's budgets, and its tenant's, leave.
    pub fn allowance(&self, caller: &Caller) -> Result<Allowance, Refused> {
        let Caller::Holder(holder) = caller else { return Ok(Allowance::default()) };
        let accounts = self.accounts(holder)?;
        let left = self.left(&accounts)?;
        let budget = accounts.iter().fold(Budget::default(), |least, (_, it)| least.least(*it));
        let Budget { calls, wall_seconds, .. } = budget;
        let (tokens, money_micros) = (left.tokens, left.money_micros);
        Ok(Allowance { calls, wall_seconds, tokens, money_micros })
    }
}

fn rights(new: NewAgent<'_>) -> Result<Rights, NameError> {
    let workspace = new.workspace.map(|path| path.display().to_string());
    let subtrees = || workspace.iter().map(|path| path.parse()).collect::<Result<_, _>>();
    let names = |words: &mut dyn Iterator<Item = String>| -> Result<BTreeSet<Name>, NameError> {
        words.map(|word| word.parse()).collect()
    };
    Ok(Rights {
        task: new.id.parse()?,
        tenant: TENANT.parse()?,
        holder: format!("agent {}", new.id).parse()?,
        tools: BTreeSet::from(["*".parse()?]),
        read: subtrees()?,
        write: subtrees()?,
        endpoints: BTreeSet::new(),
        secrets: BTreeSet::new(),
        phases: names(&mut new.phases.iter().cloned())?,
        kinds: names(&mut KINDS.iter().map(ToString::to_string))?,
        walls: names(&mut known_walls().iter().map(ToString::to_string))?,
        budget: Budget::default(),
    })
}

fn narrowing(sub: SubAgent<'_>) -> Result<Narrowing, NameError> {
    let tools = sub.tools.map(|tools| tools.iter().map(|tool| tool.parse()).collect());
    Ok(Narrowing {
        holder: Some(format!("agent {}", sub.id).parse()?),
        tools: tools.transpose()?,
        write: sub.read_only.then(BTreeSet::new),
        phases: Some(BTreeSet::new()),
        ..Narrowing::default()
    })
}
