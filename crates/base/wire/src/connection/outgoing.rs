//! Bytes that wait for the transport, in one contiguous piece.

/// An idle connection keeps at most this much room; a burst's buffer is given back.
const KEPT_BYTES: usize = 64 << 10;

/// Sent bytes are moved out of the way only when they are at least half, so that each byte is
/// moved at most once on average.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outgoing {
    pub(super) fn pending(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(super) fn queue(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(super) fn sent(&mut self, n: usize) {
        self.sent += n.min(self.len());
        if self.sent == self.bytes.len() {
            self.sent = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT_BYTES);
        } else if self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_whatever_the_pieces() {
        let mut outgoing = Outgoing::default();
        outgoing.queue().extend_from_slice(b"abcdef");
        outgoing.sent(2);
        assert_eq!(outgoing.pending(), b"cdef");
        outgoing.queue().extend_from_slice(b"gh");
        outgoing.sent(4);
        assert_eq!(outgoing.pending(), b"gh");
        outgoing.sent(usize::MAX);
        assert_eq!(outgoing.len(), 0);
    }

    #[test]
    fn the_room_of_a_burst_is_given_back() {
        let mut outgoing = Outgoing::default();
        outgoing.queue().extend_from_slice(&[0; 1 << 20]);
        outgoing.sent(1 << 20);
        assert!(outgoing.bytes.capacity() <= KEPT_BYTES);
    }
}
