//! Tools as people and programs get to read them.

use std::fmt::Write;

use ringwall_spec::{DirAccess, ToolDigest, ToolKind, show_bytes};
use ringwall_tool::{Added, Compiler, Entry, Manifest, Tool};
use serde::Serialize;

use crate::args::ToolRef;
use crate::report::{self, Table, printable};

pub(super) fn list(entries: &[Entry], json: bool) -> anyhow::Result<()> {
    if json {
        report::json(&entries)?;
        return Ok(());
    }
    let mut table = Table::new(["NAME", "VERSION", "DIGEST", "SIZE", "SOURCE", "SUMMARY"]);
    for entry in entries {
        let pin = if entry.pinned { " (pinned)" } else { "" };
        table.row([
            &entry.name,
            &entry.version,
            &entry.short_digest(),
            &show_bytes(entry.bytes),
            &format!("{}{pin}", entry.source.label()),
            &entry.summary,
        ]);
    }
    report::text(table.to_string())?;
    Ok(())
}

pub(super) fn added(added: &Added, json: bool) -> anyhow::Result<()> {
    let Added { entry, known } = added;
    if json {
        report::json(entry)?;
        return Ok(());
    }
    let done = if *known { "was installed already:" } else { "installed" };
    let line = format!("{done} {} {} {}", entry.name, entry.version, entry.digest);
    report::text(format!("{}\n", printable(&line)))?;
    if entry.made_manifest {
        report::note(&format!(
            "{} has no manifest; one was made from its --help: input is args and stdin",
            entry.name
        ));
    }
    Ok(())
}

/// What `inspect -o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    digest: ToolDigest,
    kind: ToolKind,
    /// What the file needs from its host, as its author cannot hide it.
    imports: Vec<String>,
    manifest: &'a Manifest,
}

pub(super) fn inspect(
    tool: &Tool,
    named: &ToolRef,
    compiler: &dyn Compiler,
    json: bool,
) -> anyhow::Result<()> {
    let imports = compiler.find(&tool.digest).map(|found| found.imports).unwrap_or_default();
    let (digest, kind, manifest) = (tool.digest, tool.kind, tool.manifest());
    if json {
        report::json(&Document { digest, kind, imports, manifest })?;
        return Ok(());
    }
    report::text(describe(tool, named, &imports)?)?;
    Ok(())
}

fn describe(tool: &Tool, named: &ToolRef, imports: &[String]) -> anyhow::Result<String> {
    let manifest = tool.manifest();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{:13} {}", format!("{name}:"), printable(value));
    };
    line("name", &format!("{} {}", manifest.name, manifest.version));
    line("summary", &manifest.summary);
    line("digest", &tool.digest.to_string());
    line("kind", word(&tool.kind)?.as_str());
    line("risk", word(&manifest.risk)?.as_str());
    line("determinism", word(&manifest.determinism)?.as_str());
    for dir in &manifest.wants.dirs {
        let access = if dir.access == DirAccess::Write { "read and write" } else { "read" };
        let need = if dir.optional { "optional" } else { "needed" };
        let why = if dir.why.is_empty() { String::new() } else { format!(": {}", dir.why) };
        line("wants", &format!("directory {} ({access}, {need}){why}", dir.path));
    }
    for name in &manifest.wants.env {
        line("wants", &format!("variable {name}"));
    }
    for host in &manifest.wants.http {
        line("wants", &format!("http to {host} (denied: there is no gateway yet)"));
    }
    if !imports.is_empty() {
        line("imports", &imports.join(", "));
    }
    if !manifest.description.is_empty() {
        let _ = writeln!(text);
        for paragraph in manifest.description.lines() {
            let _ = writeln!(text, "{}", printable(paragraph));
        }
    }
    for (name, schema) in [("input", &manifest.input), ("output", &manifest.output)] {
        let _ = writeln!(text, "\n{name}:");
        for shown in serde_json::to_string_pretty(schema)?.lines() {
            let _ = writeln!(text, "  {}", printable(shown));
        }
    }
    for example in &manifest.examples {
        let tool = match named {
            ToolRef::Name(name) => name.to_string(),
            ToolRef::File(path) => path.display().to_string(),
        };
        // One quoted word for a shell, whatever the input holds.
        let input = example.input.to_string().replace('\'', "'\\''");
        let _ = writeln!(text, "\n# {}", printable(&example.title));
        let call = format!("ringwall tool call {tool} --input '{input}'");
        let _ = writeln!(text, "{}", printable(&call));
    }
    Ok(text)
}

/// The name that a value has in JSON.
fn word(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_value(value)?.as_str().unwrap_or_default().to_owned())
}
