//! What a grant allows, as plain data: the rights it was minted with and the ways to narrow them.

use std::collections::BTreeSet;
use std::fmt;

use crate::names::{Endpoint, Name, Subtree, ToolPattern};
use crate::request::Ask;

/// Entries of one list in one block.
pub const MAX_ENTRIES: usize = 256;

/// What the holder of a fresh grant may do. An empty list allows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    pub task: Name,
    pub tenant: Name,
    /// Who is meant to hold it, for people to read; nothing is decided by it.
    pub holder: Name,
    pub tools: BTreeSet<ToolPattern>,
    pub read: BTreeSet<Subtree>,
    /// Writing does not include reading.
    pub write: BTreeSet<Subtree>,
    pub endpoints: BTreeSet<Endpoint>,
    pub secrets: BTreeSet<Name>,
    /// The phases that the task may be changed to.
    pub phases: BTreeSet<Name>,
    /// The kinds of work, and the walls, that a sandbox may be asked for with.
    pub kinds: BTreeSet<Name>,
    pub walls: BTreeSet<Name>,
    pub budget: Budget,
}

/// What a narrowed grant still allows of what it was made from. `None` leaves things as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narrowing {
    pub holder: Option<Name>,
    pub tools: Option<BTreeSet<ToolPattern>>,
    pub read: Option<BTreeSet<Subtree>>,
    pub write: Option<BTreeSet<Subtree>>,
    pub endpoints: Option<BTreeSet<Endpoint>>,
    pub secrets: Option<BTreeSet<Name>>,
    pub phases: Option<BTreeSet<Name>>,
    pub kinds: Option<BTreeSet<Name>>,
    pub walls: Option<BTreeSet<Name>>,
    pub budget: Budget,
    /// Seconds since 1970.
    pub expires: Option<u64>,
}

/// The most that may be spent under a grant, all calls together. `None`: the grant says nothing of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Budget {
    pub calls: Option<u64>,
    pub wall_seconds: Option<u64>,
    pub cpu_seconds: Option<u64>,
    pub fuel: Option<u64>,
    pub memory_mib_seconds: Option<u64>,
    pub egress_bytes: Option<u64>,
    pub tokens: Option<u64>,
    /// Millionths of the currency's unit.
    pub money_micros: Option<u64>,
}

/// The list of a grant that decides a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    Tools,
    Read,
    Write,
    Endpoints,
    Secrets,
    Phases,
    Kinds,
    Walls,
}

impl Rights {
    /// Nothing is allowed yet.
    pub fn none(task: Name, tenant: Name, holder: Name) -> Rights {
        Rights {
            task,
            tenant,
            holder,
            tools: BTreeSet::new(),
            read: BTreeSet::new(),
            write: BTreeSet::new(),
            endpoints: BTreeSet::new(),
            secrets: BTreeSet::new(),
            phases: BTreeSet::new(),
            kinds: BTreeSet::new(),
            walls: BTreeSet::new(),
            budget: Budget::default(),
        }
    }
}

impl Budget {
    pub(crate) const NAMES: [&'static str; 8] = [
        "calls",
        "wall_seconds",
        "cpu_seconds",
        "fuel",
        "memory_mib_seconds",
        "egress_bytes",
        "tokens",
        "money_micros",
    ];

    fn fields(&mut self) -> [&mut Option<u64>; 8] {
        [
            &mut self.calls,
            &mut self.wall_seconds,
            &mut self.cpu_seconds,
            &mut self.fuel,
            &mut self.memory_mib_seconds,
            &mut self.egress_bytes,
            &mut self.tokens,
            &mut self.money_micros,
        ]
    }

    /// One part alone, by name; `None` if there is no such part.
    pub fn of(name: &str, most: u64) -> Option<Budget> {
        let mut budget = Budget::default();
        budget.set(name, most).then_some(budget)
    }

    /// Each part that is set, by name.
    pub fn parts(mut self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = self.fields().map(|value| *value);
        Self::NAMES.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)))
    }

    pub(crate) fn set(&mut self, name: &str, value: u64) -> bool {
        let at = Self::NAMES.iter().position(|known| *known == name);
        match at {
            Some(at) => self.fields()[at].replace(value).is_none(),
            None => false,
        }
    }

    /// Each part of this one, or else of the other.
    pub(crate) fn or(mut self, mut other: Budget) -> Budget {
        for (own, other) in self.fields().into_iter().zip(other.fields()) {
            *own = own.or(*other);
        }
        self
    }

    /// What both allow.
    pub fn least(mut self, mut other: Budget) -> Budget {
        for (own, other) in self.fields().into_iter().zip(other.fields()) {
            *own = match (*own, *other) {
                (Some(own), Some(other)) => Some(own.min(other)),
                (own, other) => own.or(other),
            };
        }
        self
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dimension::Tools => "tools",
            Dimension::Read => "read paths",
            Dimension::Write => "write paths",
            Dimension::Endpoints => "endpoints",
            Dimension::Secrets => "secrets",
            Dimension::Phases => "phases",
            Dimension::Kinds => "kinds of work",
            Dimension::Walls => "walls",
        })
    }
}

/// The lists of a block, of either sort. `None`: the block does not speak of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lists<'a> {
    pub(crate) tools: Option<&'a BTreeSet<ToolPattern>>,
    pub(crate) read: Option<&'a BTreeSet<Subtree>>,
    pub(crate) write: Option<&'a BTreeSet<Subtree>>,
    pub(crate) endpoints: Option<&'a BTreeSet<Endpoint>>,
    pub(crate) secrets: Option<&'a BTreeSet<Name>>,
    pub(crate) phases: Option<&'a BTreeSet<Name>>,
    pub(crate) kinds: Option<&'a BTreeSet<Name>>,
    pub(crate) walls: Option<&'a BTreeSet<Name>>,
}

impl Lists<'_> {
    /// The list that does not hold what is asked for.
    pub(crate) fn refuse(&self, ask: &Ask) -> Option<Dimension> {
        fn without<T>(list: Option<&BTreeSet<T>>, fits: impl Fn(&T) -> bool) -> bool {
            list.is_some_and(|list| !list.iter().any(fits))
        }
        let named = |list, name: &str| without(list, |own: &Name| own.as_str() == name);
        let refused = |refused: bool, by| refused.then_some(by);
        match ask {
            Ask::Identity => None,
            Ask::Tool { name } => {
                refused(without(self.tools, |own| own.matches(name)), Dimension::Tools)
            }
            Ask::Read { path } => {
                refused(without(self.read, |own| own.holds(path)), Dimension::Read)
            }
            Ask::Write { path } => {
                refused(without(self.write, |own| own.holds(path)), Dimension::Write)
            }
            Ask::Connect { host, port, method } => refused(
                without(self.endpoints, |own| own.matches(host, *port, method.as_deref())),
                Dimension::Endpoints,
            ),
            Ask::Secret { name } => refused(named(self.secrets, name), Dimension::Secrets),
            Ask::Phase { name } => refused(named(self.phases, name), Dimension::Phases),
            Ask::Place { kind, wall } => refused(named(self.kinds, kind), Dimension::Kinds)
                .or_else(|| refused(named(self.walls, wall), Dimension::Walls)),
        }
    }

    pub(crate) fn longest(&self) -> usize {
        fn length<T>(list: Option<&BTreeSet<T>>) -> usize {
            list.map_or(0, BTreeSet::len)
        }
        [
            length(self.tools),
            length(self.read),
            length(self.write),
            length(self.endpoints),
            length(self.secrets),
            length(self.phases),
            length(self.kinds),
            length(self.walls),
        ]
        .into_iter()
        .max()
        .unwrap_or_default()
    }
}

impl Rights {
    pub(crate) fn lists(&self) -> Lists<'_> {
        Lists {
            tools: Some(&self.tools),
            read: Some(&self.read),
            write: Some(&self.write),
            endpoints: Some(&self.endpoints),
            secrets: Some(&self.secrets),
            phases: Some(&self.phases),
            kinds: Some(&self.kinds),
            walls: Some(&self.walls),
        }
    }
}

impl Narrowing {
    pub(crate) fn lists(&self) -> Lists<'_> {
        Lists {
            tools: self.tools.as_ref(),
            read: self.read.as_ref(),
            write: self.write.as_ref(),
            endpoints: self.endpoints.as_ref(),
            secrets: self.secrets.as_ref(),
            phases: self.phases.as_ref(),
            kinds: self.kinds.as_ref(),
            walls: self.walls.as_ref(),
        }
    }
}
