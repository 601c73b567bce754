//! Asking people: a question stops the agent, and their answer lets it go on.

use std::collections::BTreeMap;

use ringwall_desk::{Answer, Question, Step};

use crate::bounds::Stop;
use crate::calls::refused;
use crate::journal::Entry;
use crate::output::{Done, shortened};
use crate::supervisor::{Halt, Supervisor};

/// The most of a task that a person is shown.
const MOST_SHOWN: usize = 500;

impl Supervisor<'_> {
    pub(crate) fn ask(&mut self, step: u64, elevation: &str, reason: &str) -> Result<Done, Halt> {
        self.step(Step::Elevate(elevation))?;
        let agent = self.journal.id.to_string();
        let parameters = self.shown_to_people(elevation, reason);
        let question = Question { elevation, parameters, agent: &agent };
        let (desk, task) = (self.world.desk(), self.task());
        let Some((id, _)) = self.state.asked.get(&step).cloned() else {
            let asked = desk.ask(&self.caller, self.stepping(&task), &question);
            let asked = asked.map_err(|it| self.no(it))?;
            let (approval, elevation) = (asked.id.to_string(), asked.elevation);
            let (id, asked_for) = (approval.clone(), elevation.clone());
            self.write(Entry::Asked { step, approval, elevation }, true)?;
            return Err(Halt::Stop(Stop::Approval { id, elevation: asked_for }));
        };
        let answer = desk.answer(&self.caller, self.stepping(&task), (&question, &id));
        let elevation = elevation.to_owned();
        match answer.map_err(|it| self.no(it))? {
            Answer::Pending => Err(Halt::Stop(Stop::Approval { id, elevation })),
            Answer::No(why) => Err(refused(why)),
            Answer::Yes { until_unix } => {
                let said = format!("A person has allowed it: {id}.");
                self.write(Entry::Elevated { step, approval: id, elevation, until_unix }, true)?;
                Ok(Done::said(said))
            }
        }
    }

    /// All of what the person allows.
    fn shown_to_people(&self, elevation: &str, reason: &str) -> BTreeMap<String, String> {
        let tainted = self.state.taint.as_ref();
        let tainted = tainted.map(|taint| format!("by step {}: {}", taint.step, taint.source));
        let parameters = [
            ("lifts", elevation.to_owned()),
            ("reason", shortened(reason, MOST_SHOWN)),
            ("task", shortened(&self.state.options.task, MOST_SHOWN)),
            ("tainted", tainted.unwrap_or_else(|| "no".to_owned())),
        ];
        parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}
