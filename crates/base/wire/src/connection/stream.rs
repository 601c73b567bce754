//! One stream: what its request allows each side to send, and how much.

use crate::connection::{Channel, Side};
use crate::error::Violation;
use crate::limits::{CREDIT_STEP, MAX_LIST_BYTES, WINDOW};
use crate::message::{Reply, Request};

/// What of a request decides which frames may follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Process {
        stdin: bool,
    },
    ReadFile,
    WriteFile,
    List,
    Stat,
    Facts,
    Usage,
    Rest,
    Raise,
    Call,
    CallInside,
    Compile,
    /// Answered by `Done` alone.
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Asked,
    /// `Started` or `Raised` has been said.
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    StaysOpen,
    Closes,
}

#[derive(Debug)]
pub(super) struct Stream {
    shape: Shape,
    phase: Phase,
    /// What the peer lets us send.
    send_credit: usize,
    we_ended: bool,
    /// What the peer may still send.
    receive_credit: usize,
    /// Received and not yet used here.
    unused: usize,
    /// Used here and not yet given back as credit.
    owed: usize,
    peer_ended: bool,
    list_bytes: usize,
}

impl Stream {
    pub(super) fn new(request: &Request, side: Side) -> Self {
        let shape = match request {
            Request::Start(process) => Shape::Process { stdin: process.stdin },
            Request::ReadFile { .. } | Request::TakeWorkspace | Request::LookAtWorkspace => {
                Shape::ReadFile
            }
            Request::WriteFile { .. } | Request::PutWorkspace { .. } | Request::SendTool(_) => {
                Shape::WriteFile
            }
            Request::List { .. } => Shape::List,
            Request::Stat { .. } => Shape::Stat,
            Request::Facts => Shape::Facts,
            Request::Usage => Shape::Usage,
            Request::Checkpoint => Shape::Rest,
            Request::Raise(_) | Request::RaisePlanned(_) | Request::Accept { .. } => Shape::Raise,
            Request::CallTool(_) => Shape::Call,
            Request::CallInside(_) => Shape::CallInside,
            Request::Compile { .. } => Shape::Compile,
            Request::MakeDir { .. }
            | Request::Rename { .. }
            | Request::Remove { .. }
            | Request::LoadTool(_)
            | Request::UnloadTool { .. }
            | Request::ProbeTool { .. }
            | Request::Snapshot { .. }
            | Request::Take { .. }
            | Request::ChangeRights { .. }
            | Request::Adjust { .. }
            | Request::Shutdown => Shape::Plain,
        };
        let ended = |side| !shape.ever_carries_data_from(side);
        Stream {
            shape,
            phase: Phase::Asked,
            send_credit: WINDOW,
            we_ended: ended(side),
            receive_credit: WINDOW,
            unused: 0,
            owed: 0,
            peer_ended: ended(side.other()),
            list_bytes: 0,
        }
    }

    // --- what we send ---

    pub(super) fn sendable(&self, side: Side) -> usize {
        if self.we_ended || !self.carries_data_from(side) { 0 } else { self.send_credit }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.we_ended
    }

    pub(super) fn may_carry(&self, side: Side, channel: Channel) -> bool {
        let channel_fits = match self.shape {
            Shape::Process { .. } | Shape::Call | Shape::CallInside if side == Side::Warden => {
                channel != Channel::Bytes
            }
            _ => channel == Channel::Bytes,
        };
        channel_fits && self.carries_data_from(side)
    }

    pub(super) fn data_sent(&mut self, n: usize) {
        self.send_credit = self.send_credit.saturating_sub(n);
    }

    /// False if we had ended already.
    pub(super) fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.we_ended, true)
    }

    /// A tunnel has no last reply: it is over when both directions are.
    pub(super) fn is_over(&self) -> bool {
        self.shape == Shape::Raise && self.we_ended && self.peer_ended
    }

    // --- what we receive ---

    pub(super) fn data_received(
        &mut self,
        from: Side,
        channel: Channel,
        n: usize,
    ) -> Result<(), Violation> {
        if self.peer_ended {
            return Err(Violation::AfterEnd);
        }
        if !self.may_carry(from, channel) {
            return Err(Violation::WrongChannel);
        }
        self.receive_credit = self.receive_credit.checked_sub(n).ok_or(Violation::PastCredit)?;
        self.unused += n;
        Ok(())
    }

    pub(super) fn end_received(&mut self) -> Result<(), Violation> {
        if std::mem::replace(&mut self.peer_ended, true) {
            return Err(Violation::AfterEnd);
        }
        Ok(())
    }

    pub(super) fn credit_received(&mut self, n: usize) -> Result<(), Violation> {
        let total = self.send_credit.checked_add(n).filter(|total| n > 0 && *total <= WINDOW);
        self.send_credit = total.ok_or(Violation::BadCredit)?;
        Ok(())
    }

    /// How much credit to give the peer now, if any.
    pub(super) fn consumed(&mut self, n: usize) -> Option<u32> {
        let n = n.min(self.unused);
        self.unused -= n;
        self.owed += n;
        if self.owed < CREDIT_STEP || self.peer_ended {
            return None;
        }
        self.receive_credit += self.owed;
        u32::try_from(std::mem::take(&mut self.owed)).ok()
    }

    // --- replies, on either side ---

    /// Counts the bytes of a listing.
    pub(super) fn list_grows(&mut self, bytes: usize) -> Result<(), Violation> {
        self.list_bytes += bytes;
        if self.list_bytes > MAX_LIST_BYTES { Err(Violation::ListTooLong) } else { Ok(()) }
    }

    /// Whether the reply may come now, and what it does to the stream.
    pub(super) fn replied(&mut self, reply: &Reply) -> Result<After, Violation> {
        use Phase::{Asked, Running};
        match (self.shape, self.phase, reply) {
            (_, _, Reply::Error(_)) => Ok(After::Closes),
            (Shape::Process { .. }, Asked, Reply::Started { .. })
            | (Shape::Raise, Asked, Reply::Raised) => {
                self.phase = Running;
                Ok(After::StaysOpen)
            }
            (Shape::List, _, Reply::Entries(_)) => Ok(After::StaysOpen),
            (Shape::Process { .. }, Running, Reply::Exited(_))
            | (Shape::Raise, Running, Reply::Done)
            | (Shape::Stat, _, Reply::Stat(_))
            | (Shape::Facts, _, Reply::Facts(_))
            | (Shape::Usage, _, Reply::Usage(_))
            | (Shape::Rest, _, Reply::Resting { .. })
            | (Shape::Call, _, Reply::Called(_))
            | (Shape::CallInside, _, Reply::CalledInside(_))
            | (Shape::Compile, _, Reply::Compiled(_))
            | (Shape::ReadFile | Shape::WriteFile | Shape::List | Shape::Plain, _, Reply::Done) => {
                Ok(After::Closes)
            }
            _ => Err(Violation::UnexpectedReply),
        }
    }

    fn carries_data_from(&self, side: Side) -> bool {
        let in_turn = match self.shape {
            // Standard input may come with the request, output only from a program that started.
            Shape::Process { .. } => side == Side::Engine || self.phase == Phase::Running,
            Shape::Raise => self.phase == Phase::Running,
            _ => true,
        };
        in_turn && self.shape.ever_carries_data_from(side)
    }
}

impl Shape {
    fn ever_carries_data_from(self, side: Side) -> bool {
        match self {
            Shape::Process { stdin } => side == Side::Warden || stdin,
            Shape::ReadFile => side == Side::Warden,
            Shape::WriteFile => side == Side::Engine,
            Shape::Raise | Shape::Call | Shape::CallInside | Shape::Compile => true,
            Shape::List
            | Shape::Stat
            | Shape::Facts
            | Shape::Usage
            | Shape::Rest
            | Shape::Plain => false,
        }
    }
}
