//! The words between a keeper and the process that started it. Each wait for a keeper has a bound.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use ringwall_linux::process::ends_within;
use ringwall_spec::SandboxId;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::KeepError;

/// All that a keeper says to the process that started it.
const MAX_WORDS_BYTES: u64 = 64 * 1024;

/// How long a keeper may take to start, and to read its task.
pub(super) const KEEPER_START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a keeper may take to raise its sandbox. Each step of it has a shorter bound of its own.
pub(super) const KEEPER_RAISE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a keeper that refused may take to remove what it had made.
const KEEPER_END_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a keeper that was killed may take to end.
const KILLED_KEEPER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Word {
    /// The keeper has drawn the id of its sandbox, and waits for a permit for it.
    Waits {
        id: SandboxId,
    },
    Ready,
    Refused {
        why: String,
    },
}

/// A keeper that was started and has not raised its sandbox yet.
#[derive(Debug)]
pub(super) struct Keeper {
    child: Child,
    input: Option<Bounded<ChildStdin>>,
    words: BufReader<io::Take<Bounded<ChildStdout>>>,
}

impl Keeper {
    /// Both standard streams of `child` must be pipes.
    pub(super) fn new(mut child: Child) -> io::Result<Keeper> {
        let streams = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = streams else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        // A write to a full pipe must return, so that its wait can have a bound.
        let flags = rustix::fs::fcntl_getfl(&input)?;
        rustix::fs::fcntl_setfl(&input, flags | OFlags::NONBLOCK)?;
        let until = Instant::now();
        let words = BufReader::new(Bounded { pipe: output, until }.take(MAX_WORDS_BYTES));
        Ok(Keeper { child, input: Some(Bounded { pipe: input, until }), words })
    }

    /// The next word of the keeper, if it says one.
    pub(super) fn hear(&mut self, within: Duration) -> Result<Option<Word>, KeepError> {
        self.words.get_mut().get_mut().until = Instant::now() + within;
        let mut line = String::new();
        self.words.read_line(&mut line).map_err(|error| unheard(error, within))?;
        Ok(serde_json::from_str(&line).ok())
    }

    /// Gives the keeper all that it reads.
    pub(super) fn give(&mut self, bytes: &[u8], within: Duration) -> Result<(), KeepError> {
        let gone = || KeepError::Io(io::ErrorKind::BrokenPipe.into());
        // The keeper reads to the end, which is where this pipe is closed.
        let mut input = self.input.take().ok_or_else(gone)?;
        input.until = Instant::now() + within;
        input.write_all(bytes).map_err(|error| unheard(error, within))
    }

    /// Waits in a thread for the end of a keeper that serves its sandbox. A program that runs for longer
    /// must not keep it as a zombie.
    pub(super) fn leave(mut self) {
        std::thread::spawn(move || self.child.wait());
    }

    /// Ends a keeper that failed with this error.
    pub(super) fn end(mut self, error: &KeepError) {
        let pid = Pid::from_child(&self.child);
        self.input = None;
        if matches!(error, KeepError::Stuck { .. }) || !ends_within(pid, KEEPER_END_TIMEOUT) {
            let _ = self.child.kill();
        }
        // The kernel may hold a killed process up. Its parent need not wait for that.
        if ends_within(pid, KILLED_KEEPER_TIMEOUT) {
            let _ = self.child.wait();
        }
    }
}

/// The error for a keeper that refused, or ended before it said what it had to.
pub(super) fn ended_early(word: Option<Word>) -> KeepError {
    KeepError::Refused(match word {
        Some(Word::Refused { why }) => why,
        _ => "the shim of the sandbox ended too early".to_owned(),
    })
}

/// Says one line to the process that started this one.
pub(super) fn say(word: &Word) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut output = io::stdout();
    output.write_all(&line)?;
    output.flush()
}

fn unheard(error: io::Error, within: Duration) -> KeepError {
    match error.kind() {
        io::ErrorKind::TimedOut => KeepError::Stuck { seconds: within.as_secs() },
        _ => KeepError::Io(error),
    }
}

/// One end of a pipe, which is waited for until then.
#[derive(Debug)]
struct Bounded<T> {
    pipe: T,
    until: Instant,
}

impl<T: AsFd> Bounded<T> {
    /// An error if nothing has happened until then.
    fn wait_for(&self, what: PollFlags) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.pipe, what)];
        match rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&left)))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl<T: AsFd + Read> Read for Bounded<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait_for(PollFlags::IN)?;
        self.pipe.read(buffer)
    }
}

impl<T: AsFd + Write> Write for Bounded<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait_for(PollFlags::OUT)?;
        self.pipe.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use rustix::process::{Signal, kill_process};

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn keeper(script: &str) -> Keeper {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Keeper::new(shell.spawn().unwrap()).unwrap()
    }

    fn is_there(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_stopped_keeper_keeps_nothing_waiting_and_does_not_stay() {
        // It reads nothing, says nothing and does not end.
        let mut stopped = keeper("kill -STOP $$");
        let pid = stopped.child.id();
        let error = stopped.hear(SHORT).unwrap_err();
        assert!(matches!(error, KeepError::Stuck { .. }), "{error}");
        assert!(error.to_string().contains("ringwall gc"), "{error}");
        // More than a pipe holds.
        let error = stopped.give(&vec![0; 4 << 20], SHORT).unwrap_err();
        assert!(matches!(error, KeepError::Stuck { .. }), "{error}");
        stopped.end(&error);
        assert!(!is_there(pid));
    }

    #[test]
    fn a_keeper_that_stops_in_the_middle_of_a_word_is_given_up() {
        let mut half = keeper("printf '\"rea'; read line");
        assert!(matches!(half.hear(SHORT), Err(KeepError::Stuck { .. })));
        kill_process(Pid::from_child(&half.child), Signal::STOP).unwrap();
        half.end(&KeepError::Stuck { seconds: 0 });
    }

    #[test]
    fn a_keeper_that_answers_is_heard_and_one_that_refused_may_end_by_itself() {
        let mut keeper =
            keeper(r#"cat >/dev/null; echo '"ready"'; echo '{"refused":{"why":"so"}}'"#);
        let pid = keeper.child.id();
        keeper.give(&vec![0; 1 << 20], KEEPER_START_TIMEOUT).unwrap();
        assert!(matches!(keeper.hear(KEEPER_START_TIMEOUT), Ok(Some(Word::Ready))));
        let refused = ended_early(keeper.hear(KEEPER_START_TIMEOUT).unwrap());
        assert_eq!(refused.to_string(), "so");
        keeper.end(&refused);
        assert!(!is_there(pid));
    }
}
