//! `policy diff`: does an edit allow anything that was denied before. Many requests drawn from both
//! policies, with what stands beside their borders, are put to both.

use std::collections::BTreeSet;

use ringwall_spec::Wall;
use serde::Serialize;

use crate::decide::{Action, Stage, Task, Work};
use crate::file::PolicyFile;
use crate::layer::{Layer, RuleRef};
use crate::limits::first_above;
use crate::lower::Act;
use crate::pattern::{Anchors, FilePath, PathPattern};
use crate::presets::rules_of;
use crate::stack::Stack;
use crate::strength::known_walls;
use crate::values::Grant;
use crate::words::{Kind, Profile, Tier};

/// How it was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Actions with the same rules are the same; for the others, every request of a list was put to
    /// both policies. No proof for requests outside the list.
    Enumeration,
    /// A solver showed that no request whatever is newly allowed.
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
    /// One example for each action that is newly allowed somewhere.
    pub widened: Vec<Widening>,
    /// How many of the requests are newly denied.
    pub narrowed: usize,
    /// The list was cut; what was left out was not compared.
    pub cut: bool,
}

const MOST_REQUESTS: usize = 400_000;
/// Of each kind of value; a policy of thousands of rules is compared by a part of them.
const MOST_SAMPLES: usize = 400;

/// Compares two policies.
pub fn compare(old: &Stack, new: &Stack) -> Difference {
    let samples = Samples::of(old, new);
    let mut difference = Difference {
        method: Method::Enumeration,
        requests: 0,
        widened: beyond_cedar(old, new),
        narrowed: 0,
        cut: samples.cut,
    };
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
                if shown.insert((action.act(), by)) && difference.widened.len() < 64 {
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
        file.profile.as_ref().map(|profile| profile.value),
        file.tier.as_ref().map(|tier| tier.value),
        file.phase.as_ref().map(|phase| phase.value.clone()),
    )
}

/// What is not a request: limits, what taints a task, and who may approve for how long.
fn beyond_cedar(old: &Stack, new: &Stack) -> Vec<Widening> {
    let plain =
        |what: String| Widening { task: Task::default(), action: None, what, rules: Vec::new() };
    let mut found = Vec::new();
    if let Some(limit) = first_above(&new.limits(), &old.limits()) {
        found.push(plain(format!("limits.{limit} is higher")));
    }
    if old.forbids_pull().is_some() && new.forbids_pull().is_none() {
        found.push(plain("missing images are pulled".to_owned()));
    }
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

/// Values that matter to one of the policies, and what stands beside them.
#[derive(Default)]
struct Samples {
    paths: BTreeSet<String>,
    hosts: BTreeSet<String>,
    ports: BTreeSet<u16>,
    methods: BTreeSet<String>,
    url_paths: BTreeSet<String>,
    tools: BTreeSet<String>,
    secrets: BTreeSet<String>,
    phases: BTreeSet<String>,
    elevations: BTreeSet<String>,
    /// Nothing stands for what a policy says of a task that names none. Where both policies say the
    /// same, that is one of the others.
    tiers: Vec<Option<Tier>>,
    profiles: Vec<Option<Profile>>,
    cut: bool,
}

impl Samples {
    fn of(old: &Stack, new: &Stack) -> Samples {
        let texts = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let mut samples = Samples {
            paths: texts(&[
                "/",
                "/etc/passwd",
                "/tmp/x",
                "~/x",
                "~/.ssh/id",
                "./x",
                "./.git/config",
            ]),
            hosts: texts(&["unlisted.example", "169.254.169.254"]),
            ports: BTreeSet::from([22, 80, 443]),
            methods: texts(&["GET", "POST", "DELETE"]),
            url_paths: texts(&["/", "/x"]),
            tools: texts(&["unlisted-tool"]),
            tiers: Tier::ALL.iter().copied().map(Some).collect(),
            profiles: Profile::ALL.iter().copied().map(Some).collect(),
            ..Samples::default()
        };
        let own = |stack: &Stack| stack.subjects(&Task::default());
        if own(old) != own(new) {
            samples.tiers.push(None);
            samples.profiles.push(None);
        }
        for layer in old.layers().iter().chain(new.layers()) {
            samples.add(&layer.file);
        }
        for values in [
            &mut samples.paths,
            &mut samples.hosts,
            &mut samples.methods,
            &mut samples.url_paths,
            &mut samples.tools,
        ] {
            while values.len() > MOST_SAMPLES {
                values.pop_last();
                samples.cut = true;
            }
        }
        samples
    }

    fn add(&mut self, file: &PolicyFile) {
        for tier in file.tiers.iter().flat_map(|tiers| tiers.value.values()) {
            self.add_paths(&tier.value.read);
            self.add_paths(&tier.value.write);
        }
        for (name, phase) in file.phases.iter().flat_map(|phases| &phases.value) {
            self.phases.insert(name.to_string());
            self.add_paths(&phase.value.write);
            self.add_paths(&phase.value.deny);
        }
        for tool in file.tool.iter().flat_map(|tool| &tool.value.names) {
            self.tools.extend([tool.as_str().replace('*', ""), tool.as_str().replace('*', "x")]);
        }
        for secret in file.secrets.iter().flat_map(|secrets| &secrets.value) {
            self.secrets.insert(secret.value.to_string());
        }
        for elevation in &file.elevation {
            self.elevations.insert(elevation.value.name.to_string());
            for grant in &elevation.value.grants {
                match grant {
                    Grant::Read(path) | Grant::Write(path) => {
                        self.add_paths(std::slice::from_ref(path));
                    }
                    Grant::Connect(host) => self.add_host(host.as_str()),
                    Grant::Call(tool) => drop(self.tools.insert(tool.as_str().replace('*', "x"))),
                    _ => {}
                }
            }
        }
        let Some(network) = &file.network else { return };
        for preset in network.value.presets.iter().flat_map(|presets| &presets.value) {
            for host in rules_of(*preset).iter().flat_map(|rules| rules.hosts) {
                self.hosts.insert((*host).to_owned());
            }
        }
        for allow in network.value.allow.iter().map(|allow| &allow.value) {
            self.add_host(allow.host.as_str());
            self.ports.insert(allow.port);
            self.methods.extend(allow.methods.iter().map(ToString::to_string));
            self.url_paths.extend(allow.paths.iter().flat_map(|p| beside(p.as_str())));
        }
        for deny in network.value.deny.iter().map(|deny| &deny.value) {
            self.add_host(deny.host.as_str());
            self.ports.extend(deny.port);
            self.methods.extend(deny.methods.iter().map(ToString::to_string));
            self.url_paths.extend(deny.paths.iter().flat_map(|p| beside(p.as_str())));
        }
    }

    fn add_paths(&mut self, patterns: &[PathPattern]) {
        for pattern in patterns {
            let text = pattern.as_str();
            for filled in [
                text.replace("/**", ""),
                text.replace("**", "x").replace('*', "y"),
                text.replace("**", "x/y").replace('*', "z"),
                format!("{}-beside", text.replace("/**", "").replace('*', "x")),
            ] {
                self.paths.insert(if filled.is_empty() { "/".to_owned() } else { filled });
            }
        }
    }

    fn add_host(&mut self, pattern: &str) {
        let bare = pattern.trim_start_matches("*.").trim_start_matches('*');
        if !bare.is_empty() {
            self.hosts.extend([bare.to_owned(), format!("x.{bare}"), format!("x{bare}")]);
        }
    }

    fn actions(&self, old: &Stack, new: &Stack) -> Vec<Action> {
        let anchors = Anchors {
            home: Some("/home/user".into()),
            workspace: Some("/home/user/project".into()),
        };
        let mut actions = Vec::new();
        let walls: Vec<Wall> = known_walls();
        for kind in Kind::ALL {
            let work = Work { tool: None, kind: Some(kind.name().to_owned()) };
            for wall in &walls {
                for fresh in [true, false] {
                    actions.push(Action::Run { work: work.clone(), wall: wall.clone(), fresh });
                }
            }
        }
        for tool in &self.tools {
            // A tool of the same kind goes where that kind goes.
            let work = Work { tool: Some(tool.clone()), kind: None };
            if old.kind_of(&work) != new.kind_of(&work) {
                for wall in &walls {
                    let (work, wall) = (work.clone(), wall.clone());
                    actions.push(Action::Run { work, wall, fresh: true });
                }
            }
            for read_only in [true, false] {
                actions.push(Action::Call { tool: tool.clone(), kind: None, read_only });
            }
        }
        for path in self.paths.iter().filter_map(|path| FilePath::new(path, &anchors).ok()) {
            actions.extend([Action::Read(path.clone()), Action::Write(path)]);
        }
        for host in &self.hosts {
            actions.extend(self.at_host(host));
        }
        actions.extend(self.phases.iter().cloned().map(Action::ChangePhase));
        actions.extend(self.elevations.iter().cloned().map(Action::Elevate));
        actions.push(Action::Apply);
        actions
    }

    fn at_host(&self, host: &str) -> Vec<Action> {
        let mut actions = Vec::new();
        for port in &self.ports {
            let connect = |stage| Action::Connect { host: host.to_owned(), port: *port, stage };
            actions.extend([connect(Stage::Dial), connect(Stage::Tunnel)]);
            for method in &self.methods {
                for path in &self.url_paths {
                    let stage = Stage::Request { method: method.clone(), path: path.clone() };
                    actions.push(connect(stage));
                }
            }
            for name in &self.secrets {
                let (name, host) = (name.clone(), host.to_owned());
                actions.push(Action::UseSecret { name, host, port: *port });
            }
        }
        actions
    }

    /// The tasks for which the answer to `action` could differ.
    fn tasks(&self, action: &Action) -> Vec<Task> {
        let runs = matches!(action, Action::Run { .. });
        let phased = matches!(action, Action::Write(_) | Action::ChangePhase(_));
        let profiles = if runs { self.profiles.clone() } else { vec![None] };
        let phases: Vec<Option<String>> = match phased {
            true => [None].into_iter().chain(self.phases.iter().cloned().map(Some)).collect(),
            false => vec![None],
        };
        let elevated: Vec<BTreeSet<String>> = [BTreeSet::new()]
            .into_iter()
            .chain(self.elevations.iter().map(|name| BTreeSet::from([name.clone()])))
            .collect();
        let mut tasks = Vec::new();
        for tier in &self.tiers {
            for profile in &profiles {
                for phase in &phases {
                    for tainted in [false, true] {
                        for elevated in &elevated {
                            tasks.push(Task {
                                tier: *tier,
                                profile: *profile,
                                phase: phase.clone(),
                                tainted,
                                elevated: elevated.clone(),
                            });
                        }
                    }
                }
            }
        }
        tasks
    }
}

/// A prefix, what is below it and what only looks like it.
fn beside(prefix: &str) -> [String; 3] {
    let bare = prefix.trim_end_matches('/');
    let itself = if bare.is_empty() { "/" } else { bare };
    [itself.to_owned(), format!("{bare}/x"), format!("{bare}-beside")]
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
        Action::Connect { host, port, stage } => match stage {
            Stage::Dial => format!("connect {host}:{port}"),
            Stage::Tunnel => format!("tunnel {host}:{port}"),
            Stage::Request { method, path } => {
                format!("connect {method} https://{host}:{port}{path}")
            }
        },
        Action::UseSecret { name, host, port } => format!("secret {name} {host}:{port}"),
        Action::ChangePhase(name) => format!("phase {name}"),
        Action::Apply => "apply".to_owned(),
        Action::Elevate(name) => format!("elevate {name}"),
    }
}
