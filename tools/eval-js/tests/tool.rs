//! What scripts can do, and what they cannot.
#![allow(clippy::expect_used, reason = "tests")]

use ringwall_tool_sdk::Failure;
use serde_json::{Value, json};
use tool_eval_js::{Engine, Input, eval};

fn try_eval(input: Value) -> Result<Value, Failure> {
    let input: Input = serde_json::from_str(&input.to_string()).expect("the input fits");
    let engine = Engine::new().expect("an engine");
    eval(&engine, input).map(|output| serde_json::to_value(output).expect("JSON"))
}

fn value(script: &str) -> Value {
    try_eval(json!({ "script": script })).expect("it runs")["value"].clone()
}

fn failure(script: &str) -> Failure {
    try_eval(json!({ "script": script })).expect_err("it fails")
}

#[test]
fn the_examples_give_what_the_manifest_says() {
    let engine = Engine::new().expect("an engine");
    ringwall_tool_sdk::testing::check(env!("CARGO_MANIFEST_DIR"), |input| eval(&engine, input));
}

#[test]
fn the_result_is_output_or_the_last_expression() {
    assert_eq!(value("1; 2 + 3"), json!(5));
    assert_eq!(value("output({ a: [1] }); 7"), json!({ "a": [1] }));
    assert_eq!(value("const a = 1"), json!(null));
    assert_eq!(value("await Promise.resolve([1, 2])"), json!([1, 2]));
    assert_eq!(value("(async () => 'later')()"), json!("later"));
    assert_eq!(value("const text = `\nimport x\n`; text.length"), json!(10), "no module");
}

#[test]
fn nothing_but_the_language_is_there() {
    let script = "['require', 'process', 'fetch', 'Deno', 'std', 'os', 'print', 'setTimeout', \
                  'WebAssembly'].filter((name) => name in globalThis)";
    assert_eq!(value(script), json!([]));
}

#[test]
fn only_granted_modules_can_be_imported() {
    for script in ["import fs from 'fs';", "import('os')", "import x from '../x.js';"] {
        let failure = failure(script);
        assert_eq!(failure.code, "script-error", "{script}");
        assert!(failure.message.contains("granted"), "{script}: {failure}");
    }
    let modules = json!({ "a": "import { b } from './b'; export const a = b + 1;", "b": "export const b = 1;" });
    let input = json!({ "script": "(await import('a')).a", "modules": modules });
    assert_eq!(try_eval(input).expect("both are granted")["value"], 2);
}

#[test]
fn errors_have_a_line_and_a_column() {
    let thrown = failure("const a = 1;\n  null.x;\n");
    assert!(thrown.message.contains("TypeError"), "{thrown}");
    assert!(thrown.message.contains("(line 2, column "), "{thrown}");
    let syntax = failure("let a = ;");
    assert!(syntax.message.contains("SyntaxError"), "{syntax}");
    assert!(syntax.message.contains("(line 1, column "), "{syntax}");
    assert!(failure("throw 'text'").message.contains("text"));
    assert!(failure("output(1n)").message.contains("BigInt"));
}

#[test]
fn a_failure_repeats_what_was_logged_before() {
    let failure = failure("console.warn('nearly', { a: 1 }); throw new Error('stop')");
    assert!(failure.message.contains("warning: nearly {\"a\":1}"), "{failure}");
}

#[test]
fn a_promise_that_never_ends_is_an_error() {
    assert_eq!(failure("await new Promise(() => {})").code, "script-error");
}

#[test]
fn random_numbers_differ_between_calls() {
    let (one, other) = (value("Math.random()"), value("Math.random()"));
    assert_ne!(one, other);
    let number = one.as_f64().expect("a number");
    assert!((0.0..1.0).contains(&number));
}

#[test]
fn the_log_is_bounded() {
    let output = try_eval(json!({ "script": "for (let i = 0; i < 5000; i++) console.log(i)" }));
    let output = output.expect("it runs");
    assert_eq!(output["logs"].as_array().map(Vec::len), Some(1000));
    assert_eq!(output["truncated"], true);
}

#[test]
fn a_script_can_be_a_tool() {
    let engine = Engine::new().expect("an engine");
    engine
        .define_tool("const cache = 2; async function tool({ n }) { return { n: n * cache } }")
        .expect("defined");
    assert_eq!(engine.call_tool(r#"{"n":21}"#), Ok(r#"{"n":42}"#.to_owned()));

    let engine = Engine::new().expect("an engine");
    engine
        .define_tool("function tool() { throw Object.assign(new Error('no such thing'), { code: 'not-found' }) }")
        .expect("defined");
    assert_eq!(engine.call_tool("{}").expect_err("it throws").code, "not-found");

    let engine = Engine::new().expect("an engine");
    assert_eq!(engine.define_tool("let a = 1").expect_err("no tool").code, "bad-input");
}

#[test]
fn a_strict_call_makes_no_code_out_of_text() {
    let strict = |script: &str| try_eval(json!({ "script": script, "strict": true }));
    for script in [
        "eval('1 + 1')",
        "(0, eval)('1 + 1')",
        "globalThis.eval = 1; eval('1')",
        "Function('return 1')()",
        "new Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('yield 1')().next()",
        "(async function* () {}).constructor('yield 1')()",
        "class F extends Function {}; new F('return 1')()",
        "Reflect.construct((class {}).constructor, ['return 1'])()",
        "Object.getPrototypeOf((async () => {}).constructor)('return 1')()",
        "delete Function.prototype.constructor; (() => {}).constructor('return 1')()",
        "[].map.constructor('return 1')()",
        "console.log.constructor('return 1')()",
    ] {
        strict(script).expect_err(script);
    }
    let plain = "const f = (a) => a * 2; class A {}; [f(2), f instanceof Function, typeof new A()]";
    assert_eq!(strict(plain).expect("it runs")["value"], json!([4, true, "object"]));
    assert_eq!(value("eval('1 + 1') + Function('return 1')()"), json!(3), "not asked for");
}
