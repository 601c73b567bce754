//! Just enough of Rust's grammar to look at code without its comments and literals.

/// The source with comments removed and every string and character literal emptied. Line breaks
/// stay, so line numbers do too.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let skipped = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest, code.last().copied()) {
            length
        } else if rest[0] == b'"' {
            quoted(rest, b'"')
        } else if rest[0] == b'\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            code.push(rest[0]);
            at += 1;
        } else {
            code.push(b' ');
            code.extend(rest[..skipped].iter().filter(|b| **b == b'\n'));
            at += skipped;
        }
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// Whether `word` stands in `code` as an identifier of its own.
pub(crate) fn has_word(code: &str, word: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|token| token == word)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of `r"..."`, `r#"..."#`, `br#"..."#` and so on, when one starts here.
fn raw_string(rest: &[u8], before: Option<u8>) -> Option<usize> {
    if before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let prefix = [&b"r"[..], b"br", b"cr"].into_iter().find(|p| rest.starts_with(p))?.len();
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = [b'"'].into_iter().chain(vec![b'#'; hashes]).collect();
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + end + close.len())
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Length of a character literal, or 0 when the quote begins a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return quoted(rest, b'\'');
    }
    let text = String::from_utf8_lossy(&rest[1..rest.len().min(6)]).into_owned();
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some('\'')) if first != '\'' => 2 + first.len_utf8(),
        _ => 0,
    }
}

#[test]
fn comments_and_literals_are_dropped_and_lifetimes_kept() {
    let source = r##"
        // unsafe
        /* unsafe /* nested unsafe */ unsafe */
        let a = "unsafe \" unsafe"; let b = r#"unsafe " unsafe"#; let c = '"'; let d = '\'';
        fn f<'a>(x: &'a str) { kept }
    "##;
    let code = code_only(source);
    assert!(!has_word(&code, "unsafe"), "{code}");
    assert!(has_word(&code, "kept") && code.contains("'a"), "{code}");
    assert_eq!(code.lines().count(), source.lines().count());
}
