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
    /// Run somebody else's MCP server behind a wall; it has no network unless --net gives it one
    Wrap(Box<WrapArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct McpServeArgs {
    /// The only directory that the agent can use; commands change a copy of it
    /// [default: the current one, unless that is / or your home]
    #[arg(long, value_name = "DIR", conflicts_with = "no_workspace")]
    pub(crate) workspace: Option<PathBuf>,
    /// The agent can use no directory
    #[arg(long)]
    pub(crate) no_workspace: bool,
    /// Tools that run as WebAssembly may write to the workspace directly
    #[arg(long, conflicts_with = "no_workspace")]
    pub(crate) tools_write: bool,
    /// The wall of every sandbox; without it the policy and, where it leaves a choice, the agent choose
    #[arg(long, value_name = "WALL")]
    pub(crate) wall: Option<Wall>,
    /// The image of every container or vm ring
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Offer only these tools: names with commas between them, `sandbox_fs_*` for all that begin alike
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// A file with the token of the grant under which everything is asked for; or set RINGWALL_GRANT
    #[arg(long, value_name = "FILE")]
    pub(crate) grant: Option<PathBuf>,
    /// Let sandboxes live on when the client has gone
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WrapArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Set an environment variable; the caller's own environment never enters
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::environment_variable())]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Working directory inside the sandbox
    #[arg(short = 'w', long = "cwd", value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// The server and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}
