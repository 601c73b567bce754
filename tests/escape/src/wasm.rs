//! Attacks from inside a tool: WebAssembly that asks its host for what nobody granted.
//!
//! The control of each attack is the same module with the grant that it lacks.

use std::fs;
use std::os::unix::fs::symlink;

use ringwall_testkit::tool;
use serde_json::{Value, json};

use crate::support::{Arena, Outcome, Wall, token};

/// A program that asks for `/work` and one variable, and gives what it writes.
fn described() -> Value {
    json!({
        "schema": 1, "name": "attack", "version": "0.1.0", "kind": "command",
        "summary": "An attack",
        "input": { "type": "object" }, "output": { "type": "object" },
        "command": { "args": [], "stdout": "text" },
        "wants": {
            "dirs": [{ "path": "/work", "access": "rw", "optional": true }], "env": ["WORD"]
        }
    })
}

const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"#;

/// Writes its whole environment.
fn environment() -> String {
    format!(
        r#"(module {IMPORTS}
  (memory (export "memory") 4)
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 4)))
    (drop (call $environ (i32.const 1024) (i32.const 65536)))
    (i32.store (i32.const 16) (i32.const 65536))
    (i32.store (i32.const 20) (i32.load (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 8)))))"#
    )
}

/// Opens a path from every descriptor that might be a directory, and writes what is there.
pub(crate) fn read_everywhere(path: &str) -> String {
    let length = path.len();
    format!(
        r#"(module {IMPORTS}
  (memory (export "memory") 4)
  (data (i32.const 2048) "{path}")
  (func (export "_start") (local $from i32)
    (loop $on
      (if (i32.eqz (call $open (local.get $from) (i32.const 1) (i32.const 2048)
          (i32.const {length}) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0)
          (i32.const 40))) (then
        (i32.store (i32.const 16) (i32.const 65536))
        (i32.store (i32.const 20) (i32.const 4096))
        (drop (call $read (i32.load (i32.const 40)) (i32.const 16) (i32.const 1) (i32.const 20)))
        (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 8)))))
      (local.set $from (i32.add (local.get $from) (i32.const 1)))
      (br_if $on (i32.lt_u (local.get $from) (i32.const 64))))))"#
    )
}

#[track_caller]
fn call(arena: &Arena, text: &str, flags: &[&str], secret: &str) -> Outcome {
    let mut command = arena.command([""; 0]);
    command.env("WORD", secret).env("AWS_SECRET_ACCESS_KEY", secret);
    call_with(arena, &mut command, text, flags)
}

/// The same by a command that was made ready.
#[track_caller]
pub(crate) fn call_with(
    arena: &Arena,
    command: &mut std::process::Command,
    text: &str,
    flags: &[&str],
) -> Outcome {
    let wasm = wat::parse_str(text).expect("a module");
    arena.write("attack.wasm", tool::with_manifest(wasm, &described()));
    command.args(["tool", "call", "./attack.wasm"]).args(flags);
    command.env("RINGWALL_TOOLS", arena.path("no-tools"));
    Outcome::new(format!("tool call {flags:?}"), command.output().expect("it starts"))
}

fn walls() -> impl Iterator<Item = Arena> {
    let ordinary = rustix::process::geteuid().is_root().then_some(Wall::ProcessOfOrdinaryUser);
    [Wall::Process].into_iter().chain(ordinary).map(Arena::without_image)
}

#[test]
fn the_store_holds_nothing_of_the_callers_environment() {
    for arena in walls() {
        let secret = token("key");
        call(&arena, &environment(), &[], &secret).exits(0).never_shows(&secret);
        let granted = format!("WORD={secret}");
        call(&arena, &environment(), &["-e", &granted], &secret).exits(0).shows(&secret);
    }
}

#[test]
fn preopens_lead_nowhere_but_where_they_were_granted() {
    for arena in walls() {
        let (secret, open) = (token("outside"), token("inside"));
        let outside = arena.path("outside");
        arena.make_dir(&outside);
        fs::write(outside.join("file"), &secret).expect("a file");
        arena.write("work/file", &open);
        symlink(&outside, arena.project().join("work/way-out")).expect("a link");
        symlink("../../outside/file", arena.project().join("work/link")).expect("a link");
        let absolute = outside.join("file").display().to_string();
        let paths = [
            "../../outside/file",
            "../../../../../../../../etc/passwd",
            "/etc/passwd",
            "/proc/self/environ",
            "/proc/self/root/etc/passwd",
            "way-out/file",
            "link",
            "./../work/../../outside/file",
            &absolute,
        ];
        for path in paths {
            for flags in [&[][..], &["--dir", "/work=work"]] {
                let attack = call(&arena, &read_everywhere(path), flags, &secret);
                attack.exits(0).never_shows(&secret).never_shows("root:x:0");
            }
        }
        let control = call(&arena, &read_everywhere("file"), &["--dir", "/work=work"], "");
        control.exits(0).shows(&open);
        let control = call(&arena, &read_everywhere("file"), &[], "");
        control.exits(0).never_shows(&open);
    }
}

#[test]
fn the_linker_has_nothing_that_starts_programs_or_reaches_a_network() {
    let with = |import: &str| format!("(module {import} (func (export \"_start\")))");
    let memory = r#"(memory (export "memory") 1)"#;
    for arena in walls() {
        for import in [
            r#"(import "env" "system" (func (param i32) (result i32)))"#,
            r#"(import "env" "execve" (func (param i32 i32 i32) (result i32)))"#,
            r#"(import "wasi_snapshot_preview1" "sock_open" (func (param i32 i32 i32) (result i32)))"#,
            r#"(import "wasi_snapshot_preview1" "sock_connect" (func (param i32 i32 i32) (result i32)))"#,
            r#"(import "wasi" "thread-spawn" (func (param i32) (result i32)))"#,
        ] {
            let attack = call(&arena, &with(&format!("{import} {memory}")), &[], "");
            assert_eq!(attack.code, 125, "{import}\n{attack:?}");
        }
        call(&arena, &with(memory), &[], "").exits(0);
    }
}
