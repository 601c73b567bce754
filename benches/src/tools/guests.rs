//! Guests that the bench brings along, as WebAssembly text.

use anyhow::{Context, Result};

/// Does nothing, under the names that each runtime looks for.
pub(crate) const NOTHING: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "_start"))
  (func (export "run") (result i32) i32.const 0))"#;

/// Sleeps as a WASI preview 1 command: one clock subscription.
const SLEEPER: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff"
    (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    ;; At 0: user data, kind 0 (clock), clock 1 (monotonic), and then the time to wait.
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const NANOSECONDS))
    (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))))"#;

/// Counts primes below two million: a tight loop over memory.
pub(crate) const SIEVE: &str = r#"(module
  (memory 32)
  (func (export "run") (result i32)
    (local $i i32) (local $j i32) (local $found i32)
    (memory.fill (i32.const 0) (i32.const 1) (i32.const 2000000))
    (local.set $i (i32.const 2))
    (loop $next
      (if (i32.load8_u (local.get $i)) (then
        (local.set $found (i32.add (local.get $found) (i32.const 1)))
        (local.set $j (i32.shl (local.get $i) (i32.const 1)))
        (block $crossed
          (loop $cross
            (br_if $crossed (i32.ge_u (local.get $j) (i32.const 2000000)))
            (i32.store8 (local.get $j) (i32.const 0))
            (local.set $j (i32.add (local.get $j) (local.get $i)))
            (br $cross)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (i32.const 2000000))))
    (local.get $found)))"#;

/// Mixes words as hashes do, a block of sixteen rounds at a time: long straight code.
pub(crate) fn mixer() -> String {
    let round = "(local.set $a (i32.add (i32.rotl (local.get $a) (i32.const 5)) (local.get $d)))
        (local.set $b (i32.xor (i32.rotr (local.get $b) (i32.const 7)) (local.get $a)))
        (local.set $c (i32.add (i32.and (local.get $b) (local.get $c)) (local.get $w)))
        (local.set $d (i32.xor (i32.rotl (local.get $c) (i32.const 11)) (local.get $d)))";
    let header = r#"(module
      (func (export "run") (result i32)
        (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $w i32)
        (local.set $b (i32.const 0x67452301))
        (loop $block "#;
    let footer = "(local.set $w (i32.add (local.get $w) (i32.const 1)))
          (br_if $block (i32.lt_u (local.get $w) (i32.const 200000))))
        (local.get $d)))";
    [header, &round.repeat(16), footer].concat()
}

pub(crate) fn sleeper(nanoseconds: u64) -> Result<Vec<u8>> {
    wasm(&SLEEPER.replace("NANOSECONDS", &nanoseconds.to_string()))
}

pub(crate) fn wasm(text: &str) -> Result<Vec<u8>> {
    wat::parse_str(text).context("a guest of the bench does not assemble")
}

/// The same tool under another digest: with one more custom section, which changes nothing.
pub(crate) fn variant(tool: &[u8], number: u8) -> Vec<u8> {
    let section = [0, 3, 1, b'v', number];
    [tool, &section].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_assemble() {
        for text in [NOTHING, SIEVE, &mixer()] {
            assert!(wasm(text).unwrap().starts_with(b"\0asm"));
        }
        assert!(sleeper(1).is_ok());
    }

    #[test]
    fn a_variant_is_another_file_with_the_same_code() {
        let engine = wasmtime::Engine::default();
        let tool = wasm(NOTHING).unwrap();
        let variants = [variant(&tool, 1), variant(&tool, 2)];
        assert_ne!(variants[0], variants[1]);
        for variant in variants {
            assert!(wasmtime::Module::new(&engine, variant).is_ok());
        }
    }
}
