//! How a guest that is reached by vsock finds the engine: a socket that no path leads to.
//!
//! Its monitor was handed a path descriptor of it and connects to that when the guest connects. The
//! socket's file belongs to the VMM's user and was removed at once: no other process can reach it,
//! and nothing stays of it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use ringwall_ring::Identity;
use ringwall_ring_vm::{Api, Driver, Machine, MonitorError, Wish};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};

use super::{BOOT_PATIENCE, VmError};
use crate::host;
use crate::sandbox::Sandbox;

/// For what a monitor does before its guest runs.
const START_PATIENCE: Duration = Duration::from_secs(20);

/// A socket that one guest connects to, once.
#[derive(Debug)]
pub(crate) struct Door(UnixListener);

impl Door {
    /// Also gives what the monitor is handed. `home` is the engine's; on the way there is a
    /// directory in it for a moment.
    pub(crate) fn open(home: &Path, identity: Identity) -> io::Result<(Door, OwnedFd)> {
        let name = format!(".door-{:016x}", u64::from_le_bytes(host::random_bytes()));
        let directory = home.join(name);
        DirBuilder::new().mode(0o700).create(&directory)?;
        let made = Door::make(&directory, identity);
        fs::remove_dir_all(&directory)?;
        made
    }

    fn make(directory: &Path, identity: Identity) -> io::Result<(Door, OwnedFd)> {
        // A socket's path has a hundred bytes; ours may be longer.
        let at = File::open(directory)?;
        let path = Path::new("/proc/self/fd").join(at.as_raw_fd().to_string()).join("door");
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if identity.is_root() {
            let maps = identity.one_user(identity.user_inside());
            let (uid, gid) = (maps.uids.first(), maps.gids.first());
            chown(&path, uid.map(|range| range.outside), gid.map(|range| range.outside))?;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handed = rustix::fs::openat(&at, "door", flags, Mode::empty())?;
        Ok((Door(listener), handed))
    }

    /// Lets the guest in. `lifeline` is a socket whose other end its monitor, process `monitor`,
    /// holds as long as it lives.
    fn let_in(
        self,
        monitor: u32,
        lifeline: &UnixStream,
        patience: Duration,
    ) -> Result<UnixStream, MonitorError> {
        let gone = |errno: rustix::io::Errno| MonitorError::Gone(errno.into());
        let patience = Timespec::try_from(patience).map_err(|_| MonitorError::TimedOut)?;
        let mut polled =
            [PollFd::new(&self.0, PollFlags::IN), PollFd::new(lifeline, PollFlags::RDHUP)];
        if rustix::event::poll(&mut polled, Some(&patience)).map_err(gone)? == 0 {
            return Err(MonitorError::TimedOut);
        }
        let [knocking, _] = &polled;
        if !knocking.revents().contains(PollFlags::IN) {
            return Err(MonitorError::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        let (stream, _) = self.0.accept().map_err(MonitorError::Gone)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(gone)?;
        if u32::try_from(peer.pid.as_raw_nonzero().get()) != Ok(monitor) {
            return Err(MonitorError::Confused);
        }
        Ok(stream)
    }
}

impl Sandbox {
    /// Tells a monitor that takes requests which machine to be, and lets its guest in: from then on
    /// that is the stream to its warden.
    pub(super) fn boot_by_requests(
        &mut self,
        driver: &dyn Driver,
        machine: &Machine,
    ) -> Result<(), VmError> {
        let door = self.door.take().ok_or(VmError::NoControl)?;
        let run = self.scratch.as_ref().ok_or(VmError::NoControl)?;
        let monitor = self.ring.launched.pid;
        let mut api = Api::open(run.as_fd(), monitor, &self.ring.stream, START_PATIENCE)?;
        api.ask(&driver.requests(Wish::Start(machine)), START_PATIENCE)?;
        self.ring.stream = door.let_in(monitor, &self.ring.stream, BOOT_PATIENCE)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn user() -> Identity {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        Identity::User { uid: uid.as_raw(), gid: gid.as_raw() }
    }

    /// As a monitor does it: by the path of a link to what it was handed.
    fn knock(handed: &OwnedFd, directory: &Path) -> io::Result<UnixStream> {
        let link = directory.join("vsock_1024");
        std::os::unix::fs::symlink(format!("/proc/self/fd/{}", handed.as_raw_fd()), &link)?;
        UnixStream::connect(link)
    }

    #[test]
    fn whoever_was_handed_the_door_comes_in_and_nothing_stays_of_it() {
        // Longer than the path of a socket can be.
        let outer = tempfile::tempdir().unwrap();
        let home = outer.path().join("h".repeat(120));
        fs::create_dir(&home).unwrap();
        let (door, handed) = Door::open(&home, user()).unwrap();
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
        let mut guest = knock(&handed, outer.path()).unwrap();
        let (lifeline, _theirs) = UnixStream::pair().unwrap();
        let mut stream = door.let_in(std::process::id(), &lifeline, PATIENCE).unwrap();
        guest.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        let link = outer.path().join("vsock_1024");
        assert!(UnixStream::connect(link).is_err(), "it opens once");
    }

    #[test]
    fn the_door_of_a_ring_belongs_to_the_rings_user() {
        use std::os::unix::fs::MetadataExt;
        if !rustix::process::geteuid().is_root() {
            eprintln!("not tested here: only root gives files away");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let identity = Identity::root(1 << 30);
        let (_door, handed) = Door::open(home.path(), identity).unwrap();
        let seen = File::from(handed).metadata().unwrap();
        let (uid, gid) = identity.user_inside();
        assert_eq!((seen.uid(), seen.gid()), (uid + (1 << 30), gid + (1 << 30)));
        assert_eq!(seen.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_stranger_a_dead_monitor_and_a_guest_that_never_comes_are_told_apart() {
        let home = tempfile::tempdir().unwrap();
        let open = || Door::open(home.path(), user()).unwrap();
        let (lifeline, theirs) = UnixStream::pair().unwrap();
        let (door, handed) = open();
        let _stranger = knock(&handed, home.path()).unwrap();
        let answer = door.let_in(std::process::id() + 1, &lifeline, PATIENCE);
        assert!(matches!(answer, Err(MonitorError::Confused)), "{answer:?}");
        let late = open().0.let_in(std::process::id(), &lifeline, Duration::from_millis(10));
        assert!(matches!(late, Err(MonitorError::TimedOut)), "{late:?}");
        drop(theirs);
        let dead = open().0.let_in(std::process::id(), &lifeline, PATIENCE);
        assert!(matches!(dead, Err(MonitorError::Gone(_))), "{dead:?}");
    }
}
