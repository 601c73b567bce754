//! `ringwall audit`: reads and verifies the log of decisions and actions.

mod verify;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ringwall_audit::{AuditPaths, Filter, Id, LogReader, Stored, chain, hex, inclusion, ocsf};
use ringwall_engine::EngineConfig;
use serde_json::{Value, json};

use crate::args::{AuditVerb, ExportArgs, ExportFormat, ShowArgs, TailArgs};
use crate::report::{self, printable, utc};

const POLL: Duration = Duration::from_millis(100);

pub(super) fn run(verb: &AuditVerb) -> anyhow::Result<ExitCode> {
    let paths = AuditPaths::in_home(&EngineConfig::from_environment()?.home);
    match verb {
        AuditVerb::Tail(args) => tail(&paths.log(), args)?,
        AuditVerb::Show(args) => show(&paths, args)?,
        AuditVerb::Export(args) => export(&paths.log(), args)?,
        AuditVerb::Verify(args) => return verify::run(&paths, args),
    }
    Ok(ExitCode::SUCCESS)
}

fn tail(log: &Path, args: &TailArgs) -> anyhow::Result<()> {
    show_last(log, &args.filter.filter(), (args.lines, args.follow), args.output.json())
}

/// The last records that a filter takes, and those to come if they are waited for.
pub(super) fn show_last(
    log: &Path,
    filter: &Filter,
    (lines, follow): (u32, bool),
    json: bool,
) -> anyhow::Result<()> {
    let (last, mut reader) = LogReader::last(log, usize::try_from(lines)?, filter)?;
    let print = |record: &Stored| report::text(line(record, json));
    for record in &last {
        print(record)?;
    }
    if !follow {
        return Ok(());
    }
    loop {
        for record in reader.by_ref() {
            let record = record?;
            if filter.takes(&record) {
                print(&record)?;
            }
        }
        std::thread::sleep(POLL);
    }
}

/// A record as one line: as it stands in the log, or for people.
fn line(record: &Stored, json: bool) -> String {
    if json {
        return format!("{}\n", record.line);
    }
    let ids = &record.ids;
    let named = [("task", &ids.task), ("call", &ids.call), ("sandbox", &ids.sandbox)]
        .into_iter()
        .chain([("grant", &ids.grant), ("approval", &ids.approval)])
        .filter_map(|(name, id)| Some(format!(" {name}={}", id.as_ref()?)))
        .collect::<String>();
    let text = format!("{}{named}", record.event);
    format!(
        "{:>6}  {}  {:<18} {}\n",
        record.seq,
        utc(record.time),
        record.event.kind(),
        printable(&text)
    )
}

fn show(paths: &AuditPaths, args: &ShowArgs) -> anyhow::Result<()> {
    let Some(seq) = args.seq else {
        let task = Id::new(args.task.as_deref().unwrap_or_default());
        let records = chain(&paths.log(), &task)?;
        anyhow::ensure!(!records.is_empty(), "no record belongs to a task {task}");
        for record in &records {
            report::text(line(record, args.output.json()))?;
        }
        return Ok(());
    };
    let found = LogReader::open(&paths.log())?
        .find(|record| record.as_ref().map_or(true, |record| record.seq == seq));
    let record = found.with_context(|| format!("there is no record {seq}"))??;
    if !args.proof {
        let document: Value = serde_json::from_str(&record.line)?;
        report::json(&document)?;
        return Ok(());
    }
    let key = ringwall_audit::verifier_key(&paths.verifier_key())?;
    let proof = inclusion(&paths.log(), &key, seq)?;
    if args.output.json() {
        let hashes: Vec<String> = proof.hashes.iter().map(|hash| hex(hash)).collect();
        report::json(&json!({
            "leaf": proof.leaf,
            "leaf_hash": hex(&ringwall_audit::leaf_hash(proof.leaf.as_bytes())),
            "index": proof.index,
            "size": proof.size,
            "hashes": hashes,
            "root": hex(&proof.root),
            "checkpoint": proof.note,
            "key": key.to_string(),
            "proof": proof.to_text(),
        }))?;
        return Ok(());
    }
    report::text(format!(
        "The record, without a newline, is the leaf:\n\n{}\n\nThe key of the log:\n\n{key}\n\nThe proof:\n\n{}",
        proof.leaf,
        proof.to_text()
    ))?;
    Ok(())
}

fn export(log: &Path, args: &ExportArgs) -> anyhow::Result<()> {
    let filter: Filter = args.filter.filter();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for record in LogReader::open(log)? {
        let record = record?;
        if !filter.takes(&record) {
            continue;
        }
        match args.format {
            ExportFormat::Jsonl => out.write_all(record.line.as_bytes())?,
            ExportFormat::Ocsf => serde_json::to_writer(&mut out, &ocsf::event(&record, &host))
                .map_err(std::io::Error::from)?,
        }
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}
