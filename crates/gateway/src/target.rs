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
    for segment in path.split('/') {
        let before_parameters = segment.split(';').next().unwrap_or_default();
        if before_parameters == "." || before_parameters == ".." {
            return Err(Ambiguous("a dot segment"));
        }
    }
    for (at, _) in path.match_indices('%') {
        let code = path.get(at + 1..at + 3).unwrap_or_default().to_ascii_lowercase();
        match code.as_str() {
            "2e" => return Err(Ambiguous("an encoded dot")),
            "2f" | "5c" => return Err(Ambiguous("an encoded slash")),
            "25" => return Err(Ambiguous("an encoded percent sign")),
            code if code.len() != 2 || !code.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                return Err(Ambiguous("a broken percent code"));
            }
            code if u8::from_str_radix(code, 16).is_ok_and(|byte| byte < b' ' || byte == 0x7f) => {
                return Err(Ambiguous("an encoded control byte"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether `path` is `prefix` or lies below it; `/v1` does not cover `/v10`.
pub fn lies_below(path: &str, prefix: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
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
        ] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        for path in ["/", "/v1/messages", "/a.b/..c", "/a%20b", "/.well-known/x", "/a;b=c"] {
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
    }
}
