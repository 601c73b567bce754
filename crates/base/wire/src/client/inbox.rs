//! Received bytes of one stream that nobody has asked for yet.
//!
//! Kept as bytes and runs, not as one buffer per frame: a warden that sends its window in frames of
//! one byte must not cost a hundred times the window.

use std::collections::VecDeque;

use crate::connection::Channel;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: VecDeque<u8>,
    /// Which channel the next so many bytes came on.
    runs: VecDeque<(Channel, usize)>,
}

impl Inbox {
    pub(super) fn push(&mut self, channel: Channel, bytes: &[u8]) {
        match self.runs.back_mut() {
            Some((last, length)) if *last == channel => *length += bytes.len(),
            _ => self.runs.push_back((channel, bytes.len())),
        }
        self.bytes.extend(bytes);
    }

    /// The oldest bytes, at most `most` and all of one channel.
    pub(super) fn pop(&mut self, most: usize) -> Option<(Channel, Vec<u8>)> {
        let (channel, length) = self.runs.front_mut()?;
        let (channel, n) = (*channel, most.min(*length));
        *length -= n;
        if *length == 0 {
            self.runs.pop_front();
        }
        let (front, back) = self.bytes.as_slices();
        let from_front = front.len().min(n);
        let mut taken = Vec::with_capacity(n);
        taken.extend_from_slice(front.get(..from_front).unwrap_or_default());
        taken.extend_from_slice(back.get(..n - from_front).unwrap_or_default());
        self.bytes.drain(..taken.len());
        if self.bytes.is_empty() {
            // An idle stream holds no room.
            *self = Inbox::default();
        }
        Some((channel, taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_channel_are_joined_and_channels_keep_their_order() {
        let mut inbox = Inbox::default();
        inbox.push(Channel::Stdout, b"a");
        inbox.push(Channel::Stdout, b"b");
        inbox.push(Channel::Stderr, b"c");
        inbox.push(Channel::Stdout, b"d");
        assert_eq!(inbox.pop(99), Some((Channel::Stdout, b"ab".to_vec())));
        assert_eq!(inbox.pop(99), Some((Channel::Stderr, b"c".to_vec())));
        assert_eq!(inbox.pop(99), Some((Channel::Stdout, b"d".to_vec())));
        assert_eq!(inbox.pop(99), None);
    }

    #[test]
    fn a_long_run_is_handed_out_in_pieces() {
        let mut inbox = Inbox::default();
        for _ in 0..3 {
            inbox.push(Channel::Bytes, b"0123456789");
            assert_eq!(inbox.pop(7), Some((Channel::Bytes, b"0123456".to_vec())));
            inbox.push(Channel::Bytes, b"abc");
            assert_eq!(inbox.pop(7), Some((Channel::Bytes, b"789abc".to_vec())));
        }
    }
}
