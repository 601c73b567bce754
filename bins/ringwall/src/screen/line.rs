//! One line of a picture. Whatever is put into it is made printable first.

use unicode_width::UnicodeWidthChar;

use crate::report::printable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Notable,
}

impl Style {
    /// The order to the terminal; without colours only weight is left.
    fn order(self, colour: bool) -> &'static str {
        match (self, colour) {
            (Style::Plain, _) => "",
            (Style::Bold, _) => "\x1b[1m",
            (Style::Dim, _) => "\x1b[2m",
            (Style::Good, true) => "\x1b[32m",
            (Style::Bad, true) => "\x1b[31m",
            (Style::Notable, true) => "\x1b[33m",
            (Style::Good, false) => "",
            (Style::Bad | Style::Notable, false) => "\x1b[1m",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    parts: Vec<(Style, String)>,
}

impl Line {
    pub(crate) fn new(style: Style, text: &str) -> Line {
        Line::default().and(style, text)
    }

    pub(crate) fn plain(text: &str) -> Line {
        Line::new(Style::Plain, text)
    }

    #[must_use]
    pub(crate) fn and(mut self, style: Style, text: &str) -> Line {
        self.parts.push((style, printable(text).into_owned()));
        self
    }

    /// Adds what fits into so many columns.
    pub(super) fn write(&self, picture: &mut String, columns: usize, colour: bool) {
        let mut left = columns;
        for (style, text) in &self.parts {
            let order = style.order(colour);
            picture.push_str(order);
            for character in text.chars() {
                let width = character.width().unwrap_or(0);
                if width > left {
                    left = 0;
                    break;
                }
                left -= width;
                picture.push(character);
            }
            if !order.is_empty() {
                picture.push_str("\x1b[0m");
            }
            if left == 0 {
                return;
            }
        }
    }
}

/// The whole text in pieces of so many columns. What marks it as printable comes first, so that no
/// column is lost.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(8);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for character in printable(text).chars() {
        let width = character.width().unwrap_or(0);
        if used + width > columns {
            lines.push(String::new());
            used = 0;
        }
        used += width;
        if let Some(last) = lines.last_mut() {
            last.push(character);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(line: &Line, columns: usize) -> String {
        let mut picture = String::new();
        line.write(&mut picture, columns, false);
        picture
    }

    #[test]
    fn lines_are_cut_by_what_they_take_on_the_screen() {
        assert_eq!(shown(&Line::plain("日本語"), 5), "日本");
        assert_eq!(shown(&Line::plain("ab").and(Style::Plain, "cd"), 3), "abc");
        assert_eq!(shown(&Line::new(Style::Bold, "abc"), 2), "\x1b[1mab\x1b[0m");
    }

    #[test]
    fn nothing_is_lost_by_wrapping() {
        assert_eq!(wrapped("abcdefghij", 8), ["abcdefgh", "ij"]);
        assert_eq!(wrapped("a\x1b[2Jb", 80), ["a\\u{1b}[2Jb"]);
        assert_eq!(wrapped("", 80), [""]);
    }

    proptest! {
        #[test]
        fn no_text_is_an_order(text in any::<String>(), columns in 0..200_usize) {
            let picture = shown(&Line::plain(&text), columns);
            prop_assert!(!picture.contains(char::is_control), "{picture:?}");
            for piece in wrapped(&text, columns) {
                prop_assert!(!piece.contains(char::is_control), "{piece:?}");
            }
        }
    }
}
