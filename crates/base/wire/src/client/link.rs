//! The connection as its blocking callers share it.
//!
//! There is no thread of its own. Whoever waits first *leads*: it polls the socket, for reading and
//! for unsent bytes alike, and hands what arrives to the others, who *follow* on a condition
//! variable until their stream has news or the lead is passed to them. A single caller, the common
//! case, so pays no thread switch at all.
//!
//! Why this cannot deadlock: no call ever blocks in `send` or `recv`, only in `poll` or on its
//! condition variable, and always with somebody leading; so while anybody waits, for an answer or
//! for credit, the socket is read. Nobody waiting means that nobody needs an answer: then the
//! warden's bytes stay in the socket, within their bounds.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::error::ClientError;
use super::inbox::Inbox;
use crate::connection::{Connection, Event, Side};
use crate::error::{ProtocolError, StreamError};
use crate::frame::StreamId;
use crate::message::Reply;

const READ_BYTES: usize = 64 << 10;

/// An answer is awaited for so long without sleeping, where that was allowed and is worth it: to be
/// woken takes longer than a short call, and in a virtual machine far longer.
const LINGER: Duration = Duration::from_micros(60);
/// After so many answers in a row that took longer, it is only tried now and then. Whether an answer
/// came soon cannot be told from how long a sleep took, for that is mostly the waking.
const IN_VAIN: u32 = 4;
const NOW_AND_THEN: u32 = 16;

#[derive(Debug)]
pub(crate) struct Link {
    socket: UnixStream,
    /// Gets the leader out of its poll when somebody else changed what it should wait for.
    wake: OwnedFd,
    /// A CPU may be kept busy for an answer that comes soon.
    pub(super) may_linger: AtomicBool,
    /// How many answers in a row came later than was lingered for.
    late: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) connection: Connection,
    slots: BTreeMap<StreamId, Slot>,
    failure: Option<Failure>,
    lead: Lead,
    followers: Vec<Follower>,
    /// Bytes ever sent, to know when a certain one has gone.
    sent: u64,
    held: Option<Held>,
    /// False once the peer takes no more bytes. What it said before can still be read.
    writable: bool,
    /// The leader's, kept between turns.
    buffer: Vec<u8>,
}

/// One request is the last thing that the peer gets, and only who waits for its answer reads.
#[derive(Debug, Clone, Copy)]
struct Held {
    by: StreamId,
    /// The count of sent bytes at the end of the request.
    at: u64,
}

/// What has arrived for one stream.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(super) inbox: Inbox,
    pub(super) replies: VecDeque<Reply>,
    pub(super) broken: Option<StreamError>,
    pub(super) ended: bool,
    has_news: bool,
}

#[derive(Debug, Clone)]
enum Failure {
    Disconnected,
    Protocol(ProtocolError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    Free,
    Reading,
    ReadingAndWriting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Something to arrive on the stream.
    News,
    /// Credit, or unsent bytes to go.
    Room,
}

#[derive(Debug)]
struct Follower {
    stream: StreamId,
    waits_for: WaitFor,
    condvar: Arc<Condvar>,
}

// === impl Link ===

impl Link {
    pub(crate) fn new(socket: UnixStream) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Mutex::new(State {
            connection: Connection::new(Side::Engine),
            slots: BTreeMap::new(),
            failure: None,
            lead: Lead::Free,
            followers: Vec::new(),
            sent: 0,
            held: None,
            writable: true,
            buffer: Vec::new(),
        });
        let (may_linger, late) = (AtomicBool::new(false), AtomicU32::new(0));
        Ok(Link { socket, wake, may_linger, late, state })
    }

    /// Changes the state and sends what that queued, as far as the socket takes it at once.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        self.flush(&mut state);
        result
    }

    /// Changes the state; what that queued goes out with the next wait.
    pub(crate) fn prepare<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.lock())
    }

    /// Closes the stream and wakes whoever still waits on it. False if the socket did not take the
    /// news yet.
    pub(crate) fn forget(&self, stream: StreamId) -> bool {
        let mut state = self.lock();
        state.connection.cancel(stream);
        state.slots.remove(&stream);
        self.flush(&mut state);
        for follower in state.followers.iter().filter(|follower| follower.stream == stream) {
            follower.condvar.notify_one();
        }
        if state.lead != Lead::Free {
            self.wake_leader();
        }
        state.connection.outgoing().is_empty()
    }

    /// Ends what [`State::hold`] began.
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        state.held = None;
        self.flush(&mut state);
        state.followers.iter().for_each(|follower| follower.condvar.notify_one());
    }

    /// Waits until `ready` gives something. What has already arrived is given even if the
    /// connection has failed or the deadline has passed since.
    pub(crate) fn wait<T>(
        &self,
        stream: StreamId,
        waits_for: WaitFor,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, ClientError> {
        let mut state = self.lock();
        let mut looked = false;
        loop {
            let mut given = ready(&mut state);
            if given.is_none() && !state.connection.outgoing().is_empty() {
                // Room may be all that was wanted; nothing would arrive to tell us so.
                self.flush(&mut state);
                given = ready(&mut state);
            }
            if given.is_some() {
                self.flush(&mut state);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let outcome = match (given, &state.failure, left) {
                (Some(given), _, _) => Some(Ok(given)),
                (None, Some(failure), _) => Some(Err(failure.clone().into())),
                (None, None, Some(Duration::ZERO)) if looked => Some(Err(ClientError::TimedOut)),
                _ => None,
            };
            if let Some(outcome) = outcome {
                state.pass_lead();
                return outcome;
            }
            state = match state.lead {
                Lead::Free if state.may_lead(stream) => self.lead(state, left),
                _ => {
                    state.pass_lead();
                    follow(state, stream, waits_for, left)
                }
            };
            looked = true;
        }
    }

    /// One turn of polling, reading and handing out.
    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let mut interest = PollFlags::IN;
        state.lead = Lead::Reading;
        if !state.sendable().is_empty() {
            interest |= PollFlags::OUT;
            state.lead = Lead::ReadingAndWriting;
        }
        let mut buffer = std::mem::take(&mut state.buffer);
        drop(state);

        let received = self.poll_and_receive(interest, left, &mut buffer);

        let mut state = self.lock();
        state.lead = Lead::Free;
        match received {
            Ok(0) => state.fail(Failure::Disconnected),
            Ok(_) => {
                if let Err(error) = state.take_bytes(&buffer) {
                    // Nothing further that this peer says counts; let it know.
                    let _ = self.socket.shutdown(Shutdown::Both);
                    state.fail(Failure::Protocol(error));
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => state.fail(Failure::Disconnected),
        }
        state.buffer = buffer;
        self.flush(&mut state);
        state.notify_followers();
        state
    }

    /// `AGAIN` when there is nothing to read; zero when there never will be.
    fn poll_and_receive(
        &self,
        interest: PollFlags,
        left: Option<Duration>,
        buffer: &mut Vec<u8>,
    ) -> Result<usize, Errno> {
        buffer.clear();
        buffer.reserve_exact(READ_BYTES);
        if self.may_linger.load(Ordering::Relaxed) && interest == PollFlags::IN {
            let late = self.late.load(Ordering::Relaxed);
            let lingers = late < IN_VAIN || late.is_multiple_of(NOW_AND_THEN);
            match if lingers { self.linger(left, buffer) } else { Err(Errno::AGAIN) } {
                Err(Errno::AGAIN) => self.late.store(late.wrapping_add(1), Ordering::Relaxed),
                received => {
                    self.late.store(0, Ordering::Relaxed);
                    return received;
                }
            }
        }
        // A wait too long for the kernel's type is as good as forever.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [PollFd::new(&self.socket, interest), PollFd::new(&self.wake, PollFlags::IN)];
        poll(&mut fds, timeout.as_ref())?;
        let [socket, wake] = fds;
        if !wake.revents().is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
        if (socket.revents() - PollFlags::OUT).is_empty() {
            return Err(Errno::AGAIN);
        }
        let (_, n) = recv(&self.socket, spare_capacity(buffer), RecvFlags::DONTWAIT)?;
        Ok(n)
    }

    /// Looks again and again for a moment.
    fn linger(&self, left: Option<Duration>, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
        let until = Instant::now() + left.map_or(LINGER, |left| left.min(LINGER));
        loop {
            match recv(&self.socket, spare_capacity(buffer), RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) if Instant::now() < until => std::hint::spin_loop(),
                received => return received.map(|(_, n)| n),
            }
        }
    }

    /// Sends what the socket takes without blocking. The rest is for the leader, who is told.
    fn flush(&self, state: &mut State) {
        while state.writable && !state.sendable().is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, state.sendable(), flags) {
                Ok(n) => {
                    state.connection.sent(n);
                    state.sent += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if state.lead == Lead::Reading {
                        state.lead = Lead::ReadingAndWriting;
                        self.wake_leader();
                    }
                    return;
                }
                // Whether the peer is gone is for reading to find out: its last words, such as how
                // the program exited, may still be there.
                Err(_) => state.writable = false,
            }
        }
        if !state.writable {
            state.connection.sent(usize::MAX);
        }
    }

    fn wake_leader(&self) {
        // It fails only if the counter is full, which wakes the leader just as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while holding it; if some did, the state machine is still consistent
        // enough to fail closed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn follow<'a>(
    mut state: MutexGuard<'a, State>,
    stream: StreamId,
    waits_for: WaitFor,
    left: Option<Duration>,
) -> MutexGuard<'a, State> {
    let condvar = Arc::new(Condvar::new());
    state.followers.push(Follower { stream, waits_for, condvar: Arc::clone(&condvar) });
    let mut state = match left {
        None => condvar.wait(state).unwrap_or_else(PoisonError::into_inner),
        Some(left) => condvar.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
    };
    state.followers.retain(|follower| !Arc::ptr_eq(&follower.condvar, &condvar));
    state
}

// === impl State ===

impl State {
    pub(crate) fn add_slot(&mut self, stream: StreamId) {
        self.slots.insert(stream, Slot::default());
    }

    pub(crate) fn slot(&mut self, stream: StreamId) -> Option<(&mut Slot, &mut Connection)> {
        Some((self.slots.get_mut(&stream)?, &mut self.connection))
    }

    /// The count that [`State::has_sent`] reaches when everything queued so far has gone.
    pub(crate) fn queued(&self) -> u64 {
        self.sent + self.connection.outgoing().len() as u64
    }

    /// True also when nothing will ever be sent any more.
    pub(crate) fn has_sent(&self, count: u64) -> bool {
        self.sent >= count || !self.writable
    }

    /// Lets nothing follow what is queued so far, and nobody but this stream read, until the link is
    /// released.
    pub(crate) fn hold(&mut self, by: StreamId) {
        self.held = Some(Held { by, at: self.queued() });
    }

    fn may_lead(&self, stream: StreamId) -> bool {
        self.held.is_none_or(|held| held.by == stream)
    }

    /// What may go out now.
    fn sendable(&self) -> &[u8] {
        let all = self.connection.outgoing();
        let most = self.held.map_or(u64::MAX, |held| held.at.saturating_sub(self.sent));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        all.get(..most).unwrap_or(all)
    }

    fn take_bytes(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let result = self.connection.receive(bytes);
        while let Some(event) = self.connection.next_event() {
            self.hand_out(event);
        }
        result
    }

    /// Events of streams that nobody holds any more are dropped.
    fn hand_out(&mut self, event: Event) {
        match event {
            Event::Data { stream, channel, bytes } => {
                self.tell(stream, |slot| slot.inbox.push(channel, &bytes));
            }
            Event::Reply { stream, reply } => {
                self.tell(stream, |slot| slot.replies.push_back(reply));
            }
            Event::End { stream } => self.tell(stream, |slot| slot.ended = true),
            Event::Broken { stream, error } => {
                self.tell(stream, |slot| slot.broken = Some(error));
            }
            // The rest is a greeting, or comes to wardens only.
            _ => {}
        }
    }

    fn tell(&mut self, stream: StreamId, put: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.get_mut(&stream) {
            put(slot);
            slot.has_news = true;
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.writable = false;
    }

    fn notify_followers(&mut self) {
        for follower in &self.followers {
            let news = self.slots.get(&follower.stream).is_none_or(|slot| slot.has_news);
            if news || follower.waits_for == WaitFor::Room || self.failure.is_some() {
                follower.condvar.notify_one();
            }
        }
        for slot in self.slots.values_mut() {
            slot.has_news = false;
        }
    }

    /// Called by whoever stops waiting: another must watch the socket.
    fn pass_lead(&mut self) {
        if self.lead == Lead::Free
            && let Some(next) = self.followers.iter().find(|next| self.may_lead(next.stream))
        {
            next.condvar.notify_one();
        }
    }
}

impl From<Failure> for ClientError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Disconnected => ClientError::Disconnected,
            Failure::Protocol(error) => ClientError::Protocol(error),
        }
    }
}
