//! Which characters can deceive a reader, and how text from a stranger is shown.

use std::fmt::Write;

/// Whether a character does something else than stand for itself: it orders a terminal about, hides itself or
/// others, or changes the order in which text is read. Private ones look like whatever a font says.
pub fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Soft hyphen, joiner of graphemes, mark of Arabic letters.
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}'
            // Fillers and vowels that have no shape of their own.
            | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            // Spaces without width, and what turns the direction of text or ends a line.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
            // Invisible marks of musical notation.
            | '\u{1d173}'..='\u{1d17a}'
            // Tags, which repeat all of ASCII unseen, further selectors, and planes of private use.
            | '\u{e0000}'..='\u{10ffff}')
        || is_no_character(character)
}

/// The last two of each plane, and 32 more, are none for ever.
fn is_no_character(character: char) -> bool {
    let number = u32::from(character);
    number & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&number)
}

/// Adds one character, written out where it is deceptive.
pub fn push_shown(text: &mut String, character: char) {
    if is_deceptive(character) {
        // Writing to a string does not fail.
        let _ = write!(text, "\\u{{{:x}}}", u32::from(character));
    } else {
        text.push(character);
    }
}

/// Text of a stranger, fit for a person's eyes.
pub fn shown(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    text.chars().for_each(|character| push_shown(&mut clean, character));
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_reorders_is_written_out() {
        let hiding = [
            '\u{7}',
            '\u{1b}',
            '\u{9b}',
            '\u{ad}',
            '\u{34f}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{17b4}',
            '\u{180b}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{206a}',
            '\u{206f}',
            '\u{2800}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{fffb}',
            '\u{e000}',
            '\u{1bca0}',
            '\u{1d173}',
            '\u{1d17a}',
            '\u{e0001}',
            '\u{e0020}',
            '\u{e007f}',
            '\u{e0100}',
            '\u{e01ef}',
            '\u{f0000}',
            '\u{fffe}',
            '\u{10ffff}',
        ];
        for character in hiding {
            let expected = format!("a\\u{{{:x}}}b", u32::from(character));
            assert_eq!(shown(&format!("a{character}b")), expected);
        }
    }

    #[test]
    fn letters_of_all_scripts_stay_as_they_are() {
        for text in
            ["größe", "日本語", "हिन्दी", "ไทย", "עברית", "한국어", "e\u{301}", "🦀", "a b", "«–»"]
        {
            assert_eq!(shown(text), text);
        }
    }
}
