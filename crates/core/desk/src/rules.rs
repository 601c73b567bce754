//! The policy as an agent works by it: what taints, what a step is, and what is refused. Nothing is written
//! down here, so another policy can be asked the same.

use std::path::{Path, PathBuf};

use ringwall_engine::{PolicySearch, ToolGate, deciding};
use ringwall_grant::Ask;
use ringwall_policy::{
    Action, Anchors, Decision, FilePath, HostFacts, Kind as WorkKind, PlaceRequest, Stack, Stage,
    TakenIn, Task, Work,
};
use ringwall_spec::{Host, Scheme, Wall};
use ringwall_workspace::is_protected;

use crate::refused::{Kind, Refused};
use crate::tainting::{self, TaintingPath};

/// Read when an agent begins or goes on.
#[derive(Debug)]
pub struct Rules {
    search: PolicySearch,
    /// None where there is no policy: then the owner's order counts.
    stack: Option<Stack>,
    /// Says what taints where there is no policy.
    built_in: Stack,
    gate: ToolGate,
    workspace: Option<PathBuf>,
}

/// What a model wants that its supervisor does with the sandbox's warden, or without any sandbox. Paths are
/// those of the workspace, in their one spelling.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    Read(&'a str),
    Write(&'a str),
    Phase(&'a str),
    Elevate(&'a str),
    Call(&'a str),
}

/// What came in from outside the task.
#[derive(Debug, Clone, Copy)]
pub enum Taken<'a> {
    /// A command could have had something from there.
    Network,
    OutputOf(WorkKind),
    Tool(&'a str),
    File(&'a str),
}

/// A job that needs a wall.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    pub tool: Option<&'a str>,
    pub kind: &'a str,
    /// The wall that it is to have, if one was named.
    pub wall: Option<&'a Wall>,
    /// In a sandbox that is there.
    pub reuse: bool,
}

/// Why a step may not be done.
pub(crate) struct No {
    pub(crate) rule: String,
    pub(crate) why: String,
}

impl Rules {
    pub fn open(search: PolicySearch, workspace: Option<&Path>) -> Result<Rules, Refused> {
        let stack =
            if search.read()?.is_empty() { None } else { Some(deciding(|| search.load())?) };
        let built_in = deciding(|| Stack::load(vec![Stack::built_in()]))?;
        let gate = deciding(|| ToolGate::open(&search))?;
        let workspace = workspace.map(Path::to_owned);
        Ok(Rules { search, stack, built_in, gate, workspace })
    }

    /// Where the policy is, for what reads it anew.
    pub fn search(&self) -> &PolicySearch {
        &self.search
    }

    pub fn gate(&self) -> &ToolGate {
        &self.gate
    }

    pub fn is_there(&self) -> bool {
        self.stack.is_some()
    }

    pub(crate) fn stack(&self) -> Option<&Stack> {
        self.stack.as_ref()
    }

    /// What the decisions stand on.
    pub fn files(&self) -> Vec<String> {
        let layers = self.stack.iter().flat_map(Stack::layer_refs);
        layers.map(|layer| format!("{} {}", layer.digest, layer.path)).collect()
    }

    pub fn phases(&self) -> Vec<String> {
        self.stack.as_ref().map(Stack::phase_names).unwrap_or_default()
    }

    pub fn elevations(&self) -> Vec<String> {
        self.stack.as_ref().map(Stack::elevation_names).unwrap_or_default()
    }

    /// Whether a task that took this in is tainted from now on.
    pub fn taints(&self, taken: Taken<'_>) -> bool {
        let sources = self.stack.as_ref().unwrap_or(&self.built_in);
        match taken {
            Taken::Network => sources.taints(&TakenIn::Network),
            Taken::OutputOf(kind) => sources.taints(&TakenIn::OutputOf(kind)),
            Taken::Tool(tool) => sources.taints(&TakenIn::Tool(tool)),
            // A path that cannot be named by a rule is refused before anything of it is read.
            Taken::File(path) => {
                self.file(path).is_ok_and(|path| sources.taints(&TakenIn::File(&path)))
            }
        }
    }

    /// Where the files lie whose text taints. A command that sees one of these places could have read them, under
    /// any name.
    pub fn tainting_paths(&self) -> Vec<TaintingPath> {
        let sources = self.stack.as_ref().unwrap_or(&self.built_in);
        tainting::places(sources.tainting_paths(), &self.anchors())
    }

    /// The kind of work that the policy says a shell command is, if it speaks of it.
    pub fn kind_of_command(&self, command: &str) -> Option<WorkKind> {
        self.stack.as_ref()?.kind_of_command(command)
    }

    /// Whether commands of the task could reach a network.
    pub fn has_network(&self, task: &Task) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.egress(task).is_some())
    }

    /// Why the task may not do this, if it may not.
    pub fn refusal(&self, task: &Task, step: Step<'_>) -> Option<String> {
        self.judge(task, step).err().map(|no| no.why)
    }

    pub(crate) fn judge(&self, task: &Task, step: Step<'_>) -> Result<(), No> {
        let rule = |why: String| No { rule: "the form of paths".to_owned(), why };
        let action = match step {
            Step::Read(path) => Action::Read(self.file(path).map_err(rule)?),
            Step::Write(path) => Action::Write(self.file(path).map_err(rule)?),
            Step::Phase(to) => Action::ChangePhase(to.to_owned()),
            Step::Elevate(name) => Action::Elevate(name.to_owned()),
            Step::Call(tool) => {
                Action::Call { tool: tool.to_owned(), kind: None, read_only: false }
            }
        };
        if let Some(stack) = &self.stack {
            let decision = deciding(|| stack.decide(task, &action));
            if !decision.allowed {
                return Err(No::of(decision, step));
            }
        }
        match step {
            Step::Write(path) => self.spare_protected(task, path),
            _ => Ok(()),
        }
    }

    /// Programs on the host obey some files; a task that has read what strangers wrote leaves them alone,
    /// until a person has lifted that.
    fn spare_protected(&self, task: &Task, path: &str) -> Result<(), No> {
        let workspace = self.workspace.as_deref().unwrap_or(Path::new("/"));
        if !task.tainted || !is_protected(workspace, Path::new(path)) || self.lifts_taint(task) {
            return Ok(());
        }
        let why = format!("./{path} is protected, as programs on the host trust it");
        Err(No { rule: "taint".to_owned(), why })
    }

    fn lifts_taint(&self, task: &Task) -> bool {
        let terms = |name: &String| self.stack.as_ref()?.elevation(name);
        let mut terms = task.elevated.iter().filter_map(terms);
        terms.any(|terms| terms.grants.iter().any(|grant| grant == "taint"))
    }

    /// Why a job of the task gets no wall here, if it gets none.
    pub fn no_wall(&self, task: &Task, job: Job<'_>, host: &HostFacts) -> Option<String> {
        let stack = self.stack.as_ref()?;
        let request = PlaceRequest {
            task: task.clone(),
            work: Work { tool: job.tool.map(str::to_owned), kind: Some(job.kind.to_owned()) },
            wall: job.wall.cloned(),
            limits: None,
            reuse: job.reuse,
        };
        let placed = deciding(|| stack.place(&request, host));
        placed.plan().err().map(ToString::to_string)
    }

    /// The model is named by whoever starts the agent; what the policy denies by name stays denied.
    pub fn allow_model(&self, task: &Task, base_url: &str) -> Result<(), Refused> {
        let Some(stack) = &self.stack else { return Ok(()) };
        let (scheme, rest) = match base_url.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some((_, rest)) => (Scheme::Https, rest),
            None => (Scheme::Https, base_url),
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let read = Host::parse_authority(authority, Some(scheme.default_port()));
        let Ok((host, port)) = read else { return Ok(()) };
        let dial = Action::Connect { scheme, host: host.bare(), port, stage: Stage::Dial };
        let decision = deciding(|| stack.decide(task, &dial));
        let denying = |rule: &&ringwall_policy::RuleRef| {
            !rule.permits && rule.rule.starts_with("network.deny")
        };
        match decision.rules.iter().find(denying) {
            None => Ok(()),
            Some(rule) => {
                let why = format!("the policy forbids the model at {base_url}: {rule}");
                Err(Refused::new(Kind::DeniedByPolicy, why))
            }
        }
    }

    /// What a step needs of a grant, if it is more than the tool by which it is taken.
    pub(crate) fn ask(&self, step: Step<'_>) -> Option<Ask> {
        let whole = |path: &str| {
            let workspace = self.workspace.as_ref()?;
            let whole = if path.is_empty() { workspace.clone() } else { workspace.join(path) };
            Some(whole.display().to_string())
        };
        match step {
            Step::Read(path) => whole(path).map(|path| Ask::Read { path }),
            Step::Write(path) => whole(path).map(|path| Ask::Write { path }),
            Step::Phase(to) => Some(Ask::Phase { name: to.to_owned() }),
            Step::Call(tool) => Some(Ask::Tool { name: tool.to_owned() }),
            Step::Elevate(_) => None,
        }
    }

    /// A path of the workspace as rules see it.
    fn file(&self, relative: &str) -> Result<FilePath, String> {
        let shown = if relative.is_empty() { ".".to_owned() } else { format!("./{relative}") };
        FilePath::new(&shown, &self.anchors()).map_err(|error| error.to_string())
    }

    fn anchors(&self) -> Anchors {
        let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
        let workspace = self.workspace.as_ref().map(|path| path.display().to_string());
        Anchors { home, workspace }
    }
}

impl No {
    fn of(decision: Decision, step: Step<'_>) -> No {
        let rules: Vec<String> = decision.rules.iter().map(ToString::to_string).collect();
        let mut why = format!("{step}: {}", decision.why);
        if let Some(elevation) = decision.elevations.first() {
            why.push_str(&format!("; the elevation {elevation:?} would allow it (ask_approval)"));
        }
        No { rule: rules.join(", "), why }
    }
}

impl std::fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Step::Read(path) => write!(f, "reading ./{path}"),
            Step::Write(path) => write!(f, "writing ./{path}"),
            Step::Phase(to) => write!(f, "the phase {to}"),
            Step::Elevate(name) => write!(f, "the elevation {name}"),
            Step::Call(tool) => write!(f, "the tool {tool}"),
        }
    }
}
