//! Policy and grant: everything that a brain asks for is held against both, and what is refused
//! stands in the audit log.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringwall_audit::{AdmissionDenied, Event, Id, Ids, Text};
use ringwall_engine::{Engine, LedgerError, NetworkBounds, PolicySearch, narrow_writing};
use ringwall_grant::{
    Account, Ask, Authority, AuthorityError, Budget, Cost, Inspected, Left, MAX_TOKEN_BYTES, Name,
    NameError, Narrowing, Request, Rights, SpendError, Spending, Subtree, Token, TokenError,
    ToolPattern, Verifier,
};
use ringwall_policy::{
    Action, Anchors, FilePath, Kind, LoadError, Stack, TakenIn, Task, known_walls,
};
use ringwall_safekeeping::{Content, replace};
use ringwall_spec::{RuleSet, SandboxSpec, WriteRights};

use crate::journal::AgentId;
use crate::options::Options;
use crate::prices::Price;

/// An agent's grant lives as long, unless it is given one.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
const TENANT: &str = "local";

#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Spending(#[from] SpendError),
    #[error("the grant of the agent cannot be made")]
    Name(#[from] NameError),
    #[error("the grant in {path:?} cannot be used; it must be a file with the token of a grant")]
    File { path: PathBuf, source: std::io::Error },
    #[error("the grant cannot be used: {0}")]
    Refused(String),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A grant in the hands of one brain.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub(crate) token: Token,
    pub(crate) task: String,
    pub(crate) tenant: String,
    /// Of the grant itself.
    pub(crate) id: String,
    shown: Inspected,
    /// Who pays: the grant with those above it, and its tenant.
    accounts: Vec<(Account, Budget)>,
}

pub(crate) struct Gate<'a> {
    engine: &'a Engine,
    /// None where there is no policy: then a person's order counts.
    stack: Option<Stack>,
    /// Says what taints where there is no policy.
    built_in: Stack,
    pub(crate) verifier: Verifier,
    spending: Spending,
    anchors: Anchors,
}

impl std::fmt::Debug for Gate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("policy", &self.stack.is_some()).finish_non_exhaustive()
    }
}

/// Where the policy that counts for an agent is looked for.
pub(crate) fn search_for(options: &Options) -> PolicySearch {
    PolicySearch {
        named: options.policy.clone(),
        ..PolicySearch::from_environment(options.workspace.clone())
    }
}

/// The policy that counts for an agent; none if there is none.
pub(crate) fn policy_for(options: &Options) -> Result<Option<Stack>, LoadError> {
    let search = search_for(options);
    let found = !search.read()?.is_empty();
    found.then(|| search.load()).transpose()
}

pub(crate) fn anchors(options: &Options) -> Anchors {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/'));
    let workspace = options.workspace.as_ref().map(|path| path.display().to_string());
    Anchors { home, workspace }
}

impl<'a> Gate<'a> {
    pub(crate) fn open(
        engine: &'a Engine,
        home: &Path,
        options: &Options,
    ) -> Result<Gate<'a>, GateError> {
        Ok(Gate {
            engine,
            stack: policy_for(options)?,
            built_in: Stack::load(vec![Stack::built_in()])?,
            verifier: Authority::open(home)?.verifier(),
            spending: Spending::open(home)?,
            anchors: anchors(options),
        })
    }

    pub(crate) fn policy(&self) -> Option<&Stack> {
        self.stack.as_ref()
    }

    /// What the decisions stand on, for the journal.
    pub(crate) fn policy_files(&self) -> Vec<String> {
        let layers = self.stack.iter().flat_map(Stack::layer_refs);
        layers.map(|layer| format!("{} {}", layer.digest, layer.path)).collect()
    }

    /// Looks at a token that somebody holds.
    pub(crate) fn holder(&self, token: Token) -> Result<Holder, GateError> {
        let shown =
            self.verifier.inspect(&token).map_err(|error| GateError::Refused(error.to_string()))?;
        if let Some(refused) = &shown.refused {
            return Err(GateError::Refused(refused.to_string()));
        }
        let standing = &shown.standing;
        let id = standing.ids.last().map(ToString::to_string).unwrap_or_default();
        let (task, tenant) = (standing.task.clone(), standing.tenant.clone());
        let accounts = self.spending.accounts(&shown)?;
        Ok(Holder { token, task, tenant, id, shown, accounts })
    }

    /// Whether the grant has the right. The inner result is the answer.
    pub(crate) fn may(&self, holder: &Holder, ask: Ask) -> Result<Result<(), String>, LedgerError> {
        let request = Request::new(&holder.task, &holder.tenant, ask);
        match self.verifier.check(&holder.token, &request) {
            Ok(_) => Ok(Ok(())),
            Err(refused) => {
                let why = refused.to_string();
                let rule = format!("grant {}", holder.id);
                self.deny(holder, &request.ask.to_string(), (&rule, &why))?;
                Ok(Err(why))
            }
        }
    }

    /// The same as a question only: nothing is written down.
    pub(crate) fn has_right(&self, holder: &Holder, ask: Ask) -> bool {
        let request = Request::new(&holder.task, &holder.tenant, ask);
        self.verifier.check(&holder.token, &request).is_ok()
    }

    /// Whether the policy, if there is one, lets the task do this.
    pub(crate) fn decide(
        &self,
        holder: &Holder,
        task: &Task,
        action: &Action,
        what: &str,
    ) -> Result<Result<(), String>, LedgerError> {
        let Some(stack) = &self.stack else { return Ok(Ok(())) };
        let decision = stack.decide(task, action);
        if decision.allowed {
            return Ok(Ok(()));
        }
        let mut why = format!("{what}: {}", decision.why);
        if let Some(elevation) = decision.elevations.first() {
            why.push_str(&format!("; the elevation {elevation:?} would allow it (ask_approval)"));
        }
        let rules: Vec<String> = decision.rules.iter().map(ToString::to_string).collect();
        self.deny(holder, what, (&rules.join(", "), &why))?;
        Ok(Err(why))
    }

    pub(crate) fn deny(
        &self,
        holder: &Holder,
        what: &str,
        (rule, why): (&str, &str),
    ) -> Result<(), LedgerError> {
        let denied = AdmissionDenied {
            action: Text::new("agent"),
            resource: Text::new(what),
            rule: Text::new(rule),
            reason: Text::new(why),
            fix: None,
        };
        let ids = Ids::default().task(Id::new(&holder.task)).grant(Id::new(&holder.id));
        self.engine.record(vec![(ids, Event::AdmissionDenied(denied))])
    }

    /// Takes one call from the budgets that it counts against, if there are any.
    pub(crate) fn count_call(&self, holder: &Holder) -> Result<Result<(), String>, GateError> {
        let one = Cost { calls: 1, ..Cost::default() };
        Ok(self.reserve_of(holder, |_| one)?.map(drop))
    }

    /// What is left under the grant.
    pub(crate) fn left(&self, holder: &Holder) -> Result<Left, GateError> {
        Ok(self.spending.left(&holder.accounts)?)
    }

    /// Takes what an answer of the model may cost from the budget, before it is asked. What the
    /// question costs is known only afterwards.
    pub(crate) fn reserve_turn(
        &self,
        holder: &Holder,
        (most_tokens, price): (u64, Price),
    ) -> Result<Result<Cost, String>, GateError> {
        let money = price.of(0, most_tokens);
        let cost = |left: Left| Cost {
            tokens: left.tokens.map_or(0, |left| left.clamp(1, most_tokens.max(1))),
            money_micros: left.money_micros.map_or(0, |left| left.max(1).min(money)),
            ..Cost::default()
        };
        self.reserve_of(holder, cost)
    }

    /// Takes what `cost` makes of what is left, from all budgets or from none. The inner error names the
    /// budget of which too little is left.
    pub(crate) fn reserve_of(
        &self,
        holder: &Holder,
        cost: impl FnOnce(Left) -> Cost,
    ) -> Result<Result<Cost, String>, GateError> {
        match self.spending.reserve_of(&holder.accounts, cost) {
            Ok(cost) => Ok(Ok(cost)),
            Err(error @ SpendError::Spent { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives back what was reserved, and takes what was used.
    pub(crate) fn settle(
        &self,
        holder: &Holder,
        (reserved, used): (Cost, Cost),
    ) -> Result<(), GateError> {
        if reserved == used {
            return Ok(());
        }
        Ok(self.spending.settle(&holder.accounts, reserved, used)?)
    }

    fn sources(&self) -> &Stack {
        self.stack.as_ref().unwrap_or(&self.built_in)
    }

    pub(crate) fn network_taints(&self) -> bool {
        self.sources().taints(&TakenIn::Network)
    }

    pub(crate) fn output_taints(&self, kind: Kind) -> bool {
        self.sources().taints(&TakenIn::OutputOf(kind))
    }

    pub(crate) fn tool_taints(&self, tool: &str) -> bool {
        self.sources().taints(&TakenIn::Tool(tool))
    }

    pub(crate) fn file_taints(&self, path: &FilePath) -> bool {
        self.sources().taints(&TakenIn::File(path))
    }

    /// A path of the workspace as rules see it.
    pub(crate) fn file_path(&self, relative: &str) -> Result<FilePath, String> {
        let shown = if relative.is_empty() { ".".to_owned() } else { format!("./{relative}") };
        FilePath::new(&shown, &self.anchors).map_err(|error| error.to_string())
    }
}

impl Holder {
    /// The least of what its blocks and its tenant's budget say.
    pub(crate) fn budget(&self) -> Budget {
        self.accounts.iter().fold(Budget::default(), |least, (_, budget)| least.least(*budget))
    }

    /// Of all grants that it was narrowed from, too.
    pub(crate) fn all_ids(&self) -> String {
        self.shown.standing.all_ids()
    }

    /// What commands may reach at most. What they send is counted for no grant, so a budget of bytes
    /// leaves nothing; and one of tokens or money leaves no secret, with which they could be spent.
    pub(crate) fn network(&self) -> NetworkBounds {
        let (mut layers, mut secrets) = self.shown.network();
        let budget = self.budget();
        if budget.egress_bytes.is_some() {
            layers.push(RuleSet::default());
        }
        if budget.tokens.is_some() || budget.money_micros.is_some() {
            secrets.clear();
        }
        NetworkBounds { layers, secrets, sent_bytes: None }
    }

    /// Where commands may write in the workspace: what the grant lets be written, and no more.
    pub(crate) fn narrow_writing(&self, spec: &mut SandboxSpec) {
        narrow_writing(spec, self.shown.writable());
        spec.rights = spec.rights.take().filter(|rights| *rights != WriteRights::everywhere());
    }
}

/// Makes the grant of a new agent: its workspace, every kind of work that policy places, tools.
pub(crate) fn mint(home: &Path, id: &AgentId, options: &Options) -> Result<Token, GateError> {
    let workspace = options.workspace.as_ref().map(|path| path.display().to_string());
    let subtrees = |path: &Option<String>| -> Result<BTreeSet<Subtree>, NameError> {
        path.iter().map(|path| path.parse()).collect()
    };
    let names = |words: Vec<String>| -> Result<BTreeSet<Name>, NameError> {
        words.iter().map(|word| word.parse()).collect()
    };
    let kinds = ["build", "files", "compute", "untrusted"].map(str::to_owned).to_vec();
    let phases = match policy_for(options)? {
        Some(stack) => stack.phase_names(),
        None => Vec::new(),
    };
    let rights = Rights {
        task: id.as_str().parse()?,
        tenant: TENANT.parse()?,
        holder: format!("agent {id}").parse()?,
        tools: BTreeSet::from(["*".parse::<ToolPattern>()?]),
        read: subtrees(&workspace)?,
        write: subtrees(&workspace)?,
        endpoints: BTreeSet::new(),
        secrets: BTreeSet::new(),
        phases: names(phases)?,
        kinds: names(kinds)?,
        walls: names(known_walls().iter().map(ToString::to_string).collect())?,
        budget: Budget::default(),
    };
    Ok(Authority::open(home)?.mint(&rights, LIFETIME)?.token)
}

/// A smaller grant for a sub-agent: no more tools than these, if any are named. With `read_only` it
/// can write nothing; that no tool runs commands is up to the list.
pub(crate) fn narrowed(
    token: &Token,
    child: &AgentId,
    tools: Option<&[String]>,
    read_only: bool,
) -> Result<Token, GateError> {
    let tools = tools.map(|tools| tools.iter().map(|tool| tool.parse()).collect());
    let narrowing = Narrowing {
        holder: Some(format!("agent {child}").parse()?),
        tools: tools.transpose()?,
        write: read_only.then(BTreeSet::new),
        phases: Some(BTreeSet::new()),
        ..Narrowing::default()
    };
    Ok(token.narrow(&narrowing)?)
}

/// Where the token of an agent is kept, so that it can go on with the same grant.
pub(crate) fn keep_token(home: &Path, id: &AgentId, token: &Token) -> Result<(), GateError> {
    let path = token_path(home, id);
    let text = token.to_text();
    replace(&path, Content::durable(text.as_bytes()))
        .map_err(|error| GateError::File { path, source: error.into() })
}

pub(crate) fn kept_token(home: &Path, id: &AgentId) -> Result<Token, GateError> {
    read_token(&token_path(home, id))
}

fn token_path(home: &Path, id: &AgentId) -> PathBuf {
    home.join("agents").join(format!("{id}.grant"))
}

/// A token out of a file, which is not read further than one can be long.
pub(crate) fn read_token(path: &Path) -> Result<Token, GateError> {
    let wrong = |source| GateError::File { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(wrong)?;
    file.take(2 * MAX_TOKEN_BYTES as u64).read_to_string(&mut text).map_err(wrong)?;
    Ok(text.trim().parse()?)
}
