//! Request targets under path rules: what two parsers could read in two ways is refused, not mended.

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the path could be read in more than one way ({0}), and rules for this host go by path")]
pub struct Ambiguous(&'static str);

/// Refuses what servers normalise differently. `path` has no query.
pub fn check_path(path: &str) -> Result<(), Ambiguous> {
    if !path.starts_with('/') {
        return Err(Ambiguous("it does not begin with a slash"));
    }
    if path.contains("//") {
        return Err(Ambiguous("two slashes"));
    }
    if path.contains('\\') {
        return Err(Ambiguous("a backslash"));
    }
    if path.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
        return Err(Ambiguous("a byte that is not printable"));
    }
    if path.contains(';') {
        return Err(Ambiguous("parameters behind a semicolon"));
    }
    for segment in path.split('/') {
        check_segment(&decoded(segment)?)?;
    }
    Ok(())
}

/// Undoes percent codes, and refuses those that no client needs to write.
fn decoded(segment: &str) -> Result<String, Ambiguous> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let [byte, after @ ..] = rest {
        if *byte != b'%' {
            bytes.push(*byte);
            rest = after;
            continue;
        }
        let code = after.get(..2).filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        let byte = byte.ok_or(Ambiguous("a broken percent code"))?;
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            return Err(Ambiguous("a code for a letter, digit, dot, hyphen, underscore or tilde"));
        }
        if b"/\\%;?#".contains(&byte) {
            return Err(Ambiguous("a code for a character that divides URLs"));
        }
        if byte < b' ' || byte == 0x7f {
            return Err(Ambiguous("an encoded control byte"));
        }
        bytes.push(byte);
        rest = &after[2..];
    }
    // Also longer forms of ASCII than there have to be, which some servers take for it.
    String::from_utf8(bytes).map_err(|_| Ambiguous("codes that are not UTF-8"))
}

fn check_segment(segment: &str) -> Result<(), Ambiguous> {
    if segment == "." || segment == ".." {
        return Err(Ambiguous("a dot segment"));
    }
    // Some servers drop them.
    if segment.ends_with(['.', ' ']) || segment.starts_with(' ') {
        return Err(Ambiguous(
            "a space or dot at the end of a segment, or a space at its beginning",
        ));
    }
    if segment.chars().any(looks_like_ascii) {
        return Err(Ambiguous("a character that some servers turn into another"));
    }
    Ok(())
}

/// Characters beyond ASCII that become ASCII, or nothing, where text is normalised.
fn looks_like_ascii(character: char) -> bool {
    match character {
        // Soft hyphens, controls, marks without width, and signs that lead nowhere.
        '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => true,
        '\u{2060}'..='\u{206f}' | '\u{feff}' => true,
        // Dots, slashes and backslashes.
        '\u{2024}'..='\u{2026}' | '\u{2044}' | '\u{2215}' | '\u{2216}' => true,
        // Small and full-width forms.
        '\u{fe50}'..='\u{fe6f}' | '\u{ff01}'..='\u{ff5e}' => true,
        '\u{3002}' | '\u{ff61}' => true,
        _ => false,
    }
}

/// Whether `path` is `prefix` or lies below it; `/v1` does not cover `/v10`.
pub fn lies_below(path: &str, prefix: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}

/// The same for rules that deny: some servers take capitals for small letters.
pub fn may_lie_below(path: &str, prefix: &str) -> bool {
    lies_below(&path.to_ascii_lowercase(), &prefix.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_two_readings_is_refused() {
        for path in [
            "",
            "v1",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/a/..;/b",
            "/a/.;x/b",
            "//a",
            "/a//b",
            "/a\\b",
            "/a/%2e%2e/b",
            "/a/%2E./b",
            "/a%2fb",
            "/a%5cb",
            "/a%252e",
            "/a%00",
            "/a%0d%0a",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a b",
            "/\u{e9}",
            // Codes for what needs none.
            "/%61dmin",
            "/adm%69n",
            "/%7Euser",
            "/a%2Dmin",
            // Parameters.
            "/admin;x",
            "/admin;",
            "/a;b=c",
            "/a%3bb",
            "/ok/..%3b/evil",
            "/admin%3fx",
            "/admin%23x",
            // What is longer than it has to be, or not UTF-8 at all.
            "/ok/%c0%ae%c0%ae/evil",
            "/ok/%e0%80%ae/evil",
            "/a%c0%afb",
            "/%ff",
            // What some servers drop, or turn into something else.
            "/ok/..%20/evil",
            "/admin%20",
            "/admin.",
            "/%20admin",
            "/%ef%bc%8e%ef%bc%8e/evil",
            "/a%e2%88%95b",
            "/adm%c2%adin",
            "/a%25%32%65",
        ] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        for path in [
            "/",
            "/v1/messages",
            "/a.b/..c",
            "/a%20b",
            "/.well-known/x",
            "/b%C3%BCcher",
            "/a:b@c",
            "/a%3Ab",
        ] {
            assert_eq!(check_path(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        assert!(lies_below("/v1", "/v1"));
        assert!(lies_below("/v1/x", "/v1"));
        assert!(lies_below("/v1/x", "/v1/"));
        assert!(lies_below("/x", "/"));
        assert!(!lies_below("/v10", "/v1"));
        assert!(!lies_below("/v1", "/v1/"));
        assert!(!lies_below("/V1", "/v1"));
        assert!(may_lie_below("/V1/x", "/v1") && may_lie_below("/v1", "/V1"));
        assert!(!may_lie_below("/V10", "/v1"));
    }
}
