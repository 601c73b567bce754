//! From a file to something that can be called.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringwall_spec::{ToolDigest, ToolKind};

use super::*;

#[test]
fn a_tool_is_compiled_once_and_found_by_its_digest() {
    let world = World::new();
    let compiled = world.compile(guests::HELLO);
    assert_eq!(compiled.kind, ToolKind::CommandModule);
    assert_eq!(compiled.imports, ["wasi_snapshot_preview1"]);
    assert_eq!(world.host.find(&compiled.digest), Some(compiled.clone()));
    // Another host of the same state finds it too.
    let other = open(world.state());
    assert_eq!(other.find(&compiled.digest), Some(compiled));
}

#[test]
fn a_tool_that_was_never_compiled_is_not_called() {
    let world = World::new();
    let digest = ToolDigest([7; 32]);
    assert!(world.host.find(&digest).is_none());
    let called = world.host.call(&ToolCall::component(digest, "{}"));
    assert!(matches!(called, Err(ToolError::NotCompiled(_))), "{called:?}");
}

#[test]
fn code_that_was_tampered_with_is_compiled_anew_and_never_loaded() {
    let world = World::new();
    let call = world.command(guests::HELLO);
    world.still_serves();
    let cache = world.state().join("tools-cache");
    let ends_in_code = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "code");
    let mut paths = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
    let code = paths.find(ends_in_code).unwrap();
    let original = fs::read(&code).unwrap();
    let mut changed = original.clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    for tampered in [&changed[..], &original[..last], b""] {
        fs::set_permissions(&code, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&code, tampered).unwrap();
        fs::set_permissions(&code, fs::Permissions::from_mode(0o444)).unwrap();
        let host = open(world.state());
        assert!(matches!(host.call(&call), Err(ToolError::NotCompiled(_))));
        host.compile(&wat::parse_str(guests::HELLO).unwrap()).unwrap();
        assert_eq!(fs::read(&code).unwrap(), original);
        assert_eq!(host.call(&call).unwrap().output, b"hello\n");
    }
}

#[test]
fn a_probe_makes_an_instance_and_says_what_is_wrong() {
    let world = World::new();
    let good = world.compile(guests::INFINITE_LOOP);
    world.host.probe(&good.digest, false).unwrap();
    let bad = world.compile(guests::TRAP_IN_START);
    let refused = world.host.probe(&bad.digest, false);
    assert!(matches!(refused, Err(ToolError::Refused(_))), "{refused:?}");
    world.still_serves();
}

#[test]
fn an_import_that_wasi_does_not_have_is_refused_when_loading() {
    let world = World::new();
    let strange = r#"(module (import "wasi_snapshot_preview1" "launch_missiles" (func))
        (func (export "_start")))"#;
    let refused = world.host.call(&world.command(strange));
    assert!(
        matches!(&refused, Err(ToolError::Refused(reason)) if reason.contains("missiles")),
        "{refused:?}"
    );
    world.still_serves();
}

#[test]
fn a_tool_called_as_what_it_is_not_is_refused() {
    let world = World::new();
    let digest = world.compile(guests::HELLO).digest;
    let refused = world.host.call(&ToolCall::component(digest, "{}"));
    assert!(
        matches!(&refused, Err(ToolError::Refused(reason)) if reason.contains("command")),
        "{refused:?}"
    );
}

#[test]
fn arguments_environment_and_input_arrive_as_given() {
    let world = World::new();
    // Reads all of its input and writes it, then its arguments.
    let echo = r#"(module
      (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "environ_get" (func $env (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "environ_sizes_get" (func $esizes (param i32 i32) (result i32)))
      (memory (export "memory") 4)
      (func $out (param i32 i32)
        (i32.store (i32.const 0) (local.get 0))
        (i32.store (i32.const 4) (local.get 1))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
      (func (export "_start")
        (loop $on
          (i32.store (i32.const 0) (i32.const 65536))
          (i32.store (i32.const 4) (i32.const 60000))
          (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 12)))
          (call $out (i32.const 65536) (i32.load (i32.const 12)))
          (br_if $on (i32.load (i32.const 12))))
        (drop (call $sizes (i32.const 16) (i32.const 20)))
        (drop (call $args (i32.const 1024) (i32.const 2048)))
        (call $out (i32.const 2048) (i32.load (i32.const 20)))
        (drop (call $esizes (i32.const 16) (i32.const 20)))
        (drop (call $env (i32.const 1024) (i32.const 2048)))
        (call $out (i32.const 2048) (i32.load (i32.const 20)))))"#;
    let digest = world.compile(echo).digest;
    let stdin = vec![b'x'; 700_000];
    let mut call = ToolCall::command(digest, "name", vec!["a b".into(), String::new()], stdin);
    call.env = vec![("KEY".to_owned(), "value".to_owned())];
    let output = world.call(&call).output;
    assert!(output[..700_000].iter().all(|byte| *byte == b'x'));
    assert_eq!(String::from_utf8_lossy(&output[700_000..]), "name\0a b\0\0KEY=value\0");
    call.input = ringwall_engine::ToolInput::Command { args: Vec::new(), stdin: vec![0; 17 << 20] };
    assert!(matches!(world.host.call(&call), Err(ToolError::Refused(_))));
}

#[test]
fn a_warden_that_has_seen_many_tools_takes_more() {
    let world = World::new();
    let numbered = |n: u32| guests::HELLO.replace("hello", &format!("{n:05}"));
    for n in 0..140 {
        assert_eq!(world.call(&world.command(&numbered(n))).output, format!("{n:05}\n").as_bytes());
    }
    assert_eq!(world.call(&world.command(&numbered(0))).output, b"00000\n");
    assert_eq!(world.host.totals().wardens_started, 1);
}

#[test]
fn a_wasi_0_2_command_runs_and_its_result_is_its_exit_code() {
    let world = World::new();
    for (succeeds, code) in [(true, 0), (false, 1)] {
        let compiled = world.compile(&guests::command_component(succeeds));
        assert_eq!(compiled.kind, ToolKind::CommandComponent);
        let call = ToolCall::command(compiled.digest, "tool", Vec::new(), Vec::new());
        let outcome = world.call(&call);
        assert_eq!(outcome.status, ToolStatus::Exited { code });
        assert_eq!(outcome.output, b"hello 0.2\n");
        assert!(outcome.meter.fuel > 0 && outcome.meter.host_calls > 0);
    }
    world.still_serves();
}

#[test]
fn imports_of_http_are_refused_to_who_did_not_ask() {
    let world = World::new();
    let compiled = world.compile(guests::HTTP);
    assert_eq!(compiled.imports, ["wasi:http/types@0.2.0"]);
    let quiet = ToolCall::command(compiled.digest, "tool", Vec::new(), Vec::new());
    let refused = world.host.call(&quiet);
    assert!(
        matches!(&refused, Err(ToolError::Refused(reason)) if reason.contains("wasi:http")),
        "{refused:?}"
    );
    let asking = ToolCall { wants_http: true, ..quiet };
    world.host.probe(&compiled.digest, true).unwrap();
    // It makes no request, which would be denied.
    assert_eq!(world.call(&asking).status, ToolStatus::Exited { code: 0 });
    world.still_serves();
    assert_eq!(world.host.totals().wardens_lost, 0);
}
