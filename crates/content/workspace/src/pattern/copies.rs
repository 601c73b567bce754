//! The names that editors and other programs give to copies of a file: `.env~`, `#.env#`, `.netrc.bak`.

/// What a copy's name ends in, besides the numbered `.~1~` of Emacs.
const ENDINGS: [&[u8]; 17] = [
    b"~",
    b"___jb_tmp___",
    b"___jb_old___",
    b".bak",
    b".bk",
    b".backup",
    b".old",
    b".orig",
    b".save",
    b".tmp",
    b".new",
    b".lock",
    b".un~",
    b".swp",
    b".swo",
    b".swn",
    b".swx",
];
/// Vim puts a dot in front of the names of these, where there is none.
const WITH_DOT: [&[u8]; 5] = [b".un~", b".swp", b".swo", b".swn", b".swx"];
/// A copy of a copy, such as `.env.bak~`, has so many endings at most.
const MAX_ENDINGS: usize = 4;

/// Whether a folded name is that of a copy.
pub(super) fn is_copy(name: &[u8]) -> bool {
    without_ending(name).is_some()
}

/// The folded names of which this one may be a copy: those with fewer endings last.
pub(super) fn originals(name: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut name = name;
    for _ in 0..MAX_ENDINGS {
        let Some(original) = without_ending(name) else { break };
        if WITH_DOT.iter().any(|ending| name.ends_with(ending))
            && let Some(plain) = original.strip_prefix(b".").filter(|plain| !plain.is_empty())
        {
            found.push(plain.to_vec());
        }
        found.push(original.to_vec());
        name = original;
    }
    found
}

fn without_ending(name: &[u8]) -> Option<&[u8]> {
    let between = name.strip_prefix(b"#").and_then(|rest| rest.strip_suffix(b"#"));
    let original = between.or_else(|| without_number(name)).or_else(|| {
        // The longest: `.un~` ends in `~`, too.
        let ending =
            ENDINGS.iter().filter(|ending| name.ends_with(ending)).max_by_key(|it| it.len())?;
        name.strip_suffix(*ending)
    });
    original.filter(|original| !original.is_empty())
}

/// `.netrc` for `.netrc.~12~`.
fn without_number(name: &[u8]) -> Option<&[u8]> {
    let rest = name.strip_suffix(b"~")?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    rest[..rest.len() - digits].strip_suffix(b".~").filter(|_| digits > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_told_from_their_names() {
        for (copy, original) in [
            (".env~", ".env"),
            (".env___jb_tmp___", ".env"),
            (".env___jb_old___", ".env"),
            ("#.env#", ".env"),
            (".netrc.bak", ".netrc"),
            (".git-credentials.lock", ".git-credentials"),
            (".netrc.~12~", ".netrc"),
            (".id_rsa.swp", "id_rsa"),
            (".netrc.swp", ".netrc"),
            (".id_rsa.un~", "id_rsa"),
            (".netrc.bak~", ".netrc"),
            ("#.netrc.orig#", ".netrc"),
        ] {
            let found = originals(copy.as_bytes());
            assert!(found.contains(&original.as_bytes().to_vec()), "{copy}: {found:?}");
        }
        for name in ["~", ".bak", "##", "#", ".~1~", "main.rs", ".env", "a~b", "x.lock.d", ""] {
            let found = originals(name.as_bytes());
            assert!(!is_copy(name.as_bytes()), "{name}");
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }
}
