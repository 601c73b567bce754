//! The hunks of a unified diff, over bytes: files need not be text in any encoding.

use std::cell::Cell;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::{Contents, DiffOptions};
use crate::show::write_escaped_line;

/// Unchanged lines shown round a change.
const CONTEXT: usize = 3;
/// How much of a file is searched for a NUL byte, as git does it.
const BINARY_BYTES: usize = 8000;
/// After this the diff of a file gets coarser instead of better: lines can be chosen to be slow to
/// compare.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time for all files together.
const WHOLE_PATIENCE: Duration = Duration::from_secs(10);

/// The rest of the time to compare files.
#[derive(Debug)]
pub(super) struct Patience(Cell<Duration>);

impl Default for Patience {
    fn default() -> Self {
        Patience(Cell::new(WHOLE_PATIENCE))
    }
}

impl Patience {
    /// Does something that ends at a deadline.
    fn spend<T>(&self, work: impl FnOnce(Instant) -> T) -> T {
        let begun = Instant::now();
        let done = work(begun + PATIENCE.min(self.0.get()));
        self.0.set(self.0.get().saturating_sub(begun.elapsed()));
        done
    }
}

pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_BYTES)].contains(&0)
}

pub(super) fn write_hunks(
    old: &[u8],
    new: &[u8],
    (options, patience): (&DiffOptions, &Patience),
    out: &mut dyn Write,
) -> io::Result<()> {
    let old: Vec<&[u8]> = old.split_inclusive(|byte| *byte == b'\n').collect();
    let new: Vec<&[u8]> = new.split_inclusive(|byte| *byte == b'\n').collect();
    let ops = patience.spend(|deadline| {
        capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline))
    });
    for group in group_diff_ops(ops, CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        writeln!(out, "@@ -{} +{} @@", range(&old_range), range(&new_range))?;
        for op in &group {
            write_op(op, &old, &new, options, out)?;
        }
    }
    Ok(())
}

fn write_op(
    op: &DiffOp,
    old: &[&[u8]],
    new: &[&[u8]],
    options: &DiffOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (tag, old_range, new_range) = op.as_tag_tuple();
    if tag == DiffTag::Equal {
        return old[old_range].iter().try_for_each(|line| write_line(b' ', line, options, out));
    }
    old[old_range].iter().try_for_each(|line| write_line(b'-', line, options, out))?;
    new[new_range].iter().try_for_each(|line| write_line(b'+', line, options, out))
}

fn write_line(mark: u8, line: &[u8], options: &DiffOptions, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[mark])?;
    let (text, ended) = match line.strip_suffix(b"\n") {
        Some(text) => (text, true),
        None => (line, false),
    };
    match options.contents {
        Contents::Plain => out.write_all(text)?,
        Contents::Terminal => write_escaped_line(out, text, options.max_line_bytes)?,
    }
    out.write_all(if ended { b"\n" } else { b"\n\\ No newline at end of file\n" })
}

/// `start,count` as diff(1) writes it: counted from one, and from the line before if empty.
fn range(lines: &std::ops::Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_share_the_time_to_compare_them() {
        let patience = Patience(Cell::new(Duration::from_millis(20)));
        let left = |patience: &Patience| patience.spend(|end| end - Instant::now());
        assert!(left(&patience) <= Duration::from_millis(20));
        patience.spend(|_| std::thread::sleep(Duration::from_millis(30)));
        assert_eq!(patience.0.get(), Duration::ZERO);
        let (old, new) = (b"a\nb\n".as_slice(), b"c\nb\n".as_slice());
        let mut out = Vec::new();
        let options = DiffOptions { contents: Contents::Plain, ..DiffOptions::default() };
        write_hunks(old, new, (&options, &patience), &mut out).unwrap();
        assert!(out.starts_with(b"@@ "), "a coarse diff is a diff");
    }
}
