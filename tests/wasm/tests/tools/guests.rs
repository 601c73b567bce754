//! Guests in the text format of WASM: WASI preview 1 commands, and components at the end.

/// Writes "hello" and exits with 0.
pub(crate) const HELLO: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "hello\n")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 6))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

pub(crate) const INFINITE_LOOP: &str = r#"(module (func (export "_start") (loop $on (br $on))))"#;

/// Grows its memory until that fails, then gives up.
pub(crate) const ALLOCATION_BOMB: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on
      (br_if $on (i32.ne (memory.grow (i32.const 64)) (i32.const -1))))
    unreachable))"#;

pub(crate) const TABLE_BOMB: &str = r#"(module
  (table $t 1 funcref)
  (func (export "_start")
    (loop $on
      (br_if $on (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
    unreachable))"#;

pub(crate) const STACK_OVERFLOW: &str = r#"(module
  (func $down (param i64) (result i64)
    (i64.add (call $down (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
  (func (export "_start") (drop (call $down (i64.const 0)))))"#;

pub(crate) const OUTPUT_FLOOD: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 60000))
    (loop $on
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br $on))))"#;

pub(crate) const TRAP_IN_START: &str = r#"(module
  (func $start unreachable) (start $start) (func (export "_start")))"#;

/// Asks its host for the time, for ever.
pub(crate) const HOST_CALL_FLOOD: &str = r#"(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $now (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop $on (drop (call $now (i32.const 1) (i64.const 1) (i32.const 0))) (br $on))))"#;

/// Random bytes, both clocks and the bits of a NaN, as output.
pub(crate) const CHANCE: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $now (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $random (i32.const 96) (i32.const 32)))
    (drop (call $now (i32.const 0) (i64.const 1) (i32.const 128)))
    (drop (call $now (i32.const 1) (i64.const 1) (i32.const 136)))
    (f32.store (i32.const 144) (f32.div (f32.const 0) (f32.const 0)))
    (f32.store (i32.const 148) (f32.sqrt (f32.const -1)))
    (i32.store (i32.const 0) (i32.const 96))
    (i32.store (i32.const 4) (i32.const 56))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

/// Sleeps for so many milliseconds, then writes "awake".
pub(crate) fn sleep(millis: u64) -> String {
    r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "awake")
  (func (export "_start")
    ;; One subscription: a relative time on the monotonic clock.
    (i32.store8 (i32.const 112) (i32.const 0))
    (i32.store (i32.const 120) (i32.const 1))
    (i64.store (i32.const 128) (i64.const NANOS))
    (drop (call $poll (i32.const 104) (i32.const 200) (i32.const 1) (i32.const 300)))
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 5))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#
        .replace("NANOS", &(millis * 1_000_000).to_string())
}

/// Opens a path below its first directory, `times` times, and writes the first byte of the file, or
/// the error number, plus 128.
pub(crate) fn open(path: &str, times: u32) -> String {
    r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 1000) "PATH")
  (func $once (local $error i32)
    (local.set $error (call $open (i32.const 3) (i32.const 1) (i32.const 1000) (i32.const LENGTH)
      (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 40)))
    (i32.store8 (i32.const 64) (i32.add (local.get $error) (i32.const 128)))
    (if (i32.eqz (local.get $error)) (then
      (i32.store (i32.const 0) (i32.const 64))
      (i32.store (i32.const 4) (i32.const 1))
      (drop (call $read (i32.load (i32.const 40)) (i32.const 0) (i32.const 1) (i32.const 8)))
      (drop (call $close (i32.load (i32.const 40))))))
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 1))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const TIMES))
    (loop $on
      (call $once)
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $on (local.get $left)))))"#
        .replace("PATH", path)
        .replace("LENGTH", &path.len().to_string())
        .replace("TIMES", &times.to_string())
}

/// Makes the file "new" in its first directory and writes the error number as a letter from `A` on.
pub(crate) const CREATE: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 1000) "new")
  (func (export "_start")
    (i32.store8 (i32.const 64) (i32.add (i32.const 65)
      (call $open (i32.const 3) (i32.const 0) (i32.const 1000) (i32.const 3)
        (i32.const 1) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 40))))
    (i32.store (i32.const 0) (i32.const 64))
    (i32.store (i32.const 4) (i32.const 1))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

/// A WASI 0.2 command: writes "hello 0.2" and reports success or failure.
pub(crate) fn command_component(succeeds: bool) -> String {
    COMMAND_COMPONENT.replace("CODE", if succeeds { "0" } else { "1" })
}

const COMMAND_COMPONENT: &str = r#"(component
  (import "wasi:io/error@0.2.0" (instance $io-error (export "error" (type (sub resource)))))
  (alias export $io-error "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $output-stream (sub resource)))
    (alias outer 1 $error (type $outer-error))
    (export "error" (type $inner-error (eq $outer-error)))
    (type $own-error (own $inner-error))
    (type $failure (variant (case "last-operation-failed" $own-error) (case "closed")))
    (export "stream-error" (type $stream-error (eq $failure)))
    (type $self (borrow $output-stream))
    (type $bytes (list u8))
    (type $written (result (error $stream-error)))
    (type $write (func (param "self" $self) (param "contents" $bytes) (result $written)))
    (export "[method]output-stream.blocking-write-and-flush" (func (type $write)))))
  (alias export $streams "output-stream" (type $output-stream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $output-stream (type $outer-stream))
    (export "output-stream" (type $stream (eq $outer-stream)))
    (type $own-stream (own $stream))
    (type $get (func (result $own-stream)))
    (export "get-stdout" (func (type $get)))))
  (core module $memory-module
    (memory (export "memory") 1)
    (data (i32.const 16) "hello 0.2\n"))
  (core instance $memory (instantiate $memory-module))
  (alias core export $memory "memory" (core memory $mem))
  (alias export $stdout "get-stdout" (func $get-stdout))
  (alias export $streams "[method]output-stream.blocking-write-and-flush" (func $write))
  (core func $core-get-stdout (canon lower (func $get-stdout)))
  (core func $core-write (canon lower (func $write) (memory $mem)))
  (core module $main
    (import "host" "get-stdout" (func $stdout (result i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (func (export "run") (result i32)
      (call $write (call $stdout) (i32.const 16) (i32.const 10) (i32.const 64))
      (i32.const CODE)))
  (core instance $running (instantiate $main (with "host" (instance
    (export "get-stdout" (func $core-get-stdout))
    (export "write" (func $core-write))))))
  (func $run (result (result)) (canon lift (core func $running "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))"#;

/// A WASI 0.2 command that begins to make an HTTP request.
pub(crate) const HTTP: &str = r#"(component
  (import "wasi:http/types@0.2.0" (instance $types
    (export "fields" (type $fields (sub resource)))
    (type $own (own $fields))
    (type $new (func (result $own)))
    (export "[constructor]fields" (func (type $new)))))
  (alias export $types "[constructor]fields" (func $new))
  (core func $core-new (canon lower (func $new)))
  (core module $main
    (import "host" "new" (func $new (result i32)))
    (func (export "run") (result i32) (drop (call $new)) (i32.const 0)))
  (core instance $running (instantiate $main (with "host" (instance
    (export "new" (func $core-new))))))
  (func $run (result (result)) (canon lift (core func $running "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))"#;
