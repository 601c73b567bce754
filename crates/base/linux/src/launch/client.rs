//! The engine's side of the launcher.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::protocol::{Answer, Order, Parking};
use crate::apply::StepFailure;
use crate::step::Step;
use crate::{confine, fdpass, process};

/// The longest answer: a failure that names a path.
const MAX_ANSWER: usize = 16 * 1024;

/// How long one answer may take. The longest step copies a workspace on kernels before 6.6.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a launcher that was killed may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("could not start the launcher {path}")]
    Start { path: String, source: io::Error },
    #[error("the launcher could not be reached")]
    Talk(#[source] io::Error),
    #[error(
        "the launcher has not answered for {} seconds and may be held up in the kernel; \
         `dmesg` may say why, and `ringwall gc` removes what is left",
        PATIENCE.as_secs()
    )]
    Stuck,
    #[error("the launcher ended before it answered")]
    Gone,
    #[error("the launcher answered out of turn")]
    OutOfTurn,
    #[error(transparent)]
    Step(StepFailure),
}

/// Says which setting of the host is to be changed. The launcher does not look for it: it reads nothing once
/// it has given up its privileges.
impl From<StepFailure> for LaunchError {
    fn from(failure: StepFailure) -> LaunchError {
        LaunchError::Step(failure.explained())
    }
}

/// A parked launcher. It ends, and with it every ring that it started, when this is dropped.
#[derive(Debug)]
pub struct Spawner {
    socket: OwnedFd,
    child: std::process::Child,
    patience: Duration,
}

/// A ring on its way up.
#[derive(Debug)]
pub struct Launched {
    /// The warden, as numbered here outside.
    pub pid: u32,
    /// Shared with whoever may have to kill it.
    pub pidfd: Arc<OwnedFd>,
    /// Reported descriptors arrive here, and the failure if there is one; closed when the warden
    /// runs.
    report: OwnedFd,
}

impl Spawner {
    /// Starts a launcher, which waits for its template.
    pub fn start(program: &Path) -> Result<Spawner, LaunchError> {
        Spawner::start_with(program, PATIENCE)
    }

    fn start_with(program: &Path, patience: Duration) -> Result<Spawner, LaunchError> {
        // The launcher inherits it. If it cannot be had, a job may be able to keep us waiting, no more.
        let _ = confine::stay_above_jobs();
        let (ours, theirs) = pair_with(patience)?;
        let child = spawn_program(program, &theirs)
            .map_err(|source| LaunchError::Start { path: program.display().to_string(), source })?;
        drop(theirs);
        Ok(Spawner { socket: ours, child, patience })
    }

    /// Lets the launcher apply its template; whether that worked is told by the first
    /// [`Spawner::spawn`].
    pub fn prepare(&self, template: Vec<Step>, parking: Parking) -> Result<(), LaunchError> {
        self.order(&Order::Template { steps: template, parking }, &[])
    }

    /// Starts a ring. `descriptors` become the passed slots of the last steps; `meanwhile` is done
    /// while the launcher is at work.
    pub fn spawn<T>(
        &mut self,
        ahead: Vec<Step>,
        last: Vec<Step>,
        descriptors: &[BorrowedFd<'_>],
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(Launched, T), LaunchError> {
        let (report, theirs) = pair_with(self.patience)?;
        let mut all = vec![theirs.as_fd()];
        all.extend_from_slice(descriptors);
        self.order(&Order::Spawn { ahead, last }, &all)?;
        drop(theirs);
        let meanwhile = meanwhile();
        match self.answer()? {
            (Answer::Spawned { pid }, mut fds) => {
                let pidfd = fds.pop().ok_or(LaunchError::OutOfTurn)?;
                Ok((Launched { pid, pidfd: Arc::new(pidfd), report }, meanwhile))
            }
            (Answer::Failed(failure), _) => Err(failure.into()),
            (Answer::Adjusted, _) => Err(LaunchError::OutOfTurn),
        }
    }

    /// Changes a ring that is up, in a launcher that does nothing else. `descriptors` become the
    /// passed slots. After a failure the launcher takes no further order.
    pub fn adjust(
        &self,
        steps: Vec<Step>,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), LaunchError> {
        self.order(&Order::Adjust { steps }, descriptors)?;
        match self.answer()? {
            (Answer::Adjusted, _) => Ok(()),
            (Answer::Failed(failure), _) => Err(failure.into()),
            (Answer::Spawned { .. }, _) => Err(LaunchError::OutOfTurn),
        }
    }

    /// Ends the launcher now, and with it every ring that it started. Dropping also waits for it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Whether the launcher still runs. One that was killed cannot be asked for anything.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn order(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> Result<(), LaunchError> {
        let bytes = postcard::to_stdvec(order)
            .map_err(|error| LaunchError::Talk(io::Error::other(error)))?;
        match fdpass::send(self.socket.as_fd(), &bytes, descriptors) {
            Ok(()) => Ok(()),
            // A launcher that is gone said why before it went.
            Err(error) if is_gone(&error) => match self.answer() {
                Ok((Answer::Failed(failure), _)) => Err(failure.into()),
                Ok(_) => Err(LaunchError::OutOfTurn),
                Err(error) => Err(error),
            },
            Err(error) => Err(no_answer(error)),
        }
    }

    fn answer(&self) -> Result<(Answer, Vec<OwnedFd>), LaunchError> {
        let mut buffer = [0; MAX_ANSWER];
        let received = match fdpass::receive(self.socket.as_fd(), &mut buffer) {
            // It went without reading all of our orders. The kernel says so once, before it hands
            // out what the launcher had said.
            Err(error) if is_gone(&error) => fdpass::receive(self.socket.as_fd(), &mut buffer),
            received => received,
        };
        let (length, fds) = received.map_err(no_answer)?.ok_or(LaunchError::Gone)?;
        let bytes = buffer.get(..length).unwrap_or_default();
        let answer = postcard::from_bytes(bytes)
            .map_err(|error| LaunchError::Talk(io::Error::other(error)))?;
        Ok((answer, fds))
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Closing the socket ends the launcher; killing it makes that immediate. One that is held up
        // in the kernel does not end: whoever takes our children over waits for it then.
        let _ = self.child.kill();
        let pid = rustix::process::Pid::from_child(&self.child);
        if process::ends_within(pid, END_PATIENCE) {
            let _ = self.child.wait();
        }
    }
}

impl Launched {
    /// The next reported descriptor. `None` when the warden has started and nothing more will come.
    pub fn reported(&self) -> Result<Option<OwnedFd>, LaunchError> {
        let mut buffer = [0; MAX_ANSWER];
        let received = fdpass::receive(self.report.as_fd(), &mut buffer);
        let Some((length, mut fds)) = received.map_err(no_answer)? else {
            return Ok(None);
        };
        if let Some(fd) = fds.pop() {
            return Ok(Some(fd));
        }
        let bytes = buffer.get(..length).unwrap_or_default();
        match postcard::from_bytes(bytes) {
            Ok(Answer::Failed(failure)) => Err(failure.into()),
            _ => Err(LaunchError::OutOfTurn),
        }
    }
}

/// Two sockets, of which the first, ours, waits so long for a message, and for room for one.
fn pair_with(patience: Duration) -> Result<(OwnedFd, OwnedFd), LaunchError> {
    let (ours, theirs) = fdpass::pair().map_err(LaunchError::Talk)?;
    for way in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&ours, way, Some(patience))
            .map_err(|error| LaunchError::Talk(error.into()))?;
    }
    Ok((ours, theirs))
}

fn no_answer(error: io::Error) -> LaunchError {
    match error.kind() {
        io::ErrorKind::WouldBlock => LaunchError::Stuck,
        _ => LaunchError::Talk(error),
    }
}

/// The other end of a socket was closed.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The launcher finds its socket as standard input: nothing else has to be passed through exec.
fn spawn_program(program: &Path, socket: &OwnedFd) -> io::Result<std::process::Child> {
    let stdin = socket.try_clone()?;
    debug_assert!(stdin.as_raw_fd() > 2);
    std::process::Command::new(program)
        .env_clear()
        // What a terminal sends to our group is for us: we decide when the launcher ends.
        .process_group(0)
        .stdin(stdin)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It takes its orders and says nothing to them.
    fn mute() -> Spawner {
        Spawner::start_with(Path::new("/bin/cat"), Duration::from_millis(50)).unwrap()
    }

    #[test]
    fn a_launcher_that_never_answers_is_given_up_and_does_not_stay() {
        let mut spawner = mute();
        let pid = spawner.child.id();
        let raised = spawner.spawn(Vec::new(), Vec::new(), &[], || ());
        assert!(matches!(raised, Err(LaunchError::Stuck)), "{raised:?}");
        drop(spawner);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_launcher_that_reads_no_order_is_given_up() {
        let spawner = mute();
        let pid = rustix::process::Pid::from_child(&spawner.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        // More orders than its socket holds.
        let refused =
            (0..1 << 16).find_map(|_| spawner.prepare(Vec::new(), Parking::NotAtAll).err());
        assert!(matches!(refused, Some(LaunchError::Stuck)), "{refused:?}");
    }

    #[test]
    fn a_ring_that_never_reports_is_given_up() {
        let (report, _theirs) = pair_with(Duration::from_millis(50)).unwrap();
        let pidfd = Arc::new(process::own_pidfd().unwrap());
        let launched = Launched { pid: 1, pidfd, report };
        assert!(matches!(launched.reported(), Err(LaunchError::Stuck)));
    }

    #[test]
    fn a_stopped_launcher_can_be_ended() {
        let spawner = mute();
        let pid = rustix::process::Pid::from_child(&spawner.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        drop(spawner);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
