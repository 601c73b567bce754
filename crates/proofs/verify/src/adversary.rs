//! The adversary: random sequences of actions inside a wall, while its owner does what owners do.
//!
//! [`round`] is one sandbox from its start to its end, and [`ending`] is that end. [`owner`] is what the host
//! does to it meanwhile, and [`below`] has sandboxes in parts of the same workspace. [`ground`] is the
//! workspace and how it should look; [`kept`] is the sandbox; [`oracles`] look at the host. One seed gives
//! one round: [`script`] has all moves outside before the first is made, and each action inside has dice of
//! its own. Only their timing, and what becomes of them, is the machine's.
//!
//! Invariant: observations from outside decide. The adversary's own words are searched for secrets and
//! believed in nothing else.

mod below;
mod ending;
mod ground;
mod kept;
mod oracles;
mod owner;
mod round;
mod script;

use std::time::Instant;

use ringwall_engine::EngineConfig;
use ringwall_probes::Dice;
use ringwall_spec::{RingKind, Wall};
use serde::Serialize;

use crate::raising::Raising;
use crate::report::Skipped;
use crate::run::{Options, VerifyError, Workshop};
use round::Round;
use script::Script;

/// The most entries of each side's journal that a report has.
const MOST_JOURNAL: usize = 24;

/// What the adversary is to do.
#[derive(Debug, Clone)]
pub struct AdversaryOptions {
    /// How many sandboxes, one after the other.
    pub rounds: u32,
    /// The first round's seed; the next one has the next number.
    pub seed: u64,
    /// One of them in each round; usual ones if there is none.
    pub walls: Vec<Wall>,
}

/// What an oracle saw.
#[derive(Debug, Clone, Serialize)]
pub struct AdversaryBreach {
    /// Repeats the round.
    pub seed: u64,
    pub wall: String,
    pub oracle: &'static str,
    pub detail: String,
    /// The last moves of the host, and the last actions inside.
    pub host: Vec<String>,
    pub inside: Vec<String>,
}

/// What became of all rounds. The first breach ends them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AdversaryReport {
    pub seed: u64,
    pub rounds: u32,
    pub actions: u64,
    pub moves: u64,
    pub seconds: f64,
    pub skipped: Vec<Skipped>,
    pub breach: Option<AdversaryBreach>,
}

impl AdversaryReport {
    pub fn text(&self) -> String {
        let AdversaryReport { seed, rounds, actions, moves, seconds, .. } = self;
        let mut text = format!(
            "adversary: seed {seed}, {rounds} rounds, {actions} actions inside, {moves} moves of the \
             host, {seconds:.0} s\n"
        );
        for skipped in &self.skipped {
            text.push_str(&format!("{}: not tested here: {}\n", skipped.wall, skipped.reason));
        }
        let Some(breach) = &self.breach else {
            text.push_str("no oracle saw a breach\n");
            return text;
        };
        let AdversaryBreach { seed, wall, oracle, detail, host, inside } = breach;
        text.push_str(&format!("BREACH of {wall}, seen by {oracle}: {detail}\n"));
        for (side, journal) in [("host", host), ("inside", inside)] {
            text.push_str(&format!("{side}, the last {} of it:\n", journal.len()));
            journal.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text.push_str(&format!(
            "to repeat the round: ringwall verify --adversary 1 --seed {seed} --wall {wall}\n"
        ));
        text
    }
}

/// Plays the rounds; `tell` hears of each.
pub fn adversary(
    config: &EngineConfig,
    options: &AdversaryOptions,
    raising: &dyn Raising,
    tell: &mut dyn FnMut(&str),
) -> Result<AdversaryReport, VerifyError> {
    let begun = Instant::now();
    let mut walls = usable(options);
    if walls.is_empty() {
        let named: Vec<String> = options.walls.iter().map(ToString::to_string).collect();
        return Err(VerifyError::NoPrograms { walls: named.join(", ") });
    }
    let workshop = Workshop::open(config, &Options::default(), raising)?;
    let mut report = AdversaryReport { seed: options.seed, ..AdversaryReport::default() };
    for at in 0..options.rounds {
        let seed = options.seed.wrapping_add(u64::from(at));
        let Some(wall) = Dice::new(seed).one_of(&walls).cloned() else { break };
        tell(&format!("round {} of {}: {wall}, seed {seed}", at + 1, options.rounds));
        let played = match Round::begin(&workshop, &wall, Script::of(seed, &wall)) {
            Ok(mut round) => {
                let breach = round.play().map_err(VerifyError::Stage)?;
                report.actions += round.actions();
                report.moves += round.moves();
                breach.map(|seen| AdversaryBreach {
                    seed,
                    wall: wall.to_string(),
                    oracle: seen.oracle,
                    detail: seen.detail,
                    host: last(round.journal()),
                    inside: last(round.inside()),
                })
            }
            Err(reason) => {
                walls.retain(|other| *other != wall);
                report.skipped.push(Skipped { wall: wall.to_string(), reason });
                continue;
            }
        };
        report.rounds += 1;
        if let Some(breach) = played {
            report.breach = Some(breach);
            break;
        }
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

/// Walls in which native programs run.
fn usable(options: &AdversaryOptions) -> Vec<Wall> {
    let usual = ["process", "container", "container/process"];
    let usual = usual.iter().filter_map(|name| name.parse::<Wall>().ok());
    let all = if options.walls.is_empty() { usual.collect() } else { options.walls.clone() };
    all.into_iter().filter(|wall| wall.rings().last() != Some(&RingKind::Wasm)).collect()
}

fn last(journal: &[String]) -> Vec<String> {
    let from = journal.len().saturating_sub(MOST_JOURNAL);
    journal.iter().skip(from).map(|line| crate::judge::short(line)).collect()
}
