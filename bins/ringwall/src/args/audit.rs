//! The flags of `ringwall audit`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use ringwall_audit::{Event, Filter};

use super::{OutputArgs, values};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Show the last records
    Tail(TailArgs),
    /// Show one record, or everything that belongs to a task
    Show(ShowArgs),
    /// Print records for other programs, one a line
    Export(ExportArgs),
    /// Look whether anything in the log was edited, removed, moved, added or cut off
    #[command(
        after_help = "Exit codes: 0 the log is whole, 1 it is not, 125 it could not be read."
    )]
    Verify(AuditVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only records of this task
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only records of this sandbox
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Only events of this kind
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Event::KINDS))]
    kind: Option<String>,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            task: self.task.as_deref().map(Into::into),
            sandbox: self.sandbox.as_deref().map(Into::into),
            kind: self.kind.clone(),
            since: None,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// How many records
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "10", value_parser = values::count)]
    pub(crate) lines: u32,
    /// Go on with new records until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// `json` prints the records as they stand in the log, one a line
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The number of the record
    #[arg(
        value_name = "SEQ",
        value_parser = values::long_count,
        required_unless_present = "task",
        conflicts_with = "task"
    )]
    pub(crate) seq: Option<u64>,
    /// Everything that led to what this task did and came of it
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// Also print the proof that the record is in the log, with all that an auditor needs
    #[arg(long, requires = "seq")]
    pub(crate) proof: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// What a line is: a record as it stands in the log, or an event of OCSF 1.7
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: ExportFormat,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Jsonl,
    Ocsf,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerifyArgs {
    /// A copy of a log [default: the log in Ringwall's home]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// A file with the log's public key [default: keys/audit.pub in Ringwall's home]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// A signed checkpoint that was kept elsewhere: the log must begin with what it was made of
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Vec<PathBuf>,
    /// Write the newest signed checkpoint to this file, if the log is whole
    #[arg(long, value_name = "FILE")]
    pub(crate) save_checkpoint: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
