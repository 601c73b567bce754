//! The flags of `ringwall snapshot`, `restore` and `fork`.

use clap::{Args, Subcommand};
use ringwall_spec::SandboxName;

use super::OutputArgs;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<SnapshotVerb>,
    /// The sandbox. Its wall is `vm`, and no command runs in it
    #[arg(value_name = "ID", required = true)]
    pub(crate) sandbox: Option<String>,
    /// Name the snapshot
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SandboxName>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// List snapshots
    Ls(OutputArgs),
    /// Remove snapshots
    Rm {
        /// Id, unique beginning of an id, or name
        #[arg(value_name = "SNAPSHOT", required = true)]
        snapshots: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Id, unique beginning of an id, or name of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: String,
    /// Name the new sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<SandboxName>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ForkArgs {
    /// The sandbox. Its wall is `vm`, and no command runs in it
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// Make this many copies
    #[arg(long, value_name = "N", default_value = "1", value_parser = super::values::count)]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
