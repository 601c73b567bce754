//! Outlines of each language.
#![allow(clippy::expect_used, reason = "tests")]

use std::path::Path;

use serde_json::{Value, json};
use tool_outline::{Input, Symbol, call, outline};

fn symbols(input: Value) -> Vec<Symbol> {
    let input: Input = serde_json::from_value(input).expect("the input fits");
    let output = outline(Path::new("/nowhere"), &input).expect("an outline");
    output.files.into_iter().flat_map(|file| file.symbols).collect()
}

/// `kind name`, one symbol to a line, children indented.
fn sketch(symbols: &[Symbol]) -> String {
    let mut lines = String::new();
    for symbol in symbols {
        let kind = json!(symbol.kind);
        lines += &format!("{} {}\n", kind.as_str().expect("a name"), symbol.name);
        for line in sketch(&symbol.children).lines() {
            lines += &format!("  {line}\n");
        }
    }
    lines
}

#[track_caller]
fn check(language: &str, text: &str, expected: &str) {
    let found = symbols(json!({ "language": language, "text": text }));
    let expected: String =
        expected.lines().skip(1).map(|line| format!("{}\n", &line[8..])).collect();
    assert_eq!(sketch(&found), expected);
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    ringwall_tool_sdk::testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn rust_items_nest_and_impls_say_of_what() {
    let text = "mod m { pub const A: u8 = 1; }
        enum E { One, Two { x: u8 } }
        trait T { type Out; fn go(&self); }
        impl<'a> T for E { type Out = u8; fn go(&self) { fn inner() {} } }
        macro_rules! mac { () => {} }";
    check(
        "rust",
        text,
        "
        module m
          constant A
        enum E
          variant One
          variant Two
            field x
        trait T
          type Out
          method go
        impl T for E
          type Out
          method go
            function inner
        macro mac",
    );
}

#[test]
fn python_has_classes_methods_and_top_level_names() {
    let text = "LIMIT = 3\n\n@decorated\nclass A(Base):\n    size: int = 0\n    async def go(self):\n        local = 1\n        def inner(): pass\n";
    check(
        "python",
        text,
        "
        variable LIMIT
        class A
          field size
          method go
            function inner",
    );
}

#[test]
fn scripts_have_functions_in_constants_and_exported_things() {
    let text = "export const add = (a, b) => { const c = a; return c + b };\nexport default class A extends B { #x = 1; get y() { return 1 } }\nconst N = 3; let v;\nfunction f() { let hidden = 1 }";
    check(
        "javascript",
        text,
        "
        function add
        class A
          field #x
          method y
        constant N
        variable v
        function f",
    );
    let text = "interface I<T> { a: string; go(): void }\ntype Id = string;\nenum Color { Red = 1 }\nnamespace N { export function f(): void {} }\nabstract class C { abstract go(): void; private x = 1 }";
    check(
        "typescript",
        text,
        "
        interface I
          field a
          method go
        type Id
        enum Color
          variant Red
        module N
          function f
        class C
          method go
          field x",
    );
}

#[test]
fn go_methods_name_their_receiver() {
    let text = "package p\nconst A = 1\ntype S struct { x int }\ntype R interface { Read(b []byte) error }\nfunc (s *S) Go() {}\nfunc Main() { x := 1; _ = x }\n";
    check(
        "go",
        text,
        "
        constant A
        struct S
          field x
        interface R
          method Read
        method S.Go
        function Main",
    );
}

#[test]
fn signatures_end_where_the_body_begins() {
    let found = symbols(json!({ "language": "rust",
        "text": "pub fn a<T>(\n    x: T,\n) -> Vec<T>\nwhere\n    T: Clone,\n{\n    vec![x]\n}\npub const B: &[u8] = &[1];" }));
    assert_eq!(found[0].signature, "pub fn a<T>( x: T, ) -> Vec<T> where T: Clone");
    assert_eq!(found[1].signature, "pub const B: &[u8] = &[1]");
    let found = symbols(
        json!({ "language": "python", "text": "@cached\ndef f(a: int) -> int:\n    return a\n" }),
    );
    assert_eq!(found[0].signature, "@cached def f(a: int) -> int");
    assert_eq!(found[0].span.start.line, 1, "the decorator belongs to it");
}

#[test]
fn depth_kinds_and_counts_choose() {
    let text = "mod m { fn a() {} struct S { x: u8 } }";
    let top = symbols(json!({ "language": "rust", "text": text, "depth": 1 }));
    assert_eq!(sketch(&top), "module m\n");
    let functions = symbols(json!({ "language": "rust", "text": text, "kinds": ["function"] }));
    assert_eq!(sketch(&functions), "module m\n  function a\n");

    let input = json!({ "language": "rust", "text": text, "max_symbols": 2 });
    let output = outline(Path::new("/"), &serde_json::from_value(input).expect("fits"));
    assert!(output.expect("an outline").truncated);
}

#[test]
fn broken_code_still_has_an_outline() {
    let input = json!({ "language": "rust", "text": "fn a() {}\nfn b( {\nfn c() {}\n" });
    let output = outline(Path::new("/"), &serde_json::from_value(input).expect("fits"));
    let file = output.expect("an outline").files.remove(0);
    assert!(file.has_errors);
    assert_eq!(file.symbols[0].name, "a");
}
