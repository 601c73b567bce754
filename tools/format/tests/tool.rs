//! Each language, and what is never lost.
#![allow(clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;

use tool_format::{Input, Language, Output, call, run};

fn format(language: Language, text: &str) -> Output {
    let input = Input { text: Some(text.to_owned()), language: Some(language), ..Input::default() };
    run(Path::new("/nowhere"), input).expect("it formats")
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    ringwall_tool_sdk::testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn every_language_keeps_its_comments_and_is_done_after_one_pass() {
    let texts = [
        (Language::Json, "{\"a\":1, // why\n\"b\":[1,2]}", "// why"),
        (Language::Toml, "[a]\nb=1 # why\nc  = [1,2]\n", "# why"),
        (Language::Markdown, "# Title\n\n\n* a\n* b\n\n<!-- why -->\n", "<!-- why -->"),
        (Language::Rust, "/// why\npub fn a( x:u8 )->u8{x}\n", "/// why"),
        (Language::Python, "def f( x ):\n  return x # why\n", "# why"),
        (Language::JavaScript, "const a={b:1} // why\n", "// why"),
        (Language::Jsx, "const a=<b c='d'/> // why\n", "// why"),
        (Language::TypeScript, "type A={b:string} // why\n", "// why"),
        (Language::Tsx, "const a=<b c={d as any}/> // why\n", "// why"),
    ];
    for (language, text, comment) in texts {
        let once = format(language, text);
        assert!(once.changed, "{language:?}");
        assert!(once.text.contains(comment), "{language:?}: {}", once.text);
        let twice = format(language, &once.text);
        assert!(!twice.changed, "{language:?}: {} became {}", once.text, twice.text);
    }
}

#[test]
fn rust_between_and_around_items_stays() {
    let text = "//! The file.\n#![allow(dead_code)]\n\n// about a\nfn a( ){ }\n\n\n// the end\n";
    let output = format(Language::Rust, text);
    assert_eq!(output.text, text.replace("fn a( ){ }", "fn a() {}"));
    assert!(output.left.is_empty());
}

#[test]
fn rust_items_with_comments_are_left_and_named() {
    let text = "struct A { /// doc\n x:u8 }\n\nimpl A {\n  // why\n  fn b( ){ }\n}\n";
    let output = format(Language::Rust, text);
    assert!(output.text.contains("  // why\n  fn b( ){ }"), "{}", output.text);
    assert!(output.text.contains("    /// doc\n    x: u8,"), "{}", output.text);
    assert_eq!(output.left.len(), 1);
    assert_eq!((output.left[0].first_line, output.left[0].last_line), (4, 7));
}

#[test]
fn a_byte_order_mark_shifts_nothing() {
    let output = format(Language::Rust, "\u{feff}fn a( ){ }\n// é\nfn b( ){ }\n");
    assert_eq!(output.text, "\u{feff}fn a() {}\n// é\nfn b() {}\n");
}

#[test]
fn comment_marks_in_strings_are_no_comments() {
    let output = format(Language::Rust, "const A:&str=\"// no /* comment\";\n");
    assert_eq!(output.text, "const A: &str = \"// no /* comment\";\n");
}

#[test]
fn a_syntax_error_is_refused_with_its_place() {
    let texts = [
        (Language::Json, "{\"a\": }"),
        (Language::Toml, "a = = 1"),
        (Language::Rust, "fn a( {"),
        (Language::Python, "def f(:\n"),
        (Language::TypeScript, "const = 1"),
    ];
    for (language, text) in texts {
        let input =
            Input { text: Some(text.to_owned()), language: Some(language), ..Input::default() };
        let failure = run(Path::new("/"), input).expect_err(text);
        assert_eq!(failure.code, "bad-input", "{language:?}");
    }
}

#[test]
fn code_in_markdown_is_formatted_where_it_parses() {
    let output = format(Language::Markdown, "```json\n{\"a\":1}\n```\n\n```json\n{broken\n```\n");
    assert!(output.text.contains("{ \"a\": 1 }"), "{}", output.text);
    assert!(output.text.contains("{broken"), "{}", output.text);
}

#[test]
fn a_file_is_written_only_when_asked() {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("a.py");
    fs::write(&file, "x=1\n").expect("written");
    let input = |write| Input { path: Some("a.py".into()), write, ..Input::default() };
    assert!(run(root.path(), input(false)).expect("it formats").changed);
    assert_eq!(fs::read_to_string(&file).expect("read"), "x=1\n");
    run(root.path(), input(true)).expect("it formats");
    assert_eq!(fs::read_to_string(&file).expect("read"), "x = 1\n");
    assert!(!run(root.path(), input(true)).expect("it formats").changed);
}

#[test]
fn the_width_is_the_callers() {
    let text = "call(aaaaaaaaaaaaaaaaaaa, bbbbbbbbbbbbbbbbbbbb)\n".to_owned();
    let input = Input {
        text: Some(text),
        language: Some(Language::Python),
        line_width: Some(30),
        ..Input::default()
    };
    let output = run(Path::new("/"), input).expect("it formats");
    assert!(output.text.lines().all(|line| line.len() <= 30), "{}", output.text);
}
