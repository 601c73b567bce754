//! Phases: a task moves on, and with it where its sandbox may write, and what may be taken over.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringwall_audit::{Event, Text, WorkspaceApplied};
use ringwall_policy::{Action, Decision, FilePath, LoadError, PlaceRequest, Stack, Task, Work};
use ringwall_spec::{ChangeSummary, WriteRights};
use ringwall_workspace::Selection;

use crate::admit::{AdmitError, anchors, deciding, hint, workspace_rights};
use crate::config::Engine;
use crate::denials::{anchors_above, denied_above};
use crate::ledger::{self, LedgerError};
use crate::network::{ChangeNetworkError, NetworkChange};
use crate::policy_files::PolicySearch;
use crate::record::Record;
use crate::rights::{ChangeRightsError, History};

#[derive(Debug, thiserror::Error)]
pub enum PhaseError {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error("{what} is refused: {why}{}", hint(.elevations))]
    Refused { what: String, why: String, elevations: Vec<String> },
    #[error(transparent)]
    Rights(#[from] ChangeRightsError),
    #[error(transparent)]
    Network(#[from] ChangeNetworkError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Changes(#[from] ringwall_workspace::LoadError),
}

impl PhaseError {
    /// An elevation that would allow the refused change.
    pub fn elevation(&self) -> Option<&str> {
        match self {
            PhaseError::Refused { elevations, .. } => elevations.first().map(String::as_str),
            _ => None,
        }
    }
}

/// A command for a sandbox that lives.
#[derive(Debug, Clone, Copy)]
pub struct WorkInside<'a> {
    pub kind: &'a str,
    /// The sandbox was made for this work. Work of some kinds runs in no sandbox that was made for another.
    pub made_for_it: bool,
}

impl Engine {
    /// The phase that a sandbox is in, if its task has phases.
    pub fn phase(&self, record: &Record) -> Option<String> {
        let changed = History::load(record).ok().and_then(|history| history.phases.last().cloned());
        changed.or_else(|| record.decided.as_ref()?.phase.clone())
    }

    /// Whether a living sandbox may be moved to this phase. `elevated`: with this elevation on top.
    pub fn allow_phase(
        &self,
        record: &Record,
        to: &str,
        (search, elevated): (&PolicySearch, Option<&str>),
    ) -> Result<(), PhaseError> {
        let task = lifted(Task { phase: self.phase(record), ..task_of(record) }, elevated);
        deciding(|| self.decide_phase(record, &search.load()?, (&task, to)))
    }

    fn decide_phase(
        &self,
        record: &Record,
        stack: &Stack,
        (task, to): (&Task, &str),
    ) -> Result<(), PhaseError> {
        let action = Action::ChangePhase(to.to_owned());
        self.allow(record, &stack.decide(task, &action), &format!("the phase {to}"))
    }

    /// Moves a living sandbox to another phase: its jobs may from now on write what that one allows.
    /// `elevated`: the way there, and nothing of what may be written, is decided with it.
    pub fn change_phase(
        &self,
        record: &Record,
        (to, by): (&str, &str),
        (search, elevated): (&PolicySearch, Option<&str>),
    ) -> Result<(), PhaseError> {
        let from = self.phase(record);
        let task = Task { phase: from.clone(), ..task_of(record) };
        let workspace = record.workspace.as_ref();
        let rights = deciding(|| -> Result<_, PhaseError> {
            let stack = search.load()?;
            self.decide_phase(record, &stack, (&lifted(task.clone(), elevated), to))?;
            let task = Task { phase: Some(to.to_owned()), ..task };
            Ok(workspace.map(|workspace| {
                workspace_rights(&stack, &stack.path_rights(&task), &workspace.path)
            }))
        })?;
        let changed =
            Event::PhaseChanged { from: from.map(Text::new), to: Text::new(to), by: Text::new(by) };
        self.record(vec![(ledger::ids(&record.id), changed)])?;
        let at_most = record.decided.as_ref().and_then(|decided| decided.at_most.as_ref());
        let rights = rights.unwrap_or_else(WriteRights::everywhere);
        let rights = at_most.map_or_else(|| rights.clone(), |at_most| rights.and(at_most));
        self.change_rights_for(record, &rights, Some(to))?;
        if Engine::has_network(record) {
            self.change_network(record, NetworkChange::Again)?;
        }
        Ok(())
    }

    /// Whether this work may run in a sandbox that lives: its wall must be strong enough.
    /// `elevated`: with this elevation on top.
    pub fn allow_exec(
        &self,
        record: &Record,
        work: WorkInside<'_>,
        (search, elevated): (&PolicySearch, Option<&str>),
    ) -> Result<(), AdmitError> {
        let layers = search.read()?;
        if layers.is_empty() {
            return Err(AdmitError::NothingToRouteBy);
        }
        let request = PlaceRequest {
            task: lifted(Task { phase: self.phase(record), ..task_of(record) }, elevated),
            work: Work { tool: None, kind: Some(work.kind.to_owned()) },
            wall: Some(record.wall.clone()),
            limits: None,
            reuse: !work.made_for_it,
        };
        let placed = deciding(|| -> Result<_, LoadError> {
            Ok(PolicySearch::stack(layers)?.place(&request, &self.host_facts(true)))
        })?;
        let Err(refusal) = placed.plan() else { return Ok(()) };
        let error = AdmitError::NotInSandbox {
            sandbox: record.id.to_string(),
            kind: placed.kind.to_string(),
            refusal: Box::new(refusal.clone()),
        };
        let (ids, asked) = (ledger::ids(&record.id), ("exec", placed.kind.name()));
        self.record(vec![ledger::denied(ids, asked, &placed.rules, &error.to_string(), None)])?;
        Err(error)
    }

    /// Whether policy lets these changes of a sandbox be written back. Without a policy it is for
    /// the person who asks to say. `elevated`: with this elevation on top.
    pub fn allow_apply(
        &self,
        record: &Record,
        selection: &Selection<'_>,
        (search, elevated): (&PolicySearch, Option<&str>),
    ) -> Result<(), PhaseError> {
        let layers = search.read()?;
        if layers.is_empty() {
            return Ok(());
        }
        let Some(workspace) = &record.workspace else { return Ok(()) };
        let anchors = anchors(&workspace.path);
        let then = |phase| lifted(Task { phase, ..task_of(record) }, elevated);
        let phases = self.phases_of_changes(record)?;
        deciding(|| {
            let stack = PolicySearch::stack(layers)?;
            let apply = stack.decide(&then(self.phase(record)), &Action::Apply);
            self.allow(record, &apply, "writing changes back")?;
            let above = anchors_above(&stack, &workspace.path);
            for path in selection.paths() {
                let shown = format!("./{}", path.display());
                let what = format!("writing {shown}");
                let decision = match (FilePath::new(&shown, &anchors), phases.get(path)) {
                    (Ok(seen), Some(phase)) => {
                        let (task, whole) = (then(phase.clone()), workspace.path.join(path));
                        denied_above(&stack, (&above, &task), (Action::Write, &whole))
                            .unwrap_or_else(|| stack.decide(&task, &Action::Write(seen)))
                    }
                    (Ok(_), None) => refused("no change of this path is known".to_owned()),
                    (Err(error), _) => refused(error.to_string()),
                };
                self.allow(record, &decision, &what)?;
            }
            Ok(())
        })
    }

    /// The phase in which each path was changed last.
    fn phases_of_changes(
        &self,
        record: &Record,
    ) -> Result<BTreeMap<PathBuf, Option<String>>, PhaseError> {
        let id = || record.id.to_string();
        let wrong = |source| ChangeRightsError::Io { id: id(), source };
        let periods = History::load(record).map_err(wrong)?.periods;
        let first = record.decided.as_ref().and_then(|decided| decided.phase.clone());
        // An unknown period has no phase, and nothing of it is taken over.
        let phase = |period: usize| match periods.get(period) {
            Some(known) => Some(known.phase.clone().or_else(|| first.clone())),
            None => (period == 0).then(|| first.clone()),
        };
        let changes = self.changes(record)?;
        let paths = changes.entries().iter();
        let known = paths.filter_map(|it| Some((it.path.as_path().to_owned(), phase(it.period)?)));
        Ok(known.collect())
    }

    /// Writes down that changes were written back.
    pub fn record_applied(
        &self,
        record: &Record,
        changes: ChangeSummary,
        (protected, forced): (Vec<String>, bool),
    ) -> Result<(), LedgerError> {
        let workspace = record.workspace.as_ref().map(|it| it.path.display().to_string());
        let applied = WorkspaceApplied {
            workspace: Text::new(workspace.unwrap_or_default()),
            changes,
            protected: protected.iter().map(Text::new).collect(),
            forced,
        };
        self.record(vec![(ledger::ids(&record.id), Event::WorkspaceApplied(applied))])
    }

    fn allow(&self, record: &Record, decision: &Decision, what: &str) -> Result<(), PhaseError> {
        if decision.allowed {
            return Ok(());
        }
        let fix = decision.elevations.first().map(|name| format!("elevation {name}"));
        let asked = (what, record.id.as_str());
        let (ids, rules, why) = (ledger::ids(&record.id), &decision.rules, &decision.why);
        self.record(vec![ledger::denied(ids, asked, rules, why, fix)])?;
        Err(PhaseError::Refused {
            what: what.to_owned(),
            why: decision.why.clone(),
            elevations: decision.elevations.clone(),
        })
    }
}

fn lifted(mut task: Task, elevated: Option<&str>) -> Task {
    task.elevated.extend(elevated.map(str::to_owned));
    task
}

/// The task as it was when the sandbox was admitted.
fn task_of(record: &Record) -> Task {
    let kept = record.decided.as_ref().and_then(|decided| decided.task.as_deref());
    kept.and_then(|task| serde_json::from_str(task).ok()).unwrap_or_default()
}

fn refused(why: String) -> Decision {
    Decision { allowed: false, rules: Vec::new(), why, elevations: Vec::new() }
}
