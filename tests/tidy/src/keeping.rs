//! One crate keeps files safe: locks, private files and lookups below a directory are written once.

use crate::lexer::code_only;
use crate::repository::{assert_none, rust_files};

/// The calls that only `crates/base/safekeeping` makes.
const ITS_OWN: [&str; 4] = ["flock(", "getrandom(", ".create_new(true)", "openat2("];

/// Code that does it all the same.
const EXCEPT: [(&str, &str); 6] = [
    ("crates/base/linux/", "the launcher links it, and must stay small"),
    ("crates/content/tree/src/beneath.rs", "the warden links it, and must stay small"),
    ("bins/ringwall-warden/", "it must stay small, and trusts nothing that it finds"),
    ("crates/content/workspace/src/apply/protect.rs", "follows links on purpose, below a root"),
    ("crates/proofs/", "attacks"),
    ("crates/base/safekeeping/", "itself"),
];

#[test]
fn files_are_kept_safe_by_one_crate() {
    let mut findings = Vec::new();
    for file in rust_files() {
        let product = ["crates/", "bins/"].iter().any(|top| file.path.starts_with(top));
        let test = ["/tests", "/benches/"].iter().any(|part| file.path.contains(part));
        if !product || test || EXCEPT.iter().any(|(place, _)| file.path.starts_with(place)) {
            continue;
        }
        let code = code_only(&file.text);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        let found = ITS_OWN.iter().filter(|call| code.contains(**call));
        findings.extend(found.map(|call| format!("{}: {call}", file.path)));
    }
    assert_none("use ringwall-safekeeping, which is tested against attacks:", &findings);
}

#[test]
fn every_exception_is_still_one() {
    let files = rust_files();
    let used = |place: &str| {
        let mut of_it = files.iter().filter(|file| file.path.starts_with(place));
        of_it.any(|file| ITS_OWN.iter().any(|call| file.text.contains(call)))
    };
    let gone: Vec<String> =
        EXCEPT.iter().filter(|(place, _)| !used(place)).map(|(place, _)| (*place).into()).collect();
    assert_none("take them off the list:", &gone);
}
