//! One policy file as loaded: where it came from, what it says, and its policies per action.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::OnceLock;

use cedar_policy::{ActionConstraint, EntityUid, Policy, PolicySet};
use ringwall_spec::{HostPattern, Limits};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::file::PolicyFile;
use crate::guard_rails;
use crate::lower::{Act, LowerError, Rule, Source, policy_set};
use crate::parse::{Fault, MOST_BYTES, parse};
use crate::words::Kind;

/// Where a policy file was found. Later ones stand below earlier ones and can only narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginKind {
    /// The policy that Ringwall ships.
    BuiltIn,
    System,
    User,
    /// Named by whoever started the command.
    Named,
    /// Found in the workspace: written by whoever wrote what is in it.
    Workspace,
}

/// A file as its reader found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerText {
    pub origin: OriginKind,
    pub path: String,
    pub text: String,
    /// The `.cedar` file beside it.
    pub guard_rails: Option<GuardRailText>,
    pub facts: FileFacts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRailText {
    pub path: String,
    pub text: String,
}

/// What the reader saw of a file that others could have written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// It belongs to neither the user nor root.
    pub foreign_owner: bool,
    /// Its group or everybody may write to it, or to the directory that it is in.
    pub writable_by_others: bool,
    /// It lies in a directory that the sandbox writes straight to.
    pub writable_by_sandbox: bool,
}

/// Why there is no policy to decide by. Nothing is allowed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("there is no policy, so nothing is allowed; `ringwall policy init --user` makes one")]
    Absent,
    #[error(
        "the only policy is {0}, which came with the workspace and can only narrow; \
         `ringwall policy init --user` makes one of your own"
    )]
    OnlyWorkspace(String),
    #[error("the policy {path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("the policy {path} is larger than {MOST_BYTES} bytes; shorten it")]
    TooLarge { path: String },
    #[error("the policy {path} belongs to somebody else; `chown` it to yourself or to root")]
    ForeignOwner { path: String },
    #[error("others may write the policy {path} or its directory; `chmod go-w` both")]
    WritableByOthers { path: String },
    #[error(
        "the policy {path} lies in a directory that the sandbox can write to; move it, or use --workspace in place of --workspace-rw"
    )]
    WritableBySandbox { path: String },
    #[error(transparent)]
    Wrong(#[from] Fault),
}

/// A rule, as a person finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    pub file: String,
    /// `trust-levels.low.write`
    pub rule: String,
    pub line: Option<usize>,
    pub permits: bool,
}

impl RuleRef {
    /// Whether it forbids the paths that it names. `phases.NAME.write` forbids all others.
    pub(crate) fn is_denial_of_paths(&self) -> bool {
        let of_phase = self.rule.starts_with("phases.") && self.rule.ends_with(".deny");
        !self.permits && (of_phase || self.rule.starts_with("guard-rail "))
    }
}

impl std::fmt::Display for RuleRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{} ({}:{line})", self.rule, self.file),
            None => write!(f, "{} ({})", self.rule, self.file),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) origin: OriginKind,
    pub(crate) path: String,
    /// Of the file and of its guard-rails.
    pub(crate) digest: String,
    pub(crate) file: PolicyFile,
    pub(crate) base: bool,
    /// Where each line of the text begins.
    lines: Vec<usize>,
    guard_rails: Vec<(Policy, RuleRef)>,
    sets: [OnceLock<Result<ActSet, LowerError>>; Act::ALL.len()],
}

/// The policies for one action, and the rules that they came from.
#[derive(Debug)]
pub(crate) struct ActSet {
    pub(crate) policies: PolicySet,
    pub(crate) rules: HashMap<String, RuleRef>,
    /// Where some of them are of one host only.
    by_host: Option<ByHost>,
}

/// Policies by the host that they are about, so that Cedar need not look at a thousand others.
#[derive(Debug)]
struct ByHost {
    of_any: PolicySet,
    /// By host pattern, addresses without brackets.
    of: HashMap<String, Vec<Policy>>,
}

impl Layer {
    /// A guard-rail that is asked in one of these actions.
    pub(crate) fn guard_rail_of(&self, acts: &[Act]) -> Option<&RuleRef> {
        let named = |action: &EntityUid| {
            let of = |act: &Act| action.id().unescaped() == act.name();
            // What is none of the actions is a group of them.
            acts.iter().any(of) || !Act::ALL.iter().any(of)
        };
        let rail = self.guard_rails.iter().find(|(policy, _)| match policy.action_constraint() {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(action) => named(&action),
            ActionConstraint::In(actions) => actions.iter().any(named),
        });
        rail.map(|(_, rule)| rule)
    }

    pub(crate) fn load(from: LayerText, base: bool) -> Result<Layer, LoadError> {
        let LayerText { origin, path, text, guard_rails, facts } = from;
        trust(origin, &path, facts)?;
        if text.len() > MOST_BYTES {
            return Err(LoadError::TooLarge { path });
        }
        let file = parse(&path, &text)?;
        let digest = digest(&text, guard_rails.as_ref());
        let guard_rails = match &guard_rails {
            Some(rails) => guard_rails::read(rails)?,
            None => Vec::new(),
        };
        let lines = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        let sets = std::array::from_fn(|_| OnceLock::new());
        Ok(Layer { origin, path, digest, file, base, lines, guard_rails, sets })
    }

    pub(crate) fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset) + 1
    }

    pub(crate) fn rule_ref(&self, rule: &str, offset: Option<usize>, permits: bool) -> RuleRef {
        let line = offset.map(|offset| self.line(offset));
        RuleRef { file: self.path.clone(), rule: rule.to_owned(), line, permits }
    }

    /// The rules for one action with the ids that their policies carry: name and line.
    pub(crate) fn rules(&self, act: Act) -> Vec<(String, Rule)> {
        let source = Source { file: &self.file, base: self.base };
        source
            .rules(act)
            .into_iter()
            .map(|rule| match rule.offset {
                Some(offset) => (format!("{}@{}", rule.name, self.line(offset)), rule),
                None => (rule.name.clone(), rule),
            })
            .collect()
    }

    /// Made at the first question about this action.
    pub(crate) fn set(&self, act: Act) -> Result<&ActSet, LowerError> {
        let slot = &self.sets[act as usize];
        slot.get_or_init(|| self.lower(act)).as_ref().map_err(Clone::clone)
    }

    fn lower(&self, act: Act) -> Result<ActSet, LowerError> {
        let rules = self.rules(act);
        let rails: Vec<Policy> =
            self.guard_rails.iter().map(|(policy, _)| policy.clone()).collect();
        let policies = policy_set(&rules, act, &rails)?;
        let of_rules = rules
            .iter()
            .map(|(id, rule)| (id.clone(), self.rule_ref(&rule.name, rule.offset, rule.permits)));
        let of_rails =
            self.guard_rails.iter().map(|(policy, rule)| (policy.id().to_string(), rule.clone()));
        let by_host = ByHost::new(&rules, &policies)?;
        Ok(ActSet { rules: of_rules.chain(of_rails).collect(), policies, by_host })
    }

    pub(crate) fn guard_rail_texts(&self) -> Vec<Option<String>> {
        self.guard_rails.iter().map(|(policy, _)| policy.to_cedar()).collect()
    }

    /// What this layer says a tool is counts before what was declared. Of several
    /// kinds the riskiest counts.
    pub(crate) fn kind_of(&self, tool: Option<&str>, declared: Option<&str>) -> Kind {
        let rules = || self.file.tool.iter().map(|rule| &rule.value);
        let known = tool.and_then(|tool| {
            let exact = rules().filter(|rule| rule.names.iter().any(|name| name.as_str() == tool));
            let near = rules().filter(|rule| rule.names.iter().any(|name| name.matches(tool)));
            exact.filter_map(|rule| rule.kind).max().or_else(|| near.filter_map(|r| r.kind).max())
        });
        known.unwrap_or_else(|| Kind::declared(declared))
    }

    /// Whether this layer wants a tool to be called in its strict mode.
    pub(crate) fn wants_strict(&self, tool: &str) -> bool {
        let rules = self.file.tool.iter().map(|rule| &rule.value);
        rules
            .filter(|rule| rule.strict)
            .any(|rule| rule.names.iter().any(|name| name.matches(tool)))
    }

    /// A first layer sets the limits, a later one can only lower them.
    pub(crate) fn limits(&self, above: &Limits) -> Limits {
        let mut own = above.clone();
        if let Some(rules) = &self.file.limits {
            rules.value.lower(&mut own);
        }
        if self.base { own } else { crate::limits::smaller(above, &own) }
    }
}

impl ActSet {
    /// The policies that can count for a request about this host. Those that are left out would be
    /// evaluated to false.
    pub(crate) fn about(&self, host: Option<&str>) -> Result<Cow<'_, PolicySet>, LowerError> {
        let (Some(by_host), Some(host)) = (&self.by_host, host) else {
            return Ok(Cow::Borrowed(&self.policies));
        };
        let domains = || host.match_indices('.').map(|(at, _)| &host[at..]);
        let patterns = std::iter::once(host.to_owned())
            .chain(domains().take(1).map(|domain| format!("*{domain}")))
            .chain(domains().map(|domain| format!("**{domain}")));
        let mut found =
            patterns.filter_map(|pattern| by_host.of.get(&pattern)).flatten().peekable();
        if found.peek().is_none() {
            return Ok(Cow::Borrowed(&by_host.of_any));
        }
        let mut set = by_host.of_any.clone();
        for policy in found {
            set.add(policy.clone()).map_err(LowerError::of)?;
        }
        Ok(Cow::Owned(set))
    }
}

impl ByHost {
    fn new(rules: &[(String, Rule)], all: &PolicySet) -> Result<Option<ByHost>, LowerError> {
        let text = |host: &HostPattern| match host.exact() {
            Some(exact) => exact.bare(),
            None => host.to_string(),
        };
        let hosts: HashMap<&str, String> = rules
            .iter()
            .filter_map(|(id, rule)| Some((id.as_str(), text(rule.host.as_ref()?))))
            .collect();
        if hosts.is_empty() {
            return Ok(None);
        }
        let mut by_host = ByHost { of_any: PolicySet::new(), of: HashMap::new() };
        for policy in all.policies() {
            let id: &str = policy.id().as_ref();
            match hosts.get(id) {
                Some(host) => {
                    by_host.of.entry(host.clone()).or_default().push(policy.clone());
                }
                None => by_host.of_any.add(policy.clone()).map_err(LowerError::of)?,
            }
        }
        Ok(Some(by_host))
    }
}

/// A workspace's file can only narrow, so anybody may write it but the sandbox that it narrows. The
/// others say what is allowed.
fn trust(origin: OriginKind, path: &str, facts: FileFacts) -> Result<(), LoadError> {
    let path = || path.to_owned();
    if facts.writable_by_sandbox {
        return Err(LoadError::WritableBySandbox { path: path() });
    }
    if matches!(origin, OriginKind::Workspace | OriginKind::BuiltIn) {
        return Ok(());
    }
    if facts.foreign_owner {
        return Err(LoadError::ForeignOwner { path: path() });
    }
    if facts.writable_by_others {
        return Err(LoadError::WritableByOthers { path: path() });
    }
    Ok(())
}

fn digest(text: &str, guard_rails: Option<&GuardRailText>) -> String {
    let mut hash = Sha256::new();
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
    if let Some(rails) = guard_rails {
        hash.update(&rails.text);
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}
