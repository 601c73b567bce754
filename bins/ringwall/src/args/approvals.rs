//! The flags of `ringwall approvals`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ringwall_approval::ApprovalId;

use super::{OutputArgs, values};

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsVerb {
    /// List what waits for a decision
    Ls {
        /// Also list what was decided or has lapsed
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Show exactly what is asked for, by whom, and what was decided
    Show {
        #[arg(value_name = "ID")]
        id: ApprovalId,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Allow exactly what is asked for
    Approve {
        #[command(flatten)]
        decision: DecisionArgs,
        /// How long it is allowed for [default: as long as the policy allows]
        #[arg(long = "for", value_name = "TIME", value_parser = values::duration)]
        lasting: Option<Duration>,
    },
    /// Refuse what is asked for
    Deny {
        #[command(flatten)]
        decision: DecisionArgs,
    },
    /// Print a link to the daemon's page for deciding; it lets one person in, once
    Page {
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Make your own key for approving; prints its public part for the policy
    Keygen {
        #[command(flatten)]
        key: KeyArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DecisionArgs {
    #[arg(value_name = "ID")]
    pub(crate) id: ApprovalId,
    /// Why, for the record
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) reason: String,
    #[command(flatten)]
    pub(crate) key: KeyArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The file of your key [default: ringwall/approver.key in your configuration]
    #[arg(long = "key", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
