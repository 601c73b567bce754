//! Starts programs and times them from the start to the end, in a small process of its own.
//!
//! Every command-line contender is timed by the same code in the same kind of process. Some rivals
//! only work in a mount namespace of their own (see [`Place`]); a stopwatch that lives there keeps
//! the cost of entering it out of their figures.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};

use crate::ground::Ground;

/// In arguments: replaced by the number of a descriptor that holds the seccomp filter.
pub(crate) const FILTER_FD: &str = "@filter@";
/// In arguments: replaced by a number that no other run has.
pub(crate) const UNIQUE: &str = "@unique@";

/// Where a stopwatch lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the namespaces of the bench.
    Here,
    /// In a mount namespace without the cgroup2 mount: crun refuses hosts that have controllers on
    /// both cgroup versions, and takes one without that mount for a version 1 host.
    WithoutUnifiedCgroup,
}

#[derive(Debug, Serialize, Deserialize)]
enum Order {
    /// Run once, timed.
    Time(Vec<String>),
    /// Run that many times by that many workers, timed as a whole.
    Burst { argv: Vec<String>, runs: usize, workers: usize },
    /// Run once, untimed, and tell what it printed.
    Show(Vec<String>),
    /// Start and leave running until told to release.
    Hold { argv: Vec<String>, copies: usize },
    /// Kill what is held.
    Release,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Took(Duration),
    Shown(String),
    Held(Vec<u32>),
    Failed(String),
}

/// The bench's end of a stopwatch.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Stopwatch {
    pub(crate) fn start(place: Place, ground: &Ground) -> Result<Stopwatch> {
        let me = std::env::current_exe()?;
        let mut command = match (place, unified_mount()) {
            (Place::WithoutUnifiedCgroup, Some(mount)) => {
                let mut command = Command::new("unshare");
                let script = "umount \"$1\" && shift && exec \"$@\"";
                command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
                command.arg(mount).arg(me);
                command
            }
            _ => Command::new(me),
        };
        command
            .arg("--stopwatch")
            .arg(ground.filter())
            .env("RINGWALL_HOME", ground.home())
            .env("RINGWALL_PROGRAMS", &ground.programs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("could not start a stopwatch")?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Stopwatch { child, orders, answers })
    }

    pub(crate) fn time(&mut self, argv: &[String]) -> Result<Duration> {
        self.duration(&Order::Time(argv.to_vec()))
    }

    pub(crate) fn burst(
        &mut self,
        argv: &[String],
        runs: usize,
        workers: usize,
    ) -> Result<Duration> {
        self.duration(&Order::Burst { argv: argv.to_vec(), runs, workers })
    }

    pub(crate) fn show(&mut self, argv: &[String]) -> Result<String> {
        match self.ask(&Order::Show(argv.to_vec()))? {
            Answer::Shown(text) => Ok(text),
            other => bail!("unexpected answer {other:?}"),
        }
    }

    /// Process ids of what was started.
    pub(crate) fn hold(&mut self, argv: &[String], copies: usize) -> Result<Vec<u32>> {
        match self.ask(&Order::Hold { argv: argv.to_vec(), copies })? {
            Answer::Held(pids) => Ok(pids),
            other => bail!("unexpected answer {other:?}"),
        }
    }

    pub(crate) fn release(&mut self) -> Result<()> {
        self.duration(&Order::Release).map(|_| ())
    }

    fn duration(&mut self, order: &Order) -> Result<Duration> {
        match self.ask(order)? {
            Answer::Took(time) => Ok(time),
            other => bail!("unexpected answer {other:?}"),
        }
    }

    fn ask(&mut self, order: &Order) -> Result<Answer> {
        let orders = self.orders.as_mut().context("the stopwatch has ended")?;
        writeln!(orders, "{}", serde_json::to_string(order)?)?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        match serde_json::from_str(&line).context("the stopwatch has ended")? {
            Answer::Failed(why) => bail!("{why}"),
            answer => Ok(answer),
        }
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        // The end of its input is its order to leave.
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// The body of a stopwatch process.
pub(crate) fn serve(filter: PathBuf) -> Result<()> {
    let runner = Runner { filter, unique: AtomicUsize::new(1) };
    let mut held = Vec::new();
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let order = serde_json::from_str(&line?)?;
        let answer = runner.obey(order, &mut held);
        let answer = answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        writeln!(answers, "{}", serde_json::to_string(&answer)?)?;
        answers.flush()?;
    }
    release(&mut held);
    Ok(())
}

struct Runner {
    filter: PathBuf,
    unique: AtomicUsize,
}

impl Runner {
    fn obey(&self, order: Order, held: &mut Vec<Child>) -> Result<Answer> {
        match order {
            Order::Time(argv) => self.once(&argv).map(Answer::Took),
            Order::Burst { argv, runs, workers } => {
                self.many(&argv, runs, workers).map(Answer::Took)
            }
            Order::Show(argv) => self.output(&argv).map(Answer::Shown),
            Order::Hold { argv, copies } => {
                for _ in 0..copies {
                    let mut prepared = self.prepare(&argv)?;
                    held.push(prepared.command.spawn()?);
                }
                Ok(Answer::Held(held.iter().map(Child::id).collect()))
            }
            Order::Release => {
                release(held);
                Ok(Answer::Took(Duration::ZERO))
            }
        }
    }

    fn once(&self, argv: &[String]) -> Result<Duration> {
        let mut prepared = self.prepare(argv)?;
        let started = Instant::now();
        let status =
            prepared.command.status().with_context(|| format!("could not run {}", argv[0]))?;
        let took = started.elapsed();
        if !status.success() {
            bail!("{} ended with {status}", argv.join(" "));
        }
        Ok(took)
    }

    fn many(&self, argv: &[String], runs: usize, workers: usize) -> Result<Duration> {
        let left = AtomicUsize::new(runs);
        let started = Instant::now();
        std::thread::scope(|scope| {
            let work = || -> Result<()> {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    self.once(argv)?;
                }
                Ok(())
            };
            let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(result) => result,
                Err(_) => bail!("a worker panicked"),
            })
        })?;
        Ok(started.elapsed())
    }

    fn output(&self, argv: &[String]) -> Result<String> {
        let mut prepared = self.prepare(argv)?;
        let output = prepared.command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let output = output.with_context(|| format!("could not run {}", argv[0]))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            let line =
                complaint.lines().find(|line| !line.trim().is_empty()).unwrap_or("no message");
            bail!("{} failed: {}", argv[0], line.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn prepare(&self, argv: &[String]) -> Result<Prepared> {
        let (program, arguments) = argv.split_first().context("an empty command")?;
        let unique = self.unique.fetch_add(1, Ordering::Relaxed).to_string();
        let mut filter = None;
        let mut command = Command::new(program);
        for argument in arguments {
            if argument == FILTER_FD {
                let file = inheritable(&self.filter)?;
                command.arg(file.as_raw_fd().to_string());
                filter = Some(file);
            } else {
                command.arg(argument.replace(UNIQUE, &unique));
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Prepared { command, _filter: filter })
    }
}

/// A command with the descriptors that it names in its arguments, which must stay open.
struct Prepared {
    command: Command,
    _filter: Option<File>,
}

/// Opened anew for each run: readers share the position of an inherited descriptor.
fn inheritable(path: &Path) -> Result<File> {
    let file = File::open(path)?;
    rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
    Ok(file)
}

fn release(held: &mut Vec<Child>) {
    for mut child in held.drain(..) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Where cgroup2 is mounted on a host that also has version 1 controllers.
fn unified_mount() -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let of_type = |kind: &str| {
        mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&kind))
            .and_then(|fields| fields.get(1).map(|path| (*path).to_owned()))
    };
    of_type("cgroup").and(of_type("cgroup2"))
}
