//! Looks at a tool before it is compiled: what it is, what it wants, what it says of itself.
//!
//! Compiling takes far longer than looking, so what cannot become a tool is refused here.

use ringwall_spec::{ToolKind, ToolLimits};
use ringwall_wasm::{HOST_INTERFACE, MANIFEST_SECTION, TOOL_INTERFACE, TYPES_INTERFACE};
use ringwall_wire::{CompileReport, MAX_MANIFEST_BYTES};
use wasmparser::{BinaryReaderError, Encoding, MemoryType, Parser, Payload};

/// Functions of a tool, all its modules together. Larger than any language runtime.
const MAX_FUNCTIONS: u64 = 200_000;
const MAX_IMPORTS: usize = 1024;

const COMMAND_INTERFACE: &str = "wasi:cli/run@0.2.";
const PREVIEW1: &str = "wasi_snapshot_preview1";

/// What WASI there is for a tool; HTTP only to be denied.
const WASI: [&str; 7] = ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"];

#[derive(Default)]
struct Seen<'a> {
    encoding: Option<Encoding>,
    depth: usize,
    functions: u64,
    exports: Vec<&'a str>,
    imports: Vec<&'a str>,
    /// With how deep inside it was found: the outermost counts.
    manifest: Option<(usize, &'a [u8])>,
}

/// A report on what is worth compiling, or why nothing is.
pub(crate) fn inspect(wasm: &[u8]) -> Result<CompileReport, String> {
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(|error| malformed(&error))?;
        seen.look(&payload)?;
    }
    let encoding = seen.encoding.ok_or("it is empty")?;
    let kind = seen.kind(encoding)?;
    seen.check_imports(encoding)?;
    let mut imports: Vec<String> = seen.imports.iter().map(|name| (*name).to_owned()).collect();
    imports.sort_unstable();
    imports.dedup();
    let manifest = seen.manifest.map(|(_, bytes)| bytes.to_vec());
    Ok(CompileReport { kind, manifest, imports })
}

impl<'a> Seen<'a> {
    fn look(&mut self, payload: &Payload<'a>) -> Result<(), String> {
        match payload {
            Payload::Version { encoding, .. } => {
                self.depth += 1;
                self.encoding.get_or_insert(*encoding);
            }
            Payload::End(_) => self.depth = self.depth.saturating_sub(1),
            Payload::FunctionSection(functions) => {
                self.functions += u64::from(functions.count());
                if self.functions > MAX_FUNCTIONS {
                    return Err(format!("it has more than {MAX_FUNCTIONS} functions"));
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories.clone() {
                    check_memory(&memory.map_err(|error| malformed(&error))?)?;
                }
            }
            Payload::CustomSection(section) if section.name() == MANIFEST_SECTION => {
                self.found_manifest(section.data())?;
            }
            payload if self.depth == 1 => self.look_at_border(payload)?,
            _ => {}
        }
        Ok(())
    }

    /// Imports and exports of the outermost module or component.
    fn look_at_border(&mut self, payload: &Payload<'a>) -> Result<(), String> {
        let wrong = |error| malformed(&error);
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports() {
                    self.import(import.map_err(wrong)?.module)?;
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports.clone() {
                    self.import(import.map_err(wrong)?.name.name)?;
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports.clone() {
                    self.exports.push(export.map_err(wrong)?.name);
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports.clone() {
                    self.exports.push(export.map_err(wrong)?.name.name);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn import(&mut self, name: &'a str) -> Result<(), String> {
        // A module names its source with every function.
        if self.imports.last() != Some(&name) {
            self.imports.push(name);
        }
        let many = self.imports.len() > MAX_IMPORTS;
        if many { Err(format!("it has more than {MAX_IMPORTS} imports")) } else { Ok(()) }
    }

    fn found_manifest(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(format!("its manifest is longer than {MAX_MANIFEST_BYTES} bytes"));
        }
        if self.manifest.is_none_or(|(depth, _)| self.depth < depth) {
            self.manifest = Some((self.depth, bytes));
        }
        Ok(())
    }

    fn kind(&self, encoding: Encoding) -> Result<ToolKind, String> {
        let exports = |wanted: &dyn Fn(&str) -> bool| self.exports.iter().any(|name| wanted(name));
        match encoding {
            Encoding::Component if exports(&|name| name == TOOL_INTERFACE) => {
                Ok(ToolKind::Component)
            }
            Encoding::Component if exports(&|name| name.starts_with(COMMAND_INTERFACE)) => {
                Ok(ToolKind::CommandComponent)
            }
            Encoding::Component => Err(format!(
                "it exports neither {TOOL_INTERFACE} nor wasi:cli/run; build it for one of them"
            )),
            Encoding::Module if exports(&|name| name == "_start") => Ok(ToolKind::CommandModule),
            Encoding::Module => {
                Err("it exports no _start; build it as a WASI command or as a component".to_owned())
            }
        }
    }

    fn check_imports(&self, encoding: Encoding) -> Result<(), String> {
        let given = |name: &str| match encoding {
            Encoding::Module => name == PREVIEW1,
            Encoding::Component => {
                [HOST_INTERFACE, TYPES_INTERFACE].contains(&name) || is_wasi(name)
            }
        };
        match self.imports.iter().find(|name| !given(name)) {
            Some(name) => Err(format!(
                "it imports {name:?}, which no tool gets; there are WASI 0.2, WASI preview 1 and {HOST_INTERFACE}"
            )),
            None => Ok(()),
        }
    }
}

fn is_wasi(name: &str) -> bool {
    let parts = name.strip_prefix("wasi:").and_then(|rest| rest.split_once('/'));
    parts.is_some_and(|(package, rest)| WASI.contains(&package) && rest.contains("@0.2."))
}

fn check_memory(memory: &MemoryType) -> Result<(), String> {
    let page = 1u64 << memory.page_size_log2.unwrap_or(16);
    let most = ToolLimits::MOST.memory_bytes;
    if memory.initial.saturating_mul(page) > most {
        return Err(format!("it starts with more than {} MiB of memory", most >> 20));
    }
    Ok(())
}

fn malformed(error: &BinaryReaderError) -> String {
    format!("it is no valid WASM: {error}")
}

#[cfg(test)]
mod tests;
