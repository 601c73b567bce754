//! Finds out whether a TOML or YAML text has comments, which no other format keeps.

/// Whether there is a `#` that begins a comment: at the start of a line or after white space, and
/// outside quotes. A text block of YAML that contains such a line counts too: better one warning
/// too many.
pub(crate) fn has_any(text: &str) -> bool {
    let mut quote = None;
    let mut before = '\n';
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some('"'), '\\') => {
                characters.next();
            }
            (Some(open), _) if open == character => quote = None,
            // A quote left open is an apostrophe in a plain word.
            (Some(_), '\n') => quote = None,
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(character),
            (None, '#') if before.is_whitespace() => return true,
            _ => {}
        }
        before = character;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::has_any;

    #[test]
    fn comments_are_found_outside_quotes_only() {
        for text in ["# a", "a = 1 # b", "a: it's # b", "a: 'x'\n  # b", "a = \"\\\"\" # b"] {
            assert!(has_any(text), "{text}");
        }
        for text in ["a: b#c", "a = \"x # y\"", "a = ' # '", "a = \"\\\" # \"", ""] {
            assert!(!has_any(text), "{text}");
        }
    }
}
