//! `ringwall-lab`: the program behind `make lab`, and the agent inside its machines.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ringwall_lab::disk::Sources;
use ringwall_lab::job::{self, Job};
use ringwall_lab::lab::Lab;
use ringwall_lab::machine::{self, Machine};
use ringwall_lab::results::Results;
use ringwall_lab::{agent, bad_input, page};

const USAGE: &str = "usage: ringwall-lab COMMAND, in the root of the repository

  run [--all] [MACHINE...]   boot machines and run their jobs; without names: those for CI, in 10 minutes
  bad-input                  try what must fail, and look whether anything is left
  boot MACHINE               boot one machine, print the process id of QEMU and wait
  page                       take the results over and make docs/reference/hosts.md from them
  agent                      serve jobs; inside a machine only

RINGWALL_PROGRAMS is the directory with the programs, RINGWALL_CACHE the cache of the set-up.";

const MACHINES: &str = "tests/lab/machines";
const JOBS: &str = "tests/lab/jobs";
const OUT: &str = "target/lab";
/// CI waits no longer than this for the small set.
const SMALL_SET_TIMEOUT: Duration = Duration::from_secs(600);
const KEPT: &str = "docs/reference/hosts/results.json";
const PAGE: &str = "docs/reference/hosts.md";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match command(&words) {
        Ok(code) => code,
        Err(error) => {
            // Nothing is left to do where even this cannot be written.
            let _ = writeln!(std::io::stderr(), "ringwall-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn command(words: &[String]) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["run", names @ ..] => run(names),
        ["bad-input"] => {
            let machines = read()?.machines;
            bad_input::killed_lab(&machines)?;
            bad_input::try_all(open_lab()?, &machines)?;
            Ok(ExitCode::SUCCESS)
        }
        ["boot", name] => boot(name),
        ["page"] => make_page(),
        ["agent"] => {
            agent::serve()?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("{USAGE}"),
    }
}

struct Data {
    jobs: Vec<Job>,
    machines: Vec<Machine>,
}

fn read() -> anyhow::Result<Data> {
    let jobs = job::read_all(Path::new(JOBS))?;
    let machines = machine::read_all(Path::new(MACHINES), &jobs)?;
    Ok(Data { jobs, machines })
}

fn open_lab() -> anyhow::Result<Lab> {
    let cache = match std::env::var_os("RINGWALL_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => std::env::home_dir().context("HOME is not set")?.join(".cache/ringwall"),
    }
    .join("lab");
    let programs = std::env::var_os("RINGWALL_PROGRAMS").context("RINGWALL_PROGRAMS is not set")?;
    let sources = Sources {
        programs: PathBuf::from(programs),
        agent: std::env::current_exe()?,
        apparmor: PathBuf::from("resources/apparmor"),
        scripts: PathBuf::from("scripts"),
        image: cache.join("image"),
        guest_kernels: cache.join("guest-kernels"),
    };
    Lab::open(&cache, Path::new(OUT), sources)
}

fn run(words: &[&str]) -> anyhow::Result<ExitCode> {
    let data = read()?;
    let machines = choose(data.machines, words)?;
    let mut lab = open_lab()?;
    // A caller who names machines, or wants all of them, waits as long as they take.
    lab.end = words.is_empty().then(|| Instant::now() + SMALL_SET_TIMEOUT);
    let mut results = Results::default();
    for machine in &machines {
        results.machines.push(lab.run_machine(machine, &data.jobs)?);
        results.write(&lab.out.join("results.json"))?;
    }
    let mut say = std::io::stdout();
    let mut red = 0;
    for machine in &results.machines {
        for job in machine.jobs.iter().filter(|job| !job.outcome.is_expected()) {
            red += 1;
            let user = job.user.name();
            writeln!(say, "{}: {} as {user}: {}", machine.machine, job.job, job.reason)?;
        }
    }
    let jobs: usize = results.machines.iter().map(|machine| machine.jobs.len()).sum();
    writeln!(say, "lab: {} machines, {jobs} jobs, {red} not as expected", results.machines.len())?;
    Ok(if red == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(machines: Vec<Machine>, words: &[&str]) -> anyhow::Result<Vec<Machine>> {
    let known: Vec<String> = machines.iter().map(|machine| machine.name.clone()).collect();
    let named: Vec<&&str> = words.iter().filter(|word| **word != "--all").collect();
    if let Some(unknown) = named.iter().find(|name| !known.iter().any(|known| known == **name)) {
        bail!("there is no machine {unknown:?}; there are: {}", known.join(", "));
    }
    let all = words.contains(&"--all");
    let wanted = |machine: &Machine| match named.is_empty() {
        true => all || machine.ci,
        false => named.iter().any(|name| **name == machine.name),
    };
    Ok(machines.into_iter().filter(wanted).collect())
}

fn boot(name: &str) -> anyhow::Result<ExitCode> {
    let machines = choose(read()?.machines, &[name])?;
    let lab = open_lab()?;
    let emulator = bad_input::boot_or_say(&lab, machines.first().context("no machine")?)?;
    let mut say = std::io::stdout();
    writeln!(say, "{}", emulator.pid())?;
    say.flush()?;
    loop {
        std::thread::park();
    }
}

fn make_page() -> anyhow::Result<ExitCode> {
    let data = read()?;
    let kept = Path::new(KEPT);
    let mut results = if kept.exists() { Results::read(kept)? } else { Results::default() };
    let newer = Path::new(OUT).join("results.json");
    if newer.exists() {
        results.merge(&Results::read(&newer)?);
    }
    let results = results.fit(&data.machines, &data.jobs);
    results.write(kept)?;
    std::fs::write(PAGE, page::render(&results, &data.jobs))
        .with_context(|| format!("cannot write {PAGE}"))?;
    Ok(ExitCode::SUCCESS)
}
