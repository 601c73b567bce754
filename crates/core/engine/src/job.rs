//! One command in a sandbox: started, fed, bounded, waited for.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringwall_image::Image;
use ringwall_linux::cgroup::Group;
use ringwall_spec::{Command, Ending, Limits, RingKind, Usage};
use ringwall_wire::{
    Client, ClientError, ErrorCode, ExitHow, ExitReport, ProcessEvent, ProcessInput, ProcessLimits,
    RemoteProcess, StartProcess,
};

use crate::hiding::HidingError;
use crate::ledger::{LedgerError, OpenCall};
use crate::network::Network;
use crate::sandbox::{Killer, Sandbox};
use crate::settle::whole_millis;
use crate::watchdog::Watchdog;

/// A warden that has not started a program by then never will.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const KILL: i32 = rustix::process::Signal::KILL.as_raw();

/// Where a job's output goes.
pub trait Output {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// A write that would wait for its reader longer than this fails as timed out, as the reader must not
    /// choose how long a job runs. Nothing to do for what never waits.
    fn wait_until(&mut self, _deadline: Option<Instant>) {}
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the command is empty; give a program to run after --")]
    EmptyCommand,
    #[error("{program}: not found in the sandbox")]
    NotFound { program: String },
    #[error("{program}: found in the sandbox but cannot be executed ({reason})")]
    NotExecutable { program: String, reason: String },
    #[error("the command could not be started: {0}")]
    Refused(String),
    #[error("the sandbox did not answer")]
    Warden(#[source] ClientError),
    #[error("the sandbox was stopped")]
    Hiding(#[from] HidingError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the sandbox ended without a word; its warden was lost")]
    WardenLost(#[source] ClientError),
    #[error("the output could not be passed on")]
    Output(#[source] io::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// How a job is ended when a bound is reached.
#[derive(Debug)]
pub(crate) enum Reach {
    /// The sandbox was made for this job: end all of it.
    Sandbox { killer: Killer, memory: MemoryCheck },
    /// The sandbox lives on: dropping the process's stream kills its tree. The call's end is to be
    /// written down, unless it belongs to the sandbox.
    Process(Option<Box<OpenCall>>),
    /// The sandbox was made for this job, but its guest has the changes in the workspace: it ends
    /// when they were taken.
    Guest { killer: Killer, memory: MemoryCheck },
}

/// Tells whether the memory limit was reached, by whichever means it is kept.
#[derive(Debug, Clone)]
pub(crate) enum MemoryCheck {
    /// The group counts, and the watchdog what no group sees, as far as there are any.
    Host { group: Option<Arc<Group>>, watchdog: Option<Arc<AtomicBool>> },
    /// The guest's kernel counts.
    Guest(Client),
}

impl MemoryCheck {
    pub(crate) fn exceeded(&self) -> bool {
        match self {
            MemoryCheck::Host { group, watchdog } => {
                let killed =
                    |group: &Arc<Group>| group.usage().is_ok_and(|usage| usage.oom_kills > 0);
                watchdog.as_ref().is_some_and(|exceeded| exceeded.load(Ordering::SeqCst))
                    || group.as_ref().is_some_and(killed)
            }
            MemoryCheck::Guest(client) => {
                client.usage(ANSWER_TIMEOUT).is_ok_and(|usage| usage.oom_kills > 0)
            }
        }
    }
}

#[derive(Debug)]
pub struct Job {
    process: RemoteProcess,
    begun: Instant,
    deadline: Option<Instant>,
    output_left: u64,
    written: u64,
    reach: Reach,
    /// An event that came while no caller was ready to pass it on.
    unread: Option<ProcessEvent>,
    /// What the process that serves it measured.
    cpu_micros: Option<u64>,
}

/// A job that is over.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    pub ending: Ending,
    /// All that the sandbox used meanwhile, where it outlives the job.
    pub usage: Usage,
}

/// What came of a short wait.
#[derive(Debug)]
pub enum Brief {
    Ended(Ending),
    GoesOn(Box<Job>),
}

impl Job {
    pub(crate) fn start(
        client: &Client,
        command: &Command,
        defaults: &Defaults,
        timeout: Duration,
        output_bytes: u64,
        reach: Reach,
    ) -> Result<Job, StartError> {
        let program = command.argv.first().ok_or(StartError::EmptyCommand)?;
        let shown = program.to_string_lossy().into_owned();
        let answer_by = Instant::now() + ANSWER_TIMEOUT;
        let ends_ring = matches!(reach, Reach::Sandbox { .. });
        let request = StartProcess { ends_ring, ..defaults.fill(command) };
        let started = client.until(answer_by).start(&request);
        let process = started.map_err(|error| match error {
            ClientError::Remote(remote) if remote.code == ErrorCode::NotFound => {
                StartError::NotFound { program: shown }
            }
            ClientError::Remote(remote) if remote.code == ErrorCode::NotPermitted => {
                StartError::NotExecutable { program: shown, reason: remote.message }
            }
            ClientError::Remote(remote) => StartError::Refused(remote.message),
            other => StartError::Warden(other),
        })?;
        let begun = Instant::now();
        let (deadline, output_left) = (begun.checked_add(timeout), output_bytes);
        let (written, unread, cpu_micros) = (0, None, None);
        Ok(Job { process, begun, deadline, output_left, written, reach, unread, cpu_micros })
    }

    /// Sends input, signals and window sizes; can be used from other threads.
    pub fn input(&self) -> ProcessInput {
        self.process.input()
    }

    /// Waits for a job that may be over at once: until it has ended or said something, and no
    /// longer than `patience`.
    pub fn wait_briefly(mut self, patience: Duration) -> Result<Brief, RunError> {
        let soon = Instant::now().checked_add(patience);
        let until = [soon, self.deadline].into_iter().flatten().min();
        match self.process.next(until) {
            Ok(ProcessEvent::Exited(report)) => {
                let ending = self.exited(report);
                self.over(ending).map(|finished| Brief::Ended(finished.ending))
            }
            Ok(event) => {
                self.unread = Some(event);
                Ok(Brief::GoesOn(Box::new(self)))
            }
            Err(ClientError::TimedOut) => Ok(Brief::GoesOn(Box::new(self))),
            Err(error) => {
                let finished = self.lost(error).and_then(|ending| self.over(ending))?;
                Ok(Brief::Ended(finished.ending))
            }
        }
    }

    /// Passes output on and keeps the bounds until the job has ended.
    pub fn wait(self, output: &mut dyn Output) -> Result<Ending, RunError> {
        self.finish(output).map(|finished| finished.ending)
    }

    /// Waits like [`Job::wait`], and tells the usage.
    pub fn finish(mut self, output: &mut dyn Output) -> Result<Finished, RunError> {
        let ending = self.pass_on(output)?;
        self.over(ending)
    }

    fn over(&mut self, ending: Ending) -> Result<Finished, RunError> {
        let wall_ms = whole_millis(self.begun.elapsed());
        let cpu_ms = self.cpu_micros.map(|micros| micros.div_ceil(1000));
        let usage = Usage { wall_ms, cpu_ms, ..Usage::default() };
        if let Reach::Process(call) = &mut self.reach
            && let Some(call) = call.take()
        {
            call.end(ending, usage)?;
        }
        Ok(Finished { ending, usage })
    }

    fn pass_on(&mut self, output: &mut dyn Output) -> Result<Ending, RunError> {
        output.wait_until(self.deadline);
        loop {
            let next = match self.unread.take() {
                Some(event) => Ok(event),
                None => self.process.next(self.deadline),
            };
            let event = match next {
                Ok(event) => event,
                Err(ClientError::TimedOut) => return Ok(self.end_as(Ending::Timeout)),
                Err(error) => return self.lost(error),
            };
            let written = match &event {
                ProcessEvent::Exited(report) => return Ok(self.exited(*report)),
                ProcessEvent::Stdout(bytes) => self.deliver(bytes, |b| output.stdout(b)),
                ProcessEvent::Stderr(bytes) => self.deliver(bytes, |b| output.stderr(b)),
            };
            match written {
                Ok(true) => {}
                Ok(false) => return Ok(self.end_as(Ending::OutputLimit)),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Ok(self.end_as(Ending::Timeout));
                }
                Err(error) => {
                    self.end_as(Ending::Stopped);
                    return Err(RunError::Output(error));
                }
            }
        }
    }

    /// Passes on what still fits; false when that was not all.
    fn deliver(
        &mut self,
        bytes: &[u8],
        write: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let room = usize::try_from(self.output_left).unwrap_or(usize::MAX);
        let fits = bytes.get(..room).unwrap_or(bytes);
        write(fits)?;
        let count = u64::try_from(fits.len()).unwrap_or(u64::MAX);
        self.output_left -= count;
        self.written += count;
        Ok(fits.len() == bytes.len())
    }

    fn exited(&mut self, report: ExitReport) -> Ending {
        self.cpu_micros = report.cpu_micros;
        let ending = match report.how {
            ExitHow::Code(code) => Ending::Exited { code },
            ExitHow::Signal(signal) => Ending::Signaled { signal },
        };
        // A shell turns a killed child into an exit code, so any failure counts.
        let failed = ending != Ending::Exited { code: 0 };
        if failed && self.exceeded_memory() { Ending::Oom } else { ending }
    }

    fn exceeded_memory(&self) -> bool {
        match &self.reach {
            Reach::Sandbox { memory, .. } | Reach::Guest { memory, .. } => memory.exceeded(),
            Reach::Process(_) => false,
        }
    }

    fn end_as(&mut self, ending: Ending) -> Ending {
        match &self.reach {
            Reach::Sandbox { killer, .. } => killer.kill_tree(),
            Reach::Process(_) => self.kill_measured(),
            Reach::Guest { .. } => {}
        }
        ending
    }

    /// Ends a command in a sandbox that outlives it, and hears its usage. If no answer comes, dropping the stream
    /// ends it, and its usage stays unknown.
    fn kill_measured(&mut self) {
        self.process.input().signal(KILL);
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            match self.process.next(Some(until)) {
                Ok(ProcessEvent::Exited(report)) => {
                    self.cpu_micros = report.cpu_micros;
                    return;
                }
                Ok(_) if Instant::now() < until => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The warden is gone: the sandbox was stopped, memory ran out, or something is wrong.
    fn lost(&self, error: ClientError) -> Result<Ending, RunError> {
        match &self.reach {
            Reach::Sandbox { killer, .. } | Reach::Guest { killer, .. } if killer.was_stopped() => {
                return Ok(Ending::Stopped);
            }
            Reach::Guest { .. } => return Ok(Ending::GuestLost),
            Reach::Sandbox { .. } | Reach::Process(_) => {}
        }
        if self.exceeded_memory() {
            return Ok(Ending::Oom);
        }
        Err(RunError::WardenLost(error))
    }
}

/// What a command gets when it does not say otherwise.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Defaults {
    /// Each `KEY=value`.
    env: Vec<Vec<u8>>,
    working_directory: Vec<u8>,
    /// Where no ring has limited them for all of its processes.
    #[serde(default)]
    open_files: Option<u64>,
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Defaults {
    pub(crate) fn new(image: Option<&Image>, working_directory: &Path, in_workspace: bool) -> Self {
        let mut env: Vec<Vec<u8>> =
            [PATH, "LANG=C.UTF-8", "RINGWALL=1"].iter().map(|v| v.as_bytes().to_vec()).collect();
        let mut directory = working_directory.as_os_str().as_bytes().to_vec();
        match image {
            Some(image) => {
                set(&mut env, b"HOME=/root".to_vec());
                for (key, value) in &image.config.env {
                    set(&mut env, format!("{key}={value}").into_bytes());
                }
                match &image.config.working_dir {
                    Some(wanted) if !in_workspace => {
                        directory = wanted.as_os_str().as_bytes().to_vec();
                    }
                    _ => {}
                }
            }
            None => set(&mut env, b"HOME=/tmp".to_vec()),
        }
        Defaults { env, working_directory: directory, open_files: None }
    }

    pub(crate) fn working_directory(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.working_directory))
    }

    fn fill(&self, command: &Command) -> StartProcess {
        let mut env = self.env.clone();
        if command.terminal.is_some() {
            set(&mut env, b"TERM=xterm-256color".to_vec());
        }
        for (key, value) in &command.env {
            let mut entry = key.clone();
            entry.push("=");
            entry.push(value);
            set(&mut env, entry.into_vec());
        }
        let cwd = command.cwd.as_ref().map(|path| path.as_os_str().as_bytes().to_vec());
        StartProcess {
            argv: command.argv.iter().cloned().map(OsString::into_vec).collect(),
            env,
            cwd: cwd.unwrap_or_else(|| self.working_directory.clone()),
            user: None,
            limits: ProcessLimits { open_files: self.open_files, ..ProcessLimits::default() },
            terminal: command.terminal,
            stdin: command.stdin,
            ends_ring: false,
        }
    }
}

/// Later entries win.
fn set(env: &mut Vec<Vec<u8>>, entry: Vec<u8>) {
    let key_length = entry.iter().position(|b| *b == b'=').map_or(entry.len(), |at| at + 1);
    let key = entry.get(..key_length).unwrap_or(&entry).to_vec();
    env.retain(|other| !other.starts_with(&key));
    env.push(entry);
}

impl Sandbox {
    /// Starts the command for which this sandbox was raised: its bounds are the sandbox's,
    /// and the wall ends with it.
    pub fn start(&self, command: &Command) -> Result<Job, StartError> {
        let client = self.innermost()?;
        let (killer, memory) = (self.killer(), self.memory_check());
        let reach = match self.guest {
            Some(_) => Reach::Guest { killer, memory },
            None => Reach::Sandbox { killer, memory },
        };
        let Limits { timeout, output_bytes, .. } = *self.limits();
        let job = Job::start(client, command, &self.defaults(), timeout, output_bytes, reach)?;
        // While the job begins, so that it waits for none of this.
        self.record_evidence()?;
        Ok(job)
    }

    fn innermost(&self) -> Result<&Client, StartError> {
        self.client.as_ref().ok_or(StartError::Warden(ClientError::Disconnected))
    }

    /// Starts one of many commands; the sandbox outlives it.
    pub fn exec(&self, command: &Command) -> Result<Job, StartError> {
        let ledger = self.ledger.as_ref();
        let call = ledger.map(|ledger| OpenCall::begin(ledger, &self.id, command)).transpose()?;
        self.start_beside(command, self.limits().timeout, call)
    }

    /// Starts a command that may take as long as the sandbox lives; the sandbox outlives it.
    pub(crate) fn start_background(&self, command: &Command) -> Result<Job, StartError> {
        self.start_beside(command, Duration::MAX, None)
    }

    fn start_beside(
        &self,
        command: &Command,
        timeout: Duration,
        call: Option<OpenCall>,
    ) -> Result<Job, StartError> {
        self.hide_new()?;
        let client = self.innermost()?;
        let output_bytes = self.limits().output_bytes;
        let reach = Reach::Process(call.map(Box::new));
        Job::start(client, command, &self.defaults(), timeout, output_bytes, reach)
    }

    pub(crate) fn defaults(&self) -> Defaults {
        let image = self.placement.image.as_ref();
        let in_workspace = self.spec.workspace.is_some();
        let mut defaults = Defaults::new(image, &self.plan().working_directory, in_workspace);
        for variable in self.placement.network.iter().flat_map(Network::environment) {
            set(&mut defaults.env, variable.into_bytes());
        }
        // A guest's first process is not limited itself: it has to serve all jobs.
        let in_guest = self.wall().command_rings() == [RingKind::Vm];
        Defaults { open_files: in_guest.then(|| u64::from(self.limits().open_files)), ..defaults }
    }

    pub(crate) fn memory_check(&self) -> MemoryCheck {
        if let Some(guest) = &self.guest {
            return MemoryCheck::Guest(guest.clone());
        }
        let watchdog = self.watchdog.as_ref().map(Watchdog::exceeded);
        MemoryCheck::Host { group: self.group.clone(), watchdog }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_environment_wins_and_nothing_leaks_in() {
        let defaults = Defaults::new(None, Path::new("/tmp"), false);
        let command = Command {
            argv: vec!["true".into()],
            env: vec![("PATH".into(), "/x".into()), ("A".into(), "b=c".into())],
            ..Command::default()
        };
        let filled = defaults.fill(&command);
        let env: Vec<String> =
            filled.env.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect();
        assert_eq!(env, ["LANG=C.UTF-8", "RINGWALL=1", "HOME=/tmp", "PATH=/x", "A=b=c"]);
        assert_eq!(filled.cwd, b"/tmp");
    }
}
