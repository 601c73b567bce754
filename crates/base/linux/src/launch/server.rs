//! The launcher's side: read an order, apply it, answer.
//!
//! A ring comes into being in one of two ways. The only ring of a launcher gets a child that shares
//! the launcher's memory until it executes the warden. A parked launcher keeps a zygote: a child
//! that has applied all steps that are not one sandbox's alone, and serves one order.
//!
//! Invariant: single-threaded, so that a cloned child is a faithful copy. After a child has given
//! up its privileges it reads nothing: the steps that give them up are in memory before the first
//! of them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::process::Pid;
use serde::de::DeserializeOwned;

use super::protocol::{Answer, Order, Parking};
use crate::apply::{Machine, StepFailure};
use crate::exec;
use crate::fdpass::{self, MAX_MESSAGE};
use crate::process::{self, Cloned, Sharing};
use crate::step::{Slot, Step, name};

/// Serves orders that come in on standard input until the engine closes its end.
///
/// The socket is moved out of the way and standard input becomes `/dev/null`: no ring may inherit
/// the line to the launcher.
pub fn serve_stdin() -> io::Result<()> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), exec::FIRST_SAFE)?;
    let null = std::fs::File::open("/dev/null")?;
    exec::dup_onto(null.as_raw_fd(), 0)?;
    rustix::process::chdir("/")?;
    // The modes of steps are exact. A warden gets the usual mask again.
    rustix::process::umask(rustix::fs::Mode::empty());
    serve(socket)
}

/// Serves orders until the engine closes its end. What keeps it from serving is told there too: nobody
/// reads a launcher's standard error.
fn serve(socket: OwnedFd) -> io::Result<()> {
    let served = serve_orders(socket.as_fd());
    if let Err(error) = &served {
        let failure = Answer::Failed(failed("serve the engine", error));
        // If the engine is gone there is nobody to tell.
        let _ = answer_with(socket.as_fd(), &failure, &[]);
    }
    served
}

fn serve_orders(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (parent, engine) = (process::own_pidfd()?, process::parent_pidfd()?);
    // Nobody waits for children here: the engine watches the pidfds of wardens.
    process::ignore_child_exits();
    let mut launcher = Launcher { socket, parent, machine: Machine::default(), ready: None };
    let mut parking = Parking::OneRing;
    let mut buffer = vec![0; MAX_MESSAGE];
    while let Some((order, descriptors)) = receive::<Order>(launcher.socket, &mut buffer)? {
        match order {
            Order::Template { steps, parking: wanted } => {
                parking = wanted;
                put_all(&mut launcher.machine, descriptors);
                if let Err(failure) = launcher.machine.apply_all(&steps) {
                    // A half-made template must never be used: orders may be waiting already.
                    return launcher.answer(&Answer::Failed(failure), &[]);
                }
            }
            Order::Adjust { steps } => {
                put_all(&mut launcher.machine, descriptors);
                match launcher.machine.apply_all(&steps) {
                    Ok(()) => launcher.answer(&Answer::Adjusted, &[])?,
                    Err(failure) => return launcher.answer(&Answer::Failed(failure), &[]),
                }
            }
            Order::Spawn { ahead, last } => match parking {
                Parking::NotAtAll => {
                    launcher.parent = engine;
                    let sibling = libc::CLONE_PARENT.unsigned_abs();
                    return launcher.spawn_only(sibling.into(), &ahead, &last, descriptors);
                }
                Parking::OneRing => launcher.spawn_only(0, &ahead, &last, descriptors)?,
                Parking::ForMore => {
                    launcher.spawn_parked(&ahead, &last, descriptors)?;
                    // The next is most likely like this one. If none can be made now, it is made
                    // when it is asked for.
                    launcher.ready = launcher.make_zygote(ahead).ok();
                }
            },
        }
    }
    Ok(())
}

struct Launcher<'a> {
    socket: BorrowedFd<'a>,
    /// The parent of rings: what they watch.
    parent: OwnedFd,
    machine: Machine,
    ready: Option<Zygote>,
}

/// A ring whose steps were applied ahead. It serves one order; when its socket closes, it ends.
struct Zygote {
    ahead: Vec<Step>,
    pid: Pid,
    pidfd: OwnedFd,
    socket: OwnedFd,
}

impl Launcher<'_> {
    /// The only ring of this launcher: it can have our memory, as we have nothing else to do.
    fn spawn_only(
        &mut self,
        flags: u64,
        ahead: &[Step],
        last: &[Step],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let mut descriptors = Some(descriptors);
        let (machine, parent) = (&mut self.machine, &self.parent);
        let cloned = process::clone_sharing(ring_namespaces() | flags, Sharing::Allocates, || {
            let applied = begin_child(machine, parent, ahead);
            finish_child(machine, applied, last, descriptors.take().unwrap_or_default());
        });
        if descriptors.is_none() {
            // The child took them in memory that was ours too, and closed its own copies. Left
            // open here, the engine would never see the end of its ring's reports.
            numbers.into_iter().for_each(exec::close_taken);
        }
        // From here on it names the child's descriptors and no longer ours: nothing may close them.
        std::mem::forget(std::mem::take(&mut self.machine));
        self.tell_of(cloned)
    }

    fn spawn_parked(
        &mut self,
        ahead: &[Step],
        last: &[Step],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let bytes = postcard::to_stdvec(last).map_err(io::Error::other)?;
        let passed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let ask = |zygote: Zygote| {
            fdpass::send(zygote.socket.as_fd(), &bytes, &passed)?;
            Ok((zygote.pid, zygote.pidfd))
        };
        let ready = self.ready.take().filter(|zygote| zygote.ahead == ahead);
        // One that somebody killed while it waited is replaced.
        let asked = match ready.map(ask) {
            Some(Ok(asked)) => Ok(asked),
            _ => self.make_zygote(ahead.to_vec()).and_then(ask),
        };
        self.tell_of(asked)
    }

    fn make_zygote(&mut self, ahead: Vec<Step>) -> io::Result<Zygote> {
        let (socket, theirs) = fdpass::pair()?;
        match process::clone_into(ring_namespaces())? {
            Cloned::Child => {
                drop(socket);
                run_zygote(&mut self.machine, &self.parent, &ahead, &theirs);
                process::exit_now(1)
            }
            Cloned::Parent { pid, pidfd } => {
                self.machine.forget_network();
                Ok(Zygote { ahead, pid, pidfd, socket })
            }
        }
    }

    fn tell_of(&self, cloned: io::Result<(Pid, OwnedFd)>) -> io::Result<()> {
        match cloned {
            Ok((pid, pidfd)) => {
                let pid = pid.as_raw_nonzero().get().unsigned_abs();
                self.answer(&Answer::Spawned { pid }, &[pidfd.as_fd()])
            }
            Err(error) => self.answer(&Answer::Failed(failed(name::RING_NAMESPACES, &error)), &[]),
        }
    }

    fn answer(&self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        answer_with(self.socket, answer, descriptors)
    }
}

fn put_all(machine: &mut Machine, descriptors: Vec<OwnedFd>) {
    for (index, fd) in (0u16..).zip(descriptors) {
        machine.put(Slot::passed(index), fd);
    }
}

/// Everything of its own but the user namespace, which it shares with its spawner, and the network
/// namespace, which a step brings.
fn ring_namespaces() -> u64 {
    let flags = libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    flags.unsigned_abs().into()
}

/// Does what can be done ahead, and waits to be asked for the rest.
fn run_zygote(machine: &mut Machine, launcher: &OwnedFd, ahead: &[Step], socket: &OwnedFd) {
    let applied = begin_child(machine, launcher, ahead);
    let mut buffer = vec![0; MAX_MESSAGE];
    if let Ok(Some((last, descriptors))) = receive::<Vec<Step>>(socket.as_fd(), &mut buffer) {
        finish_child(machine, applied, &last, descriptors);
    }
}

fn begin_child(
    machine: &mut Machine,
    launcher: &OwnedFd,
    ahead: &[Step],
) -> Result<(), StepFailure> {
    process::default_child_exits();
    machine
        .die_with(launcher.as_fd())
        .map_err(|error| failed("tie to the launcher", &error))
        .and_then(|()| machine.apply_all(ahead))
}

/// Comes back only after a failure, which it has told.
fn finish_child(
    machine: &mut Machine,
    applied: Result<(), StepFailure>,
    last: &[Step],
    mut descriptors: Vec<OwnedFd>,
) {
    if descriptors.is_empty() {
        return;
    }
    let report = machine.set_report(descriptors.remove(0));
    put_all(machine, descriptors);
    let result = applied
        .and_then(|()| report.map_err(|error| failed("keep the report socket", &error)))
        .and_then(|()| machine.apply_all(last));
    if let (Err(failure), Some(report)) = (result, machine.report()) {
        // The engine may be gone; then there is nobody to tell.
        let _ = answer_with(report, &Answer::Failed(failure), &[]);
    }
}

fn failed(step: &str, error: &io::Error) -> StepFailure {
    StepFailure { step: step.into(), reason: error.to_string(), errno: error.raw_os_error() }
}

/// One message; `None` when the other side is gone.
fn receive<M: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let Some((length, descriptors)) = fdpass::receive(socket, buffer)? else {
        return Ok(None);
    };
    let bytes = buffer.get(..length).unwrap_or_default();
    Ok(Some((postcard::from_bytes(bytes).map_err(io::Error::other)?, descriptors)))
}

fn answer_with(
    socket: BorrowedFd<'_>,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(answer).map_err(io::Error::other)?;
    fdpass::send(socket, &bytes, descriptors)
}
