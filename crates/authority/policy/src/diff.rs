//! `policy diff`: does an edit allow anything that was denied before. Many requests drawn from both
//! policies, with what stands beside their borders, are put to both.

use std::collections::BTreeSet;

use ringwall_spec::{Allow, Host, Range};
use serde::Serialize;

use crate::decide::{Action, Stage, Task};
use crate::layer::{Layer, RuleRef};
use crate::limits::first_above;
use crate::lower::Act;
use crate::placements;
use crate::samples::Samples;
use crate::stack::Stack;
use crate::values::Grant;
use crate::words::Kind;

/// How it was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Actions with the same rules are the same; for the others, every request of a list was put to
    /// both policies. No proof for requests outside the list.
    Enumeration,
    /// A solver showed that no rule newly allows any request. Placements are no matter of rules alone: they
    /// are compared for the tasks of a list, on all hosts.
    Proof,
}

/// Something that only the new policy allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Widening {
    pub task: Task,
    pub action: Option<Action>,
    /// In people's words.
    pub what: String,
    pub rules: Vec<RuleRef>,
}

/// What an edit changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub method: Method,
    /// How many requests were put to both.
    pub requests: usize,
    /// For how many jobs it was compared where they run.
    pub placements: usize,
    /// One example for each action that is newly allowed somewhere.
    pub widened: Vec<Widening>,
    /// How many of the requests are newly denied.
    pub narrowed: usize,
    /// The list was cut; what was left out was not compared.
    pub cut: bool,
}

const MOST_REQUESTS: usize = 400_000;
/// Examples of what is newly allowed.
pub(crate) const MOST_SHOWN: usize = 64;

/// Compares two policies.
pub fn compare(old: &Stack, new: &Stack) -> Difference {
    let samples = Samples::of(old, new);
    let mut difference = Difference {
        method: Method::Enumeration,
        requests: 0,
        placements: 0,
        widened: beyond_cedar(old, new),
        narrowed: 0,
        cut: samples.cut,
    };
    for tool in
        samples.tools.iter().filter(|tool| old.wants_strict(tool) && !new.wants_strict(tool))
    {
        difference
            .widened
            .push(plain(format!("the tool {tool} need not be called in its strict mode")));
    }
    placements::compare_all(old, new, &samples, &mut difference);
    let mut shown = BTreeSet::new();
    let same: Vec<Act> = Act::ALL.into_iter().filter(|act| same_rules(old, new, *act)).collect();
    for action in samples.actions(old, new) {
        if same.contains(&action.act()) {
            continue;
        }
        for task in samples.tasks(&action) {
            if difference.requests >= MOST_REQUESTS {
                difference.cut = true;
                return difference;
            }
            difference.requests += 1;
            let before = old.decide_only(&task, &action);
            let after = new.decide_only(&task, &action);
            if before.allowed && !after.allowed {
                difference.narrowed += 1;
            } else if !before.allowed && after.allowed {
                let by = after.rules.iter().map(|rule| rule.rule.clone()).collect::<Vec<_>>();
                if shown.insert((action.act(), by)) && difference.widened.len() < MOST_SHOWN {
                    difference.widened.push(Widening {
                        what: format!("{}: {}", show(&action), after.why),
                        task,
                        action: Some(action.clone()),
                        rules: after.rules,
                    });
                }
            }
        }
    }
    difference
}

/// Whether both decide this action by the same rules, wherever these stand: then no request about
/// it can be answered differently.
pub(crate) fn same_rules(old: &Stack, new: &Stack, act: Act) -> bool {
    let rules = |layer: &Layer| {
        let rules = layer.rules(act).into_iter();
        rules.map(|(_, rule)| (rule.permits, rule.when, rule.unless)).collect::<Vec<_>>()
    };
    let same = |one: &Layer, other: &Layer| {
        rules(one) == rules(other)
            && named_by(one) == named_by(other)
            && one.guard_rail_texts() == other.guard_rail_texts()
    };
    let (old, new) = (old.layers(), new.layers());
    old.len() == new.len() && old.iter().zip(new).all(|(one, other)| same(one, other))
}

/// What a layer says about who asks and for what, before any rule: it shapes the question.
pub(crate) fn named_by(layer: &Layer) -> impl PartialEq + use<> {
    let file = &layer.file;
    (
        file.tool.iter().map(|tool| tool.value.clone()).collect::<Vec<_>>(),
        file.risk.as_ref().map(|risk| risk.value),
        file.trust.as_ref().map(|trust| trust.value),
        file.phase.as_ref().map(|phase| phase.value.clone()),
    )
}

/// Something that no request shows.
fn plain(what: String) -> Widening {
    Widening { task: Task::default(), action: None, what, rules: Vec::new() }
}

/// What is not a request: limits, what taints a task, and who may approve for how long.
fn beyond_cedar(old: &Stack, new: &Stack) -> Vec<Widening> {
    let mut found = Vec::new();
    if let Some(limit) = first_above(&new.limits(), &old.limits()) {
        found.push(plain(format!("limits.{limit} is higher")));
    }
    if old.forbids_pull().is_some() && new.forbids_pull().is_none() {
        found.push(plain("missing images are pulled".to_owned()));
    }
    if !old.allows_own_filters() && new.allows_own_filters() {
        found.push(plain("jobs in guests may have filters of their own".to_owned()));
    }
    let kind =
        |stack: &Stack, command: &str| stack.kind_of_command(command).unwrap_or(Kind::Untrusted);
    let commands: BTreeSet<String> = old.known_commands().chain(new.known_commands()).collect();
    for command in commands {
        let (before, after) = (kind(old, &command), kind(new, &command));
        if after < before {
            found.push(plain(format!(
                "the command {command} is {after} work and no longer {before}"
            )));
        }
    }
    found.extend(newly_served(old, new));
    for source in old.taint_sources().filter(|source| !new.taint_sources().any(|s| s == *source)) {
        found.push(plain(format!("{} no longer taints a task", String::from(source.clone()))));
    }
    for name in new.elevation_names() {
        let (Some(after), Some(before)) = (new.elevation(&name), old.elevation(&name)) else {
            continue;
        };
        let known = |key: &String| before.approvers.iter().any(|(_, old)| old == key);
        if let Some((who, _)) = after.approvers.iter().find(|(_, key)| !known(key)) {
            found.push(plain(format!("{who} may newly approve the elevation {name}")));
        }
        if after.max > before.max {
            found.push(plain(format!("the elevation {name} lasts longer")));
        }
        if before.single_use && !after.single_use {
            found.push(plain(format!("the elevation {name} serves more than one request")));
        }
        if before.reason && !after.reason {
            found.push(plain(format!("the elevation {name} can be had without a reason")));
        }
    }
    found
}

/// Addresses and branches that no rule of the same layer gave before. No request shows them.
fn newly_served(old: &Stack, new: &Stack) -> Vec<Widening> {
    let mut found = Vec::new();
    for (index, layer) in new.layers().iter().enumerate() {
        let before = || old.layers().get(index).into_iter().flat_map(allow_rules);
        for rule in allow_rules(layer).filter(|rule| is_served_apart(rule)) {
            let covers = |one: &&Allow| {
                let within = |range: &Range| one.addresses.iter().any(|own| own.covers(range));
                let git = match (&one.git, &rule.git) {
                    (Some(own), Some(other)) => own.covers(other),
                    (own, _) => own.is_none(),
                };
                one.host.covers(&rule.host)
                    && (one.scheme(), one.port()) == (rule.scheme(), rule.port())
                    && rule.addresses.iter().all(within)
                    && git
            };
            if !before().any(|one| covers(&one)) {
                let what = "may be reached at private addresses, or pushed to, as not before";
                found.push(plain(format!("{}:{} {what}", rule.host, rule.port())));
            }
        }
    }
    found
}

fn allow_rules(layer: &Layer) -> impl Iterator<Item = &Allow> {
    let network = layer.file.network.iter();
    network.flat_map(|network| &network.value.allow).map(|allow| &allow.value)
}

/// Whether a rule says how requests are served, which Cedar does not see.
fn is_served_apart(rule: &Allow) -> bool {
    let pushes = rule.git.as_ref().is_some_and(|git| !git.push.is_empty() || !git.tags.is_empty());
    pushes || !rule.addresses.is_empty()
}

/// Whether Cedar sees all that these policies say of the network, or both say the same.
pub(crate) fn is_network_in_cedar(old: &Layer, new: &Layer) -> bool {
    let apart = |layer: &Layer| allow_rules(layer).any(is_served_apart);
    let said = |layer: &Layer| {
        let file = &layer.file;
        let network = file.network.as_ref().map(|network| &network.value);
        let trust_levels = file.trust_levels.iter().flat_map(|trust_levels| &trust_levels.value);
        let hosts = file.elevation.iter().flat_map(|elevation| {
            let name = &elevation.value.name;
            let hosts = elevation.value.grants.iter();
            hosts.filter(|grant| matches!(grant, Grant::Connect(_))).map(move |it| (name, it))
        });
        (
            allow_rules(layer).cloned().collect::<Vec<_>>(),
            network.and_then(|network| network.presets.as_ref()).map(|it| it.value.clone()),
            trust_levels.map(|(trust, row)| (*trust, row.value.network.value)).collect::<Vec<_>>(),
            hosts.map(|(name, host)| (name.clone(), host.clone())).collect::<Vec<_>>(),
        )
    };
    !(apart(old) || apart(new)) || said(old) == said(new)
}

/// An action in the words in which it can be asked.
pub(crate) fn show(action: &Action) -> String {
    match action {
        Action::Run { work, wall, fresh } => {
            let what = work.tool.as_ref().map_or_else(
                || work.kind.clone().unwrap_or_default(),
                |tool| format!("tool:{tool}"),
            );
            let where_to = if *fresh { "" } else { " in a sandbox that is in use" };
            format!("run {what} {wall}{where_to}")
        }
        Action::Call { tool, read_only, .. } => {
            format!("call {tool}{}", if *read_only { " read-only" } else { "" })
        }
        Action::Read(path) => format!("read {}", path.path),
        Action::Write(path) => format!("write {}", path.path),
        Action::Connect { scheme, host, port, stage } => {
            let at = Host::parse_bare(host).map_or_else(|_| host.clone(), |host| host.to_string());
            let endpoint = format!("{}://{at}:{port}", scheme.name());
            match stage {
                Stage::Dial => format!("connect {endpoint}"),
                Stage::Tunnel => format!("tunnel {endpoint}"),
                Stage::Request { method, path } => format!("connect {method} {endpoint}{path}"),
            }
        }
        Action::UseSecret { name, host, port } => format!("secret {name} {host}:{port}"),
        Action::ChangePhase(name) => format!("phase {name}"),
        Action::Apply => "apply".to_owned(),
        Action::Elevate(name) => format!("elevate {name}"),
    }
}
