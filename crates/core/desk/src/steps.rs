//! What an agent does: single steps, whether its sandbox fits its task still, and its questions to people.
//! Its commands and tools go the way of everybody's: [`Desk::place`], [`Desk::enter`], [`Desk::begin_call`].

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use ringwall_approval::{Action, ApprovalId, Approvals, Approver, AskedFor, ElevationRule, State};
use ringwall_engine::{Record, with_causes};
use ringwall_grant::Ask;
use ringwall_policy::Task;

use crate::books::Desk;
use crate::caller::{Caller, Hands, Holder};
use crate::elevate::terms;
use crate::refused::{Kind, Refused};
use crate::rules::{Job, Rules, Step};

/// Who takes a step: the policy that counts, and the task as it is now. What is known of the task beyond its
/// grant only narrows.
#[derive(Debug, Clone, Copy)]
pub struct Stepping<'a> {
    pub rules: &'a Rules,
    pub task: &'a Task,
}

/// An elevation that a model asks people for.
#[derive(Debug)]
pub struct Question<'a> {
    pub elevation: &'a str,
    /// What the people are shown.
    pub parameters: BTreeMap<String, String>,
    pub agent: &'a str,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Pending,
    /// Why it is not allowed.
    No(String),
    /// The task has the elevation until then.
    Yes {
        until_unix: u64,
    },
}

/// The one form of a question, so that the answer is to exactly this.
struct Form {
    rule: ElevationRule,
    approvers: Vec<Approver>,
    action: Action,
    approvals: Approvals,
}

impl Desk<'_> {
    /// Whether the grant is good for anything still.
    pub fn may_go_on(&self, caller: &Caller) -> Result<(), Refused> {
        self.may(caller, Ask::Identity)
    }

    /// Writes down that a brain asked for something by another grant than its own.
    pub fn deny_turn(&self, caller: &Caller, why: &str) -> Result<(), Refused> {
        let Some(holder) = caller.holder() else { return Ok(()) };
        Ok(self.engine.record(vec![holder.denied_by(("agent", "a turn"), "grant", why)])?)
    }

    /// Whether the grant has the tool by which something is done.
    pub fn may_use_tool(&self, caller: &Caller, tool: &str) -> Result<(), Refused> {
        self.may(caller, Ask::Tool { name: tool.to_owned() })
    }

    /// Whether the grant has this tool. Nothing is written down.
    pub fn has_tool(&self, caller: &Caller, tool: &str) -> Result<bool, Refused> {
        self.books.has_right(caller, Ask::Tool { name: tool.to_owned() })
    }

    /// Whether the grant lets all of a directory be written. Nothing is written down.
    pub fn has_directory(&self, caller: &Caller, path: &Path) -> Result<bool, Refused> {
        self.books.has_right(caller, Ask::Write { path: path.display().to_string() })
    }

    /// Whether the caller's task may be trusted as far as it says.
    pub fn may_act_as(&self, caller: &Caller, at: Stepping<'_>) -> Result<(), Refused> {
        match at.rules.stack() {
            Some(policy) => self.may_have_trust(caller, policy, at.task),
            None => Ok(()),
        }
    }

    /// Whether grant and policy let a step be taken.
    pub fn step(&self, caller: &Caller, at: Stepping<'_>, step: Step<'_>) -> Result<(), Refused> {
        self.may_act_as(caller, at)?;
        if let Some(ask) = at.rules.ask(step) {
            self.may(caller, ask)?;
        }
        let Some(holder) = caller.holder() else { return Ok(()) };
        if !at.rules.is_there() && holder.hands != Hands::OwnersAgent {
            // What a grant allows is on top of a policy, never instead of one.
            return Err(ringwall_policy::LoadError::Absent.into());
        }
        match at.rules.judge(at.task, step) {
            Ok(()) => Ok(()),
            Err(no) => {
                let what = step.to_string();
                let denied = holder.denied_by(("agent", &what), &no.rule, &no.why);
                self.engine.record(vec![denied])?;
                Err(Refused::new(Kind::DeniedByPolicy, no.why))
            }
        }
    }

    /// Whether the task of an agent, as it is now, may do work of this kind in this sandbox. Nothing is written
    /// down: where it may not, it moves to another one.
    pub fn fits(&self, at: Stepping<'_>, record: &Record, kind: &str) -> bool {
        let Some(decided) = &record.decided else { return !at.rules.is_there() };
        let made_for = decided.task.as_deref().and_then(|it| serde_json::from_str::<Task>(it).ok());
        let made_for = made_for.unwrap_or_default();
        if made_for.tainted != at.task.tainted || made_for.elevated != at.task.elevated {
            return false;
        }
        let job = Job { tool: None, kind, wall: Some(&record.wall), reuse: true };
        at.rules.no_wall(at.task, job, &self.engine.host_facts(true)).is_none()
    }

    /// Asks people.
    pub fn ask(
        &self,
        caller: &Caller,
        at: Stepping<'_>,
        question: &Question<'_>,
    ) -> Result<Box<AskedFor>, Refused> {
        let holder = agent(caller)?;
        let form = self.form(holder, at, question)?;
        let (verifier, request) = (self.books.verifier(false)?, holder.request(Ask::Identity));
        let Form { rule, action, approvals, .. } = form;
        let asked = approvals.ask(&verifier, &holder.token, &request, &action, &rule, None);
        let asked =
            asked.map_err(|error| Refused::new(Kind::DeniedByPolicy, with_causes(&error)))?;
        self.books.write(asked.event())?;
        Ok(Box::new(asked))
    }

    /// Looks at the answer to a question, and takes the elevation that it gives.
    pub fn answer(
        &self,
        caller: &Caller,
        at: Stepping<'_>,
        (question, id): (&Question<'_>, &str),
    ) -> Result<Answer, Refused> {
        let holder = agent(caller)?;
        let Ok(id) = id.parse::<ApprovalId>() else {
            return Ok(Answer::No(format!("{id} is not an approval")));
        };
        let form = self.form(holder, at, question)?;
        let now = SystemTime::now();
        let known = form.approvals.get(&id, now).map_err(|error| Refused::internal(&error))?;
        match known.state {
            State::Pending => Ok(Answer::Pending),
            State::Lapsed => Ok(Answer::No(format!("{id}: nobody answered in time"))),
            State::Denied(decision) => {
                Ok(Answer::No(format!("{id}: a person said no: {}", decision.reason)))
            }
            State::Over(_) => Ok(Answer::No(format!("{id}: what was allowed has ended"))),
            State::Approved(_) => self.take_elevation(holder, &form, &id),
        }
    }

    fn take_elevation(
        &self,
        holder: &Holder,
        form: &Form,
        id: &ApprovalId,
    ) -> Result<Answer, Refused> {
        let denied = |why: String| Refused::new(Kind::DeniedByPolicy, why);
        let token = form.approvals.elevate(&holder.token, id, SystemTime::now());
        let token = token.map_err(|error| denied(with_causes(&error)))?;
        let (verifier, request) = (self.books.verifier(false)?, holder.request(Ask::Identity));
        let policy = (&form.rule, form.approvers.as_slice());
        let used = form
            .approvals
            .authorize(&verifier, &token, &request, &form.action, policy, true)
            .map_err(|error| denied(with_causes(&error)))?
            .used;
        let Some(used) = used else { return Ok(Answer::No(format!("{id} is not for this"))) };
        self.books.write(used.event(&form.action))?;
        Ok(Answer::Yes { until_unix: used.until_unix })
    }

    fn form(
        &self,
        holder: &Holder,
        at: Stepping<'_>,
        question: &Question<'_>,
    ) -> Result<Form, Refused> {
        let offered = at.rules.stack().map(|stack| terms(stack, question.elevation)).transpose()?;
        let Some((rule, approvers)) = offered.flatten() else {
            let why = format!("the policy offers no elevation {:?}", question.elevation);
            return Err(Refused::new(Kind::DeniedByPolicy, why));
        };
        let (parameters, agent) = (question.parameters.clone(), question.agent);
        let action = Action::of(&holder.request(Ask::Identity), parameters, agent, agent);
        Ok(Form { rule, approvers, action, approvals: self.books.approvals()? })
    }
}

fn agent(caller: &Caller) -> Result<&Holder, Refused> {
    let why = "only an agent asks people for an elevation of its task";
    caller.holder().map(AsRef::as_ref).ok_or_else(|| Refused::new(Kind::NotGranted, why))
}
