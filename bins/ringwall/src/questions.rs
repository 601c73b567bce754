//! The questions that wait for a person, in a picture: all of what one asks for, and the answer with
//! one key. The answer is signed as that of `ringwall approvals` is.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ringwall_approval::{Approval, ApprovalId, Approvals, State, Verdict};
use ringwall_engine::PolicySearch;

use crate::commands::{decide_on, key_place, words_of};
use crate::screen::{Key, Line, Style, wrapped};

/// The words of the record where the person gave no reason.
const NO_REASON: &str = "answered with one key in the live view";
/// A question that has just appeared is answered by no key that was meant for something else.
const NOT_SOONER: Duration = Duration::from_millis(700);
/// A reason is a sentence or two.
const MOST_REASON: usize = 500;

#[derive(Debug)]
pub(crate) struct Questions {
    home: PathBuf,
    search: PolicySearch,
    pending: Vec<Approval>,
    chosen: usize,
    /// The first line of the chosen one that is shown.
    from: usize,
    /// How many of its lines are.
    page: usize,
    /// Since when its end has been on the screen.
    read: Option<(ApprovalId, Instant)>,
    /// A verdict that wants a reason, as far as it is written.
    reason: Option<(ApprovalId, Verdict, String)>,
    said: Option<(Style, String)>,
}

impl Questions {
    /// The questions of this home; who may answer is in the policy that is found there.
    pub(crate) fn new(home: PathBuf, search: PolicySearch) -> Questions {
        Questions {
            home,
            search,
            pending: Vec::new(),
            chosen: 0,
            from: 0,
            page: 1,
            read: None,
            reason: None,
            said: None,
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// Looks again at what waits. The chosen one stays the chosen one.
    pub(crate) fn refresh(&mut self) {
        let before = self.chosen().map(|approval| approval.asked.id.clone());
        let listed = Approvals::open(&self.home).and_then(|all| all.list(SystemTime::now()));
        match listed {
            Ok(listed) => {
                let pending = |approval: &Approval| approval.state == State::Pending;
                self.pending = listed.approvals.into_iter().filter(pending).collect();
            }
            Err(error) => {
                self.pending.clear();
                self.said = Some((Style::Bad, error.to_string()));
            }
        }
        let place = self.pending.iter().position(|one| Some(&one.asked.id) == before.as_ref());
        if place.is_none() {
            self.turn_to(0);
        }
        self.chosen = place.unwrap_or(0);
    }

    fn chosen(&self) -> Option<&Approval> {
        self.pending.get(self.chosen)
    }

    fn turn_to(&mut self, chosen: usize) {
        (self.chosen, self.from, self.read, self.reason) = (chosen, 0, None, None);
    }

    /// At most so many lines, with all of the question or a page of it.
    pub(crate) fn lines(&mut self, (rows, columns): (usize, usize)) -> Vec<Line> {
        let Some(approval) = self.pending.get(self.chosen) else {
            self.read = None;
            let said = self.said.iter().map(|(style, text)| Line::new(*style, text));
            return said.take(rows).collect();
        };
        let id = approval.asked.id.clone();
        let count = self.pending.len();
        let heading = format!("question {} of {count}: {id}", self.chosen + 1);
        let mut lines = vec![Line::new(Style::Notable, &heading)];
        let text: Vec<String> =
            words_of(approval).lines().flat_map(|line| wrapped(line, columns)).collect();
        let room = rows.saturating_sub(3).max(1);
        self.from = self.from.min(text.len().saturating_sub(room));
        self.page = room;
        let page = text.iter().skip(self.from).take(room);
        lines.extend(page.map(|line| Line::plain(line)));
        let is_end = self.from + room >= text.len();
        match &self.read {
            Some((read, _)) if *read == id => {}
            _ if is_end => self.read = Some((id, Instant::now())),
            _ => self.read = None,
        }
        lines.push(match (&self.said, is_end) {
            (Some((style, said)), _) => Line::new(*style, said),
            (None, true) => Line::default(),
            (None, false) => Line::new(Style::Notable, "there is more of it: space"),
        });
        lines.push(match &self.reason {
            Some((_, verdict, text)) => {
                Line::new(Style::Bold, &format!("why {}? ", word(*verdict)))
                    .and(Style::Plain, text)
                    .and(Style::Dim, "   (enter: sign it, escape: do not)")
            }
            None => Line::new(Style::Bold, "a approve  d deny")
                .and(Style::Dim, "   arrows: another question"),
        });
        lines
    }

    /// Whether the key was for a question.
    pub(crate) fn press(&mut self, key: &Key) -> bool {
        if self.reason.is_some() {
            self.write_reason(key);
            return true;
        }
        if self.pending.is_empty() {
            return false;
        }
        let last = self.pending.len() - 1;
        match key {
            Key::One('a') => self.answer(Verdict::Approve { lasting: None }),
            Key::One('d') => self.answer(Verdict::Deny),
            Key::One(' ') => self.from += self.page,
            Key::Up => self.turn_to(self.chosen.saturating_sub(1)),
            Key::Down => self.turn_to((self.chosen + 1).min(last)),
            _ => return false,
        }
        true
    }

    fn write_reason(&mut self, key: &Key) {
        let Some((id, verdict, mut text)) = self.reason.take() else { return };
        match key {
            Key::Escape => return,
            Key::Enter if !text.trim().is_empty() => return self.decide(&id, verdict, &text),
            Key::One(character) => text.push(*character),
            Key::Pasted(pasted) => text.extend(pasted.chars().filter(|one| !one.is_control())),
            Key::Erase => drop(text.pop()),
            Key::Enter | Key::Up | Key::Down => {}
        }
        let text = text.chars().take(MOST_REASON).collect();
        self.reason = Some((id, verdict, text));
    }

    fn answer(&mut self, verdict: Verdict) {
        let Some(asked) = self.chosen().map(|approval| approval.asked.clone()) else { return };
        let read = self.read.as_ref().filter(|(id, _)| *id == asked.id);
        match read {
            None => {
                let said = "read it to its end first: space shows more".to_owned();
                self.said = Some((Style::Notable, said));
                return;
            }
            Some((_, since)) if since.elapsed() < NOT_SOONER => return,
            Some(_) => {}
        }
        let wants_reason = match self.search.load() {
            Ok(policy) => policy.elevation(&asked.elevation).is_some_and(|terms| terms.reason),
            Err(error) => {
                self.said = Some((Style::Bad, error.to_string()));
                return;
            }
        };
        match wants_reason {
            true => self.reason = Some((asked.id, verdict, String::new())),
            false => self.decide(&asked.id, verdict, NO_REASON),
        }
    }

    fn decide(&mut self, id: &ApprovalId, verdict: Verdict, reason: &str) {
        let decided = key_place(None).and_then(|key| {
            let policy = self.search.load()?;
            decide_on(id, (verdict, reason), &key, &policy)
        });
        self.said = Some(match decided {
            Ok(decided) if decided.decision.approved => (Style::Good, format!("{id} is approved")),
            Ok(_) => (Style::Good, format!("{id} is denied")),
            Err(error) => (Style::Bad, format!("{id}: {error:#}")),
        });
        self.refresh();
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approve { .. } => "approve",
        Verdict::Deny => "deny",
    }
}
