//! Nothing is raised without a permit, and only the reference monitor makes one. The language cannot
//! say so, as a crate cannot choose which crates call it.

use crate::lexer::{code_only, has_word};
use crate::repository::{assert_none, rust_files};

/// The crate that defines permits, and the one that issues them.
const OWN: [&str; 2] = ["crates/authority/permit/", "crates/core/desk/"];

/// A word that makes a permit, and the only product files outside of [`OWN`] that may use it.
struct Rule {
    words: &'static [&'static str],
    files: &'static [Allowed],
}

struct Allowed {
    file: &'static str,
    #[expect(dead_code, reason = "for those who read the list")]
    why: &'static str,
}

const fn allowed(file: &'static str, why: &'static str) -> Allowed {
    Allowed { file, why }
}

const RULES: [Rule; 3] = [
    // `Engine::tools`, `restore` and `fork` are given a function that issues, from the reference monitor.
    Rule { words: &["issue", "Issued"], files: &[] },
    Rule {
        words: &["open_permit"],
        files: &[allowed(
            "crates/core/engine/src/keep.rs",
            "a keeper opens what was sealed for it",
        )],
    },
    Rule {
        words: &["system_permit", "tools_permit"],
        files: &[
            allowed("bins/ringwall/src/commands/doctor/trial.rs", "tries each wall without a job"),
            allowed(
                "bins/ringwall/src/commands/doctor/vm_start.rs",
                "starts a guest without a job",
            ),
            allowed("bins/ringwall/src/commands/tool.rs", "policy and grant decide per call"),
            allowed("bins/ringwall/src/commands/tool/inside.rs", "the same, behind a fresh wall"),
            allowed("crates/doors/agent/src/wasm.rs", "policy and grant decide per call"),
            allowed("crates/doors/api/src/engines.rs", "policy and grant decide per call"),
            allowed("crates/doors/api/src/routes/tools.rs", "policy and grant decide per call"),
            allowed("crates/proofs/verify/src/lib.rs", "attacks walls that it raises itself"),
        ],
    },
];

/// Product code without its tests.
fn product_code(path: &str, text: &str) -> Option<String> {
    let is_product = ["crates/", "bins/"].iter().any(|top| path.starts_with(top));
    let aside = ["/tests/", "/examples/", "/tests.rs"].iter().any(|part| path.contains(part));
    if !is_product || aside || OWN.iter().any(|own| path.starts_with(own)) {
        return None;
    }
    let code = code_only(text);
    Some(code.split("#[cfg(test)]").next().unwrap_or_default().to_owned())
}

/// Whether code makes a permit by this word.
fn uses(code: &str, word: &str) -> bool {
    match word {
        "issue" => code.contains("Permit::issue") || code.contains("::issue("),
        word => has_word(code, word),
    }
}

#[test]
fn only_the_reference_monitor_makes_permits() {
    let files: Vec<(String, String)> = rust_files()
        .into_iter()
        .filter_map(|file| Some((product_code(&file.path, &file.text)?, file.path)))
        .map(|(code, path)| (path, code))
        .collect();
    let mut findings = Vec::new();
    for Rule { words, files: may } in &RULES {
        let used = |code: &str| words.iter().any(|word| uses(code, word));
        for (path, _) in files.iter().filter(|(_, code)| used(code)) {
            if !may.iter().any(|it| it.file == path) {
                findings.push(format!("{path}: {} is for the reference monitor", words.join(", ")));
            }
        }
        for Allowed { file, .. } in may.iter() {
            if !files.iter().any(|(path, code)| path == file && used(code)) {
                findings.push(format!("{file}: makes no permit; take it off the list"));
            }
        }
    }
    assert_none(
        "have `Desk::place` decide, or name a system caller here with a reason:",
        &findings,
    );
}

#[test]
fn a_permit_is_found_where_it_is_made() {
    let code = |text| product_code("crates/core/engine/src/x.rs", text).unwrap();
    assert!(uses(&code("let p = Permit::issue(it);"), "issue"));
    assert!(uses(&code("use ringwall_permit::Permit as P; fn f() { P::issue(it); }"), "issue"));
    assert!(uses(&code("use ringwall_permit::{Issued, Permit};"), "Issued"));
    assert!(!uses(&code("// Permit::issue\nfn f() { issue(it) }"), "issue"));
    assert!(!uses(&code("fn f() {}\n#[cfg(test)]\nmod tests { Permit::issue(it) }"), "issue"));
    assert_eq!(product_code("tests/soak/src/x.rs", "Permit::issue(it)"), None);
}
