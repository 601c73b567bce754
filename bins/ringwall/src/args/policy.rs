//! The flags of `ringwall policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringwall_policy::{Profile, Tier};

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Write a policy to begin with
    Init(InitArgs),
    /// Look for mistakes in the policy in force, or in one file
    Check(CheckArgs),
    /// Say which rule decides a request, and why
    #[command(
        after_help = "Requests: run KIND|tool:NAME [WALL], call TOOL [read-only], read PATH, \
        write PATH, connect METHOD URL, connect HOST:PORT, tunnel HOST:PORT, \
        secret NAME HOST[:PORT], phase NAME, apply, elevate NAME. \
        For example: ringwall policy explain --tier low -- write ./docs/a"
    )]
    Explain(Box<ExplainArgs>),
    /// Say whether an edit of a policy allows anything new, with examples
    Diff(PolicyDiffArgs),
    /// Ask the allow and deny cases that lie beside a policy
    Test(CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Write your own policy, which says what is allowed, and not one for this directory
    #[arg(long)]
    pub(crate) user: bool,
    /// How much is at risk: low, medium, high or very-high
    #[arg(long, value_name = "PROFILE", default_value = "medium", value_parser = profile)]
    pub(crate) profile: Profile,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A policy file by itself [default: the files that count here]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Also this policy file
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The directory that ./ stands for [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// How far the task is trusted: high, medium or low [default: the policy's]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    pub(crate) tier: Option<Tier>,
    /// How much is at risk [default: the policy's]
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    pub(crate) profile: Option<Profile>,
    /// The phase that the task is in [default: the policy's first]
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
    /// The task has read what a stranger wrote
    #[arg(long)]
    pub(crate) tainted: bool,
    /// An elevation that was approved
    #[arg(long, value_name = "NAME")]
    pub(crate) elevated: Vec<String>,
    /// Print the Cedar policies that decide it
    #[arg(long)]
    pub(crate) cedar: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// The request, for example: write ./docs/a
    #[arg(value_name = "REQUEST", required = true, trailing_var_arg = true)]
    pub(crate) request: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyDiffArgs {
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn profile(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|error: ringwall_policy::UnknownWord| error.to_string())
}

fn tier(text: &str) -> Result<Tier, String> {
    text.parse().map_err(|error: ringwall_policy::UnknownWord| error.to_string())
}
