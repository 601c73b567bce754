//! The launcher's side: read an order, apply it, answer.
//!
//! Invariant: single-threaded, so that a cloned child is a faithful copy. After a child has given
//! up its privileges it reads nothing: its whole step list is in memory before the first step.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::protocol::{Answer, Order};
use crate::apply::{Machine, StepFailure};
use crate::exec;
use crate::fdpass::{self, MAX_MESSAGE};
use crate::process::{self, Cloned};
use crate::step::{Slot, Step};

/// Serves orders that come in on standard input until the engine closes its end.
///
/// The socket is moved out of the way and standard input becomes `/dev/null`: no ring may inherit
/// the line to the launcher.
pub fn serve_stdin() -> io::Result<()> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), exec::FIRST_SAFE)?;
    let null = std::fs::File::open("/dev/null")?;
    exec::dup_onto(null.as_raw_fd(), 0)?;
    rustix::process::chdir("/")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    serve(socket)
}

/// Serves orders until the engine closes its end.
fn serve(socket: OwnedFd) -> io::Result<()> {
    let own = process::own_pidfd()?;
    // Nobody waits for children here: the engine watches the pidfds of wardens.
    process::ignore_child_exits();
    let mut machine = Machine::default();
    let mut parked = false;
    let mut buffer = vec![0; MAX_MESSAGE];
    while let Some((length, descriptors)) = fdpass::receive(socket.as_fd(), &mut buffer)? {
        let Some(bytes) = buffer.get(..length) else {
            continue;
        };
        let order: Order = postcard::from_bytes(bytes).map_err(io::Error::other)?;
        match order {
            Order::Template { steps, parked: more } => {
                parked = more;
                put_all(&mut machine, descriptors);
                if let Err(failure) = machine.apply_all(&steps) {
                    // A half-made template must never be used: orders may be waiting already.
                    return answer_with(socket.as_fd(), &Answer::Failed(failure), &[]);
                }
                answer_with(socket.as_fd(), &Answer::Ready, &[])?;
            }
            Order::Spawn(steps) => {
                spawn(&socket, &own, &mut machine, &steps, descriptors)?;
                machine.forget_network();
                if parked {
                    machine.prepare_network();
                }
            }
        }
    }
    Ok(())
}

fn put_all(machine: &mut Machine, descriptors: Vec<OwnedFd>) {
    for (index, fd) in (0u16..).zip(descriptors) {
        machine.put(Slot::passed(index), fd);
    }
}

fn spawn(
    socket: &OwnedFd,
    own: &OwnedFd,
    machine: &mut Machine,
    steps: &[Step],
    descriptors: Vec<OwnedFd>,
) -> io::Result<()> {
    match process::clone_into(ring_namespaces()) {
        Ok(Cloned::Child) => run_child(own, machine, steps, descriptors),
        Ok(Cloned::Parent { pid, pidfd }) => {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            answer_with(socket.as_fd(), &Answer::Spawned { pid }, &[pidfd.as_fd()])
        }
        Err(error) => {
            let failure = StepFailure {
                step: "make namespaces".into(),
                reason: error.to_string(),
                errno: error.raw_os_error(),
            };
            answer_with(socket.as_fd(), &Answer::Failed(failure), &[])
        }
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

fn run_child(
    launcher: &OwnedFd,
    machine: &mut Machine,
    steps: &[Step],
    mut descriptors: Vec<OwnedFd>,
) -> ! {
    if descriptors.is_empty() {
        process::exit_now(1);
    }
    let report = machine.set_report(descriptors.remove(0));
    put_all(machine, descriptors);
    process::default_child_exits();
    let result = report
        .and_then(|()| machine.die_with(launcher.as_fd()))
        .map_err(|error| StepFailure {
            step: "tie to the launcher".into(),
            reason: error.to_string(),
            errno: error.raw_os_error(),
        })
        .and_then(|()| machine.apply_all(steps));
    if let (Err(failure), Some(report)) = (result, machine.report()) {
        // The engine may be gone; then there is nobody to tell.
        let _ = answer_with(report, &Answer::Failed(failure), &[]);
    }
    process::exit_now(1)
}

fn answer_with(
    socket: BorrowedFd<'_>,
    answer: &Answer,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(answer).map_err(io::Error::other)?;
    fdpass::send(socket, &bytes, descriptors)
}
