//! What an agent does, line by line: for people on standard error, for programs as JSON on standard
//! output.

use std::io::{self, Write};

use ringwall_agent::{AgentId, Ending, Entry, Happening, Spent, State};
use serde_json::{Value, json};

use crate::args::AgentFormat;
use crate::report;

/// The most of a call's input that a line shows.
const SHOWN: usize = 100;

#[derive(Debug)]
pub(super) struct Lines {
    format: AgentFormat,
    /// The model is in the middle of a line.
    speaking: bool,
}

impl Lines {
    pub(super) fn new(format: AgentFormat) -> Lines {
        Lines { format, speaking: false }
    }

    /// For the lines after a picture has gone.
    pub(super) fn after_picture(id: &AgentId, used: &str) -> Lines {
        report::note(&format!("{id}: {used}"));
        Lines::new(AgentFormat::Text)
    }

    pub(super) fn show(&mut self, happening: &Happening<'_>) {
        match (self.format, happening) {
            (AgentFormat::Jsonl, Happening::Text(_)) => {}
            (AgentFormat::Jsonl, Happening::Entry { agent, depth, entry, .. }) => {
                // If standard output is gone, no reader is left to tell; the journal has it all.
                let _ = json_line(&with(json!({ "agent": agent, "depth": depth }), entry));
            }
            (_, Happening::Text(text)) if super::is_watched() => {
                self.speaking = true;
                let shown: Vec<_> = text.split('\n').map(report::printable).collect();
                let _ = io::stderr().write_all(shown.join("\n").as_bytes());
            }
            (_, Happening::Text(_)) => {}
            (_, Happening::Entry { depth, entry, state, .. }) => {
                if let Some(line) = told(entry, state) {
                    self.end_speech();
                    let indent = "  ".repeat(usize::try_from(*depth).unwrap_or(0));
                    let line = format!("{indent}{}\n", report::printable(&line));
                    let _ = io::stderr().write_all(line.as_bytes());
                }
            }
        }
    }

    fn end_speech(&mut self) {
        if std::mem::replace(&mut self.speaking, false) {
            let _ = io::stderr().write_all(b"\n");
        }
    }

    pub(super) fn ended(&mut self, id: &AgentId, ending: &Ending) -> io::Result<()> {
        self.end_speech();
        if self.format != AgentFormat::Jsonl {
            return Ok(());
        }
        let (word, detail) = match ending {
            Ending::Finished { .. } => ("finished", Value::Null),
            Ending::Stopped(stop) => (stop.word(), json!(stop.to_string())),
        };
        let sandbox = match ending {
            Ending::Finished { sandbox, .. } => sandbox.clone(),
            Ending::Stopped(_) => None,
        };
        json_line(&json!({
            "agent": id, "kind": "ending", "ending": word, "reason": detail, "sandbox": sandbox,
        }))
    }

    /// What the model says in the end.
    pub(super) fn answer(&self, text: &str) -> io::Result<()> {
        if self.format == AgentFormat::Jsonl {
            return Ok(());
        }
        let lines = text.lines().map(|line| format!("{}\n", report::printable(line)));
        report::text(lines.collect::<String>())
    }
}

fn json_line(value: &Value) -> io::Result<()> {
    report::text(format!("{value}\n"))
}

fn with(mut head: Value, entry: &Entry) -> Value {
    if let (Some(head), Ok(Value::Object(entry))) =
        (head.as_object_mut(), serde_json::to_value(entry))
    {
        head.extend(entry);
    }
    head
}

/// One line for people, if it is worth one.
pub(super) fn told(entry: &Entry, state: &State) -> Option<String> {
    Some(match entry {
        Entry::Begun { options, parent, .. } => {
            let whose = parent.as_ref().map(|(id, step)| format!(" for {id}, step {step}"));
            let model = &options.model;
            format!(
                "agent{} asks {} ({})",
                whose.unwrap_or_default(),
                model.name,
                model.provider.name()
            )
        }
        Entry::Resumed { .. } => "goes on".to_owned(),
        Entry::Brain { wall, .. } => format!("the planner is behind {wall}"),
        Entry::Sandbox { id, wall, why, .. } => format!("sandbox {id} behind {wall}: {why}"),
        Entry::CallBegun { step, tool, input, .. } => {
            format!("[{step}] {tool} {}", short(&input.to_string()))
        }
        Entry::CallEnded { step, failed, refused, place, ms, content, .. } => {
            let how = match (refused, failed) {
                (Some(why), _) => format!("refused: {}", short(why)),
                (None, true) => format!("failed: {}", short(content)),
                (None, false) => "done".to_owned(),
            };
            let place = place.as_ref().map(|place| format!(" behind {}", place.wall));
            format!("[{step}] {how}{}, {ms} ms", place.unwrap_or_default())
        }
        Entry::Tainted { step, source } => format!("[{step}] the task is tainted: {source}"),
        Entry::Planned { plan, .. } => format!("plan: {}", short(&plan.join("; "))),
        Entry::Phase { to, .. } => format!("phase {to}"),
        Entry::Asked { approval, elevation, .. } => {
            format!("{approval} asks a person for {elevation}")
        }
        Entry::Elevated { approval, elevation, .. } => format!("{approval} allows {elevation}"),
        Entry::Stopped { stop } => format!("stopped: {stop}"),
        Entry::Finished { .. } => format!("done; {}", spent(&state.spent_in_all())),
        Entry::Turn { .. }
        | Entry::Read { .. }
        | Entry::Waited { .. }
        | Entry::Child { .. }
        | Entry::ChildSpent { .. } => return None,
    })
}

pub(super) fn spent(spent: &Spent) -> String {
    let money = spent.money_micros;
    let cost = match money {
        0 => String::new(),
        money => format!(", cost {}.{:04}", money / 1_000_000, money % 1_000_000 / 100),
    };
    format!("{} steps, {} tokens{cost}, {} s", spent.steps, spent.tokens(), spent.active_ms / 1000)
}

pub(super) fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
