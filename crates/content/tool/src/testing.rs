//! What the tests share: manifests to change, and a compiler whose "WebAssembly" is JSON text.
//!
//! The real compiler is the engine's; it is tried with the store and the registry end to end.

use std::sync::Mutex;

use ringwall_spec::{ToolDigest, ToolKind};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::compiler::{BoxError, Compiler, Described};

/// A manifest that is right.
pub(crate) fn manifest() -> Value {
    json!({
        "schema": 1, "name": "count", "version": "0.1.0", "kind": "component",
        "summary": "Counts words",
        "input": {
            "type": "object", "required": ["text"], "additionalProperties": false,
            "properties": { "text": { "type": "string" }, "most": { "type": "integer", "minimum": 1 } }
        },
        "output": { "type": "object", "required": ["words"], "properties": { "words": { "type": "integer" } } },
        "wants": { "dirs": [{ "path": "/work", "access": "ro", "optional": true }] },
        "examples": [{ "title": "two", "input": { "text": "a b" }, "output": { "words": 2 } }]
    })
}

/// The same with one place changed; a missing object is made.
pub(crate) fn manifest_with(pointer: &str, value: Value) -> Value {
    let mut manifest = manifest();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    manifest.pointer_mut(parent).unwrap()[name] = value;
    manifest
}

/// A file that [`TextCompiler`] compiles.
pub(crate) fn file(manifest: &Value) -> Vec<u8> {
    json!({ "kind": "component", "manifest": manifest }).to_string().into_bytes()
}

/// Compiles `{"kind": ..., "manifest": ..., "probe": ..., "help": ...}`.
#[derive(Default)]
pub(crate) struct TextCompiler {
    pub(crate) compiled: Mutex<Vec<(ToolDigest, Value)>>,
}

impl TextCompiler {
    fn describe(digest: ToolDigest, file: &Value) -> Result<Described, BoxError> {
        let kind: ToolKind = serde_json::from_value(file["kind"].clone())?;
        let manifest = file.get("manifest").map(|manifest| manifest.to_string().into_bytes());
        Ok(Described { digest, kind, manifest, imports: Vec::new() })
    }

    fn known(&self, digest: &ToolDigest) -> Option<Value> {
        let compiled = self.compiled.lock().unwrap();
        compiled.iter().find(|(known, _)| known == digest).map(|(_, file)| file.clone())
    }
}

impl Compiler for TextCompiler {
    fn find(&self, digest: &ToolDigest) -> Option<Described> {
        TextCompiler::describe(*digest, &self.known(digest)?).ok()
    }

    fn compile(&self, wasm: &[u8]) -> Result<Described, BoxError> {
        let file: Value = serde_json::from_slice(wasm)?;
        let digest = ToolDigest(Sha256::digest(wasm).into());
        let described = TextCompiler::describe(digest, &file)?;
        self.compiled.lock().unwrap().push((digest, file));
        Ok(described)
    }

    fn probe(&self, digest: &ToolDigest, _wants_http: bool) -> Result<(), BoxError> {
        match self.known(digest).ok_or("it was never compiled")?.get("probe") {
            Some(reason) => Err(reason.to_string().into()),
            None => Ok(()),
        }
    }

    fn help(&self, digest: &ToolDigest, program: &str) -> Result<String, BoxError> {
        let file = self.known(digest).ok_or("it was never compiled")?;
        let help = file["help"].as_str().ok_or("it prints nothing")?;
        Ok(help.replace("PROGRAM", program))
    }
}
