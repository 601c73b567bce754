//! The vocabularies of two tokenizers, as tables made at build time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::hash::hash;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// GPT-3.5 and GPT-4.
    Cl100k,
    /// GPT-4o and later.
    #[default]
    O200k,
}

struct Vocabulary {
    bytes: &'static [u8],
    starts: &'static [u8],
    table: &'static [u8],
}

macro_rules! vocabulary {
    ($name:literal) => {
        Vocabulary {
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bytes")),
            starts: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".starts")),
            table: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".table")),
        }
    };
}

static CL100K: Vocabulary = vocabulary!("cl100k");
static O200K: Vocabulary = vocabulary!("o200k");

impl Vocabulary {
    fn number(list: &[u8], index: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&list[index * 4..index * 4 + 4]);
        u32::from_le_bytes(bytes)
    }

    fn token(&self, piece: &[u8]) -> Option<u32> {
        let slots = self.table.len() / 4;
        let mut slot = hash(piece) as usize & (slots - 1);
        loop {
            let token = Self::number(self.table, slot).checked_sub(1)?;
            let start = Self::number(self.starts, token as usize) as usize;
            let end = Self::number(self.starts, token as usize + 1) as usize;
            if self.bytes[start..end] == *piece {
                return Some(token);
            }
            slot = (slot + 1) & (slots - 1);
        }
    }
}

impl Encoding {
    /// The tokens of one piece of text: neighbours merge, lowest token first, until none can.
    /// A heap keeps this fast for a piece of any length.
    pub(crate) fn tokens(self, piece: &[u8]) -> Vec<u32> {
        let vocabulary = match self {
            Self::Cl100k => &CL100K,
            Self::O200k => &O200K,
        };
        if let Some(token) = vocabulary.token(piece) {
            return vec![token];
        }
        // A part is known by its start; `next[start]` is where it ends.
        let mut next: Vec<usize> = (1..=piece.len()).collect();
        let mut previous: Vec<usize> = (0..=piece.len()).map(|at| at.saturating_sub(1)).collect();
        let mut gone = vec![false; piece.len() + 1];
        let merged = |start: usize, end: usize| {
            vocabulary.token(&piece[start..end]).map(|token| Reverse((token, start, end)))
        };
        let mut heap: BinaryHeap<_> =
            (0..piece.len().saturating_sub(1)).filter_map(|at| merged(at, at + 2)).collect();
        while let Some(Reverse((_, start, end))) = heap.pop() {
            // Stale: one of the two parts has merged with another neighbour since.
            if gone[start] || next[start] == piece.len() || next[next[start]] != end {
                continue;
            }
            gone[next[start]] = true;
            next[start] = end;
            if end < piece.len() {
                previous[end] = start;
                heap.extend(merged(start, next[end]));
            }
            if start > 0 {
                heap.extend(merged(previous[start], end));
            }
        }
        let mut tokens = Vec::new();
        let mut at = 0;
        while at < piece.len() {
            // Every single byte is a token, so every part is one.
            tokens.extend(vocabulary.token(&piece[at..next[at]]));
            at = next[at];
        }
        tokens
    }
}
