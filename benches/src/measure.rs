//! The measurements: interleaved rounds, bursts, idle memory.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::contender::{self, Contender, LIVING};
use crate::daemons::{self, Docker};
use crate::ground::{Ground, IMAGE, run};
use crate::growth;
use crate::library::{self, Library};
use crate::memory::{private_bytes, private_bytes_below};
use crate::options::Options;
use crate::results::{Footprint, Machine, Rate, Results, Unavailable, load_average};
use crate::stats::Summary;
use crate::stopwatch::{Place, Stopwatch};

const WARM_UP: usize = 3;
const WORKERS: usize = 2;

/// The two stopwatches.
pub(crate) struct Clocks {
    here: Stopwatch,
    without_unified: Stopwatch,
}

impl Clocks {
    pub(crate) fn start(ground: &Ground) -> Result<Clocks> {
        Ok(Clocks {
            here: Stopwatch::start(Place::Here, ground)?,
            without_unified: Stopwatch::start(Place::WithoutUnifiedCgroup, ground)?,
        })
    }

    pub(crate) fn at(&mut self, place: Place) -> &mut Stopwatch {
        match place {
            Place::Here => &mut self.here,
            Place::WithoutUnifiedCgroup => &mut self.without_unified,
        }
    }
}

/// One thing to be timed over and over.
struct Timed<'a> {
    name: &'static str,
    how: How<'a>,
    times: Vec<Duration>,
}

enum How<'a> {
    Program(Contender),
    Library(Box<dyn Fn() -> Result<Duration> + 'a>),
}

impl<'a> Timed<'a> {
    fn program(contender: Contender) -> Timed<'a> {
        Timed { name: contender.name, how: How::Program(contender), times: Vec::new() }
    }

    fn library(name: &'static str, call: impl Fn() -> Result<Duration> + 'a) -> Timed<'a> {
        Timed { name, how: How::Library(Box::new(call)), times: Vec::new() }
    }

    fn run(&self, clocks: &mut Clocks) -> Result<Duration> {
        match &self.how {
            How::Program(contender) => clocks.at(contender.place).time(&contender.argv),
            How::Library(call) => call(),
        }
        .with_context(|| self.name)
    }

    fn summary(&self) -> Option<Summary> {
        Summary::of(self.name, &self.times)
    }
}

pub(crate) fn all(
    ground: &Ground,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<Results> {
    let load_before = load_average();
    let mut clocks = Clocks::start(ground)?;
    let library = Library::open(ground)?;
    let mut unavailable = Vec::new();

    say("preparing rivals");
    let (rivals, _docker) = find_rivals(ground, &mut clocks, &mut unavailable);

    say("start to exit");
    let mut timed: Vec<Timed> = contender::ours(ground).into_iter().map(Timed::program).collect();
    timed.push(Timed::library(library::FRESH_PROCESS, || library.fresh_process()));
    timed.push(Timed::library(library::FRESH_CONTAINER, || library.fresh_container()));
    timed.extend(rivals.iter().cloned().map(Timed::program));
    rounds(&mut timed, &mut clocks, options.rounds)?;
    let start = timed.iter().filter_map(Timed::summary).collect();

    say("exec in a living sandbox");
    let exec = exec(ground, &library, &mut clocks, options, &mut unavailable)?;

    say("throughput");
    let throughput = throughput(ground, &library, &rivals, &mut clocks, options)?;

    say("idle memory");
    let memory = memory(ground, &library, &mut clocks, options, &mut unavailable)?;

    say("growth");
    let growth = growth::measure(ground, &mut clocks, options, say)?;

    let machine = Machine::look(load_before);
    Ok(Results { machine, start, exec, throughput, memory, growth, unavailable })
}

/// Rivals that work here, tried once; the reasons of the others are noted.
fn find_rivals(
    ground: &Ground,
    clocks: &mut Clocks,
    unavailable: &mut Vec<Unavailable>,
) -> (Vec<Contender>, Option<Docker>) {
    let mut candidates = contender::rivals(ground);
    let mut docker = None;
    let prepared = Docker::prepare(ground).map(|daemon| docker.insert(daemon).contender());
    candidates.push((daemons::DOCKER, prepared));
    candidates.push((daemons::PODMAN, daemons::podman(ground, &mut clocks.without_unified)));
    let mut rivals = Vec::new();
    for (name, candidate) in candidates {
        let tried = candidate.and_then(|contender| {
            clocks.at(contender.place).show(&contender.argv)?;
            Ok(contender)
        });
        match tried {
            Ok(contender) => rivals.push(contender),
            Err(error) => unavailable.push(Unavailable::new(name, &error)),
        }
    }
    (rivals, docker)
}

/// Every contender once a round, in turn, so that whatever else the machine does hits all alike.
fn rounds(timed: &mut [Timed], clocks: &mut Clocks, rounds: usize) -> Result<()> {
    for contender in timed.iter() {
        for _ in 0..WARM_UP {
            contender.run(clocks)?;
        }
    }
    for round in 0..rounds {
        let count = timed.len();
        for index in 0..count {
            let contender = &mut timed[(index + round) % count];
            let took = contender.run(clocks)?;
            contender.times.push(took);
        }
    }
    Ok(())
}

fn exec(
    ground: &Ground,
    library: &Library,
    clocks: &mut Clocks,
    options: &Options,
    unavailable: &mut Vec<Unavailable>,
) -> Result<Vec<Summary>> {
    let living = Living::create(ground)?;
    let argv = [ground.ringwall().display().to_string()]
        .into_iter()
        .chain(["exec", LIVING, "--", "true"].map(str::to_owned))
        .collect();
    let sandbox = library.raise_container()?;
    let mut timed = vec![
        Timed::library(library::EXEC, || library::exec(&sandbox)),
        Timed::program(Contender { name: contender::EXEC, place: Place::Here, argv }),
    ];
    for (name, program) in [(contender::CRUN_EXEC, "crun"), (contender::RUNC_EXEC, "runc")] {
        match living_container(ground, program, clocks) {
            Ok(argv) => timed.push(Timed::program(Contender {
                name,
                place: Place::WithoutUnifiedCgroup,
                argv,
            })),
            Err(error) => unavailable.push(Unavailable::new(name, &error)),
        }
    }
    let measured = rounds(&mut timed, clocks, options.rounds);
    let summaries = timed.iter().filter_map(Timed::summary).collect();
    drop(timed);
    library::end(sandbox)?;
    for program in ["crun", "runc"] {
        if let Ok(delete) = contender::runtime(ground, program, &["delete", "--force", LIVING]) {
            // Not there when it could not be started.
            let _ = clocks.without_unified.show(&delete);
        }
    }
    drop(living);
    measured?;
    Ok(summaries)
}

/// A sandbox made by `ringwall create`, removed with this value.
struct Living<'a>(&'a Ground);

impl Living<'_> {
    fn create(ground: &Ground) -> Result<Living<'_>> {
        let living = Living(ground);
        // Rivals run in an empty container too: the directory of the caller is no part of this measure.
        living.ringwall(&[
            "create",
            "--no-workspace",
            "--image",
            IMAGE,
            "--timeout",
            "1h",
            "--name",
            LIVING,
        ])?;
        Ok(living)
    }

    fn ringwall(&self, arguments: &[&str]) -> Result<()> {
        run(Command::new(self.0.ringwall()).args(arguments).env("RINGWALL_HOME", self.0.home()))
    }
}

impl Drop for Living<'_> {
    fn drop(&mut self) {
        let _ = self.ringwall(&["rm", "--force", LIVING]);
    }
}

/// Starts a container that stays; returns the call that runs `true` in it.
fn living_container(ground: &Ground, program: &str, clocks: &mut Clocks) -> Result<Vec<String>> {
    let start = ["run", "--detach", "--bundle", &ground.text("sleep"), LIVING];
    clocks.without_unified.time(&contender::runtime(ground, program, &start)?)?;
    contender::runtime(ground, program, &["exec", LIVING, "/bin/true"])
}

fn throughput(
    ground: &Ground,
    library: &Library,
    rivals: &[Contender],
    clocks: &mut Clocks,
    options: &Options,
) -> Result<Vec<Rate>> {
    let rate = |name: &str, runs: usize, took: Duration| Rate {
        name: name.to_owned(),
        workers: WORKERS,
        per_second: runs as f64 / took.as_secs_f64(),
    };
    let runs = options.burst;
    let mut rates = vec![rate(library::FRESH_CONTAINER, runs, library.burst(runs, WORKERS)?)];
    let ours = contender::ours(ground);
    let slow = [daemons::DOCKER, daemons::PODMAN];
    for contender in ours.iter().chain(rivals) {
        // A tenth is plenty for those that take a quarter of a second each.
        let runs = if slow.contains(&contender.name) { runs.div_ceil(10) } else { runs };
        let took = clocks.at(contender.place).burst(&contender.argv, runs, WORKERS);
        rates.push(rate(contender.name, runs, took.with_context(|| contender.name)?));
    }
    Ok(rates)
}

fn memory(
    ground: &Ground,
    library: &Library,
    clocks: &mut Clocks,
    options: &Options,
    unavailable: &mut Vec<Unavailable>,
) -> Result<Vec<Footprint>> {
    const MIB: f64 = (1 << 20) as f64;
    let footprint = |name: &str, sandboxes: usize, bytes: u64| Footprint {
        name: name.to_owned(),
        sandboxes,
        mib_per_sandbox: bytes as f64 / MIB / sandboxes as f64,
    };
    let me = std::process::id();
    let before = private_bytes(me)?;
    let sandboxes =
        (0..options.idle).map(|_| library.raise_container()).collect::<Result<Vec<_>>>()?;
    let (wardens, count) = private_bytes_below(me, &["warden"])?;
    let (launchers, _) = private_bytes_below(me, &["ringwall-launcher"])?;
    // The engine's own share: threads and buffers that it keeps for each of them.
    let engine = private_bytes(me)?.saturating_sub(before);
    sandboxes.into_iter().try_for_each(library::end)?;
    // A figure for processes that were not found would be no figure at all.
    ensure!(count >= options.idle, "{count} wardens found for {} idle sandboxes", options.idle);
    let mut footprints =
        vec![footprint(library::FRESH_CONTAINER, options.idle, wardens + launchers + engine)];

    let held = contender::idle_bwrap(ground).and_then(|argv| {
        let copies = options.idle.min(4);
        clocks.here.hold(&argv, copies)?;
        // Its children appear a moment later.
        std::thread::sleep(Duration::from_millis(300));
        let (bytes, processes) = private_bytes_below(me, &["bwrap"])?;
        clocks.here.release()?;
        ensure!(processes >= copies, "bubblewrap did not stay");
        Ok(footprint(contender::BWRAP_IMAGE, copies, bytes))
    });
    match held {
        Ok(found) => footprints.push(found),
        Err(error) => unavailable.push(Unavailable::new("bubblewrap, idle", &error)),
    }
    Ok(footprints)
}
