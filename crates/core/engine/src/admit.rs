//! Admission by policy: a request becomes a decision about what may run, or a refusal that is recorded.
//!
//! Invariant: with a policy there is one way to a [`Decision`], through the router. Without one, a
//! person's own order for a wall is taken as it is, and nothing that needs a decision is done.
//! A decision raises nothing: the reference monitor makes a permit from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringwall_audit::Ids;
use ringwall_guest::Kernels;
use ringwall_permit::Permit;
use ringwall_policy::{
    Anchors, DecisionRecord, HostFacts, LoadError, Missing, PathPattern, PathRights, PlaceRequest,
    Refusal, Stack, Task, Work,
};
use ringwall_spec::{
    Decided, EgressSpec, Invalid, Limits, RingKind, SandboxSpec, ValidSpec, Wall, WorkspaceMode,
    WriteRights, can_reach_gateway,
};

use crate::config::Engine;
use crate::denials;
use crate::egress::{self, EgressError, NetworkBounds, egress_by};
use crate::ledger::{self, LedgerError};
use crate::network::Basis;
use crate::policy_files::PolicySearch;

/// What the caller wants to run.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its wall counts where there is no policy.
    pub spec: SandboxSpec,
    /// The wall, if one was asked for by name.
    pub wall: Option<Wall>,
    pub task: Task,
    pub work: Work,
    /// To be written down with the decision.
    pub notes: BTreeMap<String, String>,
    /// What the asker may reach at most, whatever the policy gives.
    pub network_at_most: Option<NetworkBounds>,
    /// Where the policy was found: a network is decided again when it changes there.
    pub search: Option<PolicySearch>,
}

/// What may be raised, and what the policy said of it, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub spec: ValidSpec,
    pub decided: Option<Decided>,
}

/// Makes a permit from a decision: the reference monitor's way to give one for what the engine itself
/// finds that it needs.
pub type Issue<'a> = &'a (dyn Fn(Decision) -> Permit + Sync);

impl Decision {
    pub fn spec(&self) -> &SandboxSpec {
        self.spec.spec()
    }

    /// The kind of work that was decided about: unknown work is untrusted.
    pub fn kind(&self) -> &str {
        Decided::kind_of(self.decided.as_ref())
    }
}

/// No policy was asked.
impl From<ValidSpec> for Decision {
    fn from(spec: ValidSpec) -> Decision {
        Decision { spec, decided: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error(
        "there is no policy to route this by; `ringwall policy init` makes one, or say --wall instead"
    )]
    NothingToRouteBy,
    #[error("{refusal}{}", hint(.refusal.elevations()))]
    Refused { refusal: Box<Refusal> },
    #[error(
        "trust level {trust} may not read all of {path:?}, by {rule}; leave it out (--no-workspace for the current directory), or name another trust level"
    )]
    Unreadable { trust: String, path: PathBuf, rule: String },
    #[error(
        "{workspace:?} cannot be written directly: {rule} denies {denial:?} there, and no mount keeps that; use --workspace, whose changes are judged path by path, or deny one directory (as \"./.git/**\")"
    )]
    UnkeptDenial { workspace: PathBuf, rule: String, denial: String },
    #[error(
        "{kind} work may not run in the sandbox {sandbox}: {refusal}; `ringwall run --kind {kind}` gives it a wall of its own"
    )]
    NotInSandbox { sandbox: String, kind: String, refusal: Box<Refusal> },
    #[error(
        "the policy allows no job to put filters of its own in force; leave --own-filters out, or have the owner of the policy set own-filters = true"
    )]
    OwnFilters,
    #[error("{path:?} cannot be shown; check that it exists and that you may read it")]
    Shown { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Network(#[from] EgressError),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl AdmitError {
    /// An elevation that would allow the refused request.
    pub fn elevation(&self) -> Option<&str> {
        match self {
            AdmitError::Refused { refusal } | AdmitError::NotInSandbox { refusal, .. } => {
                refusal.elevations().first().map(String::as_str)
            }
            _ => None,
        }
    }
}

/// What a refusal says of elevations that would help.
pub(crate) fn hint(elevations: &[String]) -> String {
    match elevations.first() {
        Some(first) => format!("; the elevation {first:?} would allow it"),
        None => String::new(),
    }
}

/// Where rules are evaluated. The evaluator looks how much stack is left, and of a program's first
/// thread musl only tells what has been used so far: too little. This has a thread of its own.
pub fn deciding<T: Send>(decide: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(decide);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Asked {
    /// Whether this wants a decision that only a policy can give.
    fn needs_policy(&self) -> bool {
        self.task != Task::default() || self.work != Work::default()
    }
}

impl Engine {
    /// Admits a request by the policy that `search` finds. `limits` gives the limits that the caller set
    /// on top of defaults.
    pub fn admit(
        &self,
        asked: Asked,
        limits: &(dyn Fn(Limits) -> Limits + Sync),
        search: &PolicySearch,
    ) -> Result<Decision, AdmitError> {
        let layers = search.read()?;
        if layers.is_empty() {
            return match asked.needs_policy() {
                true => Err(AdmitError::NothingToRouteBy),
                false => self.admit_order(asked.spec),
            };
        }
        let asked = Asked { search: Some(search.clone()), ..asked };
        deciding(|| self.admit_by(&PolicySearch::stack(layers)?, asked, limits))
    }

    /// What a task may reach, by the policy that `search` finds and by its own request. Nothing is
    /// written down.
    pub fn network_of(
        &self,
        task: &Task,
        asked: Option<EgressSpec>,
        search: &PolicySearch,
    ) -> Result<Option<EgressSpec>, AdmitError> {
        let layers = search.read()?;
        if layers.is_empty() {
            return Ok(asked.map(|egress| self.egress_ordered(egress)).transpose()?);
        }
        deciding(|| Ok(egress_by(&PolicySearch::stack(layers)?, task, asked)?))
    }

    /// A person's own order.
    fn admit_order(&self, mut spec: SandboxSpec) -> Result<Decision, AdmitError> {
        spec.egress = spec.egress.map(|egress| self.egress_ordered(egress)).transpose()?;
        Ok(ringwall_spec::validate(spec)?.into())
    }

    /// Admits by a policy that has been read already.
    pub fn admit_by(
        &self,
        stack: &Stack,
        asked: Asked,
        limits: &(dyn Fn(Limits) -> Limits + Sync),
    ) -> Result<Decision, AdmitError> {
        let most = stack.limits();
        let limits = limits(most.clone());
        let request = PlaceRequest {
            task: asked.task.clone(),
            work: asked.work.clone(),
            wall: asked.wall.clone(),
            limits: (limits != most).then_some(limits),
            reuse: false,
        };
        let record = stack.place(&request, &self.host_facts(asked.spec.image.is_some()));
        let plan = match record.plan() {
            Ok(plan) => plan.clone(),
            Err(refusal) => {
                let refusal = Box::new(refusal.clone());
                let error = AdmitError::Refused { refusal };
                self.record(vec![denied(&record, &error.to_string())])?;
                return Err(error);
            }
        };
        let mut spec = asked.spec;
        let at_most = spec.rights.clone();
        let asks_network = spec.egress.is_some();
        spec.wall = plan.wall.clone();
        if asked.wall.is_none() && spec.wall.image_ring().is_none() {
            // It was offered for whichever wall would be chosen.
            spec.image = None;
        }
        spec.limits = plan.limits.clone();
        for path in &mut spec.read_only_paths {
            // Decided on is what will be shown: the path without links.
            let shown = path.canonicalize();
            *path = shown.map_err(|source| AdmitError::Shown { path: path.clone(), source })?;
        }
        if spec.own_filters && !stack.allows_own_filters() {
            let refused = AdmitError::OwnFilters;
            self.record(vec![denied(&record, &refused.to_string())])?;
            return Err(refused);
        }
        let refused = unreadable(&plan.paths, &spec, &record).or_else(|| {
            denials::unkept(stack, &plan.paths, &record.phase, spec.workspace.as_ref())
        });
        if let Some(refused) = refused {
            self.record(vec![denied(&record, &refused.to_string())])?;
            return Err(refused);
        }
        if let Some(workspace) = &spec.workspace {
            let by_policy = workspace_rights(stack, &plan.paths, &workspace.path);
            spec.rights = Some(match &spec.rights {
                Some(asked) => by_policy.and(asked),
                None => by_policy,
            })
            .filter(|rights| *rights != WriteRights::everywhere());
        }
        let model = spec.egress.as_mut().and_then(|egress| egress.model.take());
        let asked_network = spec.egress.clone();
        spec.egress = match egress_by(stack, &asked.task, spec.egress.take()) {
            // The caller who starts the sandbox names the model. A call of the model reaches nothing else.
            _ if model.is_some() => Some(EgressSpec { model, ..EgressSpec::default() }),
            Ok(egress) => egress
                .and_then(|egress| egress::within(egress, asked.network_at_most.as_ref()))
                .filter(|_| asks_network || can_reach_gateway(&spec.wall)),
            Err(refused) => {
                self.record(vec![denied(&record, &refused.to_string())])?;
                return Err(refused.into());
            }
        };
        let mut decided = decided(&record, spec.egress.as_ref());
        decided.at_most = at_most;
        decided.inputs.extend(asked.notes);
        decided.network = asked.search.filter(|_| spec.egress.is_some()).and_then(|search| {
            let (task, at_most) = (asked.task, asked.network_at_most);
            serde_json::to_string(&Basis { search, task, asked: asked_network, at_most }).ok()
        });
        Ok(Decision { spec: ringwall_spec::validate(spec)?, decided: Some(decided) })
    }

    /// Which rings can be had here, without trying them out.
    pub fn host_facts(&self, with_image: bool) -> HostFacts {
        let missing = |feature: &str, fix: &str| {
            Some(Missing { feature: feature.to_owned(), fix: fix.to_owned() })
        };
        HostFacts::of_rings(|ring| match ring {
            RingKind::Process => None,
            RingKind::Container if with_image => None,
            RingKind::Vm if with_image => self.vm_missing(),
            RingKind::Container | RingKind::Vm => {
                missing("an image for it", "add --image REF (see `ringwall image ls`)")
            }
            RingKind::Wasm => match self.wasm_warden_program() {
                Ok(_) => None,
                Err(_) => missing("the program ringwall-wasm-warden", "install all of Ringwall"),
            },
        })
    }

    fn vm_missing(&self) -> Option<Missing> {
        if !ringwall_ring_vm::is_there() {
            return Some(Missing {
                feature: "a VMM".to_owned(),
                fix: "install QEMU (Debian: apt-get install qemu-system-x86)".to_owned(),
            });
        }
        let kernel = Kernels::from_environment().and_then(|kernels| kernels.best());
        kernel.err().map(|_| Missing {
            feature: "a guest kernel".to_owned(),
            fix: "run `make setup` or `ringwall vm kernel build`".to_owned(),
        })
    }
}

pub(crate) fn anchors(workspace: &Path) -> Anchors {
    Anchors { workspace: Some(workspace.display().to_string()), ..home_anchor() }
}

fn home_anchor() -> Anchors {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
    Anchors { home, workspace: None }
}

/// The first path of the host that a job would see and may not read all of.
fn unreadable(
    paths: &[PathRights],
    spec: &SandboxSpec,
    record: &DecisionRecord,
) -> Option<AdmitError> {
    let workspace = spec.workspace.as_ref().map(|workspace| &workspace.path);
    let anchors = workspace.map_or_else(home_anchor, |workspace| anchors(workspace));
    let readable = |path: &Path| {
        paths.iter().all(|rights| {
            let read = rights.read.as_ref();
            read.is_none_or(|read| holds_all_of(read, path, &anchors))
                || holds_all_of(&rights.also_read, path, &anchors)
        })
    };
    let path = workspace.into_iter().chain(&spec.read_only_paths).find(|path| !readable(path))?;
    let trust = record.subjects.iter().map(|subject| subject.trust).max()?;
    let rule = format!("trust-levels.{trust}.read");
    Some(AdmitError::Unreadable { trust: trust.to_string(), path: path.clone(), rule })
}

/// Whether one of the patterns means this path with all that is below it.
fn holds_all_of(patterns: &[PathPattern], path: &Path, anchors: &Anchors) -> bool {
    patterns.iter().any(|pattern| {
        let with_all_below = pattern.as_str().ends_with("/**");
        place(pattern.as_str(), anchors).is_some_and(|place| match with_all_below {
            true => path.starts_with(place),
            false => path == place && !path.is_dir(),
        })
    })
}

fn denied(record: &DecisionRecord, why: &str) -> ringwall_audit::Record {
    ledger::denied(Ids::default(), ("run", record.kind.name()), &record.rules, why, None)
}

/// What the audit log says of the decision: enough to make it again.
fn decided(record: &DecisionRecord, egress: Option<&EgressSpec>) -> Decided {
    let task = &record.request.task;
    let mut inputs = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        inputs.insert(name.to_owned(), value);
    };
    put("kind", record.kind.to_string());
    put("phase", record.phase.clone());
    put("tainted", task.tainted.to_string());
    put("elevated", task.elevated.iter().cloned().collect::<Vec<_>>().join(" "));
    let subjects = record.subjects.iter().map(|it| format!("{}/{}", it.risk, it.trust));
    put("risk/trust", subjects.collect::<Vec<_>>().join(" "));
    if let Some(tool) = &record.request.work.tool {
        put("tool", tool.clone());
    }
    if let Some(wall) = &record.request.wall {
        put("wall", wall.to_string());
    }
    let layers: Vec<String> =
        record.layers.iter().map(|layer| format!("{} {}", layer.digest, layer.path)).collect();
    Decided {
        inputs,
        rules: record.rules.iter().map(ToString::to_string).collect(),
        policy: Some(layers.join(", ")),
        phase: Some(record.phase.clone()).filter(|phase| !phase.is_empty()),
        kind: Some(record.kind.to_string()),
        task: serde_json::to_string(task).ok(),
        egress: egress.map(EgressSpec::summary).unwrap_or_default(),
        at_most: None,
        network: None,
    }
}

/// Where in the workspace all of these let a job write. A pattern that is no directory with all that
/// is below, and no single path, allows nothing here. A denial holds from above the workspace, too.
pub(crate) fn workspace_rights(
    stack: &Stack,
    paths: &[PathRights],
    workspace: &Path,
) -> WriteRights {
    rights_anchored(stack, paths, workspace, &anchors(workspace))
}

/// Finds the rights for a directory, where `./` means what `own` says: the workspace may be above it.
pub(crate) fn rights_anchored(
    stack: &Stack,
    paths: &[PathRights],
    workspace: &Path,
    own: &Anchors,
) -> WriteRights {
    let from = |anchors: &Anchors, patterns: &[PathPattern]| -> Vec<PathBuf> {
        let places = patterns.iter().filter_map(|pattern| place(pattern.as_str(), anchors));
        places.filter_map(|place| relative_to(&place, workspace)).collect()
    };
    let above = denials::anchors_above(stack, workspace);
    let within = |patterns: &[PathPattern]| from(own, patterns);
    let only = |patterns: &Option<Vec<_>>| match patterns {
        None => WriteRights::everywhere(),
        Some(patterns) => WriteRights { writable: within(patterns), read_only: Vec::new() },
    };
    let mut all = WriteRights::everywhere();
    for rights in paths {
        let mut of_layer = only(&rights.write).and(&only(&rights.phase));
        of_layer.read_only.extend(within(&rights.phase_deny));
        of_layer.read_only.extend(above.iter().flat_map(|it| from(it, &rights.phase_deny)));
        let also = within(&rights.also_write);
        of_layer.read_only.retain(|path| !also.contains(path));
        of_layer.writable.extend(also);
        all = all.and(&of_layer);
    }
    all
}

/// The directory or file that a pattern means, if it means one.
pub(crate) fn place(pattern: &str, anchors: &Anchors) -> Option<PathBuf> {
    let (top, rest) = match pattern.split_at_checked(1)? {
        ("~", rest) => (anchors.home.as_deref()?, rest),
        (".", rest) => (anchors.workspace.as_deref()?, rest),
        _ => ("", pattern),
    };
    let plain = rest.strip_suffix("/**").unwrap_or(rest);
    if plain.contains('*') {
        return None;
    }
    Some(PathBuf::from(format!("{}/{}", top.trim_end_matches('/'), plain.trim_matches('/'))))
}

/// In a workspace whose changes are kept apart, only what every list names can be written. Where a job
/// writes straight to the directory nothing would keep it to a part: the caller must have all of it.
pub fn narrow_writing<'a>(spec: &mut SandboxSpec, lists: impl IntoIterator<Item = Vec<&'a Path>>) {
    let Some(workspace) = &spec.workspace else { return };
    if workspace.mode == WorkspaceMode::ReadWrite {
        return;
    }
    let mut rights = spec.rights.clone().unwrap_or_else(WriteRights::everywhere);
    for list in lists {
        let places = list.into_iter();
        let writable = places.filter_map(|place| relative_to(place, &workspace.path)).collect();
        rights = rights.and(&WriteRights { writable, read_only: Vec::new() });
    }
    spec.rights = Some(rights);
}

/// What `place` means of a workspace: all of it, a part of it, or nothing of it.
fn relative_to(place: &Path, workspace: &Path) -> Option<PathBuf> {
    if workspace.starts_with(place) {
        return Some(PathBuf::new());
    }
    place.strip_prefix(workspace).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(extra: &str) -> Stack {
        let mut text = Stack::built_in();
        text.text.push_str(extra);
        Stack::load(vec![text]).unwrap()
    }

    fn rights(stack: &Stack, phase: Option<&str>) -> WriteRights {
        let task = Task { phase: phase.map(str::to_owned), ..Task::default() };
        workspace_rights(stack, &stack.path_rights(&task), Path::new("/home/me/project"))
    }

    #[test]
    fn a_tier_that_may_write_the_home_may_write_all_of_a_workspace_in_it() {
        assert_eq!(rights(&stack(""), None), WriteRights::everywhere());
    }

    #[test]
    fn a_phase_narrows_where_a_job_may_write_to_directories_of_the_workspace() {
        let phases = "\n[phases.plan]\nwrite = [\"./docs/**\"]\n\
                      [phases.implement]\nwrite = [\"./**\"]\ndeny = [\"./.github/**\"]\n";
        let stack = stack(phases);
        let plan = rights(&stack, Some("plan"));
        assert_eq!(plan.writable, [PathBuf::from("docs")]);
        let implement = rights(&stack, Some("implement"));
        assert!(implement.allows(Path::new("src/main.rs")));
        assert!(!implement.allows(Path::new(".github/workflows/ci.yml")));
    }
}
