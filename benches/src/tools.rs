//! `make bench-tools`: calls of WASM tools through the whole path, from the engine to a jailed warden
//! and back, beside others who start something for each call.

mod findings;
mod first;
mod guests;
mod live;
mod metering;
mod rivals;
mod show;
mod stand;
mod swap;
mod turns;

use std::cell::RefCell;
use std::time::Duration;

use anyhow::Result;
use ringwall_engine::ToolCall;

pub(crate) use findings::promises;
pub(crate) use rivals::run_compiled;
pub(crate) use show::{panels, text};

use crate::ground::Ground;
use crate::measure::Clocks;
use crate::options::ToolsOptions;
use crate::results::{Machine, Rate, Unavailable, load_average};
use crate::stats::Summary;
use findings::{Findings, name_of};
use rivals::Rivals;
use stand::{ECHO, EVAL_JS, EVAL_PYTHON, Stand, timed};
use turns::{Player, play};

const WORKERS: usize = 2;
const NOTHING: &str = "command module that does nothing";
const GREP_FOLDER: &str = "grep in 21 files";

/// How much of each is measured.
struct Effort {
    rounds: usize,
    firsts: usize,
    throughput: Duration,
    /// Runs of a program when throughput is measured.
    burst: usize,
    metering: usize,
    swaps: u8,
}

const FULL: Effort = Effort {
    rounds: 60,
    firsts: 20,
    throughput: Duration::from_secs(3),
    burst: 300,
    metering: 20,
    swaps: 12,
};

const QUICK: Effort = Effort {
    rounds: 12,
    firsts: 5,
    throughput: Duration::from_secs(1),
    burst: 60,
    metering: 5,
    swaps: 4,
};

pub(crate) fn measure(options: &ToolsOptions, say: &mut dyn FnMut(&str)) -> Result<Findings> {
    let effort = if options.quick { QUICK } else { FULL };
    let load_before = load_average();
    let mut unavailable = Vec::new();
    say("preparing tools (compiled at the first run)");
    let ground = Ground::without_image()?;
    let stand = Stand::prepare(&ground, &mut unavailable)?;
    let built_ins = stand.built_ins.len() + unavailable.len();

    say("preparing rivals");
    let mut clocks = Clocks::start(&ground)?;
    let mut rivals = rivals::find(&ground, &mut clocks, &mut unavailable)?;

    say("warm calls");
    let warm = warm(&stand, &mut rivals, &mut clocks, effort.rounds, &mut unavailable)?;
    say("first calls");
    let cold = first::cold(&stand, effort.firsts)?;
    let loads = first::load(&stand, effort.firsts)?;
    say("throughput");
    let throughput = throughput(&stand, &rivals, &mut clocks, &effort)?;
    say("memory");
    let mut memory = Vec::new();
    match first::idle(&stand) {
        Ok(found) => memory.extend(found),
        Err(error) => unavailable.push(Unavailable::new(first::IDLE, &error)),
    }
    memory.extend(loads.footprint);
    match live::memory(&stand) {
        Ok(found) => memory.push(found),
        Err(error) => unavailable.push(Unavailable::new(live::LIVE, &error)),
    }
    say("metering");
    let metering = metering::overhead(effort.metering)?;
    say("hot swap");
    let swaps = swap::swaps(&stand, effort.swaps)?;
    let machine = Machine::look(load_before);
    Ok(Findings {
        machine,
        warm,
        cold,
        load: loads.first,
        again: loads.again,
        built_ins,
        throughput,
        memory,
        metering,
        swaps,
        unavailable,
    })
}

fn warm(
    stand: &Stand,
    rivals: &mut Rivals,
    clocks: &mut Clocks,
    rounds: usize,
    unavailable: &mut Vec<Unavailable>,
) -> Result<Vec<Summary>> {
    let host = &stand.host;
    let clocks = RefCell::new(clocks);
    let mut players = Vec::new();
    for (name, call) in our_calls(stand) {
        match call {
            Ok(call) => players.push(Player::new(&name_of(name), move || timed(host, &call))),
            Err(error) => unavailable.push(Unavailable::new(&name_of(name), &error)),
        }
    }
    for contender in &rivals.programs {
        let clocks = &clocks;
        players.push(Player::new(contender.name, move || {
            clocks.borrow_mut().at(contender.place).time(&contender.argv)
        }));
    }
    for partner in &mut rivals.partners {
        players.push(Player::new(partner.name, move || partner.time()));
    }
    play(&mut players, rounds)
}

fn our_calls(stand: &Stand) -> Vec<(&'static str, Result<ToolCall>)> {
    let built_in = |name| (name, stand.tool(name).map(|tool| tool.call.clone()));
    vec![
        built_in(ECHO),
        (NOTHING, Ok(stand.nothing.clone())),
        built_in(EVAL_JS),
        built_in(EVAL_PYTHON),
        (GREP_FOLDER, stand.grep()),
    ]
}

fn throughput(
    stand: &Stand,
    rivals: &Rivals,
    clocks: &mut Clocks,
    effort: &Effort,
) -> Result<Vec<Rate>> {
    let rate =
        |name: &str, per_second| Rate { name: name.to_owned(), workers: WORKERS, per_second };
    let mut rates = Vec::new();
    for (name, call) in our_calls(stand) {
        let Ok(call) = call else { continue };
        let per_second = first::rate(&stand.host, &call, WORKERS, effort.throughput)?;
        rates.push(rate(&name_of(name), per_second));
    }
    for contender in &rivals.programs {
        let took = clocks.at(contender.place).burst(&contender.argv, effort.burst, WORKERS)?;
        rates.push(rate(contender.name, effort.burst as f64 / took.as_secs_f64()));
    }
    Ok(rates)
}
