//! A ring inside a ring: raised by a warden, without a launcher.
//!
//! A warden has no privileges left, so only steps that need none make sense here: tighter limits,
//! a narrower Landlock domain, one more filter. The kernel refuses the others.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::client::LaunchError;
use super::protocol::decode_steps;
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
}

/// Applies an encoded step list in a child of this process, which must be single-threaded. The
/// first passed slot is the new warden's stream.
pub fn raise_inner(steps: &[u8]) -> Result<InnerRing, LaunchError> {
    let talk = |error: io::Error| LaunchError::Talk(error);
    let steps = decode_steps(steps).map_err(|error| talk(io::Error::other(error)))?;
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| talk(error.into()))?;
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
                return Err(failure.into());
            }
            Ok(InnerRing { stream: ours, pidfd })
        }
    }
}
