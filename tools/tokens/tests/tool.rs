//! `tokens` gives what the original tokenizers give, and chunks that add up to the text.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use ringwall_tool_sdk::testing;
use serde_json::{Value, json};
use tool_tokens::{Encoding, call, encode};

fn tokens(input: &Value) -> Value {
    let output = ringwall_tool_sdk::call_with_json(&input.to_string(), call).expect("it answers");
    serde_json::from_str(&output).expect("it is JSON")
}

fn assert_same(text: &str) {
    let originals = [
        (Encoding::Cl100k, tiktoken_rs::cl100k_base_singleton()),
        (Encoding::O200k, tiktoken_rs::o200k_base_singleton()),
    ];
    for (encoding, original) in originals {
        assert_eq!(encode(text, encoding), original.encode_ordinary(text), "{encoding:?} {text:?}");
    }
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn known_texts_give_the_tokens_of_the_original() {
    for text in [
        "",
        "Hello, world! It's 12345 o'clock; WE'LL see I'M.",
        "fn main() {\n    println!(\"{}\", x);\r\n\r\n}\n\n\t\t// ok  \n   ",
        "Grüße, naïve café — 你好，世界！ Привет мир مرحبا नमस्ते 👩‍👩‍👧 e\u{301} \u{301}x",
        "HTTPServer XMLHttpRequest camelCase SNAKE_CASE ǅ ʰ ªº",
        "a\u{a0}b\u{2003} c\u{85}d \u{3000}\n\u{3000}e",
        "'\u{17f}x 'LL 'r 've'VE",
        "<|endoftext|> https://example.com/a/b?c=d//\n/\n",
    ] {
        assert_same(text);
    }
}

#[test]
fn random_texts_give_the_tokens_of_the_original() {
    let alphabet: Vec<char> =
        "aAbBsStTrReElLvVmMdD'' \t\n\r\n  0129.,/-_(){}é你ʰǅ\u{301}\u{a0}\u{3000}ªⅷ½अि😀\u{200d}"
            .chars()
            .collect();
    let mut seed = 1u32;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % below
    };
    for _ in 0..5_000 {
        let length = random(24);
        let text: String = (0..length).map(|_| alphabet[random(alphabet.len())]).collect();
        assert_same(&text);
    }
}

#[test]
fn sources_give_the_tokens_of_the_original() {
    assert_same(include_str!("../src/pieces.rs"));
    assert_same(include_str!("../tool.json"));
}

#[test]
fn one_very_long_word_is_no_problem() {
    let text = "ab".repeat(200_000);
    let output = tokens(&json!({ "text": text }));
    assert!(output["tokens"].as_u64().is_some_and(|tokens| tokens > 10_000));
}

#[test]
fn chunks_keep_to_the_limit_and_add_up_to_the_text() {
    let mut text: String =
        (0..300).map(|n| format!("Line {n} says: it's só é 你好 {n}\n")).collect();
    text += &"x9Q-".repeat(500);
    text += "\n\nend";
    for most in [1, 7, 50, 10_000] {
        let by = json!({ "max_tokens": most });
        let output = tokens(&json!({ "text": text, "chunk": by, "max_bytes": 16 << 20 }));
        let chunks = output["chunks"].as_array().expect("chunks");
        let joined: String =
            chunks.iter().map(|chunk| chunk["text"].as_str().expect("text")).collect();
        assert_eq!(joined, text, "{most}");
        if most >= 7 {
            let fits =
                |chunk: &Value| chunk["tokens"].as_u64().is_some_and(|tokens| tokens <= most);
            assert!(chunks.iter().all(fits), "{most}");
        }
    }
}

#[test]
fn chunks_overlap_by_whole_lines_and_know_their_lines() {
    let text = "one\ntwo\nthree\nfour\nfive\n";
    let by = json!({ "max_tokens": 6, "overlap_tokens": 2 });
    let output = tokens(&json!({ "text": text, "chunk": by }));
    let lines: Vec<(u64, u64)> = output["chunks"]
        .as_array()
        .expect("chunks")
        .iter()
        .map(|chunk| (chunk["start_line"].as_u64().unwrap(), chunk["end_line"].as_u64().unwrap()))
        .collect();
    assert_eq!(lines, [(1, 3), (3, 5)]);
}

#[test]
fn long_results_are_cut_and_say_so() {
    let text = "word ".repeat(1_000);
    let input = json!({ "text": text, "ids": true, "max_bytes": 100 });
    let output = tokens(&input);
    assert_eq!(output["truncated"], true);
    assert!(output["ids"].as_array().is_some_and(|ids| ids.len() < 100));
}

#[test]
fn an_overlap_as_long_as_a_chunk_is_refused() {
    let input = json!({ "text": "x", "chunk": { "max_tokens": 5, "overlap_tokens": 5 } });
    let failure = ringwall_tool_sdk::call_with_json(&input.to_string(), call).expect_err("refused");
    assert_eq!(failure.code, "bad-input");
}
