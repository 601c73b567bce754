//! A job and the caller's standard streams, terminal and signals.
//!
//! Shared by `run` and `exec`. The main thread waits for the job; signals and, only if asked for,
//! standard input have a thread each, which end with the process. A job that is over at once never
//! needs the first: signals wait.

mod environment;
mod held;
mod streams;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ringwall_engine::{Brief, Job};
use ringwall_linux::signals::SignalWatch;
use ringwall_spec::{Command, Ending};
use ringwall_wire::ProcessInput;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::args::JobArgs;
use crate::terminal::{self, RawMode};

pub(crate) use held::HeldSignals;
pub(crate) use streams::{Capture, PassOn};

/// Ends the job by force; safe to call more than once.
pub(crate) type Stop = Arc<dyn Fn() + Send + Sync>;

/// How long a signal may have to wait for a job that has just been started. Shorter than a person
/// notices, and longer than the small programs that a thread would cost the most.
const BRIEF: Duration = Duration::from_millis(20);

const INPUT_CHUNK: usize = 32 << 10;

/// The caller asked this process to end its job by force. Output that waits for a reader is then dropped.
pub(crate) static STOPPED: AtomicBool = AtomicBool::new(false);

/// Describes the job for the engine. Variables of the command line count before those of files.
pub(crate) fn command(argv: Vec<OsString>, args: &JobArgs) -> anyhow::Result<Command> {
    let mut env = Vec::new();
    for file in &args.env_file {
        env.extend(environment::read(file)?);
    }
    env.extend(args.env.iter().cloned());
    Ok(Command {
        argv,
        env,
        cwd: args.cwd.clone(),
        terminal: args.tty.then(terminal::size),
        stdin: args.interactive,
    })
}

/// Makes signals wait until there is a job to pass them to. Comes before anything is raised, so
/// that no signal ends this process half-way, unless raising takes too long after it.
pub(crate) fn hold_signals(args: &JobArgs) -> anyhow::Result<HeldSignals> {
    HeldSignals::new(if args.tty { &[Signal::WINCH] } else { &[] })
}

/// Runs `job` to its end with the caller's streams.
pub(crate) fn drive(
    job: Job,
    args: &JobArgs,
    signals: HeldSignals,
    stop: Stop,
    output: &mut dyn ringwall_engine::Output,
) -> anyhow::Result<Ending> {
    let signals = signals.taken()?;
    let input = job.input();
    let _raw = match args.tty && args.interactive {
        true => RawMode::enter().context("the terminal cannot be set to raw mode")?,
        false => None,
    };
    if args.interactive {
        let input = input.clone();
        start_thread("stdin", move || pass_input(&input))?;
    }
    match job.wait_briefly(BRIEF)? {
        Brief::Ended(ending) => Ok(ending),
        Brief::GoesOn(job) => {
            start_thread("signals", move || pass_signals(&signals, &input, &stop))?;
            Ok(job.wait(output)?)
        }
    }
}

pub(crate) fn start_thread(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(256 << 10);
    builder.spawn(body).context("no thread can be started")?;
    Ok(())
}

/// Ends when the input ends, or when the job no longer takes any.
fn pass_input(input: &ProcessInput) {
    if each_input(|piece| input.write_all(piece).is_ok()) {
        input.close();
    }
}

/// Hands on all of standard input; false if `take` wanted no more before its end.
pub(crate) fn each_input(mut take: impl FnMut(&[u8]) -> bool) -> bool {
    let mut chunk = vec![0; INPUT_CHUNK];
    loop {
        // Unbuffered: what has been typed so far goes on at once.
        match rustix::io::read(rustix::stdio::stdin(), &mut chunk) {
            Ok(0) => return true,
            Ok(length) if take(&chunk[..length]) => {}
            Ok(_) => return false,
            Err(Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// The first signal goes to the job, which may clean up; a second one, or a request to terminate,
/// ends it.
fn pass_signals(signals: &SignalWatch, input: &ProcessInput, stop: &Stop) {
    let mut asked_before = false;
    while let Ok(signal) = signals.wait() {
        if signal == Signal::WINCH.as_raw() {
            input.resize(terminal::size());
            continue;
        }
        if asked_before || signal == Signal::TERM.as_raw() {
            STOPPED.store(true, Ordering::SeqCst);
            stop();
        } else {
            input.signal(signal);
        }
        asked_before = true;
    }
}
