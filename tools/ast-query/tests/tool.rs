//! Patterns, queries and rewrites.
#![allow(clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;

use ringwall_tool_sdk::Failure;
use serde_json::{Value, json};
use tool_ast_query::{Output, call, run};

fn try_in(root: &Path, input: Value) -> Result<Output, Failure> {
    run(root, &serde_json::from_value(input).expect("the input fits"))
}

fn ask(input: Value) -> Output {
    try_in(Path::new("/nowhere"), input).expect("an answer")
}

fn rewritten(language: &str, text: &str, pattern: &str, rewrite: &str) -> String {
    let input =
        json!({ "language": language, "text": text, "pattern": pattern, "rewrite": rewrite });
    ask(input).rewritten.remove(0).text.expect("the text was given inline")
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    ringwall_tool_sdk::testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn patterns_match_structure_not_text() {
    let text = "let a = foo( 1,\n  2 ); // foo(3, 4)\nlet s = \"foo(5, 6)\";\nbar.foo(7, 8);";
    let output = ask(json!({ "language": "javascript", "text": text, "pattern": "foo($A, $B)" }));
    assert_eq!(output.matches.len(), 1);
    let captures = &output.matches[0].captures;
    assert_eq!((captures["A"][0].text.as_str(), captures["B"][0].text.as_str()), ("1", "2"));
    assert_eq!(output.matches[0].span.start.line, 1);
}

#[test]
fn the_same_name_twice_must_be_the_same_code() {
    let output =
        ask(json!({ "language": "python", "text": "a == a\na == b\n", "pattern": "$X == $X" }));
    assert_eq!(output.matches.len(), 1);
}

#[test]
fn rewrites_work_in_every_language() {
    assert_eq!(rewritten("rust", "fn a() { x.unwrap(); }", "$X.unwrap()", "$X?"), "fn a() { x?; }");
    assert_eq!(rewritten("python", "print(a, b)\n", "print($$$A)", "log($$$A)"), "log(a, b)\n");
    assert_eq!(
        rewritten("go", "package p\nvar x = f(1)\n", "f($A)", "g($A)"),
        "package p\nvar x = g(1)\n"
    );
    assert_eq!(
        rewritten("typescript", "const a = b as any;", "$A as any", "$A as unknown"),
        "const a = b as unknown;"
    );
    assert_eq!(rewritten("tsx", "<A b={c}/>", "<A b={$C}/>", "<B c={$C}/>"), "<B c={c}/>");
}

#[test]
fn nested_matches_wait_for_the_next_call() {
    let input = json!({ "language": "rust", "text": "fn a() { f(f(1)); }", "pattern": "f($A)", "rewrite": "g($A)" });
    let rewritten = ask(input).rewritten.remove(0);
    assert_eq!((rewritten.text.as_deref(), rewritten.nested), (Some("fn a() { g(f(1)); }"), 1));
}

#[test]
fn a_rewrite_that_breaks_the_syntax_says_so() {
    let input = |rewrite: &str| json!({ "language": "rust", "text": "fn a() { b(); }", "pattern": "b()", "rewrite": rewrite });
    assert!(ask(input("c((")).rewritten[0].breaks_syntax);
    assert!(!ask(input("c()")).rewritten[0].breaks_syntax);
}

#[test]
fn queries_choose_their_target_and_rewrite_it() {
    let input = json!({ "language": "rust", "text": "struct A { b: u8 }",
        "query": "(field_declaration name: (field_identifier) @NAME type: (_) @TYPE) @FIELD",
        "target": "TYPE", "rewrite": "Option<$TYPE>" });
    let output = ask(input);
    assert_eq!(output.matches[0].text, "u8");
    assert_eq!(output.matches[0].captures["FIELD"][0].text, "b: u8");
    assert_eq!(output.rewritten[0].text.as_deref(), Some("struct A { b: Option<u8> }"));
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_place() {
    let refused = |input: Value| try_in(Path::new("/"), input).expect_err("refused").message;
    let with = |key: &str, value: &str| json!({ "language": "rust", "text": "", key: value });
    let unknown = refused(with("query", "(nonsense) @a"));
    assert!(unknown.contains("line 1, column 2: no node is called \"nonsense\""), "{unknown}");
    assert!(refused(with("query", "(identifier)")).contains("captures nothing"));
    assert!(refused(json!({ "language": "rust", "text": "" })).contains("`pattern` or `query`"));
    let unknown = json!({ "language": "rust", "text": "", "pattern": "f($A)", "rewrite": "g($B)" });
    assert!(refused(unknown).contains("$B"));
}

#[test]
fn files_get_a_diff_that_names_them() {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir(root.path().join("src")).expect("made");
    fs::write(root.path().join("src/a.rs"), "fn a() {\n    old();\n}\n").expect("written");
    fs::write(root.path().join("src/b.rs"), "fn b() {}\n").expect("written");
    let input = json!({ "paths": ["src"], "pattern": "old()", "rewrite": "new()" });
    let output = try_in(root.path(), input).expect("an answer");
    assert_eq!((output.searched, output.matches.len(), output.rewritten.len()), (2, 1, 1));
    let diff = &output.rewritten[0].diff;
    assert!(diff.starts_with("--- a/src/a.rs\n+++ b/src/a.rs\n"), "{diff}");
    assert!(diff.contains("-    old();\n+    new();\n"), "{diff}");
    let unchanged = fs::read_to_string(root.path().join("src/a.rs")).expect("read");
    assert!(unchanged.contains("old()"), "nothing is written");
}

#[test]
fn matches_end_where_the_budget_does() {
    let input = json!({ "language": "python", "text": "f(1)\nf(2)\nf(3)\n", "pattern": "f($A)", "max_matches": 2 });
    let output = ask(input);
    assert_eq!((output.matches.len(), output.truncated), (2, true));
}
