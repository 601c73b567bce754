//! The flags of `ringwall policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringwall_policy::{Risk, Trust};

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Write a first policy
    Init(InitArgs),
    /// Check the policy, or one file, for mistakes
    Check(CheckArgs),
    /// Explain which rule decides a request
    #[command(
        after_help = "Requests: run KIND|tool:NAME [WALL], call TOOL [read-only], read PATH, \
        write PATH, connect METHOD URL, connect HOST:PORT, tunnel HOST:PORT, \
        secret NAME HOST[:PORT], phase NAME, apply, elevate NAME. \
        For example: ringwall policy explain --trust low -- write ./docs/a"
    )]
    Explain(Box<ExplainArgs>),
    /// Show whether an edit allows anything new, with examples
    Diff(PolicyDiffArgs),
    /// Run the test cases next to a policy
    Test(CheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Write your own policy, not one for this directory
    #[arg(long)]
    pub(crate) user: bool,
    /// Set the risk level: low, medium, high or very-high
    #[arg(long, value_name = "LEVEL", default_value = "medium", value_parser = risk)]
    pub(crate) risk: Risk,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A single policy file [default: the files that apply here]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Use this policy file, too
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Use this directory for ./ [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Set the trust level: high, medium or low. High gives more rights [default: the policy's]
    #[arg(long, value_name = "LEVEL", value_parser = trust)]
    pub(crate) trust: Option<Trust>,
    /// Set the risk level [default: the policy's]
    #[arg(long, value_name = "LEVEL", value_parser = risk)]
    pub(crate) risk: Option<Risk>,
    /// Name the phase of the task [default: the policy's first]
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
    /// Treat the task as tainted: it read untrusted text
    #[arg(long)]
    pub(crate) tainted: bool,
    /// Treat this elevation as approved
    #[arg(long, value_name = "NAME")]
    pub(crate) elevated: Vec<String>,
    /// Print the Cedar policies that decide
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
    /// The policy before the edit
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The policy after the edit
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

fn risk(text: &str) -> Result<Risk, String> {
    text.parse().map_err(|error: ringwall_policy::UnknownWord| error.to_string())
}

fn trust(text: &str) -> Result<Trust, String> {
    text.parse().map_err(|error: ringwall_policy::UnknownWord| error.to_string())
}
