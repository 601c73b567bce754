//! One stream as its caller holds it. Dropping it cancels what is not finished.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::ClientError;
use super::link::{Link, Slot, State, WaitFor};
use crate::connection::{Channel, Connection};
use crate::error::OpenError;
use crate::frame::StreamId;
use crate::limits::MAX_DATA_BYTES;
use crate::message::{Reply, Request};

const CANCEL_PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Exchange {
    link: Arc<Link>,
    stream: StreamId,
}

/// The sending half; it does not keep the stream open.
#[derive(Debug, Clone)]
pub(crate) struct Outlet {
    link: Arc<Link>,
    stream: StreamId,
}

#[derive(Debug)]
pub(crate) enum Item {
    Data(Channel, Vec<u8>),
    Reply(Reply),
}

// === impl Exchange ===

impl Exchange {
    /// Queues the request; it goes out with the first wait, together with whatever follows it.
    /// Blocks only if too many earlier bytes still wait for the warden to read them.
    pub(crate) fn open(
        link: &Arc<Link>,
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Self, ClientError> {
        Exchange::open_then(link, request, deadline, |_, _| {})
    }

    /// The same for a request that nothing may follow until the link is released.
    pub(crate) fn open_last(
        link: &Arc<Link>,
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Self, ClientError> {
        Exchange::open_then(link, request, deadline, State::hold)
    }

    fn open_then(
        link: &Arc<Link>,
        request: &Request,
        deadline: Option<Instant>,
        then: impl Fn(&mut State, StreamId),
    ) -> Result<Self, ClientError> {
        let open = |state: &mut State| {
            let stream = state.connection.open(request)?;
            state.add_slot(stream);
            then(state, stream);
            Ok(stream)
        };
        let stream = match link.prepare(open) {
            Err(OpenError::Congested) => {
                let id = StreamId::CONNECTION;
                link.wait(id, WaitFor::Room, deadline, |state| match open(state) {
                    Err(OpenError::Congested) => None,
                    opened => Some(opened),
                })?
            }
            opened => opened,
        }?;
        Ok(Exchange { link: Arc::clone(link), stream })
    }

    pub(crate) fn outlet(&self) -> Outlet {
        Outlet { link: Arc::clone(&self.link), stream: self.stream }
    }

    /// The next reply, whatever data came before it.
    pub(crate) fn reply(&self, deadline: Option<Instant>) -> Result<Reply, ClientError> {
        let reply = self.wait(deadline, |slot, _| slot.replies.pop_front())?;
        refuse_error(reply.ok_or(ClientError::Ended)?)
    }

    /// Data in order, at most `most` bytes of one channel, then replies.
    pub(crate) fn next(&self, most: usize, deadline: Option<Instant>) -> Result<Item, ClientError> {
        let item = self.wait(deadline, |slot, connection| {
            let data = self.take_data(most, slot, connection);
            data.map(|(channel, bytes)| Item::Data(channel, bytes))
                .or_else(|| slot.replies.pop_front().map(Item::Reply))
        })?;
        match item.ok_or(ClientError::Ended)? {
            Item::Reply(reply) => Ok(Item::Reply(refuse_error(reply)?)),
            data => Ok(data),
        }
    }

    /// Bytes of a tunnel; none at its end, which is the peer's end of data or its last reply.
    pub(crate) fn read(
        &self,
        most: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, ClientError> {
        let bytes = self.wait(deadline, |slot, connection| {
            let data = self.take_data(most, slot, connection).map(|(_, bytes)| Ok(bytes));
            let reply = || slot.replies.pop_front().map(|r| refuse_error(r).map(|_| Vec::new()));
            data.or_else(reply).or_else(|| slot.ended.then(|| Ok(Vec::new())))
        })?;
        bytes.unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Handing data out is what gives the warden credit again: a flooding program is held back
    /// until somebody wants its output.
    fn take_data(
        &self,
        most: usize,
        slot: &mut Slot,
        connection: &mut Connection,
    ) -> Option<(Channel, Vec<u8>)> {
        let (channel, bytes) = slot.inbox.pop(most)?;
        connection.consumed(self.stream, bytes.len());
        Some((channel, bytes))
    }

    /// None when the stream is closed and everything of it has been taken.
    fn wait<T>(
        &self,
        deadline: Option<Instant>,
        take: impl Fn(&mut Slot, &mut Connection) -> Option<T>,
    ) -> Result<Option<T>, ClientError> {
        self.link.wait(self.stream, WaitFor::News, deadline, |state| {
            // Given up by somebody else who had a way to.
            let Some((slot, connection)) = state.slot(self.stream) else {
                return Some(Ok(None));
            };
            match (take(slot, connection), slot.broken) {
                (Some(taken), _) => Some(Ok(Some(taken))),
                (None, Some(error)) => Some(Err(ClientError::Stream(error))),
                (None, None) => (!connection.is_open(self.stream)).then_some(Ok(None)),
            }
        })?
    }
}

fn refuse_error(reply: Reply) -> Result<Reply, ClientError> {
    match reply {
        Reply::Error(error) => Err(ClientError::Remote(error)),
        reply => Ok(reply),
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.link.forget(self.stream) {
            return;
        }
        // The socket is full. A warden that lives will read on in a moment; one that does not must
        // not hold us, and the cancelling then goes out with the next wait, if there is one.
        let _ = self.outlet().drain(Instant::now().checked_add(CANCEL_PATIENCE));
    }
}

// === impl Outlet ===

impl Outlet {
    /// Sends everything, waiting for credit and for the socket, or fails with `InputClosed` when
    /// the stream is over or has been ended.
    pub(crate) fn send_all(
        &self,
        mut bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            let n = self.send_some(bytes, deadline)?;
            bytes = bytes.get(n..).unwrap_or_default();
        }
        self.drain(deadline)
    }

    /// Queues as much of the input as there is credit for, and its end if that is all of it; both go
    /// out with the first wait. Gives back the rest.
    pub(crate) fn queue<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        self.link.prepare(|state| {
            let n = state.connection.send(self.stream, Channel::Bytes, input);
            let rest = input.get(n..).unwrap_or_default();
            if rest.is_empty() {
                state.connection.end(self.stream);
            }
            rest
        })
    }

    /// Sends at least one byte of a non-empty piece.
    pub(crate) fn send_some(
        &self,
        bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<usize, ClientError> {
        let piece = bytes.get(..MAX_DATA_BYTES).unwrap_or(bytes);
        self.link.wait(self.stream, WaitFor::Room, deadline, |state| {
            if !state.connection.accepts_data(self.stream) {
                return Some(Err(ClientError::InputClosed));
            }
            let n = state.connection.send(self.stream, Channel::Bytes, piece);
            (n > 0).then_some(Ok(n))
        })?
    }

    /// Waits until the socket has taken what is queued: nobody else might be there to see to it.
    pub(crate) fn drain(&self, deadline: Option<Instant>) -> Result<(), ClientError> {
        let mut queued = None;
        self.link.wait(self.stream, WaitFor::Room, deadline, |state| {
            let queued = *queued.get_or_insert_with(|| state.queued());
            state.has_sent(queued).then_some(())
        })
    }

    pub(crate) fn end(&self) {
        self.tell(|state| state.connection.end(self.stream));
    }

    /// Gives the stream up, whoever still waits for something of it.
    pub(crate) fn cancel(&self) {
        self.link.forget(self.stream);
    }

    /// Never blocks: what the socket does not take goes out with the next wait.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut State)) {
        self.link.update(change);
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }
}
