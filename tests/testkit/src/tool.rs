//! Tools made for one test each, in the text format of WebAssembly.

use serde_json::{Value, json};

/// What a made component does when it is called.
#[derive(Debug, Clone)]
pub enum Does<'a> {
    /// Returns this text.
    Returns(&'a str),
    /// Fails with this code and message.
    Fails(&'a str, &'a str),
    /// Never ends.
    Loops,
    Traps,
}

/// A manifest that takes and gives any object.
pub fn manifest(name: &str) -> Value {
    json!({
        "schema": 1, "name": name, "version": "0.1.0", "kind": "component", "summary": "A test",
        "input": { "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 } },
                   "additionalProperties": false },
        "output": { "type": "object", "required": ["ok"] },
        "wants": { "dirs": [{ "path": "/work", "access": "ro", "optional": true }], "env": ["WORD"] }
    })
}

/// A component of the tool world with its manifest inside.
pub fn component(manifest: &Value, does: &Does<'_>) -> Vec<u8> {
    // The result is at 16: which case, then address and length of its texts from 20 on.
    let text = |at: usize, text: &str| format!("(data (i32.const {at}) \"{}\")", escaped(text));
    let word = |number: usize| {
        let number = u32::try_from(number).expect("a small number");
        number.to_le_bytes().map(|byte| format!("\\{byte:02x}")).concat()
    };
    let (body, data) = match does {
        Does::Returns(output) => {
            let head = [word(0), word(1024), word(output.len())].concat();
            let data = format!("(data (i32.const 16) \"{head}\") {}", text(1024, output));
            (String::new(), data)
        }
        Does::Fails(code, message) => {
            let head =
                [word(1), word(1024), word(code.len()), word(2048), word(message.len())].concat();
            let texts = [text(1024, code), text(2048, message)].concat();
            (String::new(), format!("(data (i32.const 16) \"{head}\") {texts}"))
        }
        Does::Loops => ("(loop $on (br $on))".to_owned(), String::new()),
        Does::Traps => ("unreachable".to_owned(), String::new()),
    };
    let source = COMPONENT.replace("BODY", &body).replace("DATA", &data);
    with_manifest(wat::parse_str(source).expect("the component is right"), manifest)
}

/// A preview 1 command that writes a text, with a manifest or without.
pub fn command(manifest: Option<&Value>, text: &str, exit_code: u8) -> Vec<u8> {
    let source = COMMAND
        .replace("TEXT", &escaped(text))
        .replace("LENGTH", &text.len().to_string())
        .replace("CODE", &exit_code.to_string());
    let module = wat::parse_str(source).expect("the module is right");
    match manifest {
        Some(manifest) => with_manifest(module, manifest),
        None => module,
    }
}

/// As the text format writes any bytes.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("\\{byte:02x}")).collect()
}

/// Appends the custom section in which a tool describes itself.
pub fn with_manifest(mut wasm: Vec<u8>, manifest: &Value) -> Vec<u8> {
    let name = b"ringwall:tool";
    let content = manifest.to_string();
    let mut body = leb128(name.len());
    body.extend_from_slice(name);
    body.extend_from_slice(content.as_bytes());
    wasm.push(0);
    wasm.extend(leb128(body.len()));
    wasm.extend(body);
    wasm
}

fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        bytes.push(if number > 0 { low | 0x80 } else { low });
        if number == 0 {
            return bytes;
        }
    }
}

const COMPONENT: &str = r#"(component
  (import "ringwall:tool/types@0.1.0" (instance $types
    (type $record (record (field "code" string) (field "message" string)))
    (export "failure" (type (eq $record)))))
  (alias export $types "failure" (type $failure))
  (core module $code
    (memory (export "memory") 2)
    (global $free (mut i32) (i32.const 65536))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
      (global.get $free)
      (global.set $free (i32.and (i32.const -16)
        (i32.add (i32.add (global.get $free) (local.get 3)) (i32.const 15)))))
    (func (export "call") (param i32 i32) (result i32) BODY (i32.const 16))
    DATA)
  (core instance $made (instantiate $code))
  (func $call (param "input" string) (result (result string (error $failure)))
    (canon lift (core func $made "call") (memory (core memory $made "memory"))
      (realloc (core func $made "cabi_realloc"))))
  (instance $tool (export "call" (func $call)))
  (export "ringwall:tool/tool@0.1.0" (instance $tool)))"#;

const COMMAND: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "TEXT")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const LENGTH))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))
    (call $exit (i32.const CODE))))"#;
