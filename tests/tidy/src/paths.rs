//! Nothing by path twice: what acts on a ring that lives looks up no path that a job could change.
//!
//! A job can rename whatever it can write to, so a path that was right when a ring was raised may lead
//! elsewhere a moment later. What is needed later is held as a descriptor from the beginning.

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
const FIRST_PASS: [&str; 9] = [
    "crates/core/engine/src/drill.rs",
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

/// Where steps are defined and named.
const STEPS: [&str; 2] = ["crates/base/linux/src/step.rs", "crates/base/linux/src/step/name.rs"];

/// Files with code that works on a ring while jobs run in it.
const ON_LIVING_RINGS: [&str; 17] = [
    "bins/ringwall-warden/src/guest/workspace.rs",
    "bins/ringwall-warden/src/raise.rs",
    "crates/core/engine/src/attach.rs",
    "crates/core/engine/src/job.rs",
    "crates/core/engine/src/keep.rs",
    "crates/core/engine/src/phase.rs",
    "crates/core/engine/src/relay.rs",
    "crates/core/engine/src/rights.rs",
    "crates/core/engine/src/sandbox.rs",
    "crates/core/engine/src/settle.rs",
    "crates/core/engine/src/snapshot.rs",
    "crates/core/engine/src/standing.rs",
    "crates/core/engine/src/stop.rs",
    "crates/base/linux/src/launch/client.rs",
    "crates/base/linux/src/launch/inner.rs",
    "crates/base/linux/src/launch/server.rs",
    "crates/rings/ring/src/rights.rs",
];

/// Calls that look up a path.
const LOOKUPS: [&str; 19] = [
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
];

struct Allowed {
    file: &'static str,
    function: &'static str,
    /// Why no job can change what the path leads to.
    #[expect(dead_code, reason = "for those who read the list")]
    why: &'static str,
}

const fn allowed(file: &'static str, function: &'static str, why: &'static str) -> Allowed {
    Allowed { file, function, why }
}

const ALLOWED: [Allowed; 10] = [
    allowed("bins/ringwall-warden/src/raise.rs", "with_namespaces", "/proc, before the first job"),
    allowed("crates/core/engine/src/attach.rs", "connect", "a socket below a held directory"),
    allowed("crates/core/engine/src/attach.rs", "listen", "a socket below a held directory"),
    allowed("crates/core/engine/src/attach.rs", "with_short_name", "Ringwall's own home"),
    allowed("crates/core/engine/src/keep.rs", "let_go_of_output", "/dev/null of the host"),
    allowed("crates/core/engine/src/rights.rs", "of", "what is held, before the first job"),
    allowed("crates/core/engine/src/rights.rs", "load", "Ringwall's own home"),
    allowed("crates/core/engine/src/rights.rs", "write", "Ringwall's own home"),
    allowed("crates/core/engine/src/sandbox.rs", "open_log", "Ringwall's own home"),
    allowed("crates/core/engine/src/standing.rs", "of", "/proc, before the first job"),
];
/// The launcher's own start, in a process that has entered no ring.
const START: Allowed =
    allowed("crates/base/linux/src/launch/server.rs", "serve_stdin", "/dev/null");

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
        if LOOKUPS.iter().any(|lookup| line.contains(lookup)) {
            found.push(function.to_owned());
        }
    }
    found.dedup();
    found
}

#[test]
fn what_acts_on_a_living_ring_looks_up_no_path() {
    let list = || ALLOWED.iter().chain([&START]);
    let files = rust_files();
    let mut findings = Vec::new();
    let mut seen = Vec::new();
    for path in ON_LIVING_RINGS {
        let Some(file) = files.iter().find(|file| file.path == path) else {
            findings.push(format!("{path} is not there; name the file that took its place"));
            continue;
        };
        for function in looking(&file.text) {
            if !list().any(|it| it.file == path && it.function == function) {
                findings.push(format!("{path}: {function} looks up a path; hold a descriptor"));
            }
            seen.push((path, function));
        }
    }
    for Allowed { file, function, .. } in list() {
        if !seen.iter().any(|(path, name)| path == file && name == function) {
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
    assert_eq!(looking("// File::open(\nfn f() { g(\"File::open(\") }"), Vec::<String>::new());
}
