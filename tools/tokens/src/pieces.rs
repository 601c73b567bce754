//! Splits a text into the pieces within which tokens merge.
//!
//! The tokenizers define this by regular expressions over Unicode classes. Those take milliseconds
//! to compile, on every call; the functions here do the same by hand, and tests compare them with
//! the originals on many texts.

use unicode_general_category::{GeneralCategory as Category, get_general_category};

use crate::vocabulary::Encoding;

/// The text's pieces, in order; together they are the text.
pub(crate) fn pieces(text: &str, encoding: Encoding) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let length = match encoding {
            Encoding::Cl100k => cl100k(rest),
            Encoding::O200k => o200k(rest),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        Some(piece)
    })
}

fn category(c: char) -> Category {
    match c {
        'a'..='z' => Category::LowercaseLetter,
        'A'..='Z' => Category::UppercaseLetter,
        '0'..='9' => Category::DecimalNumber,
        _ => get_general_category(c),
    }
}

fn is_letter(c: char) -> bool {
    is_mark_free_upper(c) || category(c) == Category::LowercaseLetter
}

fn is_mark_free_upper(c: char) -> bool {
    matches!(
        category(c),
        Category::UppercaseLetter
            | Category::TitlecaseLetter
            | Category::ModifierLetter
            | Category::OtherLetter
    )
}

fn is_mark(c: char) -> bool {
    matches!(
        category(c),
        Category::NonspacingMark | Category::SpacingMark | Category::EnclosingMark
    )
}

fn is_number(c: char) -> bool {
    matches!(category(c), Category::DecimalNumber | Category::LetterNumber | Category::OtherNumber)
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
fn is_upper(c: char) -> bool {
    is_mark_free_upper(c) || is_mark(c)
}

/// `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
fn is_lower(c: char) -> bool {
    let kind = category(c);
    is_mark(c)
        || matches!(
            kind,
            Category::LowercaseLetter | Category::ModifierLetter | Category::OtherLetter
        )
}

fn is_line_end(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

/// `[^\r\n\p{L}\p{N}]`
fn may_lead(c: char) -> bool {
    !is_line_end(c) && !is_letter(c) && !is_number(c)
}

/// `[^\s\p{L}\p{N}]`
fn is_other(c: char) -> bool {
    !c.is_whitespace() && !is_letter(c) && !is_number(c)
}

/// Bytes of the longest beginning of which all characters are such.
fn run(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

fn first(text: &str) -> Option<char> {
    text.chars().next()
}

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)`: bytes, 0 for none. U+017F is a long s.
fn contraction(text: &str) -> usize {
    let Some(rest) = text.strip_prefix('\'') else { return 0 };
    let mut characters = rest.chars();
    match (characters.next(), characters.next()) {
        (Some('s' | 'S' | 't' | 'T' | 'm' | 'M' | 'd' | 'D'), _) => 2,
        (Some('\u{17f}'), _) => 3,
        (Some('r' | 'R' | 'v' | 'V'), Some('e' | 'E')) | (Some('l' | 'L'), Some('l' | 'L')) => 3,
        _ => 0,
    }
}

/// `\p{N}{1,3}`
fn digits(text: &str) -> usize {
    text.chars().take(3).take_while(|c| is_number(*c)).map(char::len_utf8).sum()
}

/// ` ?[^\s\p{L}\p{N}]+` and what may follow it.
fn punctuation(text: &str, follows: impl Fn(char) -> bool) -> usize {
    let lead = usize::from(text.starts_with(' '));
    let others = run(&text[lead..], is_other);
    if others == 0 {
        return 0;
    }
    lead + others + run(&text[lead + others..], follows)
}

/// White space up to and with its last line end, else all but the last character before a word.
fn space(text: &str) -> usize {
    let spaces = &text[..run(text, char::is_whitespace)];
    if let Some(last) = spaces.rfind(is_line_end) {
        return last + 1;
    }
    let last = spaces.chars().next_back().map_or(0, char::len_utf8);
    if spaces.len() == text.len() || spaces.len() == last {
        spaces.len()
    } else {
        spaces.len() - last
    }
}

/// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
fn cl100k(text: &str) -> usize {
    let word = || {
        let lead = first(text).filter(|c| may_lead(*c)).map_or(0, char::len_utf8);
        let letters = run(&text[lead..], is_letter);
        if letters == 0 { 0 } else { lead + letters }
    };
    let final_space = || {
        let spaces = run(text, char::is_whitespace);
        if spaces == text.len() { spaces } else { 0 }
    };
    let rules: [&dyn Fn() -> usize; 6] = [
        &|| contraction(text),
        &word,
        &|| digits(text),
        &|| punctuation(text, is_line_end),
        &final_space,
        &|| space(text),
    ];
    first_that_fits(text, &rules)
}

/// Words that are all upper, all lower or capitalised, with their contraction; then as above.
fn o200k(text: &str) -> usize {
    let lead = first(text).filter(|c| may_lead(*c)).map_or(0, char::len_utf8);
    let with_lead = |word: fn(&str) -> usize| {
        move || {
            let leads = if lead == 0 { vec![0] } else { vec![lead, 0] };
            let found = leads.into_iter().find_map(|lead| {
                let length = word(&text[lead..]);
                (length > 0).then_some(lead + length)
            });
            found.map_or(0, |length| length + contraction(&text[length..]))
        }
    };
    let rules: [&dyn Fn() -> usize; 5] = [
        &with_lead(upper_then_some_lower),
        &with_lead(some_upper_then_lower),
        &|| digits(text),
        &|| punctuation(text, |c| is_line_end(c) || c == '/'),
        &|| space(text),
    ];
    first_that_fits(text, &rules)
}

/// `upper*lower+`: the upper run gives back what the lower one needs.
fn upper_then_some_lower(text: &str) -> usize {
    let upper = run(text, is_upper);
    let lower = run(&text[upper..], is_lower);
    if lower > 0 {
        return upper + lower;
    }
    let given_back = text[..upper].char_indices().rev().find(|(_, c)| is_lower(*c));
    given_back.map_or(0, |(at, c)| at + c.len_utf8())
}

/// `upper+lower*`
fn some_upper_then_lower(text: &str) -> usize {
    let upper = run(text, is_upper);
    if upper == 0 { 0 } else { upper + run(&text[upper..], is_lower) }
}

fn first_that_fits(text: &str, rules: &[&dyn Fn() -> usize]) -> usize {
    let length = rules.iter().map(|rule| rule()).find(|length| *length > 0);
    // Every character fits some rule; if one did not, it would be a piece of its own.
    length.or_else(|| first(text).map(char::len_utf8)).unwrap_or(text.len())
}
