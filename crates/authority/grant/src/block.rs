//! Blocks of a token: typed values on one side, generated statements and checks on the other.
//!
//! A block is read only if it is, to the letter, what we would write for the value that was read from
//! it. So nobody's logic but ours is ever evaluated, and what is shown of a token is what it says.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::str::FromStr;

use biscuit_auth::BlockBuilder;
use biscuit_auth::builder::Check;
use ringwall_spec::{Host, HostPattern};

use crate::fact::{Fact, Term};
use crate::names::{Endpoint, Hosts, Name, Subtree, ToolPattern};
use crate::request::ActionHash;
use crate::rights::{Budget, Lists, Narrowing, Rights};

/// Of these statements. Another form gets another number.
const VERSION: i64 = 1;

/// The first block: what a fresh grant allows, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) rights: Rights,
    pub(crate) expires: u64,
}

/// What an approver signs: the one action may be done until then, whatever the first block says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elevation {
    /// The approval that it comes from.
    pub approval: Name,
    /// The name that policy has for it.
    pub name: Name,
    pub action: ActionHash,
    /// Seconds since 1970.
    pub until: u64,
    pub once: bool,
}

const AUTHORITY_CHECK: &str = "check if now($t), expires($e), $t < $e";

/// One for each list that a narrowing can have. They look at the statements of their own block only,
/// which no other block can add to.
const CHECKS: [(&str, &str); 9] = [
    (
        "tool",
        "check if want($a), $a != \"tool\" or want_tool($t), only_tool(\"exact\", $t) or want_tool($t), only_tool(\"prefix\", $p), $t.starts_with($p)",
    ),
    (
        "read",
        "check if want($a), $a != \"read\" or want_path($p), only_read($p, $q) or want_path($p), only_read($r, $q), $p.starts_with($q)",
    ),
    (
        "write",
        "check if want($a), $a != \"write\" or want_path($p), only_write($p, $q) or want_path($p), only_write($r, $q), $p.starts_with($q)",
    ),
    (
        "endpoint",
        "check if want($a), $a != \"connect\" or want_endpoint($h, $p, $m), only_endpoint(\"exact\", $h, $q, $n), $q == 0 || $q == $p, $n == \"any\" || $n.contains($m) or want_endpoint($h, $p, $m), only_endpoint(\"below\", $s, $q, $n), $h.ends_with($s), $q == 0 || $q == $p, $n == \"any\" || $n.contains($m) or want_endpoint($h, $p, $m), only_endpoint(\"all\", $s, $q, $n), $q == 0 || $q == $p, $n == \"any\" || $n.contains($m)",
    ),
    ("secret", "check if want($a), $a != \"secret\" or want_name($n), only_secret($n)"),
    ("phase", "check if want($a), $a != \"phase\" or want_name($n), only_phase($n)"),
    ("kind", "check if want($a), $a != \"place\" or want_place($k, $w), only_kind($k)"),
    ("wall", "check if want($a), $a != \"place\" or want_place($k, $w), only_wall($w)"),
    ("expires", "check if now($t), only_expires($e), $t < $e"),
];

/// A block as it is printed.
struct Source {
    facts: Vec<Fact>,
    checks: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not of the form that Ringwall writes")]
pub(crate) struct Foreign;

impl Authority {
    pub(crate) fn build(&self) -> Result<BlockBuilder, biscuit_auth::error::Token> {
        self.source().build()
    }

    pub(crate) fn read(printed: &str) -> Result<Authority, Foreign> {
        let mut lists = Read::default();
        let (mut task, mut tenant, mut expires) = (None, None, None);
        for fact in facts(printed) {
            let fact = fact?;
            match (fact.name.as_str(), fact.terms.as_slice()) {
                ("grant", [Term::Number(VERSION)]) => {}
                ("task", [Term::Text(text)]) => task = Some(word(text)?),
                ("tenant", [Term::Text(text)]) => tenant = Some(word(text)?),
                ("expires", [Term::Number(at)]) => expires = Some(whole(*at)?),
                (name, terms) => lists.take(name, terms)?,
            }
        }
        let rights = Rights {
            task: task.ok_or(Foreign)?,
            tenant: tenant.ok_or(Foreign)?,
            holder: lists.holder.ok_or(Foreign)?,
            tools: lists.tools,
            read: lists.read,
            write: lists.write,
            endpoints: lists.endpoints,
            secrets: lists.secrets,
            phases: lists.phases,
            kinds: lists.kinds,
            walls: lists.walls,
            budget: lists.budget,
        };
        let authority = Authority { rights, expires: expires.ok_or(Foreign)? };
        authority.source().is(printed).then_some(authority).ok_or(Foreign)
    }

    fn source(&self) -> Source {
        let rights = &self.rights;
        let mut facts = vec![
            Fact::new("grant", [Term::Number(VERSION)]),
            Fact::new("task", [text(&rights.task)]),
            Fact::new("tenant", [text(&rights.tenant)]),
            Fact::new("holder", [text(&rights.holder)]),
        ];
        push_lists(&mut facts, "", &rights.lists());
        push_budget(&mut facts, "", rights.budget);
        facts.push(Fact::new("expires", [number(self.expires)]));
        Source { facts, checks: vec![AUTHORITY_CHECK] }
    }
}

impl Narrowing {
    pub(crate) fn build(&self) -> Result<BlockBuilder, biscuit_auth::error::Token> {
        self.source().build()
    }

    pub(crate) fn read(printed: &str) -> Result<Narrowing, Foreign> {
        let mut lists = Read::default();
        let mut expires = None;
        for fact in facts(printed) {
            let fact = fact?;
            match (fact.name.as_str(), fact.terms.as_slice()) {
                ("narrowed", [Term::Number(VERSION)]) => {}
                ("only_expires", [Term::Number(at)]) => expires = Some(whole(*at)?),
                ("holder", terms) => lists.take("holder", terms)?,
                (name, terms) => lists.take(name.strip_prefix("only_").ok_or(Foreign)?, terms)?,
            }
        }
        // A list is there if its check is: it may be empty.
        let checked = |name: &str| {
            let check = CHECKS.iter().find(|(of, _)| *of == name).map_or("", |(_, check)| *check);
            printed.lines().any(|line| line.strip_suffix(';') == Some(check))
        };
        let narrowing = Narrowing {
            tools: checked("tool").then_some(lists.tools),
            read: checked("read").then_some(lists.read),
            write: checked("write").then_some(lists.write),
            endpoints: checked("endpoint").then_some(lists.endpoints),
            secrets: checked("secret").then_some(lists.secrets),
            phases: checked("phase").then_some(lists.phases),
            kinds: checked("kind").then_some(lists.kinds),
            walls: checked("wall").then_some(lists.walls),
            holder: lists.holder,
            budget: lists.budget,
            expires,
        };
        narrowing.source().is(printed).then_some(narrowing).ok_or(Foreign)
    }

    fn source(&self) -> Source {
        let lists = self.lists();
        let mut facts = vec![Fact::new("narrowed", [Term::Number(VERSION)])];
        facts.extend(self.holder.iter().map(|holder| Fact::new("holder", [text(holder)])));
        push_lists(&mut facts, "only_", &lists);
        push_budget(&mut facts, "only_", self.budget);
        facts.extend(self.expires.map(|at| Fact::new("only_expires", [number(at)])));
        let there = [
            lists.tools.is_some(),
            lists.read.is_some(),
            lists.write.is_some(),
            lists.endpoints.is_some(),
            lists.secrets.is_some(),
            lists.phases.is_some(),
            lists.kinds.is_some(),
            lists.walls.is_some(),
            self.expires.is_some(),
        ];
        let checks =
            CHECKS.iter().zip(there).filter(|(_, there)| *there).map(|((_, check), _)| *check);
        Source { facts, checks: checks.collect() }
    }
}

impl Elevation {
    pub(crate) fn build(&self) -> Result<BlockBuilder, biscuit_auth::error::Token> {
        self.source().build()
    }

    pub(crate) fn read(printed: &str) -> Result<Elevation, Foreign> {
        let fact = facts(printed).next().ok_or(Foreign)??;
        let [
            Term::Text(approval),
            Term::Text(name),
            Term::Bytes(action),
            Term::Number(until),
            Term::Flag(once),
        ] = fact.terms.as_slice()
        else {
            return Err(Foreign);
        };
        let elevation = Elevation {
            approval: word(approval)?,
            name: word(name)?,
            action: ActionHash(action.as_slice().try_into().map_err(|_| Foreign)?),
            until: whole(*until)?,
            once: *once,
        };
        elevation.source().is(printed).then_some(elevation).ok_or(Foreign)
    }

    fn source(&self) -> Source {
        let terms = [
            text(&self.approval),
            text(&self.name),
            Term::Bytes(self.action.0.to_vec()),
            number(self.until),
            Term::Flag(self.once),
        ];
        Source { facts: vec![Fact::new("elevate", terms)], checks: Vec::new() }
    }
}

impl Source {
    fn build(&self) -> Result<BlockBuilder, biscuit_auth::error::Token> {
        let mut block = BlockBuilder::new();
        block.facts = self.facts.iter().map(Fact::to_builder).collect();
        block.checks =
            self.checks.iter().map(|check| Check::from_str(check)).collect::<Result<_, _>>()?;
        Ok(block)
    }

    fn is(&self, printed: &str) -> bool {
        let mut own = String::with_capacity(printed.len());
        for fact in &self.facts {
            // Writing to a string does not fail.
            let _ = writeln!(own, "{fact};");
        }
        for check in &self.checks {
            let _ = writeln!(own, "{check};");
        }
        own == printed
    }
}

/// The statements of a printed block. They come before the checks.
fn facts(printed: &str) -> impl Iterator<Item = Result<Fact, Foreign>> {
    printed
        .lines()
        .take_while(|line| !line.starts_with("check "))
        .map(|line| line.strip_suffix(';').and_then(Fact::read).ok_or(Foreign))
}

/// The lists as they are read.
#[derive(Default)]
struct Read {
    holder: Option<Name>,
    tools: BTreeSet<ToolPattern>,
    read: BTreeSet<Subtree>,
    write: BTreeSet<Subtree>,
    endpoints: BTreeSet<Endpoint>,
    secrets: BTreeSet<Name>,
    phases: BTreeSet<Name>,
    kinds: BTreeSet<Name>,
    walls: BTreeSet<Name>,
    budget: Budget,
}

impl Read {
    fn take(&mut self, name: &str, terms: &[Term]) -> Result<(), Foreign> {
        let fresh = match (name, terms) {
            ("holder", [Term::Text(text)]) => self.holder.replace(word(text)?).is_none(),
            ("tool", [Term::Text(how), Term::Text(text)]) => {
                self.tools.insert(match how.as_str() {
                    "exact" => ToolPattern::Exact(text.clone()),
                    _ => ToolPattern::Prefix(text.clone()),
                })
            }
            ("read", [Term::Text(path), _]) => self.read.insert(word(path)?),
            ("write", [Term::Text(path), _]) => self.write.insert(word(path)?),
            ("endpoint", terms) => self.endpoints.insert(endpoint(terms)?),
            ("secret", [Term::Text(text)]) => self.secrets.insert(word(text)?),
            ("phase", [Term::Text(text)]) => self.phases.insert(word(text)?),
            ("kind", [Term::Text(text)]) => self.kinds.insert(word(text)?),
            ("wall", [Term::Text(text)]) => self.walls.insert(word(text)?),
            ("budget", [Term::Text(what), Term::Number(most)]) => {
                self.budget.set(what, whole(*most)?)
            }
            _ => false,
        };
        fresh.then_some(()).ok_or(Foreign)
    }
}

fn push_lists(facts: &mut Vec<Fact>, prefix: &str, lists: &Lists<'_>) {
    let mut push =
        |name: &str, terms: Vec<Term>| facts.push(Fact::new(format!("{prefix}{name}"), terms));
    for tool in lists.tools.into_iter().flatten() {
        let (how, stem) = match tool {
            ToolPattern::Exact(name) => ("exact", name),
            ToolPattern::Prefix(stem) => ("prefix", stem),
        };
        push("tool", vec![Term::Text(how.to_owned()), Term::Text(stem.clone())]);
    }
    for (name, paths) in [("read", lists.read), ("write", lists.write)] {
        for path in paths.into_iter().flatten() {
            push(name, vec![Term::Text(path.as_str().to_owned()), Term::Text(path.inside())]);
        }
    }
    for endpoint in lists.endpoints.into_iter().flatten() {
        let (how, host) = match &endpoint.host {
            Hosts::Of(HostPattern::Exact(host)) => ("exact", host.bare()),
            // What is asked for says its parent in the same form (`verify/logic`).
            Hosts::Of(HostPattern::OneLabel(domain)) => ("exact", format!("*.{domain}")),
            Hosts::Of(HostPattern::AnyDepth(domain)) => ("below", format!(".{domain}")),
            Hosts::Any => ("all", "*".to_owned()),
        };
        push(
            "endpoint",
            vec![
                Term::Text(how.to_owned()),
                Term::Text(host),
                Term::Number(i64::from(endpoint.port.unwrap_or(0))),
                Term::Text(methods(&endpoint.methods)),
            ],
        );
    }
    let named = [
        ("secret", lists.secrets),
        ("phase", lists.phases),
        ("kind", lists.kinds),
        ("wall", lists.walls),
    ];
    for (name, list) in named {
        for entry in list.into_iter().flatten() {
            push(name, vec![text(entry)]);
        }
    }
}

/// Each method between commas, so that one is never found in another.
fn methods(methods: &[String]) -> String {
    if methods.is_empty() { "any".to_owned() } else { format!(",{},", methods.join(",")) }
}

fn endpoint(terms: &[Term]) -> Result<Endpoint, Foreign> {
    let [Term::Text(how), Term::Text(host), Term::Number(port), Term::Text(methods)] = terms else {
        return Err(Foreign);
    };
    let host = match how.as_str() {
        "exact" if host.starts_with("*.") => HostPattern::parse(host).map(Hosts::Of),
        "exact" => Ok(Hosts::Of(HostPattern::Exact(Host::parse_bare(host).map_err(|_| Foreign)?))),
        "below" => HostPattern::parse(&format!("**{host}")).map(Hosts::Of),
        _ => Ok(Hosts::Any),
    };
    let port = u16::try_from(*port).map_err(|_| Foreign)?;
    let methods = methods.split(',').filter(|method| !method.is_empty() && *method != "any");
    Endpoint::new(
        host.map_err(|_| Foreign)?,
        (port != 0).then_some(port),
        methods.map(str::to_owned),
    )
    .map_err(|_| Foreign)
}

fn push_budget(facts: &mut Vec<Fact>, prefix: &str, budget: Budget) {
    for (name, most) in budget.parts() {
        let terms = [Term::Text(name.to_owned()), number(most)];
        facts.push(Fact::new(format!("{prefix}budget"), terms));
    }
}

fn text(name: &Name) -> Term {
    Term::Text(name.as_str().to_owned())
}

/// No budget and no time is so large that it matters.
fn number(value: u64) -> Term {
    Term::Number(i64::try_from(value).unwrap_or(i64::MAX))
}

fn whole(value: i64) -> Result<u64, Foreign> {
    u64::try_from(value).map_err(|_| Foreign)
}

fn word<T: FromStr>(text: &str) -> Result<T, Foreign> {
    text.parse().map_err(|_| Foreign)
}
