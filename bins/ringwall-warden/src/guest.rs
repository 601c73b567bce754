//! The warden as the first process of a guest kernel.
//!
//! It finds itself in an initramfs with nothing but its own program, a launcher and modules. It
//! mounts what there is, waits to be adopted, serves the engine like any other warden, and ends the
//! machine when it is done.
//!
//! Invariant: before its adoption it holds no secret and starts no process, so a snapshot taken
//! there can be anybody's.

mod boot;
mod limits;
mod root;
mod warm;
mod workspace;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringwall_linux::guest;
use ringwall_wire::{Adoption, ErrorCode, RemoteError, Taking};

use crate::error::refused;
use crate::warden::{Ended, Warden};
pub(crate) use limits::JobGroup;
use root::{Root, WorkspaceMount};
pub(crate) use workspace::{TakeWorkspace, Unpacking};

/// What only the first process of a guest has.
#[derive(Debug)]
pub(crate) struct Guest {
    root: Root,
    jobs: JobGroup,
    /// The kernel's random device.
    random: File,
}

/// Whether this process is the first of a guest kernel, not of a pid namespace: that one has an
/// engine's stream as its third descriptor.
pub fn is_first_process() -> bool {
    rustix::process::getpid().is_init()
}

/// The whole life of a guest.
pub fn run() -> io::Result<Ended> {
    let ended = boot::early().and_then(live);
    if let Err(error) = &ended {
        guest::log(&format!("the warden ends: {error}"));
    }
    rustix::fs::sync();
    guest::reset()?;
    ended
}

fn live(port: OwnedFd) -> io::Result<Ended> {
    let mut channel = File::from(port);
    let guest = match Guest::prepare() {
        Ok(guest) => guest,
        Err(error) => {
            ringwall_wire::say_failed(&mut channel, &error.to_string())?;
            return Err(error);
        }
    };
    ringwall_wire::say_ready(&mut channel)?;
    guest.wait(&mut channel)?;
    Warden::new(channel.into(), None)?.in_guest(guest).serve()
}

impl Guest {
    /// Everything that is the same for all guests of a template is done here, before it is one: each
    /// of them has so much less to do when somebody waits for it.
    fn prepare() -> io::Result<Guest> {
        let root = Root::prepare()?;
        let jobs = JobGroup::make()?;
        let random = File::options().write(true).open("/dev/urandom")?;
        warm::up();
        Ok(Guest { root, jobs, random })
    }

    /// Waits to be adopted.
    fn wait(&self, channel: &mut File) -> io::Result<Taking> {
        let adoption = ringwall_wire::wait_adoption(channel)?;
        if let Err(error) = self.take(&adoption) {
            ringwall_wire::say_failed(channel, &error.to_string())?;
            return Err(error);
        }
        ringwall_wire::say_taken(channel, &adoption)?;
        Ok(adoption.taking)
    }

    /// The same in the middle of its life. Processes go on once the guest is who it is to be.
    pub(crate) fn wait_again(&self, transport: &OwnedFd) -> io::Result<Taking> {
        let taking = self.wait(&mut File::from(transport.try_clone()?))?;
        self.jobs.thaw()?;
        Ok(taking)
    }

    /// Stops what earlier commands left behind, if there is anything: in a copy none of it may run
    /// before the copy has random numbers and names of its own.
    pub(crate) fn freeze(&self) -> Result<bool, RemoteError> {
        self.jobs.freeze().map_err(|error| {
            refused(ErrorCode::System, &format!("processes could not be stopped: {error}"))
        })
    }

    /// Becomes the guest that the engine wants: first the random numbers, then all that might use
    /// them.
    fn take(&self, adoption: &Adoption) -> io::Result<()> {
        guest::reseed(self.random.as_fd(), &[adoption.seed.0, adoption.seed.1].concat())?;
        guest::set_clock(adoption.unix_nanos)?;
        if adoption.taking == Taking::Again {
            return Ok(());
        }
        rustix::system::sethostname(adoption.hostname.as_bytes())?;
        if adoption.taking == Taking::Copy {
            self.root.rename(&adoption.hostname, &adoption.machine_id);
            root::renew_boot_id()?;
        } else {
            self.root.name(&adoption.hostname, &adoption.machine_id);
        }
        self.root.limit(adoption.disk_bytes, adoption.disk_inodes)?;
        self.jobs.limit(adoption.pids)
    }

    pub(crate) fn put_workspace(
        &self,
        owner: (u32, u32),
        at: Vec<u8>,
    ) -> Result<Unpacking, RemoteError> {
        Unpacking::begin(&self.root, owner, at)
    }

    pub(crate) fn take_workspace(&self) -> Result<TakeWorkspace, RemoteError> {
        TakeWorkspace::begin(&self.root, &self.jobs)
    }

    /// The same while jobs are stopped, which go on afterwards.
    pub(crate) fn look_at_workspace(&self) -> Result<TakeWorkspace, RemoteError> {
        TakeWorkspace::look(&self.root, &self.jobs)
    }

    /// The mount of the workspace, from the moment it was shown.
    pub(crate) fn workspace(&self) -> WorkspaceMount {
        self.root.workspace()
    }

    pub(crate) fn jobs(&self) -> &JobGroup {
        &self.jobs
    }
}
