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
    /// Check that the log was not changed
    #[command(
        after_help = "Exit codes: 0 the log is whole, 1 it is not, 125 it could not be read."
    )]
    Verify(AuditVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Show only records of this task
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Show only records of this sandbox
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Show only events of this kind
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
    /// Print this many records
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "10", value_parser = values::count)]
    pub(crate) lines: u32,
    /// Follow new records until interrupted
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
    /// Show everything that belongs to this task
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// Print the proof that the record is in the log, too
    #[arg(long, requires = "seq")]
    pub(crate) proof: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Write records of the log, or events of OCSF 1.7
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
    /// Check this copy of a log [default: the log in Ringwall's home]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Read the log's public key from a file [default: keys/audit.pub in Ringwall's home]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Check that the log continues from this saved checkpoint
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Vec<PathBuf>,
    /// Save the newest signed checkpoint to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) save_checkpoint: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
