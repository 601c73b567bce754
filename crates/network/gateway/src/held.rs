//! Bodies that must be known whole before anything of them is sent: counted as they come, and bounded
//! all together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::meter::Exhausted;
use crate::problem::Problem;
use crate::task::Task;

/// What all bodies that are held may take.
const MOST_HELD: usize = 128 * 1024 * 1024;
/// A buffer that grows has room for twice of what it holds.
const GROWTH: usize = 2;
/// How long the next piece of a body that is held may take.
const PIECE_PATIENCE: Duration = Duration::from_secs(60);

/// Memory for bodies that are held, of all tasks together.
#[derive(Debug, Default)]
pub(crate) struct Room {
    taken: AtomicUsize,
}

/// A part of the room, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    room: Arc<Room>,
    bytes: usize,
}

impl Hold {
    pub(crate) fn of(room: &Arc<Room>) -> Self {
        Self { room: Arc::clone(room), bytes: 0 }
    }

    /// Asked before the memory is taken. Nobody waits for room: two who wait for each other would
    /// wait for good.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Exhausted> {
        let before = self.room.taken.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if before.saturating_add(more) > MOST_HELD { Err(Exhausted::Held) } else { Ok(()) }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes with the room that they take: it is given back with the last piece of them.
struct Kept {
    bytes: Bytes,
    _hold: Hold,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that is being read.
pub(crate) struct Reading<'a> {
    task: &'a Arc<Task>,
    bytes: BytesMut,
    hold: Hold,
    most: usize,
}

impl<'a> Reading<'a> {
    /// Of at most this many bytes.
    pub(crate) fn new(task: &'a Arc<Task>, most: usize) -> Self {
        let hold = Hold::of(&task.shared.room);
        Self { task, bytes: BytesMut::new(), hold, most }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the next piece; false at the end.
    pub(crate) async fn more(&mut self, body: &mut Incoming) -> Result<bool, Problem> {
        let next = tokio::time::timeout(PIECE_PATIENCE, body.frame());
        let Some(frame) = next.await.map_err(|_| Problem::Broken)? else {
            return Ok(false);
        };
        let piece = frame.map_err(|_| Problem::Broken)?.into_data().unwrap_or_default();
        let most = usize::try_from(self.task.meter.limits.request_body).unwrap_or(usize::MAX);
        if self.bytes.len() + piece.len() > self.most.min(most) {
            return Err(Exhausted::RequestBody.into());
        }
        self.task.meter.up(piece.len() as u64)?;
        self.hold.grow(GROWTH * piece.len())?;
        self.bytes.extend_from_slice(&piece);
        Ok(true)
    }

    pub(crate) async fn read_to_end(&mut self, body: &mut Incoming) -> Result<(), Problem> {
        while self.more(body).await? {}
        Ok(())
    }

    /// What was read, which holds its room for as long as it lives.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(Kept { bytes: self.bytes.freeze(), _hold: self.hold })
    }
}

/// What was made of a body, with room of its own.
pub(crate) fn kept(room: &Arc<Room>, bytes: Vec<u8>) -> Result<Bytes, Exhausted> {
    let mut hold = Hold::of(room);
    hold.grow(GROWTH * bytes.len())?;
    Ok(Bytes::from_owner(Kept { bytes: Bytes::from(bytes), _hold: hold }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_for_all_and_given_back() {
        let room = Arc::new(Room::default());
        let (mut one, mut other) = (Hold::of(&room), Hold::of(&room));
        assert_eq!(one.grow(MOST_HELD - 10), Ok(()));
        assert_eq!(other.grow(11), Err(Exhausted::Held));
        // What was refused is not left behind.
        drop(other);
        let mut other = Hold::of(&room);
        assert_eq!(other.grow(10), Ok(()));
        assert_eq!(one.grow(1), Err(Exhausted::Held));
        drop((one, other));
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }
}
