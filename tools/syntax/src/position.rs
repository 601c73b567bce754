//! Positions as people and editors count them: lines and characters from 1.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Position {
    pub line: usize,
    /// Counted in characters (Unicode code points), not bytes.
    pub column: usize,
}

/// A piece of a text. `end` is the position after its last character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Span {
    pub start: Position,
    pub end: Position,
    /// Offsets of the first byte and of the byte after the last one.
    pub bytes: [usize; 2],
}

/// Where the lines of a text begin, to turn offsets into positions.
#[derive(Debug)]
pub struct Lines<'text> {
    text: &'text str,
    starts: Vec<usize>,
}

impl<'text> Lines<'text> {
    pub fn of(text: &'text str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// Offsets beyond the text, or inside a character, count as the place before them.
    pub fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        Position { line, column: self.text[start..offset].chars().count() + 1 }
    }

    pub fn span(&self, bytes: std::ops::Range<usize>) -> Span {
        Span {
            start: self.position(bytes.start),
            end: self.position(bytes.end),
            bytes: [bytes.start, bytes.end],
        }
    }

    /// A line without its end, counted from 1; empty beyond the last.
    pub fn line(&self, number: usize) -> &'text str {
        let Some(start) = number.checked_sub(1).and_then(|at| self.starts.get(at)) else {
            return "";
        };
        let end = self.starts.get(number).map_or(self.text.len(), |next| next - 1);
        self.text[*start..end].trim_end_matches('\r')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let lines = Lines::of("é = 1\nxy");
        assert_eq!(lines.position(3), Position { line: 1, column: 3 });
        assert_eq!(lines.position(7), Position { line: 2, column: 1 });
        assert_eq!(lines.position(100), Position { line: 2, column: 3 });
        assert_eq!(lines.position(1), Position { line: 1, column: 1 }, "inside the é");
    }

    #[test]
    fn lines_come_without_their_ends() {
        let lines = Lines::of("a\r\nb");
        assert_eq!(
            [lines.line(1), lines.line(2), lines.line(3), lines.line(0)],
            ["a", "b", "", ""]
        );
    }
}
