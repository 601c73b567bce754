//! Decisions: may this task do this. Every layer must say yes.

use std::collections::{BTreeSet, HashMap, HashSet};

use cedar_policy::{
    Authorizer, Context, Decision as CedarDecision, Entities, Entity, EntityUid, PolicySet,
    Request, RestrictedExpression,
};
use ringwall_rules::target;
use ringwall_spec::{Host, Scheme, Wall};
use serde::{Deserialize, Serialize};

use crate::layer::{ActSet, Layer, RuleRef};
use crate::lower::Act;
use crate::pattern::FilePath;
use crate::stack::Stack;
use crate::strength::Inside;
use crate::words::{Kind, Risk, Trust};

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Where none is named, the policy's. Records of earlier versions say `tier`.
    #[serde(alias = "tier")]
    pub trust: Option<Trust>,
    /// Asks for more than the policy's own risk level; its own counts as well. Records of earlier versions
    /// say `profile`.
    #[serde(alias = "profile")]
    pub risk: Option<Risk>,
    pub phase: Option<String>,
    pub tainted: bool,
    /// Elevations that were approved for this task and have not run out.
    pub elevated: BTreeSet<String>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Run work in this wall.
    Run {
        work: Work,
        wall: Wall,
        fresh: bool,
    },
    /// Call a tool by its name.
    Call {
        tool: String,
        kind: Option<String>,
        read_only: bool,
    },
    Read(FilePath),
    Write(FilePath),
    Connect {
        scheme: Scheme,
        host: String,
        port: u16,
        stage: Stage,
    },
    /// Have the gateway add a secret to a request to this endpoint.
    UseSecret {
        name: String,
        host: String,
        port: u16,
    },
    ChangePhase(String),
    /// Write changes back to the workspace.
    Apply,
    /// Ask for an elevation.
    Elevate(String),
}

/// A job by what is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    pub tool: Option<String>,
    /// As the tool or the caller declares it; a word that nobody knows is `untrusted`.
    pub kind: Option<String>,
}

/// How far a connection is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// May it be opened at all, to be looked into.
    Dial,
    /// May it pass without being looked into.
    Tunnel,
    Request {
        method: String,
        path: String,
    },
}

/// The answer, and the rules that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub allowed: bool,
    /// Those that permit, or those that forbid. None where nothing permits.
    pub rules: Vec<RuleRef>,
    /// In people's words.
    pub why: String,
    /// Elevations that would change the answer.
    pub elevations: Vec<String>,
}

/// One layer's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) rules: Vec<RuleRef>,
    pub(crate) why: String,
}

/// A risk level and a trust level under which every layer must allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    #[serde(alias = "profile")]
    pub risk: Risk,
    #[serde(alias = "tier")]
    pub trust: Trust,
}

impl Action {
    pub fn act(&self) -> Act {
        match self {
            Action::Run { .. } => Act::Run,
            Action::Call { .. } => Act::Call,
            Action::Read(_) => Act::Read,
            Action::Write(_) => Act::Write,
            Action::Connect { .. } => Act::Connect,
            Action::UseSecret { .. } => Act::Secret,
            Action::ChangePhase(_) => Act::Phase,
            Action::Apply => Act::Apply,
            Action::Elevate(_) => Act::Elevate,
        }
    }

    fn host(&self) -> Option<&str> {
        match self {
            Action::Connect { host, .. } | Action::UseSecret { host, .. } => Some(host),
            _ => None,
        }
    }

    /// What the enforcement point must have put into its one form before it asks.
    fn malformed(&self) -> Option<String> {
        let fits = |host: &str| {
            Host::parse_bare(host)
                .is_ok_and(|read| read.bare() == host && ringwall_rules::is_clear(&read))
        };
        if let Some(host) = self.host().filter(|host| !fits(host)) {
            return Some(format!("{host:?} is not a host in its one form"));
        }
        let Action::Connect { stage: Stage::Request { method, path }, .. } = self else {
            return None;
        };
        if !ringwall_rules::is_method(method) {
            return Some(format!("{method:?} is not a method in capital letters"));
        }
        (!path.starts_with('/')).then(|| format!("the path {path:?} does not begin with a slash"))
    }
}

impl Stack {
    /// Whether `task` may do `action`; with what would help if not.
    pub fn decide(&self, task: &Task, action: &Action) -> Decision {
        let mut decision = self.decide_only(task, action);
        if !decision.allowed && action.malformed().is_none() {
            decision.elevations = self.elevations_that_help(task, action);
        }
        decision
    }

    /// The rules that deny a path by what they name: denials of phases, and guard-rails. What no rule permits
    /// is not meant.
    pub fn denials(&self, task: &Task, action: &Action) -> Vec<RuleRef> {
        let phase = self.phase_of(task);
        let mut denials = Vec::new();
        for subject in self.subjects(task) {
            for layer in self.layers() {
                let rules = ask(layer, subject, &phase, task, action).rules;
                denials.extend(rules.into_iter().filter(RuleRef::is_denial_of_paths));
            }
        }
        denials
    }

    pub(crate) fn decide_only(&self, task: &Task, action: &Action) -> Decision {
        let denied = |rules, why| Decision { allowed: false, rules, why, elevations: Vec::new() };
        if let Some(why) = action.malformed() {
            return denied(Vec::new(), why);
        }
        let mut permits = Vec::new();
        for subject in self.subjects(task) {
            for layer in self.layers() {
                let verdict = ask(layer, subject, &self.phase_of(task), task, action);
                if !verdict.allowed {
                    return denied(verdict.rules, verdict.why);
                }
                for rule in verdict.rules {
                    if rule.line.is_some() && !permits.contains(&rule) {
                        permits.push(rule);
                    }
                }
            }
        }
        let why = format!("allowed by {}", names(&permits));
        Decision { allowed: true, rules: permits, why, elevations: Vec::new() }
    }

    /// Whether the first layer, asked alone, lets this task do it.
    pub(crate) fn is_allowed_by_first(&self, task: &Task, action: &Action) -> bool {
        let Some(first) = self.layers().first() else { return false };
        let phase = self.phase_of(task);
        let allows = |subject| ask(first, subject, &phase, task, action).allowed;
        action.malformed().is_none() && self.subjects_of_first(task).into_iter().all(allows)
    }

    fn elevations_that_help(&self, task: &Task, action: &Action) -> Vec<String> {
        let helps = |name: &String| {
            let mut elevated = task.clone();
            elevated.elevated.insert(name.clone()) && self.decide_only(&elevated, action).allowed
        };
        self.elevation_names().into_iter().filter(helps).collect()
    }
}

fn names(rules: &[RuleRef]) -> String {
    let names: Vec<String> = rules.iter().map(RuleRef::to_string).collect();
    names.join(", ")
}

/// Asks one layer. Whatever goes wrong is a no.
pub(crate) fn ask(
    layer: &Layer,
    subject: Subject,
    phase: &str,
    task: &Task,
    action: &Action,
) -> Verdict {
    let no = |why: String| Verdict { allowed: false, rules: Vec::new(), why };
    let asked = layer.set(action.act()).and_then(|set| Ok((set, set.about(action.host())?)));
    match asked {
        Ok((set, policies)) => judge(layer, (set, &policies), (subject, phase, task), action),
        Err(error) => no(error.to_string()),
    }
}

/// Asks these policies of a set.
fn judge(
    layer: &Layer,
    (set, policies): (&ActSet, &PolicySet),
    (subject, phase, task): (Subject, &str, &Task),
    action: &Action,
) -> Verdict {
    let no = |why: String| Verdict { allowed: false, rules: Vec::new(), why };
    let Some((request, entities)) = request(layer, subject, phase, task, action) else {
        return no("the request could not be put to Cedar".to_owned());
    };
    let response = Authorizer::new().is_authorized(&request, policies, &entities);
    let find = |id: &cedar_policy::PolicyId| {
        let id: &str = id.as_ref();
        set.rules.get(id).cloned()
    };
    let diagnostics = response.diagnostics();
    // A policy that fails forbids nothing, in Cedar. Here it forbids everything.
    if let Some(error) = diagnostics.errors().next() {
        return no(format!("a rule could not be evaluated: {error}"));
    }
    let mut rules: Vec<RuleRef> = diagnostics.reason().filter_map(find).collect();
    rules.sort_by(|a, b| (a.line, &a.rule).cmp(&(b.line, &b.rule)));
    if response.decision() == CedarDecision::Allow {
        return Verdict { allowed: true, why: String::new(), rules };
    }
    let why = if rules.is_empty() {
        format!("nothing in {} allows it: {}", layer.path, missing(layer, subject, phase, action))
    } else {
        format!("forbidden by {}", names(&rules))
    };
    Verdict { allowed: false, rules, why }
}

/// Where a rule that allows it would have to stand.
fn missing(layer: &Layer, subject: Subject, phase: &str, action: &Action) -> String {
    let trust = subject.trust;
    match action {
        Action::Run { work, wall, .. } => {
            let kind = layer.kind_of(work.tool.as_deref(), work.kind.as_deref());
            match layer.file.route(kind) {
                Some(route) => {
                    let walls: Vec<String> =
                        route.value.iter().map(|wall| wall.0.to_string()).collect();
                    let line = layer.line(route.offset);
                    format!("routes.{kind} (line {line}) gives {}, not {wall}", walls.join(", "))
                }
                None => format!("routes has no {kind}"),
            }
        }
        Action::Call { tool, .. } => {
            format!("trust-levels.{trust}.tools does not reach {tool:?}; see [[tool]]")
        }
        Action::Read(path) => format!("trust-levels.{trust}.read does not name {}", path.path),
        Action::Write(path) => format!("trust-levels.{trust}.write does not name {}", path.path),
        Action::Connect { host, port, .. } => {
            format!(
                "trust-levels.{trust}.network and [network] do not reach {host}:{port} like this"
            )
        }
        Action::UseSecret { name, host, .. } => {
            format!("no [[network.allow]] binds the secret {name:?} to {host}")
        }
        Action::ChangePhase(to) => format!("phases.{phase}.next does not name {to:?}"),
        Action::Apply => format!("trust-levels.{trust}.apply is not true"),
        Action::Elevate(name) => format!("there is no [[elevation]] {name:?}"),
    }
}

fn request(
    layer: &Layer,
    subject: Subject,
    phase: &str,
    task: &Task,
    action: &Action,
) -> Option<(Request, Entities)> {
    let act = action.act();
    let text = |value: &str| RestrictedExpression::new_string(value.to_owned());
    let truth = RestrictedExpression::new_bool;
    let number = |value: u16| RestrictedExpression::new_long(i64::from(value));
    let principal = [
        ("trust", text(subject.trust.name())),
        ("risk", text(subject.risk.name())),
        ("phase", text(phase)),
        ("tainted", truth(task.tainted)),
    ];
    let elevated = RestrictedExpression::new_set(task.elevated.iter().map(|name| text(name)));
    let mut context = vec![("elevated", elevated)];
    let resource = match action {
        Action::Run { work, wall, fresh } => {
            let is_tool = Inside::of(work) == Inside::Tool;
            context.extend([("wall", text(&wall.to_string())), ("tool", truth(is_tool))]);
            context.push(("fresh", truth(*fresh)));
            let kind = layer.kind_of(work.tool.as_deref(), work.kind.as_deref());
            vec![("kind", text(kind.name()))]
        }
        Action::Call { tool, kind, read_only } => {
            let kind: Kind = layer.kind_of(Some(tool), kind.as_deref());
            vec![("name", text(tool)), ("kind", text(kind.name())), ("readOnly", truth(*read_only))]
        }
        Action::Read(path) | Action::Write(path) => vec![
            ("path", text(&path.path)),
            ("home", text(&path.home)),
            ("workspace", text(&path.workspace)),
        ],
        Action::Connect { scheme, host, port, stage } => {
            let (stage, method, path) = match stage {
                Stage::Dial => ("dial", "", ""),
                Stage::Tunnel => ("tunnel", "", ""),
                Stage::Request { method, path } => ("request", method.as_str(), path.as_str()),
            };
            context.extend([
                ("stage", text(stage)),
                ("method", text(method)),
                ("path", text(path)),
                ("lowerPath", text(&path.to_ascii_lowercase())),
                ("clearPath", truth(target::check_path(path).is_ok())),
            ]);
            let read = Host::parse_bare(host).ok()?;
            vec![
                ("host", text(host)),
                ("parent", text(read.parent().unwrap_or_default())),
                ("address", truth(read.name().is_none())),
                ("port", number(*port)),
                ("scheme", text(scheme.name())),
            ]
        }
        Action::UseSecret { name, host, port } => {
            context.extend([("host", text(host)), ("port", number(*port))]);
            vec![("name", text(name))]
        }
        Action::ChangePhase(name) | Action::Elevate(name) => vec![("name", text(name))],
        Action::Apply => Vec::new(),
    };
    let who = entity_id("Task")?;
    let what = entity_id(act.resource())?;
    let context = Context::from_pairs(context.into_iter().map(|(k, v)| (k.to_owned(), v))).ok()?;
    let entities = [entity(who.clone(), principal)?, entity(what.clone(), resource)?];
    let entities = Entities::from_entities(entities, None).ok()?;
    let action = uid("Action", act.name())?;
    Some((Request::new(who, action, what, context, None).ok()?, entities))
}

fn entity(
    id: EntityUid,
    attributes: impl IntoIterator<Item = (&'static str, RestrictedExpression)>,
) -> Option<Entity> {
    let attributes: HashMap<String, RestrictedExpression> =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Entity::new(id, attributes, HashSet::new()).ok()
}

fn entity_id(kind: &str) -> Option<EntityUid> {
    uid(kind, "this")
}

fn uid(kind: &str, id: &str) -> Option<EntityUid> {
    let name: cedar_policy::EntityTypeName = kind.parse().ok()?;
    Some(EntityUid::from_type_name_and_id(name, cedar_policy::EntityId::new(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{FileFacts, LayerText, OriginKind};
    use proptest::prelude::*;

    const PATTERNS: [&str; 9] = [
        "a.com",
        "*.a.com",
        "**.a.com",
        "b.a.com",
        "*.b.a.com",
        "**.b.a.com",
        "c.b.a.com",
        "aa.com",
        "[2606:4700::1111]",
    ];
    const HOSTS: [&str; 9] = [
        "com",
        "a.com",
        "b.a.com",
        "c.b.a.com",
        "d.c.b.a.com",
        "aa.com",
        "x.aa.com",
        "2606:4700::1111",
        "2606:4700::1112",
    ];
    const RULES: [&str; 6] = [
        "",
        "methods = [\"GET\"]\n",
        "port = 8443\n",
        "paths = [\"/v1/\"]\n",
        "passthrough = true\n",
        "secret = \"key\"\n",
    ];

    fn layer(rules: &[(bool, usize, usize)], base: bool) -> Layer {
        let mut network = String::new();
        for (allow, host, rest) in rules {
            // A denial has fewer words.
            let (list, rest) = if *allow { ("allow", *rest) } else { ("deny", rest % 4) };
            let (host, rest) = (PATTERNS[*host], RULES[rest]);
            let host = if rest.contains("secret") { "b.a.com" } else { host };
            network.push_str(&format!("[[network.{list}]]\nhost = {host:?}\n{rest}"));
        }
        let text = crate::DEFAULT_POLICY
            .replacen("version = 1", "version = 1\nsecrets = [\"key\"]", 1)
            .replacen("presets = [\"none\"]", &network, 1);
        let (origin, path) = (OriginKind::User, "user".to_owned());
        let facts = FileFacts::default();
        Layer::load(LayerText { origin, path, text, guard_rails: None, facts }, base).unwrap()
    }

    proptest! {
        #[test]
        fn policies_of_other_hosts_change_no_answer(
            rules in prop::collection::vec((any::<bool>(), 0..PATTERNS.len(), 0..RULES.len()), 0..12),
            (host, base) in (0..HOSTS.len(), any::<bool>()),
            (trust, stage, port, tainted) in (0..3_usize, 0..4_usize, any::<bool>(), any::<bool>()),
        ) {
            let layer = layer(&rules, base);
            let subject = Subject { risk: Risk::Medium, trust: Trust::ALL[trust] };
            let task = Task { tainted, ..Task::default() };
            let (host, port) = (HOSTS[host].to_owned(), if port { 443 } else { 8443 });
            let request = |method: &str, path: &str| Stage::Request {
                method: method.to_owned(),
                path: path.to_owned(),
            };
            let stages =
                [Stage::Dial, Stage::Tunnel, request("GET", "/v1/x"), request("POST", "/v2")];
            let secret =
                Action::UseSecret { name: "key".to_owned(), host: host.clone(), port };
            let scheme = Scheme::Https;
            let connect = Action::Connect { scheme, host, port, stage: stages[stage].clone() };
            for action in [secret, connect] {
                let set = layer.set(action.act()).unwrap();
                let who = (subject, "", &task);
                let by_all = judge(&layer, (set, &set.policies), who, &action);
                prop_assert_eq!(ask(&layer, subject, "", &task, &action), by_all);
            }
        }
    }
}
