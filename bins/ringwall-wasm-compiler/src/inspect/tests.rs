//! Inspecting wasm: what is told of good files, and how bad ones are refused.

use super::*;

const COMMAND: &str = r#"(module (func (export "_start")))"#;

fn refusal(text: &str) -> String {
    inspect(&wat::parse_str(text).unwrap()).expect_err("must be refused")
}

#[test]
fn a_module_with_a_start_function_is_a_command() {
    let report = inspect(&wat::parse_str(COMMAND).unwrap()).unwrap();
    assert_eq!(report.kind, ToolKind::CommandModule);
    assert_eq!((report.manifest, report.imports), (None, Vec::new()));
}

#[test]
fn the_manifest_is_found_in_a_nested_module_and_the_outermost_counts() {
    let nested = r#"(component
        (core module (@custom "ringwall:tool" "inner"))
        (instance $run (export "x" (instance)))
    )"#;
    let nested = wat::parse_str(nested.replace(r#"(instance $run (export "x" (instance)))"#, ""));
    let mut wasm = nested.unwrap();
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(&wasm) {
        seen.look(&payload.unwrap()).unwrap();
    }
    assert_eq!(seen.manifest, Some((2, &b"inner"[..])));
    // A custom section that a packer appended: kind 0, sizes, name, content.
    wasm.extend_from_slice(b"\x00\x13\x0dringwall:toolouter");
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(&wasm) {
        seen.look(&payload.unwrap()).unwrap();
    }
    assert_eq!(seen.manifest, Some((1, &b"outer"[..])));
}

#[test]
fn what_can_never_run_is_refused_with_the_reason() {
    assert!(refusal("(module)").contains("_start"));
    assert!(refusal("(component)").contains(TOOL_INTERFACE));
    let foreign = r#"(module (import "env" "f" (func)) (func (export "_start")))"#;
    assert!(refusal(foreign).contains("\"env\""));
    let huge = r#"(module (memory 16384) (func (export "_start")))"#;
    assert!(refusal(huge).contains("memory"));
    let wasm = wat::parse_str(COMMAND).unwrap();
    for cut in 1..wasm.len() {
        assert!(inspect(&wasm[..cut]).is_err(), "{cut} bytes");
    }
    assert!(inspect(b"#!/bin/sh\n").is_err());
}

#[test]
fn a_million_functions_are_refused_before_they_are_compiled() {
    let many = format!(r#"(module (func (export "_start")) {})"#, "(func)".repeat(1_000_000));
    assert!(refusal(&many).contains("functions"));
}

#[test]
fn only_wasi_of_the_right_version_is_imported() {
    assert!(is_wasi("wasi:cli/stdout@0.2.6"));
    assert!(is_wasi("wasi:http/outgoing-handler@0.2.0"));
    for other in ["wasi:cli/stdout@0.3.0", "wasi:nn/graph@0.2.0", "wasi:cli", "cli/x@0.2.0"] {
        assert!(!is_wasi(other), "{other}");
    }
}
