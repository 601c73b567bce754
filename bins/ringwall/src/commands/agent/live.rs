//! An agent at work, as a picture on the terminal: its steps and walls, its budget, and the questions
//! that wait for a person.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use ringwall_agent::{AgentId, Entry, Happening, State, Watcher};
use ringwall_approval::{ApprovalId, Approvals};

use super::lines::told;
use crate::budget::{self, Part};
use crate::questions::Questions;
use crate::screen::{self, Key, Line, Screen, Style};
use crate::terminal;

/// How often the picture is drawn while no key is pressed.
const TICK: Duration = Duration::from_millis(150);
/// How often the questions are looked at.
const LOOK: Duration = Duration::from_millis(450);
/// Steps that are remembered; a screen shows fewer.
const MOST_ROWS: usize = 200;
/// The beginning of a call's input, so that its result has room beside it.
const MOST_INPUT: usize = 60;
/// The end of what the model says.
const MOST_SPEECH: usize = 2000;

/// The known state of the agent.
#[derive(Debug, Default)]
struct Picture {
    id: Option<AgentId>,
    task: String,
    model: String,
    doing: String,
    brain: String,
    sandbox: String,
    taint: Option<String>,
    budget: Vec<Part>,
    rows: VecDeque<Row>,
    speech: String,
}

#[derive(Debug)]
struct Row {
    /// The agent and its step, if it is a step.
    of: Option<(AgentId, u64)>,
    text: String,
    ended: Option<(Style, String)>,
}

/// The picture is on the terminal while this lives.
#[derive(Debug)]
pub(super) struct Live {
    picture: Arc<Mutex<Picture>>,
    over: Arc<AtomicBool>,
    /// The person does not want to wait for an answer.
    left: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    pub(super) fn open(questions: Questions) -> anyhow::Result<Live> {
        let screen = Screen::open()?;
        let picture = Arc::new(Mutex::new(Picture::default()));
        let (over, left) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (drawn, done, asked) = (Arc::clone(&picture), Arc::clone(&over), Arc::clone(&left));
        let body = move || show(&screen, questions, &drawn, (&done, &asked));
        let thread = std::thread::Builder::new().name("screen".to_owned());
        // A person's answer reads the policy, which takes as much of a stack as the supervisor's own.
        let thread = thread.stack_size(super::STACK_BYTES).spawn(body);
        Ok(Live { picture, over, left, thread: Some(thread.context("no thread can be started")?) })
    }

    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a person has answered, here or elsewhere. `false`: the person goes away instead.
    pub(super) fn answered(&self, home: &Path, approval: &str) -> anyhow::Result<bool> {
        let approvals = Approvals::open(home)?;
        let id: ApprovalId = approval.parse()?;
        self.left.store(false, Ordering::Relaxed);
        self.picture().doing = "waits for a person (q: not now)".to_owned();
        while approvals.get(&id, SystemTime::now())?.state == ringwall_approval::State::Pending {
            let is_shown = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
            if self.left.load(Ordering::Relaxed) || !is_shown {
                return Ok(false);
            }
            std::thread::sleep(TICK);
        }
        Ok(true)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Watcher for Live {
    fn saw(&mut self, happening: &Happening<'_>) {
        let mut picture = self.picture();
        match happening {
            Happening::Text(text) => picture.hear(text),
            Happening::Entry { agent, depth, entry, state } => {
                picture.take(agent, *depth, entry, state);
            }
        }
    }
}

fn show(
    screen: &Screen,
    mut questions: Questions,
    picture: &Mutex<Picture>,
    (over, left): (&AtomicBool, &AtomicBool),
) {
    let mut looked: Option<Instant> = None;
    while !over.load(Ordering::Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            questions.refresh();
            looked = Some(Instant::now());
        }
        let size = terminal::size();
        let size = (usize::from(size.rows), usize::from(size.columns));
        let lines = {
            let picture = picture.lock().unwrap_or_else(PoisonError::into_inner);
            picture.lines(&mut questions, size)
        };
        screen.draw(&lines);
        match screen.key(TICK) {
            Err(_) => return,
            Ok(None) => {}
            Ok(Some(key)) if questions.press(&key) => {}
            Ok(Some(Key::One('q'))) => left.store(true, Ordering::Relaxed),
            Ok(Some(_)) => {}
        }
    }
}

impl Picture {
    fn hear(&mut self, text: &str) {
        self.speech.push_str(text);
        let too_many = self.speech.chars().count().saturating_sub(MOST_SPEECH);
        self.speech = self.speech.chars().skip(too_many).collect();
    }

    fn take(&mut self, agent: &AgentId, depth: u32, entry: &Entry, state: &State) {
        if depth == 0 {
            self.budget = budget::parts(&state.bounds, &state.spent_in_all());
            let tainted = state.taint.as_ref();
            self.taint = tainted.map(|taint| format!("by step {}: {}", taint.step, taint.source));
            self.take_own(agent, entry, state);
        }
        let indent = "  ".repeat(usize::try_from(depth).unwrap_or(0));
        match entry {
            Entry::CallBegun { step, tool, input, .. } => {
                self.speech.clear();
                let input: String = input.to_string().chars().take(MOST_INPUT).collect();
                let text = format!("{indent}[{step}] {tool} {input}");
                self.add(Row { of: Some((agent.clone(), *step)), text, ended: None });
            }
            Entry::CallEnded { step, failed, refused, .. } => {
                let style = match (refused, failed) {
                    (Some(_), _) => Style::Bad,
                    (None, true) => Style::Notable,
                    (None, false) => Style::Good,
                };
                let of = Some((agent.clone(), *step));
                let ended = told(entry, state).unwrap_or_default();
                let ended = ended.split_once("] ").map_or("", |(_, how)| how).to_owned();
                if let Some(row) = self.rows.iter_mut().rfind(|row| row.of == of) {
                    row.ended = Some((style, ended));
                }
            }
            Entry::Finished { .. } if depth == 0 => {}
            entry => {
                if let Some(text) = told(entry, state) {
                    self.add(Row { of: None, text: format!("{indent}{text}"), ended: None });
                }
            }
        }
    }

    /// Takes in an entry of the agent itself, not of its sub-agents.
    fn take_own(&mut self, agent: &AgentId, entry: &Entry, state: &State) {
        match entry {
            Entry::Begun { .. } | Entry::Resumed { .. } => {
                let model = &state.options.model;
                screen::last_words(format!("go on with `ringwall agent resume {agent}`"));
                self.id = Some(agent.clone());
                self.task.clone_from(&state.options.task);
                self.model = format!("{} ({})", model.name, model.provider.name());
                self.doing = "works".to_owned();
            }
            Entry::Brain { wall, .. } => self.brain = wall.to_string(),
            Entry::Sandbox { id, wall, .. } => self.sandbox = format!("{id} behind {wall}"),
            Entry::Stopped { stop } => self.doing = format!("stopped: {stop}"),
            _ => {}
        }
    }

    fn add(&mut self, row: Row) {
        self.rows.push_back(row);
        let too_many = self.rows.len().saturating_sub(MOST_ROWS);
        self.rows.drain(..too_many);
    }

    fn lines(&self, questions: &mut Questions, (rows, columns): (usize, usize)) -> Vec<Line> {
        let mut lines = self.head();
        // A question is shown whole where there is room for it; steps get the rest.
        let asked = questions.lines((rows.saturating_sub(2), columns));
        let asked_rows = asked.len();
        let crowded = lines.len() + asked_rows + 3 > rows;
        if asked_rows > 0 && crowded {
            lines.truncate(rows.saturating_sub(asked_rows + 1).clamp(1, lines.len()));
        }
        let speech = self.speech.trim().lines().last().unwrap_or_default();
        let taken = lines.len() + asked_rows + usize::from(!speech.is_empty()) + 1;
        let room = rows.saturating_sub(taken);
        lines.push(Line::default());
        let from = self.rows.len().saturating_sub(room);
        lines.extend(self.rows.iter().skip(from).map(Row::line));
        if !speech.is_empty() && room > 0 {
            lines.push(Line::new(Style::Dim, "says ").and(Style::Plain, speech));
        }
        lines.extend(asked);
        lines
    }

    fn head(&self) -> Vec<Line> {
        let id = self.id.as_ref().map_or("an agent", AgentId::as_str);
        let mut lines = vec![
            Line::new(Style::Bold, id)
                .and(Style::Dim, &format!("  {}  ", self.model))
                .and(Style::Bold, &self.doing),
            Line::new(Style::Dim, "task          ").and(Style::Plain, &self.task),
            Line::new(Style::Dim, "brain         ").and(Style::Plain, &self.brain),
            Line::new(Style::Dim, "sandbox       ").and(Style::Plain, &self.sandbox),
        ];
        let taint = self.taint.iter();
        lines.extend(taint.map(|why| Line::new(Style::Bad, &format!("tainted       {why}"))));
        lines.extend(self.budget.iter().map(Part::line));
        lines
    }
}

impl Row {
    fn line(&self) -> Line {
        let line = Line::plain(&self.text);
        match (&self.ended, &self.of) {
            (Some((style, how)), _) => line.and(*style, &format!("  {how}")),
            (None, Some(_)) => line.and(Style::Notable, "  ..."),
            (None, None) => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_screen_still_shows_who_it_is() {
        let home = tempfile::tempdir().unwrap();
        let search = ringwall_engine::PolicySearch::default();
        let mut questions = Questions::new(home.path().to_owned(), search);
        let mut picture = Picture { doing: "works".to_owned(), ..Picture::default() };
        for step in 0..300 {
            picture.add(Row { of: None, text: format!("row {step}"), ended: None });
        }
        assert_eq!(picture.rows.len(), MOST_ROWS);
        for rows in 0..40 {
            let lines = picture.lines(&mut questions, (rows, 80));
            assert!(!lines.is_empty() && lines.len() <= rows.max(5), "{rows}: {}", lines.len());
        }
        picture.hear(&"x".repeat(5000));
        assert_eq!(picture.speech.len(), MOST_SPEECH);
    }
}
