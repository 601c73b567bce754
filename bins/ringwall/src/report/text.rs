//! Text from untrusted places made fit to be looked at.

use std::borrow::Cow;
use std::fmt::Write;

/// Replaces what a terminal would obey: control characters, and characters that reorder or hide
/// text.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => clean.push_str("\\n"),
            '\t' => clean.push_str("\\t"),
            '\r' => clean.push_str("\\r"),
            c if is_deceptive(c) => {
                let _ = write!(clean, "\\u{{{:x}}}", u32::from(c));
            }
            c => clean.push(c),
        }
    }
    Cow::Owned(clean)
}

/// The same for names that need not be UTF-8: foreign bytes are shown as `\xff`.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    let mut clean = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        clean.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(clean, "\\x{byte:02x}");
        }
    }
    clean
}

/// How long ago, in one or two units: `42s`, `3m`, `5h`, `2d`.
pub(crate) fn age(milliseconds: u64) -> String {
    match milliseconds / 1000 {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7199 => format!("{}m", seconds / 60),
        seconds @ 7200..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_orders_from_a_name() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("safe\u{202e}txt.exe"), "safe\\u{202e}txt.exe");
        assert_eq!(printable("plain größe"), "plain größe");
    }

    #[test]
    fn names_that_are_not_utf8_stay_recognisable() {
        assert_eq!(printable_bytes(b"a\xffb\x07"), "a\\xffb\\u{7}");
    }

    #[test]
    fn ages_are_short() {
        assert_eq!(age(1_500), "1s");
        assert_eq!(age(180_000), "3m");
        assert_eq!(age(3 * 3_600_000), "3h");
        assert_eq!(age(3 * 86_400_000), "3d");
    }
}
