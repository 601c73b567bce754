//! `hash` against published test vectors, on texts and files.
#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;

use ringwall_tool_sdk::testing;
use serde_json::{Value, json};
use tool_hash::{call, call_in};

#[test]
fn the_examples_give_what_the_manifest_says() {
    testing::check(env!("CARGO_MANIFEST_DIR"), call);
}

#[test]
fn digests_of_abc_are_the_published_ones() {
    let published = [
        ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (
            "sha512",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        ("sha3-256", "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"),
        ("blake3", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("md5", "900150983cd24fb0d6963f7d28e17f72"),
        ("crc32", "352441c2"),
    ];
    let algorithms: Vec<&str> = published.iter().map(|(name, _)| *name).collect();
    let input = json!({ "text": "abc", "algorithms": algorithms }).to_string();
    let output = ringwall_tool_sdk::call_with_json(&input, call).expect("it answers");
    let output: Value = serde_json::from_str(&output).expect("it is JSON");
    for (name, digest) in published {
        assert_eq!(output["results"][0]["digests"][name], digest, "{name}");
    }
}

#[test]
fn files_are_hashed_whole_and_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("big"), vec![b'x'; 1_000_000]).expect("written");
    fs::write(folder.path().join("abc"), "abc").expect("written");
    let run = |input: Value| {
        ringwall_tool_sdk::call_with_json(&input.to_string(), |input| call_in(folder.path(), input))
    };
    let big = run(json!({ "paths": ["big"], "algorithms": ["crc32"] })).expect("it answers");
    assert!(big.contains("\"bytes\":1000000"), "{big}");
    let expect = "900150983cd24fb0d6963f7d28e17f72";
    let both = json!({ "paths": ["abc", "big"], "algorithms": ["md5"], "expect": expect });
    assert!(run(both).expect("it answers").ends_with("\"matches\":false}"));
    let one = json!({ "paths": ["abc"], "algorithms": ["md5"], "expect": expect });
    assert!(run(one).expect("it answers").ends_with("\"matches\":true}"));
    assert_eq!(run(json!({ "paths": ["."] })).expect_err("refused").code, "bad-input");
    assert_eq!(run(json!({ "paths": ["gone"] })).expect_err("refused").code, "not-found");
    assert_eq!(run(json!({})).expect_err("refused").code, "bad-input");
}
