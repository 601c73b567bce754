//! `ringwall top`: the sandboxes and agents of this home, what they have used of their limits, and
//! what waits for a person.

mod snapshot;

use std::io::Write;
use std::time::{Duration, Instant};

use ringwall_engine::{EngineConfig, PolicySearch};

use crate::args::{AgentFormat, TopArgs};
use crate::budget::Part;
use crate::questions::Questions;
use crate::report::{self, Table, age};
use crate::screen::{self, Key, Line, Screen, Style};
use crate::terminal;
use snapshot::{Looker, Snapshot};

/// How long a key may wait.
const TICK: Duration = Duration::from_millis(200);
/// It is not worth looking more often.
const SHORTEST: Duration = Duration::from_millis(200);

pub(super) fn run(args: &TopArgs) -> anyhow::Result<()> {
    let every = args.every.max(SHORTEST);
    let mut looker = Looker::default();
    match args.format {
        AgentFormat::Jsonl => loop {
            let line = serde_json::to_string(&looker.look()?)?;
            let mut out = std::io::stdout().lock();
            out.write_all(format!("{line}\n").as_bytes())?;
            out.flush()?;
            drop(out);
            std::thread::sleep(every);
        },
        AgentFormat::Text if screen::is_there() => live(looker, every),
        AgentFormat::Text | AgentFormat::Lines => Ok(report::text(tables(&looker.look()?))?),
    }
}

fn live(mut looker: Looker, every: Duration) -> anyhow::Result<()> {
    screen::watch_signals()?;
    let home = EngineConfig::from_environment()?.home;
    let search = PolicySearch::from_environment(std::env::current_dir().ok());
    let mut questions = Questions::new(home, search);
    let mut seen = looker.look()?;
    let mut looked = Instant::now();
    questions.refresh();
    let screen = Screen::open()?;
    loop {
        if looked.elapsed() >= every {
            seen = looker.look()?;
            questions.refresh();
            looked = Instant::now();
        }
        screen.draw(&picture(&seen, &mut questions));
        match screen.key(TICK)? {
            None => {}
            Some(key) if questions.press(&key) => {}
            Some(Key::One('q') | Key::Escape) => return Ok(()),
            Some(_) => {}
        }
    }
}

fn picture(seen: &Snapshot, questions: &mut Questions) -> Vec<Line> {
    let size = terminal::size();
    let (rows, columns) = (usize::from(size.rows), usize::from(size.columns));
    let (sandboxes, agents) = (seen.sandboxes.len(), seen.agents.len());
    let mut lines = vec![
        Line::new(Style::Bold, "ringwall top")
            .and(
                Style::Plain,
                &format!(
                    "  {sandboxes} sandboxes, {agents} agents, {} questions",
                    questions.waiting()
                ),
            )
            .and(Style::Dim, "   q: leave"),
    ];
    let asked = questions.lines((rows.saturating_sub(4), columns));
    let room = rows.saturating_sub(lines.len() + asked.len() + 2);
    let for_agents = agents.min(room.saturating_sub(sandboxes.min(room / 2)));
    if agents > 0 {
        lines.push(Line::new(Style::Dim, "AGENT            STATE"));
        lines.extend(seen.agents.iter().take(for_agents).map(agent_line));
    }
    let for_tenants = seen.tenants.len().min(room.saturating_sub(for_agents) / 2);
    if for_tenants > 0 {
        lines.push(Line::new(Style::Dim, "TENANT"));
        lines.extend(
            seen.tenants
                .iter()
                .take(for_tenants)
                .map(|tenant| bars(Line::plain(&format!("{:16} ", tenant.name)), &tenant.budget)),
        );
    }
    if sandboxes > 0 {
        lines.push(Line::new(Style::Dim, "SANDBOX"));
        let rest = room.saturating_sub(for_agents + for_tenants);
        lines.extend(seen.sandboxes.iter().take(rest).map(|one| {
            Line::plain(&format!("{}  {:20} {:>5}  ", one.id, one.wall, age(one.age_ms)))
                .and(Style::Dim, &one.command)
        }));
    }
    let most = rows.saturating_sub(asked.len());
    lines.truncate(most);
    lines.resize_with(most, Line::default);
    lines.extend(asked);
    lines
}

fn agent_line(agent: &snapshot::Agent) -> Line {
    let style = if agent.doing == "running" { Style::Good } else { Style::Notable };
    let line = Line::plain(&format!("{} ", agent.id)).and(style, &format!("{:9} ", agent.doing));
    let taint = if agent.tainted { "tainted " } else { "" };
    bars(line, &agent.budget).and(Style::Bad, taint).and(Style::Plain, &agent.task)
}

fn bars(line: Line, budget: &[Part]) -> Line {
    budget.iter().map(Part::short).fold(line, |line, (style, text)| line.and(style, &text))
}

fn figures(budget: &[Part]) -> String {
    let parts = budget.iter().map(|part| format!("{} {}/{}", part.name, part.used, part.most));
    parts.collect::<Vec<_>>().join(", ")
}

fn tables(seen: &Snapshot) -> String {
    let mut sandboxes = Table::new(["SANDBOX", "WALL", "AGE", "COMMAND"]);
    for one in &seen.sandboxes {
        sandboxes.row([&one.id, &one.wall, &age(one.age_ms), &one.command]);
    }
    let mut agents = Table::new(["AGENT", "STATE", "BUDGET", "TASK"]);
    for one in &seen.agents {
        agents.row([one.id.as_str(), one.doing, &figures(&one.budget), &one.task]);
    }
    let mut tenants = Table::new(["TENANT", "BUDGET"]);
    for one in &seen.tenants {
        tenants.row([&one.name, &figures(&one.budget)]);
    }
    let mut approvals = Table::new(["QUESTION", "ELEVATION", "TASK", "AGE"]);
    for one in &seen.approvals {
        approvals.row([&one.id, &one.elevation, &one.task, &age(one.age_ms)]);
    }
    format!("{sandboxes}\n{agents}\n{tenants}\n{approvals}")
}
