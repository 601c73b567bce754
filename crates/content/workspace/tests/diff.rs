//! What a person sees of the changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod support;

use std::fs;
use std::process::{Command, Stdio};

use ringwall_workspace::{Changes, Contents, DiffOptions};
use support::{Sandbox, set_mode, tree};

fn diff(sandbox: &Sandbox, changes: &Changes, contents: Contents) -> Vec<u8> {
    let options = DiffOptions { contents, ..DiffOptions::default() };
    let mut out = Vec::new();
    changes.write_diff(&sandbox.workspace(), &options, &mut out).unwrap();
    out
}

fn on_terminal(sandbox: &Sandbox, changes: &Changes) -> String {
    String::from_utf8(diff(sandbox, changes, Contents::Terminal)).unwrap()
}

#[test]
fn a_change_is_shown_with_its_context() {
    let mut sandbox = Sandbox::with(&[("f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n")]);
    sandbox.run("sed -i 's/5/five/' f; printf new > n; chmod 644 f");
    let changes = sandbox.collect();
    assert_eq!(
        on_terminal(&sandbox, &changes),
        "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n\
         diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n\
         \\ No newline at end of file\n"
    );
}

#[test]
fn the_diff_is_against_the_file_that_the_host_has_now() {
    let mut sandbox = Sandbox::with(&[("f", "a\n")]);
    sandbox.run("echo b > f");
    let changes = sandbox.collect();
    fs::write(sandbox.workspace().join("f"), "c\n").unwrap();
    assert!(on_terminal(&sandbox, &changes).contains("-c\n+b\n"));
}

#[test]
fn binary_and_large_files_are_only_said_to_differ() {
    let mut sandbox = Sandbox::with(&[("bin", "x"), ("large", "x")]);
    sandbox.run("printf 'a\\0b' > bin; head -c 1048577 /dev/zero | tr '\\0' x > large");
    let changes = sandbox.collect();
    let shown = on_terminal(&sandbox, &changes);
    assert!(shown.contains("Binary files a/bin and b/bin differ\n"), "{shown}");
    assert!(shown.contains("Large files a/large and b/large differ\n"), "{shown}");
}

#[test]
fn nothing_that_a_sandbox_writes_can_steer_a_terminal() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run(
        "printf 'a\\033[2Jb\\rc\\342\\200\\256d\\377\\n' > f; printf x > \"$(printf 'n\\033[1m')x\"; \
         ln -s \"$(printf 'to\\033[m')\" l",
    );
    let changes = sandbox.collect();
    let shown = on_terminal(&sandbox, &changes);
    assert!(shown.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{202e}')), "{shown}");
    assert!(shown.contains(r"+a\u{1b}[2Jb\rc\u{202e}d\xff"), "{shown}");
    assert!(shown.contains(r#"+++ "b/n\033[1mx""#), "{shown}");
    let plain = diff(&sandbox, &changes, Contents::Plain);
    assert!(plain.windows(4).any(|bytes| bytes == b"\x1b[2J"), "contents are as they are");
    assert!(!plain.windows(4).any(|bytes| bytes == b"\x1b[1m"), "names are not");
}

#[test]
fn long_lines_are_cut_on_a_terminal_only() {
    let mut sandbox = Sandbox::with(&[]);
    sandbox.run("head -c 5000 /dev/zero | tr '\\0' x > f");
    let changes = sandbox.collect();
    assert!(on_terminal(&sandbox, &changes).contains("x [3000 more bytes]\n"));
    assert!(diff(&sandbox, &changes, Contents::Plain).len() > 5000);
}

#[test]
fn lines_that_are_slow_to_compare_do_not_hold_up_the_diff() {
    let lines = |step: usize| -> String {
        (0..60_000).map(|n| format!("{}\n", (n * step) % 9973)).collect()
    };
    let mut sandbox = Sandbox::with(&[("f", &lines(7))]);
    sandbox.upper_files(&[("f", &lines(11))]);
    let changes = sandbox.collect();
    let start = std::time::Instant::now();
    diff(&sandbox, &changes, Contents::Terminal);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn git_can_apply_the_plain_diff() {
    if Command::new("git").arg("--version").output().is_err() {
        return;
    }
    let mut sandbox = Sandbox::with(&[("edit", "1\n2\n3\n"), ("gone", "g\n"), ("kind", "k\n")]);
    sandbox.run(
        "printf '1\\ntwo\\n3' > edit; rm gone; rm kind; ln -s edit kind; mkdir d; echo n > d/new; \
         echo x > \"$(printf 'odd\\t\"name')\"; chmod 755 d/new; printf 'l\\351\\n' > latin; cp -a . \"$COPY\"",
    );
    let changes = sandbox.collect();
    let patch = sandbox.beside("patch");
    fs::write(&patch, diff(&sandbox, &changes, Contents::Plain)).unwrap();
    let applied = Command::new("git")
        .args(["apply", "--verbose"])
        .arg(&patch)
        .current_dir(sandbox.workspace())
        .env("GIT_CEILING_DIRECTORIES", "/")
        .env("GIT_DIR", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&applied.stderr);
    assert!(applied.status.success(), "{errors}");
    // Git makes directories with the umask of the moment.
    set_mode(&sandbox.workspace().join("d"), 0o755);
    assert_eq!(sandbox.tree(), tree(&sandbox.beside("copy")));
}
