//! Asking people: a question stops the agent, and their answer lets it go on.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ringwall_approval::{
    Action, ApprovalId, Approvals, Approver, AskError, ElevateError, ElevationRule, RecordError,
    State as Answer, TermsError, UseError,
};
use ringwall_grant::{Ask, Request};
use ringwall_policy::Action as Deed;

use crate::bounds::Stop;
use crate::calls::{failed, refused};
use crate::journal::Entry;
use crate::output::{Done, shortened};
use crate::supervisor::{Halt, Supervisor};

/// The most of a task that a person is shown.
const MOST_SHOWN: usize = 500;

#[derive(Debug, thiserror::Error)]
enum ConsentError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Elevate(#[from] ElevateError),
    #[error(transparent)]
    Use(#[from] UseError),
    #[error(transparent)]
    Terms(#[from] TermsError),
}

/// One elevation, and who may give it.
struct Offer {
    rule: ElevationRule,
    approvers: Vec<Approver>,
}

impl Supervisor<'_> {
    pub(crate) fn ask(&mut self, step: u64, elevation: &str, reason: &str) -> Result<Done, Halt> {
        let Some(offer) = self.offer(elevation)? else {
            return Err(refused(format!("the policy offers no elevation {elevation:?}")));
        };
        self.decide(&Deed::Elevate(elevation.to_owned()), &format!("the elevation {elevation}"))?;
        let approvals = Approvals::open(self.world.home).map_err(|error| failed(&error))?;
        let action = self.action(elevation, reason);
        match self.state.asked.get(&step).cloned() {
            None => self.begin_asking(step, (&approvals, &offer), &action),
            Some((id, _)) => self.look_at_answer(step, (&approvals, &offer), (&id, &action)),
        }
    }

    fn offer(&self, elevation: &str) -> Result<Option<Offer>, Halt> {
        let terms = self.gate.policy().and_then(|stack| stack.elevation(elevation));
        let Some(terms) = terms else { return Ok(None) };
        let made =
            ElevationRule::from_terms(&terms.name, &terms.approvers, terms.max, terms.single_use);
        let (rule, approvers) = made.map_err(|error| failed(&ConsentError::from(error)))?;
        Ok(Some(Offer { rule, approvers }))
    }

    fn request(&self) -> Request {
        Request::new(&self.holder.task, &self.holder.tenant, Ask::Identity)
    }

    /// All of what the person allows.
    fn action(&self, elevation: &str, reason: &str) -> Action {
        let tainted = self.state.taint.as_ref();
        let tainted = tainted.map(|taint| format!("by step {}: {}", taint.step, taint.source));
        let parameters = [
            ("lifts", elevation.to_owned()),
            ("reason", shortened(reason, MOST_SHOWN)),
            ("task", shortened(&self.state.options.task, MOST_SHOWN)),
            ("tainted", tainted.unwrap_or_else(|| "no".to_owned())),
        ];
        let parameters: BTreeMap<String, String> =
            parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let agent = self.journal.id.to_string();
        Action::of(&self.request(), parameters, agent.clone(), agent)
    }

    fn begin_asking(
        &mut self,
        step: u64,
        (approvals, offer): (&Approvals, &Offer),
        action: &Action,
    ) -> Result<Done, Halt> {
        let request = self.request();
        let asked = approvals
            .ask(&self.gate.verifier, &self.holder.token, &request, action, &offer.rule, None)
            .map_err(|error| failed(&ConsentError::from(error)))?;
        self.world.engine.record(vec![asked.event()])?;
        let approval = asked.id.to_string();
        let elevation = asked.elevation;
        let entry = Entry::Asked { step, approval: approval.clone(), elevation: elevation.clone() };
        self.write(entry, true)?;
        Err(Halt::Stop(Stop::Approval { id: approval, elevation }))
    }

    fn look_at_answer(
        &mut self,
        step: u64,
        (approvals, offer): (&Approvals, &Offer),
        (id, action): (&str, &Action),
    ) -> Result<Done, Halt> {
        let now = SystemTime::now();
        let elevation = offer.rule.name.as_str().to_owned();
        let Ok(approval) = id.parse::<ApprovalId>() else {
            return Err(refused(format!("{id} is no approval")));
        };
        let known = approvals.get(&approval, now).map_err(|error| failed(&error))?;
        match known.state {
            Answer::Pending => Err(Halt::Stop(Stop::Approval { id: id.to_owned(), elevation })),
            Answer::Lapsed => Err(refused(format!("{id}: nobody answered in time"))),
            Answer::Denied(decision) => {
                Err(refused(format!("{id}: a person said no: {}", decision.reason)))
            }
            Answer::Over(_) => Err(refused(format!("{id}: what was allowed has ended"))),
            Answer::Approved(_) => {
                let elevated = approvals.elevate(&self.holder.token, &approval, now);
                let token = elevated.map_err(|error| failed(&ConsentError::from(error)))?;
                let policy = (&offer.rule, offer.approvers.as_slice());
                let (verifier, request) = (&self.gate.verifier, self.request());
                let used = approvals
                    .authorize(verifier, &token, &request, action, policy, true)
                    .map_err(|error| failed(&ConsentError::from(error)))?
                    .used;
                let Some(used) = used else {
                    return Err(refused(format!("{id} is not for this")));
                };
                self.world.engine.record(vec![used.event(action)])?;
                let (approval, until_unix) = (id.to_owned(), used.until_unix);
                let entry = Entry::Elevated { step, approval, elevation, until_unix };
                self.write(entry, true)?;
                Ok(Done::said(format!("A person has allowed it: {id}.")))
            }
        }
    }
}
