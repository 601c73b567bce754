//! Rules for single source files: size, header, unsafe, purity, nothing left for later.

use crate::lexer::{code_only, has_word};
use crate::repository::{TextFile, assert_none, packages, read, rust_files, text_files};

const MOST_LINES: usize = 500;
const MOST_TEST_LINES: usize = 800;

/// Parts of the standard library that reach outside the program.
const IO_MODULES: [&str; 8] = ["env", "fs", "io", "net", "os", "process", "thread", "time"];
/// The items of those that are only data.
const PLAIN_DATA: [&str; 5] =
    ["net::IpAddr", "net::Ipv4Addr", "net::Ipv6Addr", "os::unix::ffi::", "time::Duration"];

#[test]
fn files_stay_small() {
    let findings: Vec<String> = rust_files()
        .iter()
        .filter_map(|file| {
            let most = if is_test(&file.path) { MOST_TEST_LINES } else { MOST_LINES };
            let lines = file.text.lines().count();
            (lines > most).then(|| format!("{}: {lines} lines, at most {most}", file.path))
        })
        .collect();
    assert_none("a file that holds more than one thing; split it:", &findings);
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let findings: Vec<String> = rust_files()
        .iter()
        .filter(|file| {
            let first = file.text.lines().next().unwrap_or_default();
            first.strip_prefix("//! ").is_none_or(|words| words.split_whitespace().count() < 3)
        })
        .map(|file| file.path.clone())
        .collect();
    assert_none(
        "the first line must be a `//!` sentence that says what the file is for:",
        &findings,
    );
}

/// Where the language leaves no choice, and nothing but that is done.
const UNSAFE_BY_NATURE: [&str; 3] = [
    // Mapping compiled code.
    "crates/rings/wasm/src/load.rs",
    // Naming a section and exporting a symbol, inside WASM.
    "tools/eval-js/src/export.rs",
    "tools/sdk/src/export.rs",
];

/// Crates that cannot inherit a list that forbids unsafe code; they repeat the rest.
const OWN_LINTS: [&str; 2] = ["crates/base/linux", "crates/rings/wasm"];

#[test]
fn unsafe_code_lives_in_the_linux_crate_alone() {
    let findings: Vec<String> = rust_files()
        .iter()
        .filter(|file| !file.path.starts_with("crates/base/linux/"))
        .filter(|file| !UNSAFE_BY_NATURE.contains(&file.path.as_str()))
        .filter(|file| has_word(&code_only(&file.text), "unsafe"))
        .map(|file| file.path.clone())
        .collect();
    assert_none("move it behind a safe function of crates/base/linux:", &findings);
}

#[test]
fn spec_and_policy_touch_nothing_outside_themselves() {
    let pure = ["crates/base/spec/src/", "crates/authority/policy/src/"];
    let mut findings = Vec::new();
    for file in rust_files().iter().filter(|file| {
        pure.iter().any(|place| file.path.starts_with(place)) && !is_test(&file.path)
    }) {
        let code = code_only(&file.text);
        for used in standard_paths(&code) {
            let module = used.split("::").next().unwrap_or_default();
            let plain = PLAIN_DATA.iter().any(|data| used.starts_with(data));
            if IO_MODULES.contains(&module) && !plain {
                findings.push(format!("{} uses std::{used}", file.path));
            }
        }
        for name in ["libc", "rustix", "SystemTime", "Instant"] {
            if has_word(&code, name) {
                findings.push(format!("{} uses {name}", file.path));
            }
        }
    }
    assert_none("spec and policy do no IO and read no clock:", &findings);
}

/// A build script links no crate that needs it to be built: the benches compile our filters, too.
const MAY_TAKE_IN: &str = "benches/build.rs";

#[test]
fn no_package_takes_in_files_of_another() {
    let out = |line: &str| line.trim().starts_with("#[path = \"..");
    let found: Vec<String> = rust_files()
        .into_iter()
        .filter(|file| file.text.lines().any(out))
        .map(|file| file.path)
        .collect();
    assert!(found.iter().any(|path| path == MAY_TAKE_IN), "{MAY_TAKE_IN} is no exception any more");
    let others: Vec<String> = found.into_iter().filter(|path| path != MAY_TAKE_IN).collect();
    assert_none("make it a crate, for tests in tests/testkit:", &others);
}

#[test]
fn every_crate_keeps_the_workspace_lints() {
    let mut findings = Vec::new();
    for package in packages() {
        let manifest = read(&format!("{}/Cargo.toml", package.directory));
        if OWN_LINTS.contains(&package.directory.as_str()) {
            for lint in ["undocumented_unsafe_blocks", "unwrap_used", "too_many_lines"] {
                if !manifest.contains(&format!("{lint} = \"deny\"")) {
                    findings.push(format!("{} does not deny {lint}", package.directory));
                }
            }
        } else if !manifest.contains("[lints]\nworkspace = true") {
            findings.push(format!("{} does not inherit the workspace's lints", package.directory));
        }
    }
    assert_none("lints are the same everywhere:", &findings);
}

#[test]
fn nothing_is_left_for_later() {
    // Written in pieces, or this file would find itself.
    let marks =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("#[ign", "ore")];
    let findings = lines_with(&text_files(), |line| marks.iter().any(|mark| line.contains(mark)));
    assert_none("finish it or write an issue; a test that does not run is no test:", &findings);
}

#[test]
fn no_package_host_and_no_path_of_one_machine_is_named() {
    // In pieces for the same reason. The lock file is Cargo's own and names where crates are from.
    let hosts = [
        concat!("crates", ".io"),
        concat!("npm", "js.", "org"),
        concat!("npm", "js.", "com"),
        concat!("py", "pi.org"),
        concat!("python", "hosted.org"),
        concat!("rust", "-lang.org"),
        concat!("rust", "up.rs"),
        concat!("debian", ".org"),
        concat!("proxy.go", "lang.org"),
    ];
    let paths = [
        concat!("/wo", "rk/"),
        concat!("/fa", "rm/"),
        concat!("/root/", ".cargo"),
        concat!("/tmp/", "brief"),
        concat!("/tmp/", "target-"),
    ];
    let files: Vec<TextFile> =
        text_files().into_iter().filter(|file| !file.path.ends_with("Cargo.lock")).collect();
    let findings = lines_with(&files, |line| {
        hosts.iter().any(|host| line.contains(host))
            || paths.iter().any(|path| stands_alone(line, path))
    });
    assert_none("the repository must build and read the same anywhere:", &findings);
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs")
}

fn lines_with(files: &[TextFile], found: impl Fn(&str) -> bool) -> Vec<String> {
    files
        .iter()
        .flat_map(|file| {
            file.text
                .lines()
                .enumerate()
                .filter(|(_, line)| found(line))
                .map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim()))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether `path` occurs as an absolute path rather than as the end of a longer one.
fn stands_alone(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '}'))
    })
}

/// Paths below `std::` that the code names, groups taken apart: `fs`, `time::Duration`.
fn standard_paths(code: &str) -> Vec<String> {
    let packed: String = code.split_whitespace().collect();
    let mut paths = Vec::new();
    for (at, found) in packed.match_indices("std::") {
        let rest = &packed[at + found.len()..];
        let end_of_path = |text: &str| {
            text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len())
        };
        let (path, behind) = rest.split_at(end_of_path(rest));
        match behind.strip_prefix('{').filter(|_| path.is_empty() || path.ends_with("::")) {
            Some(group) => {
                let group = &group[..group.find('}').unwrap_or(group.len())];
                let each = |part: &str| format!("{path}{}", &part[..end_of_path(part)]);
                paths.extend(group.split(',').map(each));
            }
            None => paths.push(path.to_owned()),
        }
    }
    paths
}

#[test]
fn grouped_imports_are_taken_apart() {
    let code = "use std::{fs, time::Duration};\nuse std::net::{IpAddr, TcpStream};\nlet x = std::io::Error::other(1);";
    let paths = ["fs", "time::Duration", "net::IpAddr", "net::TcpStream", "io::Error::other"];
    assert_eq!(standard_paths(code), paths);
}
