//! The flags of `ringwall mcp`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringwall_spec::Wall;

use super::{SandboxArgs, values};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) verb: Option<McpVerb>,
    #[command(flatten)]
    pub(crate) serve: McpServeArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpVerb {
    /// Run an MCP server in a sandbox. It has no network without --net
    Wrap(Box<WrapArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct McpServeArgs {
    /// Show only this directory. Commands change a copy of it [default: the current one, unless
    /// that is / or your home]
    #[arg(long, value_name = "DIR", conflicts_with = "no_workspace")]
    pub(crate) workspace: Option<PathBuf>,
    /// Show no directory
    #[arg(long)]
    pub(crate) no_workspace: bool,
    /// Let tools write to the workspace directly
    #[arg(long, conflicts_with = "no_workspace")]
    pub(crate) tools_write: bool,
    /// Use this wall for every sandbox. Otherwise policy and agent choose
    #[arg(long, value_name = "WALL")]
    pub(crate) wall: Option<Wall>,
    /// Use this image for every container or vm ring
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Offer only these tools, separated by commas: `grep`, `sandbox_fs_*`
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// Read the token of the grant from a file, or set RINGWALL_GRANT
    #[arg(long, value_name = "FILE")]
    pub(crate) grant: Option<PathBuf>,
    /// Keep sandboxes when the client leaves
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WrapArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Set an environment variable. Your own environment never enters
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::environment_variable())]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Start in this directory of the sandbox
    #[arg(short = 'w', long = "cwd", value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// The server and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}
