//! Cuts a text into chunks of a bounded number of tokens, between lines where possible.

use serde::Serialize;

use crate::count;
use crate::pieces::pieces;
use crate::vocabulary::Encoding;

/// A part of the text. Lines are counted from 1, bytes from 0; the end is the byte after the last.
#[derive(Debug, Serialize)]
pub struct Chunk {
    pub(crate) tokens: usize,
    start_line: usize,
    end_line: usize,
    pub(crate) start_byte: usize,
    pub(crate) end_byte: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// What is never cut: a line, or a part of a line that is too long for a chunk.
struct Unit {
    start: usize,
    end: usize,
    tokens: usize,
}

pub(crate) fn chunks(text: &str, encoding: Encoding, most: usize, overlap: usize) -> Vec<Chunk> {
    let units = units(text, encoding, most);
    let mut chunks = Vec::new();
    let mut from = 0;
    let mut line = Lines { text, at: 0, line: 1 };
    while from < units.len() {
        let mut to = from;
        let mut sum = 0;
        while to < units.len() && (to == from || sum + units[to].tokens <= most) {
            sum += units[to].tokens;
            to += 1;
        }
        // Lines together may give more tokens than one by one; rarely, and then by very few.
        let tokens = loop {
            let tokens = count(&text[units[from].start..units[to - 1].end], encoding);
            if tokens <= most || to == from + 1 {
                break tokens;
            }
            to -= 1;
        };
        let (start_byte, end_byte) = (units[from].start, units[to - 1].end);
        let start_line = line.of(start_byte);
        let ends = text[start_byte..end_byte].trim_end_matches('\n').matches('\n').count();
        let end_line = start_line + ends;
        chunks.push(Chunk { tokens, start_line, end_line, start_byte, end_byte, text: None });
        if to == units.len() {
            break;
        }
        // Go back by what overlaps, but always forward from where this chunk began.
        let mut next = to;
        let mut repeated = 0;
        while next > from + 1 && repeated + units[next - 1].tokens <= overlap {
            next -= 1;
            repeated += units[next].tokens;
        }
        from = next;
    }
    chunks
}

fn units(text: &str, encoding: Encoding, most: usize) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let tokens = count(line, encoding);
        if tokens <= most {
            units.push(Unit { start, end: start + line.len(), tokens });
        } else {
            split_line(line, start, encoding, most, &mut units);
        }
        start += line.len();
    }
    units
}

fn split_line(
    line: &str,
    mut start: usize,
    encoding: Encoding,
    most: usize,
    units: &mut Vec<Unit>,
) {
    for piece in pieces(line, encoding) {
        let tokens = encoding.tokens(piece.as_bytes()).len();
        if tokens <= most {
            units.push(Unit { start, end: start + piece.len(), tokens });
            start += piece.len();
            continue;
        }
        // A single word of many tokens. No character has more than four.
        let characters: Vec<char> = piece.chars().collect();
        for part in characters.chunks((most / 4).max(1)) {
            let part: String = part.iter().collect();
            units.push(Unit { start, end: start + part.len(), tokens: count(&part, encoding) });
            start += part.len();
        }
    }
}

/// Line numbers of growing, or slightly falling, positions.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn of(&mut self, position: usize) -> usize {
        let between = self.at.min(position)..self.at.max(position);
        let ends = self.text[between].matches('\n').count();
        self.line = if position >= self.at { self.line + ends } else { self.line - ends };
        self.at = position;
        self.line
    }
}
