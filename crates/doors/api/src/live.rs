//! Calls under way and just over, with what they wrote, for those who follow.
//!
//! Invariant: what is kept has a bound, for one call and for all. Who comes too late for the first
//! bytes is told how many are gone.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringwall_desk::Caller;
use ringwall_engine::{Killer, Output};
use ringwall_spec::SandboxId;
use ringwall_wire::ProcessInput;
use rustix::process::Signal;
use tokio::sync::watch;

/// Runs that are under way, by the sandbox that was raised for each: their owner is the daemon, so nobody
/// else can end one of them alone.
#[derive(Debug, Default)]
pub(crate) struct LiveRuns(Mutex<HashMap<String, (Caller, Killer)>>);

/// Takes a run off the list when it has ended.
pub(crate) struct Listed<'a> {
    runs: &'a LiveRuns,
    id: String,
}

impl LiveRuns {
    pub(crate) fn add(&self, id: &SandboxId, caller: &Caller, killer: &Killer) -> Listed<'_> {
        let entry = (caller.clone(), killer.clone());
        self.lock().insert(id.to_string(), entry);
        Listed { runs: self, id: id.to_string() }
    }

    /// Whether there is such a run, under the caller's grant or one that was narrowed from it; it is killed
    /// then.
    pub(crate) fn kill(&self, caller: &Caller, id: &str) -> bool {
        let runs = self.lock();
        let found = runs.get(id).filter(|(whose, _)| caller.is_above(whose));
        found.inspect(|(_, killer)| killer.kill()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Caller, Killer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.id);
    }
}

/// Of the output of one call.
const MOST_BYTES: usize = 1 << 20;
/// Calls that are over and can still be followed.
const MOST_OVER: usize = 64;
const KEPT_FOR: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// One thing to tell a follower. Numbers begin with 1 and have no gaps.
#[derive(Debug, Clone)]
pub(crate) enum Happened {
    Wrote {
        number: u64,
        stream: Stream,
        bytes: Bytes,
    },
    /// So many events before `number` are not kept any more.
    Missed {
        number: u64,
        count: u64,
    },
    Ended {
        number: u64,
        result: String,
    },
}

#[derive(Debug)]
pub(crate) struct LiveCall {
    pub(crate) caller: Caller,
    pub(crate) sandbox: String,
    log: Mutex<Log>,
    /// Grows with every event.
    changed: watch::Sender<u64>,
    /// Of the process, once it was started.
    input: OnceLock<ProcessInput>,
}

#[derive(Debug, Default)]
struct Log {
    /// The number of the first chunk that is kept.
    first: u64,
    chunks: VecDeque<(Stream, Bytes)>,
    bytes: usize,
    ended: Option<String>,
}

impl Log {
    fn next_number(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }
}

impl LiveCall {
    fn new((caller, sandbox): (&Caller, &str)) -> LiveCall {
        LiveCall {
            caller: caller.clone(),
            sandbox: sandbox.to_owned(),
            log: Mutex::new(Log { first: 1, ..Log::default() }),
            changed: watch::Sender::new(0),
            input: OnceLock::new(),
        }
    }

    pub(crate) fn started(&self, input: ProcessInput) {
        let _ = self.input.set(input);
    }

    pub(crate) fn kill(&self) {
        if let Some(input) = self.input.get() {
            input.signal(Signal::KILL.as_raw());
        }
    }

    fn push(&self, stream: Stream, bytes: &[u8]) {
        let mut log = lock(&self.log);
        log.bytes += bytes.len();
        log.chunks.push_back((stream, Bytes::copy_from_slice(bytes)));
        while log.bytes > MOST_BYTES && log.chunks.len() > 1 {
            if let Some((_, gone)) = log.chunks.pop_front() {
                log.bytes -= gone.len();
                log.first += 1;
            }
        }
        let number = log.next_number();
        drop(log);
        self.changed.send_replace(number);
    }

    pub(crate) fn ended(&self, result: String) {
        let mut log = lock(&self.log);
        log.ended = Some(result);
        let number = log.next_number();
        drop(log);
        self.changed.send_replace(number + 1);
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// What came after event `number`. The last of it is the end, if it has ended.
    pub(crate) fn after(&self, number: u64) -> Vec<Happened> {
        let log = lock(&self.log);
        let mut all = Vec::new();
        let mut next = number.saturating_add(1);
        if next < log.first {
            let (count, number) = (log.first - next, log.first - 1);
            all.push(Happened::Missed { number, count });
            next = log.first;
        }
        let skipped = usize::try_from(next - log.first).unwrap_or(usize::MAX);
        for (place, (stream, bytes)) in log.chunks.iter().enumerate().skip(skipped) {
            let number = log.first + place as u64;
            all.push(Happened::Wrote { number, stream: *stream, bytes: bytes.clone() });
        }
        if let Some(result) = &log.ended
            && number < log.next_number()
        {
            all.push(Happened::Ended { number: log.next_number(), result: result.clone() });
        }
        all
    }
}

/// Where the output of a call that is followed goes.
#[derive(Debug)]
pub(crate) struct IntoLog<'a>(pub(crate) &'a LiveCall);

impl Output for IntoLog<'_> {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(Stream::Stdout, bytes);
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.push(Stream::Stderr, bytes);
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct LiveCalls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_id: HashMap<String, Arc<LiveCall>>,
    over: VecDeque<(String, Instant)>,
}

impl LiveCalls {
    pub(crate) fn begin(&self, id: &str, of: (&Caller, &str)) -> Arc<LiveCall> {
        let call = Arc::new(LiveCall::new(of));
        lock(&self.state).by_id.insert(id.to_owned(), Arc::clone(&call));
        call
    }

    /// It can be followed for a while yet.
    pub(crate) fn over(&self, id: &str) {
        let mut state = lock(&self.state);
        state.over.push_back((id.to_owned(), Instant::now()));
        while state.over.len() > MOST_OVER
            || state.over.front().is_some_and(|(_, since)| since.elapsed() > KEPT_FOR)
        {
            if let Some((gone, _)) = state.over.pop_front() {
                state.by_id.remove(&gone);
            }
        }
    }

    /// If the caller may know of it.
    pub(crate) fn get(&self, caller: &Caller, id: &str) -> Option<Arc<LiveCall>> {
        let call = lock(&self.state).by_id.get(id).cloned()?;
        caller.sees(call.caller.tenant(), call.caller.task()).then_some(call)
    }
}

/// What a call wrote, for those who wait for its end.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) truncated: bool,
}

/// Of each stream.
const MOST_CAPTURED: usize = 2 << 20;

impl Output for Captured {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.truncated |= keep(&mut self.stdout, bytes);
        Ok(())
    }

    fn stderr(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.truncated |= keep(&mut self.stderr, bytes);
        Ok(())
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let room = MOST_CAPTURED.saturating_sub(kept.len());
    kept.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    bytes.len() > room
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(happened: &[Happened]) -> Vec<u64> {
        let number = |it: &Happened| match it {
            Happened::Wrote { number, .. }
            | Happened::Missed { number, .. }
            | Happened::Ended { number, .. } => *number,
        };
        happened.iter().map(number).collect()
    }

    #[test]
    fn a_follower_goes_on_where_it_was() {
        let call = LiveCall::new((&Caller::Owner, "s"));
        call.push(Stream::Stdout, b"one");
        call.push(Stream::Stderr, b"two");
        assert_eq!(numbers(&call.after(0)), [1, 2]);
        assert_eq!(numbers(&call.after(1)), [2]);
        call.ended("{}".to_owned());
        assert_eq!(numbers(&call.after(2)), [3]);
        assert!(call.after(3).is_empty());
        assert!(call.after(u64::MAX).is_empty());
    }

    #[test]
    fn what_was_dropped_is_told() {
        let call = LiveCall::new((&Caller::Owner, "s"));
        let piece = vec![0; MOST_BYTES / 2];
        for _ in 0..5 {
            call.push(Stream::Stdout, &piece);
        }
        let all = call.after(0);
        assert!(matches!(all[0], Happened::Missed { number: 3, count: 3 }));
        assert_eq!(numbers(&all), [3, 4, 5]);
    }

    #[test]
    fn what_is_captured_has_a_bound() {
        let mut captured = Captured::default();
        captured.stdout(&vec![1; MOST_CAPTURED]).unwrap();
        assert!(!captured.truncated);
        captured.stdout(b"x").unwrap();
        assert!(captured.truncated);
        assert_eq!(captured.stdout.len(), MOST_CAPTURED);
    }
}
