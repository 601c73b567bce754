//! Each language: what is found, where, and that clean text is clean.
#![allow(clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;

use tool_lint::{Input, Language, Output, Severity, call, run};

fn lint(language: Language, text: &str) -> Output {
    let input = Input { text: Some(text.to_owned()), language: Some(language), ..Input::default() };
    run(Path::new("/nowhere"), &input).expect("it lints")
}

/// `line:column rule`, one to a diagnostic.
fn found(language: Language, text: &str) -> Vec<String> {
    let diagnostics = lint(language, text).diagnostics;
    let place = |at: &tool_lint::Diagnostic| (at.span.start.line, at.span.start.column);
    diagnostics
        .iter()
        .map(|one| format!("{}:{} {}", place(one).0, place(one).1, one.rule))
        .collect()
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    ringwall_tool_sdk::testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn clean_text_is_clean() {
    let texts = [
        (Language::Json, "{\"a\": [1, {\"a\": 2}]}"),
        (Language::Toml, "[a]\nb = 1\n[[c]]\nd = 1\n[[c]]\nd = 2\n"),
        (Language::Yaml, "a: true\nb:\n  - {a: 1}\n  - {a: 2}\nc: \"yes\"\n"),
        (Language::Markdown, "# A\n\n## B\n\n```rust\nlet a;\t \n```\n\n- [ ] todo [1]\n"),
        (Language::Python, "import os\n\nprint(os.sep)\n"),
        (Language::Rust, "fn a() -> u8 {\n    // SAFETY: not at all\n    unsafe { b() }\n}\n"),
        (Language::TypeScript, "export const a: number = 1;\n"),
        (Language::Go, "package p\n\nfunc a() {}\n"),
    ];
    for (language, text) in texts {
        assert_eq!(found(language, text), Vec::<String>::new(), "{language:?}");
    }
}

#[test]
fn syntax_errors_have_a_place_in_every_language() {
    let texts = [
        (Language::Json, "{\n  \"a\": 1,\n}", 2..=3),
        (Language::Toml, "a = 1\nb = = 2\n", 2..=2),
        (Language::Yaml, "a: 1\nb: [1, 2\n", 2..=3),
        (Language::Python, "x = 1\ndef f(:\n    pass\n", 2..=2),
        (Language::Rust, "fn a() {}\nfn b( {}\n", 2..=3),
        (Language::JavaScript, "let a = 1;\nlet = ;\n", 2..=2),
        (Language::Tsx, "const a = 1;\nconst b = <c>;\n", 2..=3),
        (Language::Go, "package p\nfunc a( {\n", 1..=3),
    ];
    for (language, text, lines) in texts {
        let output = lint(language, text);
        assert!(output.errors > 0, "{language:?}");
        let first = &output.diagnostics[0];
        assert_eq!(
            (first.rule.as_str(), first.severity),
            ("syntax", Severity::Error),
            "{language:?}"
        );
        assert!(lines.contains(&first.span.start.line), "{language:?}: {first:?}");
    }
}

#[test]
fn keys_that_are_given_twice_are_found() {
    assert_eq!(found(Language::Json, "{\"a\": {\"b\": 1, \"b\": 2}}"), ["1:16 duplicate-key"]);
    assert_eq!(found(Language::Yaml, "é: 1\na: 1\na: 2\n"), ["3:1 duplicate-key"]);
    assert_eq!(found(Language::Toml, "a = 1\na = 2\n"), ["2:1 duplicate-key"]);
}

#[test]
fn yaml_words_that_may_be_booleans_are_found() {
    assert_eq!(found(Language::Yaml, "norway: no\nyes: 1\n"), ["1:9 truthy"]);
}

#[test]
fn markdown_structure_and_links() {
    let text = "# A\n\n### C  \n\n```\nx\n```\n\n[a]() and [b][nowhere]\ntrailing \n\t- x\n##D\n";
    let rules = found(Language::Markdown, text);
    for rule in [
        "3:1 MD001/heading-increment",
        "5:1 MD040/fenced-code-language",
        "9:1 MD042/no-empty-links",
        "9:11 MD052/reference-links-images",
        "10:9 MD009/no-trailing-spaces",
        "11:1 MD010/no-hard-tabs",
        "12:1 MD018/no-missing-space-atx",
    ] {
        assert!(rules.contains(&rule.to_owned()), "{rule} is not in {rules:?}");
    }
}

#[test]
fn python_has_ruffs_rules_with_fixes() {
    let output = lint(Language::Python, "import os\nx = undefined\n");
    let rules: Vec<_> = output.diagnostics.iter().map(|found| found.rule.as_str()).collect();
    assert_eq!(rules, ["I001", "F401", "F821"]);
    let fix = output.diagnostics[1].fix.as_ref().expect("an unused import can be removed");
    assert!(fix.safe);
    assert_eq!(fix.edits[0].span.bytes, [0, 10]);

    let text = "def f(a=[]):\n    return a\n".to_owned();
    let select = vec!["B".to_owned()];
    let input = Input {
        text: Some(text.clone()),
        language: Some(Language::Python),
        select,
        ..Input::default()
    };
    assert_eq!(run(Path::new("/"), &input).expect("it lints").diagnostics[0].rule, "B006");
    let select = vec!["NOPE".to_owned()];
    let input =
        Input { text: Some(text), language: Some(Language::Python), select, ..Input::default() };
    assert_eq!(run(Path::new("/"), &input).expect_err("no such rule").code, "bad-input");
}

#[test]
fn python_comments_can_silence_a_rule() {
    assert_eq!(found(Language::Python, "import os  # noqa: F401\n"), Vec::<String>::new());
}

#[test]
fn scripts_have_the_recommended_rules() {
    let rules = found(Language::JavaScript, "var a = 1;\ndebugger;\nif (a == 2) {}\n");
    for rule in ["1:1 no-var", "2:1 no-debugger", "3:13 no-empty"] {
        assert!(rules.contains(&rule.to_owned()), "{rule} is not in {rules:?}");
    }
    let rules = found(Language::TypeScript, "export const a: any = 1;\n");
    assert_eq!(rules, ["1:17 no-explicit-any"]);
}

#[test]
fn rust_has_rules_that_need_no_types() {
    let text = "fn a(b: bool) -> bool {\n    dbg!(b);\n    if b == true {}\n    unsafe { c() };\n    return b;\n}\n";
    let output = lint(Language::Rust, text);
    let rules: Vec<_> = output.diagnostics.iter().map(|found| found.rule.as_str()).collect();
    assert_eq!(rules, ["dbg-macro", "bool-comparison", "undocumented-unsafe", "needless-return"]);
    let fix = output.diagnostics[3].fix.as_ref().expect("a fix");
    assert_eq!(fix.edits[0].replacement, "b");
    let [start, end] = fix.edits[0].span.bytes;
    assert_eq!(&text[start..end], "return b;");
}

#[test]
fn rules_can_be_ignored_and_results_are_bounded() {
    let text = "var a;\nvar b;\nvar c;\n".to_owned();
    let ignore = vec!["no-unused-vars".to_owned()];
    let input = Input {
        text: Some(text),
        language: Some(Language::JavaScript),
        ignore,
        max_diagnostics: Some(2),
        ..Input::default()
    };
    let output = run(Path::new("/"), &input).expect("it lints");
    assert_eq!((output.diagnostics.len(), output.warnings, output.truncated), (2, 3, true));
}

#[test]
fn files_are_told_apart() {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("a.json"), "{").expect("written");
    fs::write(root.path().join("b.py"), "import os\n").expect("written");
    let input = Input { paths: vec!["a.json".into(), "b.py".into()], ..Input::default() };
    let output = run(root.path(), &input).expect("it lints");
    let paths: Vec<_> =
        output.diagnostics.iter().filter_map(|found| found.path.as_deref()).collect();
    assert_eq!(paths, ["a.json", "b.py"]);
    let input = Input { paths: vec!["c.txt".into()], ..Input::default() };
    assert_eq!(run(root.path(), &input).expect_err("unknown").code, "bad-input");
}
