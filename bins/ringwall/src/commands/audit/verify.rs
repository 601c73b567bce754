//! `ringwall audit verify`: whether the log is whole, and what in it is not.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use ringwall_audit::{AuditPaths, Finding, Report, VerifierKey, Verify, hex, verifier_key, verify};
use serde::Serialize;

use crate::args::AuditVerifyArgs;
use crate::report;

/// The log was changed.
const NOT_WHOLE: u8 = 1;
/// No checkpoint is longer.
const MOST_NOTE_BYTES: u64 = 64 << 10;

#[derive(Debug, Serialize)]
struct Document<'a> {
    whole: bool,
    origin: &'a str,
    key: String,
    size: u64,
    root: String,
    checkpoint: Option<&'a str>,
    findings: &'a [Finding],
}

pub(super) fn run(paths: &AuditPaths, args: &AuditVerifyArgs) -> anyhow::Result<ExitCode> {
    let own_key = paths.verifier_key();
    let key = verifier_key(args.key.as_deref().unwrap_or(&own_key))?;
    let known = args.checkpoint.iter().map(|path| read_note(path)).collect::<Result<_, _>>()?;
    // A copy is verified by itself; our own log also beside what its writer remembers.
    let (log, state) = match &args.log {
        Some(copy) => (copy.clone(), None),
        None => (paths.log(), Some(paths.state())),
    };
    let report = verify(&Verify { log, key: key.clone(), known, state })?;
    if args.output.json() {
        report::json(&Document {
            whole: report.is_whole(),
            origin: &report.origin,
            key: key.to_string(),
            size: report.size,
            root: hex(&report.root),
            checkpoint: report.checkpoint.as_deref(),
            findings: &report.findings,
        })?;
    } else {
        tell(&report, &key, args)?;
    }
    if !report.is_whole() {
        return Ok(ExitCode::from(NOT_WHOLE));
    }
    if let (Some(path), Some(note)) = (&args.save_checkpoint, &report.checkpoint) {
        std::fs::write(path, note)
            .with_context(|| format!("the checkpoint cannot be written to {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(report: &Report, key: &VerifierKey, args: &AuditVerifyArgs) -> anyhow::Result<()> {
    let mut text = String::new();
    for finding in &report.findings {
        text.push_str(&report::printable(&finding.to_string()));
        text.push('\n');
    }
    let records = format!("{} records, signed by {key}", report.size);
    if report.is_whole() {
        let contained = match args.checkpoint.len() {
            0 => "",
            _ => "; it begins with what the given checkpoints were made of",
        };
        text.push_str(&format!("the log is whole: {records}{contained}\n"));
    } else {
        text.push_str(&format!("THE LOG IS NOT WHOLE: {records}\n"));
    }
    report::text(text)?;
    Ok(())
}

fn read_note(path: &Path) -> anyhow::Result<String> {
    let read = || {
        let mut note = String::new();
        File::open(path)?.take(MOST_NOTE_BYTES).read_to_string(&mut note)?;
        Ok::<_, std::io::Error>(note)
    };
    read().with_context(|| format!("the checkpoint {} cannot be read", path.display()))
}
