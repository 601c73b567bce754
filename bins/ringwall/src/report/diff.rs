//! Unified diffs on their way out: coloured for a terminal, or only counted.

use std::io::{self, Write};

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

/// What a line of a diff is. Whether `---` is a header or a removed line depends on where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Header,
    Hunk,
    Added,
    Removed,
    Context,
}

/// Follows a diff from line to line.
#[derive(Debug, Default)]
struct Position {
    in_hunk: bool,
}

impl Position {
    fn next(&mut self, line: &[u8]) -> Line {
        // Lines of a hunk start with a space, `+`, `-` or `\`: a file header cannot be one.
        if line.starts_with(b"diff --git ") {
            self.in_hunk = false;
            return Line::Header;
        }
        match line.first() {
            Some(b'@') => {
                self.in_hunk = true;
                Line::Hunk
            }
            _ if !self.in_hunk => Line::Header,
            Some(b'+') => Line::Added,
            Some(b'-') => Line::Removed,
            _ => Line::Context,
        }
    }
}

/// Passes whole lines on, each in the colour of its kind.
#[derive(Debug)]
pub(crate) struct ColouredDiff<W> {
    out: W,
    position: Position,
    line: Vec<u8>,
}

impl<W: Write> ColouredDiff<W> {
    pub(crate) fn new(out: W) -> Self {
        ColouredDiff { out, position: Position::default(), line: Vec::new() }
    }

    fn finish_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let colour = match self.position.next(&line) {
            Line::Header => BOLD,
            Line::Hunk => CYAN,
            Line::Added => GREEN,
            Line::Removed => RED,
            Line::Context => "",
        };
        self.out.write_all(colour.as_bytes())?;
        self.out.write_all(&line)?;
        let end = if colour.is_empty() { "" } else { PLAIN };
        self.out.write_all(end.as_bytes())?;
        self.out.write_all(b"\n")
    }
}

impl<W: Write> Write for ColouredDiff<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            match byte {
                b'\n' => self.finish_line()?,
                other => self.line.push(*other),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Counts added and removed lines.
#[derive(Debug, Default)]
pub(crate) struct CountedDiff {
    pub(crate) added: u64,
    pub(crate) removed: u64,
    position: Position,
    line: Vec<u8>,
}

impl CountedDiff {
    /// Enough of a line to know what it is.
    const START: usize = 16;
}

impl Write for CountedDiff {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte != b'\n' {
                if self.line.len() < Self::START {
                    self.line.push(*byte);
                }
                continue;
            }
            match self.position.next(&self.line) {
                Line::Added => self.added += 1,
                Line::Removed => self.removed += 1,
                Line::Header | Line::Hunk | Line::Context => {}
            }
            self.line.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n--- old\n+++ new\n+more\n\
        diff --git a/y b/y\n--- a/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n";

    #[test]
    fn headers_are_not_counted_and_lines_that_look_like_headers_are() {
        let mut counted = CountedDiff::default();
        counted.write_all(DIFF.as_bytes()).unwrap();
        assert_eq!((counted.added, counted.removed), (2, 2));
    }

    #[test]
    fn colours_surround_lines_and_change_nothing_else() {
        let mut out = Vec::new();
        ColouredDiff::new(&mut out).write_all(DIFF.as_bytes()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\x1b[32m+++ new\x1b[0m\n"), "{text:?}");
        assert!(text.contains("\x1b[1m--- a/y\x1b[0m\n"), "{text:?}");
        let plain = [BOLD, RED, GREEN, CYAN, PLAIN].iter().fold(text, |t, c| t.replace(c, ""));
        assert_eq!(plain, DIFF);
    }
}
