//! Nothing by path twice: what acts on a ring that lives looks up no path that a job could change.
//!
//! A job can rename whatever it can write to, so a path that was right when a ring was raised may lead
//! elsewhere a moment later. Code that needs it later holds a descriptor from the beginning.

mod allowed;

use allowed::{ALLOWED, Allowed};

use crate::lexer::code_only;
use crate::repository::{assert_none, rust_files};

/// Steps that look up a path. They belong to the first pass of a launcher, when no job has run: only
/// these files plan them, and one applies them.
const LOOKING_STEPS: [&str; 5] = [
    "Step::OpenHere",
    "Step::OpenHostTree",
    "Step::AttachHost",
    "Step::FindChecked",
    "Step::ShowFile",
];
const FIRST_PASS: [&str; 10] = [
    "crates/core/engine/src/drill.rs",
    // Changes the steps of a plan before any of them is applied, and for tests only.
    "crates/core/engine/src/weaken.rs",
    "crates/base/linux/src/apply.rs",
    "crates/rings/ring/src/asked.rs",
    "crates/rings/ring/src/base.rs",
    // On the ring's own /dev, which no job can write.
    "crates/rings/ring/src/cover.rs",
    "crates/rings/ring/src/show.rs",
    "crates/rings/ring-vm/src/plan.rs",
    "crates/rings/ring-wasm/src/plan.rs",
    "crates/rings/ring/src/testing.rs",
];

/// Where steps are defined, named and told in words.
const STEPS: [&str; 3] = [
    "crates/base/linux/src/step.rs",
    "crates/base/linux/src/step/name.rs",
    "crates/rings/ring/src/explain.rs",
];

/// Everything here is checked: what acts on a living ring, what reads or writes a workspace, and what takes
/// paths from callers.
const CHECKED: [&str; 9] = [
    "bins/ringwall-warden/src/",
    "bins/ringwall-wasm-warden/src/",
    "crates/core/engine/src/",
    "crates/core/tool-host/src/",
    "crates/content/workspace/src/",
    "crates/doors/agent/src/",
    "crates/doors/api/src/",
    "crates/doors/mcp/src/",
    "crates/rings/ring-wasm/src/",
];
/// And these, with code that works on a ring while jobs run in it, or on the home's files.
const CHECKED_FILES: [&str; 5] = [
    "crates/base/linux/src/launch/client.rs",
    "crates/base/linux/src/launch/inner.rs",
    "crates/base/linux/src/launch/server.rs",
    "crates/doors/store/src/sqlite.rs",
    "crates/rings/ring/src/rights.rs",
];

/// Calls that look up a path.
const LOOKUPS: [&str; 42] = [
    "File::open(",
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::new(",
    "fs::open(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::read_dir(",
    "fs::read_link(",
    "fs::write(",
    "fs::stat(",
    "fs::lstat(",
    "fs::metadata(",
    "canonicalize(",
    "UnixStream::connect(",
    "UnixListener::bind(",
    "safekeeping::",
    "CWD",
    ".exists()",
    ".is_dir()",
    ".is_file()",
    ".metadata()",
    "symlink_metadata(",
    "create_dir(",
    "create_dir_all(",
    "remove_dir_all(",
    "remove_file(",
    "fs::copy(",
    "fs::rename(",
    "fs::access(",
    "fs::chmod(",
    "fs::chown(",
    "fs::mkdir(",
    "fs::rmdir(",
    "fs::statfs(",
    "fs::unlink(",
    "set_permissions(",
    ".is_symlink()",
    ".try_exists()",
    "DirBuilder::new(",
    "set_current_dir(",
];

/// Functions that look up a path and have names that methods of our own have, too.
const FREE_LOOKUPS: [&str; 5] = ["symlink(", "hard_link(", "remove_dir(", "chdir(", "chroot("];

/// The functions of a source, outside its tests, that look up a path.
fn looking(source: &str) -> Vec<String> {
    let code = code_only(source);
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let mut function = "";
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("use ")) {
        if let Some((_, after)) = line.split_once("fn ") {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_');
            function = &after[..end.unwrap_or(after.len())];
        }
        let is_free = |lookup: &&str| calls_free(line, lookup);
        if LOOKUPS.iter().any(|it| line.contains(it)) || FREE_LOOKUPS.iter().any(is_free) {
            found.push(function.to_owned());
        }
    }
    found.dedup();
    found
}

/// Whether a line calls a function by this name: no method, no longer name, and no definition.
fn calls_free(line: &str, lookup: &str) -> bool {
    line.match_indices(lookup).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let is_other = before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'));
        !is_other && !before.ends_with("fn ")
    })
}

/// Whether what stands in this file is checked: product code, and no tests.
fn is_checked(path: &str) -> bool {
    let is_test = path.contains("/tests") || path.ends_with("/testing.rs");
    let below = CHECKED.iter().any(|top| path.starts_with(top)) && !is_test;
    below || CHECKED_FILES.contains(&path)
}

#[test]
fn what_acts_on_a_living_ring_looks_up_no_path() {
    let files = rust_files();
    let mut findings = Vec::new();
    for path in CHECKED_FILES.iter().filter(|path| !files.iter().any(|file| file.path == **path)) {
        findings.push(format!("{path} is not there; name the file that took its place"));
    }
    let mut seen = Vec::new();
    for file in files.iter().filter(|file| is_checked(&file.path)) {
        for function in looking(&file.text) {
            if !ALLOWED.iter().any(|it| it.allows(&file.path, &function)) {
                let path = &file.path;
                findings.push(format!("{path}: {function} looks up a path; hold a descriptor"));
            }
            seen.push((file.path.as_str(), function));
        }
    }
    for Allowed { file, functions, .. } in ALLOWED {
        let of_file = || seen.iter().filter(|(path, _)| path == file);
        if of_file().next().is_none() {
            findings.push(format!("{file} looks up nothing; take it off the list"));
        }
        for function in functions.iter().filter(|one| !of_file().any(|(_, name)| name == *one)) {
            findings.push(format!("{file}: {function} looks up nothing; take it off the list"));
        }
    }
    assert_none("a job may have changed what the path leads to:", &findings);
}

#[test]
fn only_the_first_pass_of_a_launcher_looks_up_paths() {
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| !FIRST_PASS.contains(&file.path.as_str())) {
        let of_product = ["crates/", "bins/"].iter().any(|top| file.path.starts_with(top));
        // Step names and tests of plans are no steps.
        if !of_product || file.path.contains("/tests") || STEPS.contains(&file.path.as_str()) {
            continue;
        }
        let code = code_only(&file.text);
        let code = code.split("#[cfg(test)]").next().unwrap_or_default();
        for step in LOOKING_STEPS.iter().filter(|step| code.contains(**step)) {
            findings.push(format!("{}: {step}", file.path));
        }
    }
    assert_none("plan it in the first pass, and hold what it opened:", &findings);
}

#[test]
fn a_look_up_is_found_where_it_is_made() {
    let source = "use std::fs::File;\nfn held() {}\nimpl X {\n    fn led_astray(p: &Path) {\n        \
                  let x = File::open(p);\n    }\n}\n#[cfg(test)]\nmod tests { fn t() { File::open(p); } }\n";
    assert_eq!(looking(source), ["led_astray"]);
    let each = |line: &str| looking(&format!("fn f(p: &Path) {{\n{line}\n}}"));
    for line in ["p.is_symlink();", "p.try_exists()?;", "fs::hard_link(a, p)?;", "symlink(a, p)?;"]
    {
        assert_eq!(each(line), ["f"], "{line}");
    }
    for line in ["fs::remove_dir(p)?;", "std::env::set_current_dir(p)?;", "chdir(p)?;"] {
        assert_eq!(each(line), ["f"], "{line}");
    }
    for line in ["self.symlink(at)?;", "stage.add_symlink(a)?;", "fchdir(held)?;"] {
        assert_eq!(each(line), Vec::<String>::new(), "{line}");
    }
    assert_eq!(looking("// File::open(\nfn f() { g(\"File::open(\") }"), Vec::<String>::new());
}
