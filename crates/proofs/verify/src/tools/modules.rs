//! Hostile tools in the text format of WASM: what each of them does, for the paths that it is told.

use std::fmt::Write as _;

/// Everything that WASI preview 1 offers and an attack here uses.
const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $prestat (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $list (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_remove_directory" (func $rmdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_link"
    (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename"
    (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_filestat_set_times"
    (func $touch (param i32 i32 i32 i32 i64 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $send (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_raise" (func $raise (param i32) (result i32)))"#;

/// Descriptors that might be something.
const DESCRIPTORS: u32 = 32;

/// Does something from every descriptor with every path. In the body, `$from` is the descriptor, `$at`
/// and `$length` are the path; where it leaves a 1, the attack worked and the tool says so.
fn everywhere(paths: &[String], body: &str) -> String {
    let mut data = String::new();
    let mut calls = String::new();
    let mut at = 8192;
    for path in paths {
        let escaped: String = path.bytes().map(|byte| format!("\\{byte:02x}")).collect();
        // Writing to a string cannot fail.
        let _ = write!(data, "(data (i32.const {at}) \"{escaped}\")");
        let _ = write!(calls, "(call $each (i32.const {at}) (i32.const {}))", path.len());
        at += path.len() + 1;
    }
    format!(
        r#"(module {IMPORTS}
  (memory (export "memory") 4)
  {data}
  (data (i32.const 4096) "worked\n") (data (i32.const 4200) "ringwall-attack")
  (data (i32.const 4300) "attack")
  (func $say (param $what i32) (param $length i32)
    (i32.store (i32.const 16) (local.get $what))
    (i32.store (i32.const 20) (local.get $length))
    (drop (call $write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 8))))
  (func $try (param $from i32) (param $at i32) (param $length i32) (result i32) {body})
  (func $each (param $at i32) (param $length i32) (local $from i32)
    (loop $on
      (if (call $try (local.get $from) (local.get $at) (local.get $length))
        (then (call $say (i32.const 4096) (i32.const 7))))
      (local.set $from (i32.add (local.get $from) (i32.const 1)))
      (br_if $on (i32.lt_u (local.get $from) (i32.const {DESCRIPTORS})))))
  (func (export "_start") {calls}))"#
    )
}

/// Writes out what the files hold.
pub(super) fn read(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(if (i32.eqz (call $open (local.get $from) (i32.const 1) (local.get $at)
            (local.get $length) (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 40)))
          (then
            (i32.store (i32.const 16) (i32.const 65536))
            (i32.store (i32.const 20) (i32.const 4096))
            (drop (call $read (i32.load (i32.const 40)) (i32.const 16) (i32.const 1) (i32.const 48)))
            (call $say (i32.const 65536) (i32.load (i32.const 48)))))
          (i32.const 0)",
    )
}

/// Makes or empties files, and writes into them.
pub(super) fn overwrite(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(if (result i32) (i32.eqz (call $open (local.get $from) (i32.const 1) (local.get $at)
            (local.get $length) (i32.const 9) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 40)))
          (then
            (i32.store (i32.const 16) (i32.const 4200))
            (i32.store (i32.const 20) (i32.const 15))
            (drop (call $write (i32.load (i32.const 40)) (i32.const 16) (i32.const 1) (i32.const 8)))
            (i32.const 1))
          (else (i32.const 0)))",
    )
}

pub(super) fn remove(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(i32.or
            (i32.eqz (call $unlink (local.get $from) (local.get $at) (local.get $length)))
            (i32.eqz (call $rmdir (local.get $from) (local.get $at) (local.get $length))))",
    )
}

pub(super) fn make_directory(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(i32.eqz (call $mkdir (local.get $from) (local.get $at) (local.get $length)))",
    )
}

/// A file of the granted directory in the place of another.
pub(super) fn rename_over(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(i32.eqz (call $rename (local.get $from) (i32.const 4300) (i32.const 6)
            (local.get $from) (local.get $at) (local.get $length)))",
    )
}

/// Names across the border, both ways and of both kinds.
pub(super) fn link(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(i32.or
            (i32.eqz (call $symlink (i32.const 4200) (i32.const 15) (local.get $from)
              (local.get $at) (local.get $length)))
            (i32.eqz (call $link (local.get $from) (i32.const 1) (local.get $at) (local.get $length)
              (local.get $from) (i32.const 4200) (i32.const 15))))",
    )
}

pub(super) fn change_times(paths: &[String]) -> String {
    everywhere(
        paths,
        r"(i32.eqz (call $touch (local.get $from) (i32.const 1) (local.get $at) (local.get $length)
            (i64.const 1) (i64.const 1) (i32.const 5)))",
    )
}

/// Without a path: any directory that is there to begin with.
pub(super) fn find_directories() -> String {
    everywhere(
        &["/".to_owned()],
        r"(i32.or (i32.eqz (call $prestat (local.get $from) (i32.const 40)))
            (i32.eqz (call $list (local.get $from) (i32.const 65536) (i32.const 4096) (i64.const 0)
              (i32.const 40))))",
    )
}

/// Sends on whatever might be a socket, which nothing is.
pub(super) fn send_everywhere() -> String {
    everywhere(
        &["/".to_owned()],
        r"(i32.eqz (call $send (local.get $from) (i32.const 16) (i32.const 1) (i32.const 0) (i32.const 40)))",
    )
}

/// A deadly signal for its own host.
pub(super) fn raise_signal() -> String {
    everywhere(&["/".to_owned()], "(i32.eqz (call $raise (i32.const 9)))")
}

/// Writes out its whole environment.
pub(super) fn environment() -> String {
    everywhere(
        &["/".to_owned()],
        r"(drop (call $sizes (i32.const 0) (i32.const 4)))
          (drop (call $environ (i32.const 24576) (i32.const 65536)))
          (call $say (i32.const 65536) (i32.load (i32.const 4)))
          (i32.const 0)",
    )
}

/// A program that imports this and does nothing.
pub(super) fn importing(import: &str) -> String {
    format!(r#"(module {import} (memory (export "memory") 1) (func (export "_start")))"#)
}

pub(super) const LOOP: &str = r#"(module (func (export "_start") (loop $on (br $on))))"#;

pub(super) const MEMORY_BOMB: &str = r#"(module (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (br_if $on (i32.ne (memory.grow (i32.const 64)) (i32.const -1))))
    unreachable))"#;

pub(super) const TABLE_BOMB: &str = r#"(module (table $t 1 funcref)
  (func (export "_start")
    (loop $on
      (br_if $on (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
    unreachable))"#;

pub(super) const DEEP_RECURSION: &str = r#"(module
  (func $down (param i64) (result i64)
    (i64.add (call $down (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
  (func (export "_start") (drop (call $down (i64.const 0)))))"#;

pub(super) const OUTPUT_FLOOD: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 60000))
    (loop $on
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br $on))))"#;

pub(super) const HOST_CALL_FLOOD: &str = r#"(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $now (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (drop (call $now (i32.const 1) (i64.const 1) (i32.const 0))) (br $on))))"#;

/// Waits in its host, where no fuel is burnt.
pub(super) const LONG_SLEEP: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 120) (i32.const 1))
    (i64.store (i32.const 128) (i64.const 3600000000000))
    (drop (call $poll (i32.const 104) (i32.const 200) (i32.const 1) (i32.const 300)))))"#;

pub(super) const LARGE_FROM_THE_START: &str = r#"(module (memory 60000) (func (export "_start")))"#;

/// Beyond four gigabytes by a large offset, as in CVE-2023-26489.
pub(super) const OUT_OF_BOUNDS: &str = r#"(module (memory (export "memory") 1)
  (func (export "_start")
    (i64.store offset=4294967288 (i32.const -8) (i64.const 1))))"#;

/// A function of another type by way of a table.
pub(super) const WRONG_TYPE: &str = r#"(module
  (type $other (func (param i64 i64 i64) (result i64)))
  (table funcref (elem $plain))
  (func $plain)
  (func (export "_start")
    (drop (call_indirect (type $other) (i64.const 1) (i64.const 2) (i64.const 3) (i32.const 0)))))"#;

/// Looks for what an earlier call left in its memory, and leaves something itself.
pub(super) const REMEMBER: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 16)
  (data (i32.const 16) "worked\n")
  (global $calls (mut i32) (i32.const 0))
  (func (export "_start") (local $at i32)
    (local.set $at (i32.const 65536))
    (loop $on
      (if (i32.or (global.get $calls) (i32.ne (i32.load (local.get $at)) (i32.const 0))) (then
        (i32.store (i32.const 0) (i32.const 16))
        (i32.store (i32.const 4) (i32.const 7))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
        return))
      (i32.store (local.get $at) (i32.const 0x6b656570))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $on (i32.lt_u (local.get $at) (i32.const 1000000))))
    (global.set $calls (i32.const 1))))"#;
