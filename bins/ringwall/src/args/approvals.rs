//! The flags of `ringwall approvals`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ringwall_approval::ApprovalId;

use super::{OutputArgs, values};

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsVerb {
    /// List open questions
    Ls {
        /// List answered and expired questions, too
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show a question, its requester and its answer
    Show {
        /// Id of the question
        #[arg(value_name = "ID")]
        id: ApprovalId,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Approve exactly this request
    Approve {
        #[command(flatten)]
        decision: DecisionArgs,
        /// Allow it for this time [default: as long as the policy allows]
        #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
        lasting: Option<Duration>,
    },
    /// Deny this request
    Deny {
        #[command(flatten)]
        decision: DecisionArgs,
    },
    /// Print a link to the approvals page, for one person, once
    Page {
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Create your key for approvals and print its public part
    Keygen {
        #[command(flatten)]
        key: KeyArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DecisionArgs {
    /// Id of the question
    #[arg(value_name = "ID")]
    pub(crate) id: ApprovalId,
    /// Record this reason
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// Use your key in this file [default: ringwall/approver.key in your configuration]
    #[arg(long = "key", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
