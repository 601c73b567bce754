//! Sandboxes that live on: each in the care of a keeper process of its own.

mod interval;
mod words;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ringwall_linux::signals::SignalWatch;
use ringwall_permit::{
    OpenSealError, Permit, PermitExpired, Purpose, SealError, SealKey, SealKeyError, SealedFor,
};
use ringwall_spec::{Command, Ending, Outcome, SandboxId};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::config::Engine;
use crate::gate::Gate;
use crate::hiding::Hiding;
use crate::host;
use crate::job::{Output, StartError};
use crate::ledger::LedgerError;
use crate::meter::Meter;
use crate::orders::{Happened, Order, Orders, Waiting, orders};
use crate::oversight::{Looks, Oversight};
use crate::raise::{RaiseError, Raising};
use crate::record::{Record, RecordError, RecordKind};
use crate::relay::{Own, Relay};
use crate::rights::ChangeRightsError;
use crate::sandbox::Sandbox;
use crate::secrets::SecretError;
use crate::settle::SettleError;
use crate::standing::Standing;
use crate::vm::SnapshotError;
use interval::{CHECK_SECONDS, check_interval};
use words::{KEEPER_RAISE_TIMEOUT, KEEPER_START_TIMEOUT, Keeper, Word, ended_early, say};

/// The longest sealed task that a keeper reads.
const MAX_TASK_BYTES: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Expired(#[from] PermitExpired),
    #[error(transparent)]
    Key(#[from] SealKeyError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Permit(#[from] OpenSealError),
    #[error("the permit is for another sandbox than the one that was kept ready; create a new one")]
    OtherSpec,
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
    #[error("cannot start the shim of the sandbox")]
    Spawn(#[source] io::Error),
    #[error("the shim of the sandbox failed")]
    Io(#[source] io::Error),
    #[error(
        "waited {seconds} seconds for the shim of the sandbox and ended it; \
         `dmesg` may say what held it up, and `ringwall gc` removes the rest"
    )]
    Stuck { seconds: u64 },
    /// The keeper's own words.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// What a keeper does with its permit. It is under the same seal.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Task {
    command: Option<StoredCommand>,
    /// What the sandbox goes on from.
    restore: Option<Restore>,
    /// It is for the first caller who takes it, and ends with the process that keeps it ready.
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

/// A sandbox in the care of this process.
#[derive(Debug)]
struct Kept {
    sandbox: Sandbox,
    /// The sandbox's own command, and where that writes to.
    background: Option<(crate::Job, File)>,
    meter: Arc<Meter>,
    /// Where callers attach, and who serves them.
    door: Option<(UnixListener, Arc<Relay>)>,
}

/// How orders and callers reach the sandbox.
struct Serving<'a> {
    gate: &'a Gate,
    waiting: &'a Waiting<'a>,
    relay: Option<&'a Arc<Relay>>,
}

/// The variables that tell a keeper where VMMs and guest kernels are, which VMM it must use, and how often it
/// checks its ring.
const PASSED_ON: [&str; 6] =
    ["PATH", "HOME", "XDG_DATA_HOME", "RINGWALL_KERNELS", ringwall_ring_vm::WANTED, CHECK_SECONDS];

impl Engine {
    /// Starts a sandbox that outlives this process, and in it `command` if there is one. The
    /// running program must know the hidden subcommand `keep`.
    pub fn create(&self, permit: &Permit, command: Option<&Command>) -> Result<Record, KeepError> {
        let command = command.map(StoredCommand::from);
        self.start_keeper(permit, &Task { command, ..Task::default() })
    }

    /// Makes a sandbox ahead of time, without a user yet. It ends with the first connection to it, unless
    /// a caller has [taken](Attached::take) it by then.
    pub fn create_ready(&self, permit: &Permit) -> Result<Record, KeepError> {
        self.start_keeper(permit, &Task { ready: true, ..Task::default() })
    }

    /// Makes a sandbox from a snapshot.
    pub(crate) fn create_from(
        &self,
        permit: &Permit,
        restore: Restore,
    ) -> Result<Record, KeepError> {
        self.start_keeper(permit, &Task { restore: Some(restore), ..Task::default() })
    }

    fn start_keeper(&self, permit: &Permit, task: &Task) -> Result<Record, KeepError> {
        permit.check(SystemTime::now())?;
        let own = std::env::current_exe().map_err(KeepError::Spawn)?;
        let programs = self.programs.launcher.parent().unwrap_or(std::path::Path::new("/"));
        let keeper = std::process::Command::new(own)
            .arg("keep")
            .env_clear()
            .env("RINGWALL_HOME", &self.home)
            .env("RINGWALL_PROGRAMS", programs)
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(self.variables_of_secrets(permit.spec())?)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(KeepError::Spawn)?;
        let mut keeper = Keeper::new(keeper).map_err(KeepError::Io)?;
        match self.give_permit(&mut keeper, permit, task) {
            Ok(id) => {
                keeper.leave();
                Ok(self.find(id.as_str())?)
            }
            Err(error) => {
                keeper.end(&error);
                Err(error)
            }
        }
    }

    /// Gives a keeper that was started its permit, and waits until its sandbox is there.
    fn give_permit(
        &self,
        keeper: &mut Keeper,
        permit: &Permit,
        task: &Task,
    ) -> Result<SandboxId, KeepError> {
        let key = SealKey::open_or_make(&self.home)?;
        let id = match keeper.hear(KEEPER_START_TIMEOUT)? {
            Some(Word::Waits { id }) => id,
            word => return Err(ended_early(word)),
        };
        let used = SealedFor { sandbox: &id, purpose: Purpose::Raise };
        keeper.give(&key.seal(permit, used, task)?, KEEPER_START_TIMEOUT)?;
        match keeper.hear(KEEPER_RAISE_TIMEOUT)? {
            Some(Word::Ready) => Ok(id),
            word => Err(ended_early(word)),
        }
    }

    /// The body of a keeper: raises the sandbox, says so on standard output and serves it until it
    /// is stopped, its time is over, or `oversight` ends it.
    pub fn keep(
        &self,
        input: impl Read,
        oversight: &mut dyn Oversight,
    ) -> Result<Outcome, KeepError> {
        // Before any other thread exists, so that all of them leave these signals to the watch.
        let signals =
            SignalWatch::new(&[Signal::TERM, Signal::INT, Signal::HUP]).map_err(KeepError::Io)?;
        self.open_log_ahead();
        // Fails only for the leader of a process group, which then is a session of its own.
        let _ = rustix::process::setsid();
        let (orders, ordered) = orders().map_err(KeepError::Io)?;
        let gate = Arc::new(Gate::default());
        // Drawn here, so that no permit that there is already can be for this sandbox.
        let id = host::new_id();
        say(&Word::Waits { id: id.clone() }).map_err(KeepError::Io)?;
        let kept = self.raise_kept(id, input, &gate, &orders);
        let word = match &kept {
            Ok(_) => Word::Ready,
            Err(error) => Word::Refused { why: with_causes(error) },
        };
        say(&word).and_then(|()| let_go_of_output()).map_err(KeepError::Io)?;
        let Kept { mut sandbox, background, meter, door } = kept?;
        if let Some((job, log)) = background {
            let gate = gate.clone();
            // How the background command ended is in its log; the sandbox lives on.
            std::thread::spawn(move || {
                let _inside = gate.enter();
                job.wait(&mut LogFile(log))
            });
        }
        let warden = sandbox.ring.launched.pidfd.clone();
        let waiting = Waiting {
            ordered: &ordered,
            signals: &signals,
            warden: &warden,
            socket: door.as_ref().map(|(socket, _)| socket),
        };
        let relay = door.as_ref().map(|(_, relay)| relay);
        let serving = Serving { gate: &gate, waiting: &waiting, relay };
        let mut looks = Looks::new(oversight, &meter);
        let ending = self.serve_orders(&mut sandbox, &serving, &mut looks);
        looks.ends(&sandbox);
        // No caller waits for an answer from a sandbox that ends.
        drop(door);
        let record = sandbox.record.as_ref().map(|held| &held.record);
        // It never had a user, so no user will look at its rest.
        let unused = record.filter(|record| record.ready).cloned();
        let outcome = sandbox.settle(ending)?;
        if let Some(record) = unused {
            crate::record::delete(&record).map_err(KeepError::Io)?;
        }
        Ok(outcome)
    }

    /// Until an order ends the sandbox, or its time does.
    fn serve_orders(
        &self,
        sandbox: &mut Sandbox,
        serving: &Serving<'_>,
        looks: &mut Looks<'_>,
    ) -> Ending {
        let Serving { gate, waiting, relay } = *serving;
        let until = Instant::now().checked_add(sandbox.limits().timeout);
        let interval = check_interval(std::env::var_os(CHECK_SECONDS).as_deref());
        let mut next_check = Instant::now() + interval;
        loop {
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Ending::Timeout;
            }
            if next_check <= now {
                let checked = sandbox.standing.as_ref().map(|standing| standing.lock().check());
                if let Some(Err(error)) = checked {
                    return self.end_changed(sandbox, &error);
                }
                next_check = Instant::now() + interval;
            }
            if !looks.may_continue(sandbox) {
                return Ending::Stopped;
            }
            let next_look = looks.next(sandbox);
            let soonest = [until, next_look].into_iter().flatten().fold(next_check, Instant::min);
            let patience = soonest.saturating_duration_since(Instant::now());
            // A keeper that cannot hear its orders ends the sandbox in order.
            match waiting.next(patience).unwrap_or(Happened::Signal) {
                Happened::Ordered(order) => {
                    if let Some(ending) = self.obey(sandbox, gate, order) {
                        return ending;
                    }
                }
                Happened::Signal => return Ending::Stopped,
                Happened::WardenEnded => {
                    let exceeded = sandbox.memory_check().exceeded();
                    return if exceeded { Ending::Oom } else { Ending::Stopped };
                }
                Happened::Connection => {
                    if let (Some(socket), Some(relay)) = (waiting.socket, relay) {
                        Relay::accept(relay, socket);
                    }
                }
                Happened::Nothing => {}
            }
        }
    }

    /// Carries out an order. Gives how the sandbox is to end, if it is.
    fn obey(&self, sandbox: &mut Sandbox, gate: &Gate, order: Order) -> Option<Ending> {
        match order {
            Order::End(ending) => return Some(ending),
            Order::Changed(error) => return Some(self.end_changed(sandbox, &error)),
            Order::ChangeRights { change, done } => {
                let changed = self.change_rights_of(sandbox, &change);
                let distrusted = match &changed {
                    Err(ChangeRightsError::Evidence { source, .. }) => Some(source.clone()),
                    _ => None,
                };
                let _ = done.send(changed.map_err(|error| with_causes(&error)));
                if let Some(error) = distrusted {
                    return Some(self.end_changed(sandbox, &error));
                }
            }
            Order::Take { permit, done } => {
                let taken = self.take(sandbox, &permit);
                let _ = done.send(taken.map_err(|error| with_causes(&error)));
            }
            Order::Snapshot { id, name, for_fork, done } => {
                let kept = self.snapshot_of(sandbox, gate, (&id, name.as_deref()), for_fork);
                let _ = done.send(kept.map_err(|error| with_causes(&error)));
            }
        }
        None
    }

    fn raise_kept(
        &self,
        id: SandboxId,
        input: impl Read,
        gate: &Arc<Gate>,
        orders: &Orders,
    ) -> Result<Kept, KeepError> {
        let mut sealed = Vec::new();
        input.take(MAX_TASK_BYTES).read_to_end(&mut sealed).map_err(KeepError::Io)?;
        let used = SealedFor { sandbox: &id, purpose: Purpose::Raise };
        let key = SealKey::open(&self.home)?;
        let (permit, task): (Permit, Task) = key.open_permit(&sealed, used, SystemTime::now())?;
        let command = task.command.map(Command::from);
        let words = command.as_ref().map(Command::words).unwrap_or_default();
        let from = task.restore.map(|restore| self.take_over_snapshot(&restore)).transpose()?;
        let raising = Raising { id, kind: RecordKind::Living, from: from.as_ref() };
        let mut sandbox = self.raise_as(&permit, raising, &words)?;
        if let Some(held) = sandbox.record.as_mut() {
            held.record.ready = task.ready;
        }
        sandbox.save_defaults()?;
        sandbox.record_evidence()?;
        // The launcher has done its work and ended. Asked about, it is taken off the list of processes.
        let _ = sandbox.ring.spawner.is_alive();
        sandbox.standing =
            Some(Arc::new(Standing::of(&sandbox, &self.cgroups).map_err(KeepError::Io)?));
        if let Some(watchdog) = &sandbox.watchdog {
            watchdog.rest_behind(gate, sandbox.ring.launched.pid);
        }
        let background = match command {
            None => None,
            Some(command) => {
                let log = sandbox.open_log().map_err(KeepError::Io)?;
                let _inside = gate.enter();
                Some((sandbox.start_background(&command)?, log))
            }
        };
        let socket = sandbox.listen().map_err(KeepError::Io)?;
        let meter = Arc::new(Meter::new(sandbox.group.clone()));
        let door = sandbox.files().map(|client| {
            let tools = sandbox.tools().cloned();
            let way = (gate.clone(), orders.clone());
            let own = Own {
                tools,
                standing: sandbox.standing.clone(),
                hiding: sandbox.hiding.as_ref().map(Hiding::shared),
                meter: Arc::clone(&meter),
            };
            (socket, Arc::new(Relay::new(client.clone(), own, way, task.ready)))
        });
        Ok(Kept { sandbox, background, meter, door })
    }

    /// Gives a sandbox that was kept ready to the caller of a permit, and writes that down.
    fn take(&self, sandbox: &mut Sandbox, sealed: &[u8]) -> Result<(), KeepError> {
        let used = SealedFor { sandbox: &sandbox.id, purpose: Purpose::Take };
        let key = SealKey::open(&self.home)?;
        let (permit, ()) = key.open_permit(sealed, used, SystemTime::now())?;
        if permit.spec() != sandbox.placement.permit.spec() {
            return Err(KeepError::OtherSpec);
        }
        if let Some(held) = sandbox.record.as_mut() {
            held.record.decided = permit.decided().cloned();
            held.record.ready = false;
            held.save()?;
        }
        sandbox.placement.permit = permit;
        Ok(())
    }
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

/// Lets go of standard output, so that a reader who waits for its end is not kept.
fn let_go_of_output() -> io::Result<()> {
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
