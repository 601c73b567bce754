//! How names and contents that a sandbox chose are shown to a person.
//!
//! A name may hold newlines, terminal escape sequences or invisible letters that reverse the
//! reading direction. Names are therefore always shown quoted like git does it; contents are
//! escaped whenever they go to a terminal.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::RelPath;

/// A name as git would print it: as it is if harmless, else in double quotes with C escapes.
/// `git apply` and patch(1) read this form back.
pub fn quoted(path: &Path) -> String {
    quoted_with_prefix("", path)
}

pub(crate) fn quoted_with_prefix(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let mut text = String::with_capacity(prefix.len() + bytes.len());
    text.push_str(prefix);
    let mut special = false;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            special |= push_name_char(&mut text, c);
        }
        for byte in chunk.invalid() {
            text.push_str(&octal(*byte));
            special = true;
        }
    }
    if special { format!("\"{text}\"") } else { text }
}

/// Returns whether the character needed an escape.
fn push_name_char(text: &mut String, c: char) -> bool {
    match c {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        '\r' => text.push_str("\\r"),
        _ if is_harmless(c) => {
            text.push(c);
            return false;
        }
        _ => {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                text.push_str(&octal(byte));
            }
        }
    }
    true
}

fn octal(byte: u8) -> String {
    format!("\\{byte:03o}")
}

/// Whether a terminal shows `c` as a visible mark of its own. Control characters, text-direction
/// and other format characters, unusual spaces, combining marks and unassigned ones are not.
fn is_harmless(c: char) -> bool {
    // The standard library's Debug escapes exactly the unprintable characters, and the quotes.
    matches!(c, '\'' | '"' | '\\' | ' ') || c.escape_debug().len() == 1
}

/// Writes one line of content for a terminal: nothing in it can move the cursor, change colours
/// or hide text. At most `max_bytes` of the line are shown.
pub(crate) fn write_escaped_line(
    out: &mut dyn Write,
    line: &[u8],
    max_bytes: usize,
) -> io::Result<()> {
    let shown = &line[..line.len().min(max_bytes)];
    let mut text = String::with_capacity(shown.len());
    for chunk in shown.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\t' || is_harmless(c) {
                text.push(c);
            } else {
                text.extend(c.escape_default());
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.write_all(text.as_bytes())?;
    if shown.len() < line.len() {
        write!(out, " [{} more bytes]", line.len() - shown.len())?;
    }
    Ok(())
}

/// A list of paths in an error message: quoted, and cut after a few.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathList(pub Vec<RelPath>);

impl PathList {
    const SHOWN: usize = 20;
}

impl fmt::Display for PathList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().take(Self::SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}", quoted(path.as_path()))?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn shown(bytes: &[u8]) -> String {
        quoted(Path::new(OsStr::from_bytes(bytes)))
    }

    fn escaped(line: &[u8], max: usize) -> String {
        let mut out = Vec::new();
        write_escaped_line(&mut out, line, max).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn harmless_names_are_shown_as_they_are() {
        for name in ["src/main.rs", "with space", "é/ü", "日本", "it's"] {
            assert_eq!(shown(name.as_bytes()), name);
        }
    }

    #[test]
    fn names_that_could_fool_a_terminal_are_quoted() {
        assert_eq!(shown(b"a\nb"), r#""a\nb""#);
        assert_eq!(shown(b"\x1b[31mred"), r#""\033[31mred""#);
        assert_eq!(shown("x\u{202e}cod.exe".as_bytes()), r#""x\342\200\256cod.exe""#);
        assert_eq!(shown("zero\u{200b}width".as_bytes()), r#""zero\342\200\213width""#);
        assert_eq!(shown("\u{9b}31m".as_bytes()), r#""\302\23331m""#);
        assert_eq!(shown(b"\xff\"\\"), r#""\377\"\\""#);
    }

    #[test]
    fn content_lines_cannot_carry_escape_sequences_to_a_terminal() {
        assert_eq!(escaped(b"a\x1b]0;title\x07\r", 100), r"a\u{1b}]0;title\u{7}\r");
        assert_eq!(escaped(b"\ttab \xff", 100), "\ttab \\xff");
        assert_eq!(escaped("\u{202e}".as_bytes(), 100), r"\u{202e}");
        assert_eq!(escaped(b"\"quotes\" 'and' \\", 100), "\"quotes\" 'and' \\");
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(escaped(&[b'x'; 50], 10), "xxxxxxxxxx [40 more bytes]");
    }

    #[test]
    fn long_lists_of_paths_are_cut() {
        let list = PathList((0..25).map(|n| RelPath::new(format!("f{n}")).unwrap()).collect());
        assert!(list.to_string().ends_with("f19 and 5 more"));
    }
}
