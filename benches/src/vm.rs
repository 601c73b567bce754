//! `make bench-vm`: microVMs, from nothing and from a guest that was booted before, beside QEMU with a
//! stock kernel.
//!
//! Everyone starts in turn, round by round, and what is promised is a ratio of medians of one run.

mod findings;
mod guests;
mod rival;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use ringwall_guest::{Flavour, Kernel, Kernels};
use ringwall_spec::show_bytes;

pub(crate) use findings::{Findings, panels, promises, text};

use crate::ground::{Ground, IMAGE};
use crate::options::ToolsOptions;
use crate::results::{Machine, Unavailable, load_average};
use crate::stats::Summary;
use guests::Guests;
use rival::{Rival, time_to_word};

const COLD_DEBIAN: &str = "ringwall run, cold, Debian's kernel";
const COLD_MINIMAL: &str = "ringwall run, cold, minimal kernel";
const RUN: &str = "ringwall run, from a template";
const WORD: &str = "guest-is-up";

struct Effort {
    rounds: usize,
    execs: usize,
    round_trips: usize,
    forks: usize,
}

const FULL: Effort = Effort { rounds: 11, execs: 40, round_trips: 1000, forks: 5 };
const QUICK: Effort = Effort { rounds: 3, execs: 10, round_trips: 200, forks: 2 };

pub(crate) fn measure(options: &ToolsOptions, say: &mut dyn FnMut(&str)) -> Result<Findings> {
    let effort = if options.quick { QUICK } else { FULL };
    let load_before = load_average();
    let mut unavailable = Vec::new();
    say("preparing images, kernels and templates");
    let ground = Ground::prepare()?;
    let kernels = Kernels::from_environment()?.list()?;
    let rival = Rival::prepare(&ground, &kernels)?;
    let guests = Guests::open(&ground)?;
    // Makes the template.
    guests.clone_once()?;
    let mut ours = Vec::new();
    for (name, flavour) in [(COLD_DEBIAN, Flavour::Debian), (COLD_MINIMAL, Flavour::Minimal)] {
        match only(&ground, &kernels, flavour) {
            Ok(kernels) => ours.push((name, Some(kernels), Vec::new())),
            Err(error) => unavailable.push(Unavailable::new(name, &error)),
        }
    }
    ours.push((RUN, None, Vec::new()));
    let mut rival_times = Vec::new();
    let (mut answers, mut firsts, mut hits) = (Vec::new(), Vec::new(), Vec::new());
    let pool = guests.pool()?;
    for round in 0..effort.rounds {
        say(&format!("round {} of {}", round + 1, effort.rounds));
        match rival.boot() {
            Ok((time, 0)) => rival_times.push(time),
            Ok((time, hung)) => {
                rival_times.push(time);
                let told = anyhow::anyhow!("{hung} boots before this one hung: no clock was found");
                unavailable.push(Unavailable::new(rival::RIVAL, &told));
            }
            Err(error) => unavailable.push(Unavailable::new(rival::RIVAL, &error)),
        }
        for (name, kernels, times) in &mut ours {
            let timed = time_to_word(&mut run(&ground, kernels.as_deref()), WORD);
            times.push(timed.with_context(|| (*name).to_owned())?);
        }
        let once = guests.clone_once()?;
        answers.push(once.answered);
        firsts.push(once.first_command);
        hits.push(guests.hit(&pool)?);
    }
    drop(pool);
    say("many at once");
    let herd = guests.herd(guests::HERD)?;
    say("commands, round trips and files in a living guest");
    let living = guests.living(effort.execs, effort.round_trips)?;
    say("forks");
    let mut paused = Vec::new();
    let mut forked = Vec::new();
    match forks(&ground, effort.forks) {
        Ok(found) => (paused, forked) = found,
        Err(error) => unavailable.push(Unavailable::new(findings::PAUSE, &error)),
    }
    let summary = |name: &str, times: &[Duration]| Summary::of(name, times);
    let mut starts = vec![summary(rival::RIVAL, &rival_times)];
    starts.extend(ours.iter().map(|(name, _, times)| summary(name, times)));
    starts.push(summary(findings::ANSWER, &answers));
    starts.push(summary(findings::FIRST, &firsts));
    starts.push(summary(findings::HIT, &hits));
    Ok(Findings {
        machine: Machine::look(load_before),
        starts: starts.into_iter().flatten().collect(),
        living: living.times,
        copied: living.copied,
        forks: [summary(findings::PAUSE, &paused), summary(findings::FORK, &forked)]
            .into_iter()
            .flatten()
            .collect(),
        herd,
        unavailable,
    })
}

/// `ringwall run` that says a word, cold with these kernels or from a template with the best.
fn run(ground: &Ground, kernels: Option<&Path>) -> Command {
    let mut command = Command::new(ground.ringwall());
    command.args(["run", "--no-workspace", "--wall", "vm", "--image", IMAGE, "--memory", "256M"]);
    command.args(["--", "/bin/busybox", "echo", WORD]);
    command.env("RINGWALL_HOME", ground.home()).env("RINGWALL_PROGRAMS", &ground.programs);
    if let Some(kernels) = kernels {
        command.env("RINGWALL_KERNELS", kernels).env("RINGWALL_VM_COLD", "1");
    }
    command
}

/// A directory with one kernel.
fn only(ground: &Ground, kernels: &[Kernel], flavour: Flavour) -> Result<PathBuf> {
    let kernel = kernels.iter().find(|kernel| kernel.flavour == flavour);
    let kernel = kernel.context("this kernel is not on this machine; see `ringwall vm kernel`")?;
    let all = ground.path(&format!("kernels-{flavour:?}"));
    fs::create_dir(&all)?;
    crate::ground::run(Command::new("cp").arg("-r").arg(kernel.directory()).arg(&all))?;
    Ok(all)
}

/// How long a sandbox does not answer while it is forked, and how long ten copies take.
fn forks(ground: &Ground, rounds: usize) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let ringwall = |arguments: &[&str]| -> Result<String> {
        let output = Command::new(ground.ringwall())
            .args(arguments)
            .env("RINGWALL_HOME", ground.home())
            .env("RINGWALL_PROGRAMS", &ground.programs)
            .output()?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "ringwall {arguments:?}: {complaint}");
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let memory = show_bytes(guests::MEMORY);
    let memory = memory.replace([' ', 'i', 'B'], "");
    let create =
        ["create", "--no-workspace", "--wall", "vm", "--image", IMAGE, "--memory", &memory];
    let parent = ringwall(&create)?;
    let (mut paused, mut forked) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let kept: serde_json::Value =
            serde_json::from_str(&ringwall(&["snapshot", "-o", "json", &parent])?)?;
        let millis = kept["paused_ms"].as_u64().context("no time of the pause")?;
        paused.push(Duration::from_millis(millis));
        ringwall(&["snapshot", "rm", kept["id"].as_str().unwrap_or_default()])?;
        let begun = std::time::Instant::now();
        let copies = ringwall(&["fork", "--count", "10", &parent])?;
        forked.push(begun.elapsed());
        for copy in copies.lines() {
            ringwall(&["rm", "--force", copy])?;
        }
    }
    ringwall(&["rm", "--force", &parent])?;
    Ok((paused, forked))
}
