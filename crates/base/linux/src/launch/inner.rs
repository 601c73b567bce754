//! A ring inside a ring: raised by a warden.
//!
//! A warden in a ring has no privileges left, so only steps that need none make sense here: tighter
//! limits, a narrower Landlock domain, one more filter. The kernel refuses the others. A warden that
//! is the first process of a guest has all of them, and raises rings as an engine does, with a
//! launcher.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::client::{LaunchError, Spawner};
use super::protocol::{Parking, decode_steps};
use crate::apply::{Machine, StepFailure};
use crate::fdpass;
use crate::process::{self, Cloned};
use crate::step::Slot;

/// A ring that a warden raised.
#[derive(Debug)]
pub struct InnerRing {
    /// The byte stream to the new ring's warden.
    pub stream: OwnedFd,
    pub pidfd: OwnedFd,
    /// What the ring reported on its way up, in its order. Only a launcher's ring does.
    pub reported: Vec<OwnedFd>,
    /// The ring lives no longer than its launcher, if it has one.
    pub launcher: Option<Spawner>,
}

/// A plan's three lists, encoded.
#[derive(Debug, Clone, Copy)]
pub struct EncodedPlan<'a> {
    pub template: &'a [u8],
    pub ahead: &'a [u8],
    pub last: &'a [u8],
}

/// Raises a ring with a launcher. The passed slots are the new warden's stream and `join`, which
/// puts the ring into a control group.
pub fn raise_planned(
    launcher: &Path,
    plan: EncodedPlan<'_>,
    join: &OwnedFd,
) -> Result<InnerRing, LaunchError> {
    let talk = |error: io::Error| LaunchError::Talk(error);
    let decode = |steps: &[u8]| decode_steps(steps).map_err(|error| talk(io::Error::other(error)));
    let (template, ahead, last) = (decode(plan.template)?, decode(plan.ahead)?, decode(plan.last)?);
    let (ours, theirs) = stream_pair()?;
    let mut spawner = Spawner::start(launcher)?;
    // No other ring will come: this one becomes our own child.
    spawner.prepare(template, Parking::NotAtAll)?;
    let (launched, ()) = spawner.spawn(ahead, last, &[theirs.as_fd(), join.as_fd()], || ())?;
    let mut reported = Vec::new();
    // The end of these reports means that the warden runs.
    while let Some(descriptor) = launched.reported()? {
        reported.push(descriptor);
    }
    let pidfd = launched.pidfd.try_clone().map_err(talk)?;
    Ok(InnerRing { stream: ours, pidfd, reported, launcher: Some(spawner) })
}

/// Changes a ring that is up by encoded steps, in a launcher that does nothing else. `descriptors`
/// become its passed slots.
pub fn adjust(
    launcher: &Path,
    steps: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), LaunchError> {
    let steps = decode_steps(steps).map_err(|error| LaunchError::Talk(io::Error::other(error)))?;
    Spawner::start(launcher)?.adjust(steps, descriptors)
}

fn stream_pair() -> Result<(OwnedFd, OwnedFd), LaunchError> {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| LaunchError::Talk(error.into()))
}

/// Applies an encoded step list in a child of this process, which must be single-threaded. The
/// first passed slot is the new warden's stream.
pub fn raise_inner(steps: &[u8]) -> Result<InnerRing, LaunchError> {
    let talk = |error: io::Error| LaunchError::Talk(error);
    let steps = decode_steps(steps).map_err(|error| talk(io::Error::other(error)))?;
    let (ours, theirs) = stream_pair()?;
    let (report, told) = fdpass::pair().map_err(talk)?;
    match process::clone_into(0).map_err(talk)? {
        Cloned::Child => {
            let mut machine = Machine::default();
            machine.put(Slot::passed(0), theirs);
            if let Err(failure) = machine.apply_all(&steps) {
                let bytes = postcard::to_stdvec(&failure).unwrap_or_default();
                let _ = fdpass::send(told.as_fd(), &bytes, &[]);
            }
            process::exit_now(1)
        }
        Cloned::Parent { pidfd, .. } => {
            drop(told);
            let mut buffer = [0; 4096];
            // Nothing but the end of the stream means that the exec worked.
            if let Some((length, _)) = fdpass::receive(report.as_fd(), &mut buffer).map_err(talk)? {
                let bytes = buffer.get(..length).unwrap_or_default();
                let failure: StepFailure =
                    postcard::from_bytes(bytes).map_err(|error| talk(io::Error::other(error)))?;
                // The settings that can be read in here are the ring's own.
                return Err(LaunchError::Step(failure));
            }
            Ok(InnerRing { stream: ours, pidfd, reported: Vec::new(), launcher: None })
        }
    }
}
