//! Sandboxes that live on: each in the care of a keeper process of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use ringwall_linux::signals::SignalWatch;
use ringwall_spec::{
    Command, Decided, Ending, Invalid, Outcome, SandboxId, SandboxSpec, ValidSpec,
};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::hiding::Hiding;
use crate::job::{Output, StartError};
use crate::ledger::LedgerError;
use crate::raise::RaiseError;
use crate::record::{Record, RecordError, RecordKind};
use crate::relay::{Order, Own, Relay};
use crate::rights::ChangeRightsError;
use crate::sandbox::Sandbox;
use crate::secrets::SecretError;
use crate::settle::SettleError;
use crate::snapshot::Gate;
use crate::standing::Standing;
use crate::vm::SnapshotError;

/// How often a keeper looks whether the ring is still as it was raised, when nobody asks for anything.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// The longest task that a keeper reads.
const MAX_TASK_BYTES: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(transparent)]
    Raise(#[from] RaiseError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the keeper of the sandbox could not be started")]
    Spawn(#[source] io::Error),
    #[error("the keeper of the sandbox could not work")]
    Io(#[source] io::Error),
    /// The keeper's own words.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("the keeper was given a task that it cannot read")]
    Task(#[source] serde_json::Error),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) spec: SandboxSpec,
    #[serde(default)]
    decided: Option<Decided>,
    command: Option<StoredCommand>,
    /// What the sandbox goes on from.
    restore: Option<Restore>,
    /// It is for whoever takes it, and ends with whoever keeps it ready.
    #[serde(default)]
    ready: bool,
}

/// A snapshot, and where the process that started the keeper holds its memory and devices.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Restore {
    pub(crate) id: SandboxId,
    pub(crate) for_fork: bool,
    pub(crate) parent: u32,
    pub(crate) memory: i32,
    pub(crate) state: i32,
}

/// A command as bytes: arguments need not be UTF-8.
#[derive(Debug, Serialize, Deserialize)]
struct StoredCommand {
    argv: Vec<Vec<u8>>,
    env: Vec<(Vec<u8>, Vec<u8>)>,
    cwd: Option<Vec<u8>>,
}

/// What tells a keeper where monitors and guest kernels are.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "XDG_DATA_HOME", "RINGWALL_KERNELS"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Ready { id: String },
    Refused { why: String },
}

impl Engine {
    /// Starts a sandbox that outlives this process, and in it `command` if there is one. The
    /// running program must know the hidden subcommand `keep`.
    pub fn create(
        &self,
        admitted: &ValidSpec,
        command: Option<&Command>,
    ) -> Result<Record, KeepError> {
        let command = command.map(StoredCommand::from);
        let (spec, decided) = (admitted.spec().clone(), admitted.decision().cloned());
        self.start_keeper(&Task { spec, decided, command, restore: None, ready: false })
    }

    /// The same ahead of time, for nobody yet: it ends with the first connection to it, unless
    /// somebody has [taken](Attached::take) it by then.
    pub fn create_ready(&self, admitted: &ValidSpec) -> Result<Record, KeepError> {
        let (spec, decided) = (admitted.spec().clone(), admitted.decision().cloned());
        self.start_keeper(&Task { spec, decided, command: None, restore: None, ready: true })
    }

    /// The same from a snapshot.
    pub(crate) fn create_from(
        &self,
        (spec, decided): (SandboxSpec, Option<Decided>),
        restore: Restore,
    ) -> Result<Record, KeepError> {
        let restore = Some(restore);
        self.start_keeper(&Task { spec, decided, command: None, restore, ready: false })
    }

    fn start_keeper(&self, task: &Task) -> Result<Record, KeepError> {
        let own = std::env::current_exe().map_err(KeepError::Spawn)?;
        let programs = self.programs.launcher.parent().unwrap_or(std::path::Path::new("/"));
        let mut keeper = std::process::Command::new(own)
            .arg("keep")
            .env_clear()
            .env("RINGWALL_HOME", &self.home)
            .env("RINGWALL_PROGRAMS", programs)
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(self.variables_of_secrets(&task.spec)?)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(KeepError::Spawn)?;
        if let Some(mut input) = keeper.stdin.take() {
            let text = serde_json::to_vec(task).map_err(KeepError::Task)?;
            input.write_all(&text).map_err(KeepError::Io)?;
        }
        let mut line = String::new();
        if let Some(output) = keeper.stdout.take() {
            let mut output = BufReader::new(output.take(64 * 1024));
            output.read_line(&mut line).map_err(KeepError::Io)?;
        }
        match serde_json::from_str(&line) {
            Ok(Word::Ready { id }) => {
                // A program that lives longer than the keeper must not keep it as a zombie.
                std::thread::spawn(move || keeper.wait());
                Ok(self.find(&id)?)
            }
            Ok(Word::Refused { why }) => {
                let _ = keeper.wait();
                Err(KeepError::Refused(why))
            }
            Err(_) => {
                let _ = keeper.wait();
                Err(KeepError::Refused("the keeper of the sandbox ended too early".to_owned()))
            }
        }
    }

    /// The body of a keeper: raises the sandbox, says so on standard output and serves it until it
    /// is stopped or its time is over.
    pub fn keep(&self, input: impl Read) -> Result<Outcome, KeepError> {
        // Before any other thread exists, so that all of them leave these signals to the watch.
        let signals =
            SignalWatch::new(&[Signal::TERM, Signal::INT, Signal::HUP]).map_err(KeepError::Io)?;
        // Fails only for the leader of a process group, which then is a session of its own.
        let _ = rustix::process::setsid();
        let (orders, ordered) = mpsc::channel();
        let gate = Arc::new(Gate::default());
        let kept = self.raise_kept(input, &gate, &orders);
        let word = match &kept {
            Ok((sandbox, _)) => Word::Ready { id: sandbox.id.to_string() },
            Err(error) => Word::Refused { why: with_causes(error) },
        };
        say(&word).map_err(KeepError::Io)?;
        let (mut sandbox, background) = kept?;
        let end_by_signal = orders.clone();
        std::thread::spawn(move || {
            if signals.wait().is_ok() {
                let _ = end_by_signal.send(Order::End(Ending::Stopped));
            }
        });
        if let Some((job, log)) = background {
            let gate = gate.clone();
            // How the background command ended is in its log; the sandbox lives on.
            std::thread::spawn(move || {
                let _inside = gate.enter();
                job.wait(&mut LogFile(log))
            });
        }
        watch_warden(&sandbox, orders);
        let ending = self.serve_orders(&mut sandbox, &gate, &ordered);
        let record = sandbox.record.as_ref().map(|held| &held.record);
        // It was never anybody's, so there is nobody to look at what is left of it.
        let unused = record.filter(|record| record.ready).map(|record| record.dir.clone());
        let outcome = sandbox.settle(ending)?;
        if let Some(dir) = unused {
            crate::record::delete(&dir).map_err(KeepError::Io)?;
        }
        Ok(outcome)
    }

    /// Until somebody ends the sandbox, or its time does.
    fn serve_orders(
        &self,
        sandbox: &mut Sandbox,
        gate: &Gate,
        ordered: &Receiver<Order>,
    ) -> Ending {
        let until = Instant::now().checked_add(sandbox.limits().timeout);
        loop {
            let left =
                until.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            match ordered.recv_timeout(left.min(CHECK_EVERY)) {
                Ok(Order::End(ending)) => return ending,
                Ok(Order::Changed(error)) => return self.end_changed(sandbox, &error),
                Ok(Order::ChangeRights { change, done }) => {
                    let changed = self.change_rights_of(sandbox, &change);
                    let distrusted = match &changed {
                        Err(ChangeRightsError::Evidence { source, .. }) => Some(source.clone()),
                        _ => None,
                    };
                    let _ = done.send(changed.map_err(|error| with_causes(&error)));
                    if let Some(error) = distrusted {
                        return self.end_changed(sandbox, &error);
                    }
                }
                Ok(Order::Take { decided, done }) => {
                    let taken = take(sandbox, &decided);
                    let _ = done.send(taken.map_err(|error| with_causes(&error)));
                }
                Ok(Order::Snapshot { id, name, for_fork, done }) => {
                    let kept = self.snapshot_of(sandbox, gate, (&id, name.as_deref()), for_fork);
                    let _ = done.send(kept.map_err(|error| with_causes(&error)));
                }
                Err(RecvTimeoutError::Timeout) if left > CHECK_EVERY => {
                    if let Err(error) = self.check_again(sandbox) {
                        return self.end_changed(sandbox, &error);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ending::Timeout,
                Err(RecvTimeoutError::Disconnected) => return Ending::Stopped,
            }
        }
    }

    fn raise_kept(
        &self,
        input: impl Read,
        gate: &Arc<Gate>,
        orders: &Sender<Order>,
    ) -> Result<(Sandbox, Option<(crate::Job, File)>), KeepError> {
        let task: Task =
            serde_json::from_reader(input.take(MAX_TASK_BYTES)).map_err(KeepError::Task)?;
        let mut admitted = ringwall_spec::validate(task.spec)?;
        if let Some(decided) = task.decided {
            admitted = admitted.decided(decided);
        }
        let command = task.command.map(Command::from);
        let words = command.as_ref().map(Command::words).unwrap_or_default();
        let from = task.restore.map(|restore| self.take_over_snapshot(&restore)).transpose()?;
        let mut sandbox = self.raise_as(&admitted, RecordKind::Living, from.as_ref(), &words)?;
        if let Some(held) = sandbox.record.as_mut() {
            held.record.ready = task.ready;
        }
        sandbox.save_defaults()?;
        sandbox.record_evidence()?;
        // The launcher has done its work and ended. Asked about, it is taken off the list of processes.
        let _ = sandbox.ring.spawner.is_alive();
        sandbox.standing = Some(Arc::new(Standing::of(&sandbox).map_err(KeepError::Io)?));
        let background = match command {
            None => None,
            Some(command) => {
                let log = sandbox.open_log().map_err(KeepError::Io)?;
                Some((sandbox.start_background(&command)?, log))
            }
        };
        let socket = sandbox.listen().map_err(KeepError::Io)?;
        if let Some(client) = sandbox.files() {
            let tools = sandbox.tools().cloned();
            let way = (gate.clone(), orders.clone());
            let own = Own {
                tools,
                standing: sandbox.standing.clone(),
                hiding: sandbox.hiding.as_ref().map(Hiding::shared),
            };
            let relay = Relay::new(client.clone(), own, way, task.ready);
            Relay::serve(socket, Arc::new(relay));
        }
        Ok((sandbox, background))
    }
}

/// Writes down that a sandbox that was kept ready is somebody's, and by which decision.
fn take(sandbox: &mut Sandbox, decided: &[u8]) -> Result<(), KeepError> {
    let decided: Option<Decided> = serde_json::from_slice(decided).map_err(KeepError::Task)?;
    if let Some(held) = sandbox.record.as_mut() {
        held.record.decided = decided;
        held.record.ready = false;
        held.save()?;
    }
    Ok(())
}

/// An error and what caused it, as one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

/// Ends the keeper when the warden is gone, for whatever reason.
fn watch_warden(sandbox: &Sandbox, orders: Sender<Order>) {
    let warden = sandbox.ring.launched.pidfd.clone();
    let memory = sandbox.memory_check();
    std::thread::spawn(move || {
        ringwall_linux::process::is_readable_within(&warden, None);
        let ending = if memory.exceeded() { Ending::Oom } else { Ending::Stopped };
        let _ = orders.send(Order::End(ending));
    });
}

/// Says one line and lets go of standard output, so that whoever waits for its end is not kept.
fn say(word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut output = io::stdout();
    output.write_all(&line)?;
    output.flush()?;
    let null = File::options().write(true).open("/dev/null")?;
    Ok(rustix::stdio::dup2_stdout(&null)?)
}

struct LogFile(File);

impl Output for LogFile {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

impl From<&Command> for StoredCommand {
    fn from(command: &Command) -> StoredCommand {
        let bytes = |text: &std::ffi::OsString| text.as_bytes().to_vec();
        StoredCommand {
            argv: command.argv.iter().map(bytes).collect(),
            env: command.env.iter().map(|(key, value)| (bytes(key), bytes(value))).collect(),
            cwd: command.cwd.as_ref().map(|path| path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<StoredCommand> for Command {
    fn from(stored: StoredCommand) -> Command {
        let text = std::ffi::OsString::from_vec;
        Command {
            argv: stored.argv.into_iter().map(text).collect(),
            env: stored.env.into_iter().map(|(key, value)| (text(key), text(value))).collect(),
            cwd: stored.cwd.map(|path| text(path).into()),
            terminal: None,
            stdin: false,
        }
    }
}
