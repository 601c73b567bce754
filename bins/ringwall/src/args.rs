//! The command line as data. Parsing is pure: no file, no environment, no terminal is looked at.

mod agent;
mod approvals;
mod audit;
mod docker;
mod error;
mod grant;
mod groups;
mod mcp;
mod net;
mod policy;
mod reference;
mod run;
mod sandbox;
mod secret;
mod serve;
mod snapshot;
mod tool;
mod values;
mod vm;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ringwall_spec::Wall;

pub(crate) use agent::{AgentFormat, AgentRunArgs, AgentVerb, BoundArgs, ProviderName};
pub(crate) use approvals::{ApprovalsVerb, DecisionArgs, KeyArgs};
pub(crate) use audit::{AuditVerb, AuditVerifyArgs, ExportArgs, ExportFormat, ShowArgs, TailArgs};
pub(crate) use docker::DockerArgs;
pub(crate) use error::UsageError;
pub(crate) use grant::{FormArgs, GrantNarrowArgs, GrantNewArgs, GrantVerb};
pub(crate) use mcp::{McpArgs, McpServeArgs, McpVerb, WrapArgs};
pub(crate) use net::{
    NetExplainArgs, NetLearnArgs, NetLogArgs, NetReloadArgs, NetVerb, NetworkArgs, Reachable,
};
pub(crate) use policy::{CheckArgs, ExplainArgs, InitArgs, PolicyDiffArgs, PolicyVerb};
pub(crate) use reference::reference;
pub(crate) use run::{CreateArgs, ExecArgs, RunArgs};
pub(crate) use sandbox::{JobArgs, LimitArgs, PolicyArgs, RightsArgs, SandboxArgs};
pub(crate) use secret::{SecretAddArgs, SecretBindArgs, SecretVerb};
pub(crate) use serve::{ServeDaemonArgs, usual_jobs};
pub(crate) use snapshot::{ForkArgs, RestoreArgs, SnapshotArgs, SnapshotVerb};
pub(crate) use tool::{
    AddArgs, CallArgs, InsideArgs, Language, NewArgs, ServeArgs, ToolRef, ToolVerb,
};
pub(crate) use values::SandboxPath;
pub(crate) use vm::{KernelVerb, VmVerb};

/// Parses the whole command line, program name included.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Verb, UsageError> {
    if let Some(mut verb) = parse_frequent(&arguments) {
        run::find_image(&mut verb, &arguments);
        return Ok(verb);
    }
    match Cli::try_parse_from(&arguments) {
        Ok(Cli { mut verb }) => {
            run::find_image(&mut verb, &arguments);
            Ok(verb)
        }
        Err(error) => Err(UsageError::new(error, &verb_path(&arguments))),
    }
}

/// `run` and `exec` are started for every call of an agent, and building the definitions of all
/// other verbs would be half of their work before the engine. Whatever is not plain goes the long
/// way, which knows all about errors and help.
fn parse_frequent(arguments: &[OsString]) -> Option<Verb> {
    let (_, line) = arguments.split_first()?;
    match line.first()?.to_str()? {
        "run" => One::<RunArgs>::try_parse_from(line).ok().map(|one| Verb::Run(Box::new(one.args))),
        "exec" => {
            One::<ExecArgs>::try_parse_from(line).ok().map(|one| Verb::Exec(Box::new(one.args)))
        }
        _ => None,
    }
}

/// One verb by itself.
#[derive(Debug, Parser)]
struct One<A: Args> {
    #[command(flatten)]
    args: A,
}

/// The words that name the subcommand. No flag comes before it, so they are the first ones.
fn verb_path(arguments: &[OsString]) -> String {
    let root = Cli::command();
    let (mut path, mut command) = ("ringwall".to_owned(), &root);
    for word in arguments.iter().skip(1) {
        let Some(next) = command.find_subcommand(word) else {
            break;
        };
        path = format!("{path} {}", next.get_name());
        command = next;
    }
    path
}

/// Run commands from AI agents in layered sandboxes
#[derive(Debug, Parser)]
#[command(name = "ringwall", version, disable_help_subcommand = true)]
#[command(override_help = groups::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run one command in a new sandbox
    Run(Box<RunArgs>),
    /// Show what `run` would do with the same flags, and start nothing
    #[command(mut_arg("command", |command| command.required(false)))]
    Plan(Box<RunArgs>),
    /// Start a long-lived sandbox and print its id
    Create(Box<CreateArgs>),
    /// Run a command in a running sandbox
    Exec(Box<ExecArgs>),
    /// List sandboxes
    Ps(PsArgs),
    /// Watch sandboxes, agents and budgets live, and answer questions
    #[command(after_help = "Without a terminal the list is printed once.")]
    Top(TopArgs),
    /// Show the output of a sandbox's first command
    Logs(LogsArgs),
    /// Stop running sandboxes
    Stop(StopArgs),
    /// Remove ended sandboxes with their logs and changes
    Rm(RmArgs),
    /// Copy files into or out of a running sandbox
    Cp(CpArgs),
    /// Show what a sandbox changed in its workspace
    Diff(DiffArgs),
    /// Write a sandbox's changes to the workspace
    Apply(ApplyArgs),
    /// Show or change where a running sandbox can write
    Rights(ChangeRightsArgs),
    /// Show or change the phase of a running sandbox
    Phase(PhaseArgs),
    /// Save a running microVM with its memory
    Snapshot(SnapshotArgs),
    /// Start a sandbox from a snapshot and print its id
    Restore(RestoreArgs),
    /// Clone a running microVM and print the ids
    Fork(ForkArgs),
    /// Let a model work on a task in sandboxes
    #[command(subcommand)]
    Agent(AgentVerb),
    /// Get, list and remove images
    #[command(subcommand)]
    Image(ImageVerb),
    /// Call and manage WebAssembly tools
    #[command(subcommand)]
    Tool(ToolVerb),
    /// Decide what may run where
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Issue, narrow and revoke tokens with limited rights
    #[command(subcommand)]
    Grant(GrantVerb),
    /// Answer requests for more rights
    #[command(subcommand)]
    Approvals(ApprovalsVerb),
    /// Show, test and reload network rules
    #[command(subcommand)]
    Net(Box<NetVerb>),
    /// Name secrets for the egress proxy
    #[command(subcommand)]
    Secret(SecretVerb),
    /// Manage the kernels of microVMs
    #[command(subcommand)]
    Vm(VmVerb),
    /// Read and verify the audit log
    #[command(subcommand)]
    Audit(Box<AuditVerb>),
    /// Explain the last refusal and what would allow it
    Why(WhyArgs),
    /// Serve the REST API
    #[command(
        after_help = "The state is in a file of RINGWALL_HOME, or, for several engines on one \
        state, in the PostgreSQL database that RINGWALL_POSTGRESQL names (host=/run/postgresql dbname=ringwall)."
    )]
    Serve(Box<ServeDaemonArgs>),
    /// Serve sandboxes to an MCP client on standard input and output
    Mcp(Box<McpArgs>),
    /// Show what works here, and how to fix the rest
    Doctor(DoctorArgs),
    /// Attack your own sandboxes and report what got through
    Verify(VerifyArgs),
    /// Remove leftovers of crashed runs
    Gc(OutputArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the manual page, or write one for every command into a directory
    Man {
        /// The directory for the pages [default: print one page]
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Body of the process that keeps a living sandbox
    #[command(hide = true)]
    Keep,
    /// Print docs/reference/cli.md
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(crate) struct PhaseArgs {
    /// Id, beginning of an id, or name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// The phase to move to
    #[arg(value_name = "PHASE")]
    pub(crate) phase: Option<String>,
    /// Read the required grant's token from a file
    #[arg(long, value_name = "FILE", requires = "phase")]
    pub(crate) grant: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeRightsArgs {
    /// Id, beginning of an id, or name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Allow writing everywhere in the workspace
    #[arg(long, conflicts_with_all = ["may_write", "may_only_read"])]
    pub(crate) everywhere: bool,
    /// Deny writing everywhere in the workspace
    #[arg(long, conflicts_with_all = ["may_write", "may_only_read", "everywhere"])]
    pub(crate) nowhere: bool,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// List ended sandboxes, too, that hold changes or a log
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Wait this long between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(crate) every: Duration,
    /// Choose the format: text, or one JSON document a line
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    pub(crate) format: AgentFormat,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Follow the output until the sandbox ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Id, unique beginning of an id, or name of the sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Explain this many refusals, the last one at the end
    #[arg(short = 'n', long, value_name = "COUNT", default_value = "1", value_parser = values::count)]
    pub(crate) lines: u32,
    /// Id of the sandbox, task, call or grant [default: all]
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// Give its processes this time to end by themselves
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    /// Ids, unique beginnings of ids, or names of sandboxes
    #[arg(value_name = "ID", required = true)]
    pub(crate) sandboxes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// Stop a running sandbox first
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Ids, unique beginnings of ids, or names of sandboxes
    #[arg(value_name = "ID", required = true)]
    pub(crate) sandboxes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// The file: a path of this machine, or ID:PATH
    #[arg(value_name = "SRC", value_parser = values::sandbox_path())]
    pub(crate) source: SandboxPath,
    /// The destination: a path of this machine, or ID:PATH
    #[arg(value_name = "DST", value_parser = values::sandbox_path())]
    pub(crate) destination: SandboxPath,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Count changed lines of each file
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) stat: bool,
    /// List changed paths, one a line
    #[arg(long)]
    pub(crate) name_only: bool,
    /// Id, unique beginning of an id, or name of the sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Write this protected path, too: hooks, CI, editor or shell configuration
    #[arg(long, value_name = "PATH")]
    pub(crate) allow_protected: Vec<PathBuf>,
    /// Leave this path out, with what is below it
    #[arg(long, value_name = "PATH")]
    pub(crate) except: Vec<PathBuf>,
    /// Overwrite files that you changed since the run
    #[arg(long)]
    pub(crate) force: bool,
    /// Take plain changes only: no new executables, hooks, configuration, links or dot-directories.
    /// --allow-protected names exceptions
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Id, unique beginning of an id, or name of the sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// The paths to apply, with all below them [default: everything]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// Get an image from a registry
    Pull {
        /// The image: docker.io/library/alpine:3.20, or with @sha256:...
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List images
    Ls(OutputArgs),
    /// Show an image's layers and default command
    Inspect {
        /// Name or digest of the image
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Make an image's file system for microVMs and print its path
    Root {
        /// Name or digest of the image
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove images that no sandbox uses
    Rm {
        /// Names or digests of images
        #[arg(value_name = "REF", required = true)]
        references: Vec<String>,
    },
    /// Read an image from an OCI layout directory or a `docker save` archive
    Import {
        /// An OCI layout directory or a `docker save` archive
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Store the image under this name [default: the name it carries]
        #[arg(long, value_name = "REF")]
        name: Option<String>,
        /// Let it replace an image with the name that the file carries
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Start a microVM with this image and print the time
    #[arg(long, value_name = "IMAGE")]
    pub(crate) vm_start: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Attack only this wall, repeatable
    #[arg(long = "wall", value_name = "WALL")]
    pub(crate) walls: Vec<Wall>,
    /// Skip microVMs, which take longer
    #[arg(long, conflicts_with = "walls")]
    pub(crate) quick: bool,
    /// Attack without a sandbox. Shows that the attacks work, and must fail
    #[arg(long, conflicts_with_all = ["walls", "quick"])]
    pub(crate) control: bool,
    /// Attack another sandbox: a command that runs the command after it
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["walls", "quick", "control"])]
    pub(crate) behind: Option<String>,
    /// Play this many rounds of random actions instead of the known attacks
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["quick", "control", "behind"])]
    pub(crate) adversary: Option<u32>,
    /// Repeat the rounds that began with this seed
    #[arg(long, value_name = "NUMBER", requires = "adversary")]
    pub(crate) seed: Option<u64>,
    /// Choose the format. Rounds of random actions have `table` and `json`
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub(crate) format: VerifyFormat,
    /// Write the report to this file, too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Allow a wall that failed its attacks. The audit log records it
    #[arg(long, value_name = "WALL", requires = "reason", conflicts_with_all = ["walls", "quick", "control", "report"])]
    pub(crate) accept_risk: Option<Wall>,
    /// Record why the risk is taken
    #[arg(long, value_name = "TEXT", requires = "accept_risk")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyFormat {
    Table,
    Json,
    Junit,
    Html,
}

#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OutputArgs {
    /// Choose the format of results
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

impl OutputArgs {
    /// Text, for a command that has a format of its own.
    pub(crate) const TEXT: OutputArgs = OutputArgs { format: Format::Text };

    pub(crate) fn json(self) -> bool {
        self.format == Format::Json
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

#[cfg(test)]
mod tests;
