//! The command line as data. Parsing is pure: no file, no environment, no terminal is looked at.

mod agent;
mod approvals;
mod audit;
mod docker;
mod error;
mod grant;
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

/// Runs untrusted programs behind a wall of isolation rings, and proves that the wall was there.
#[derive(Debug, Parser)]
#[command(name = "ringwall", version, disable_help_subcommand = true)]
#[command(after_help = "Exit codes of `run` and `exec`: the command's own; 124 time limit, \
    125 Ringwall's own error, 126 not executable, 127 not found, 137 killed or out of memory.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a command behind a fresh wall
    Run(Box<RunArgs>),
    /// Make a sandbox that lives on; prints its id
    Create(Box<CreateArgs>),
    /// Run a command in a living sandbox
    Exec(Box<ExecArgs>),
    /// List sandboxes
    Ps(PsArgs),
    /// Watch sandboxes, agents and their budgets, and answer what waits for a person
    #[command(after_help = "Without a terminal the list is printed once.")]
    Top(TopArgs),
    /// Show what the command of a sandbox has written
    Logs(LogsArgs),
    /// End living sandboxes
    Stop(StopArgs),
    /// Remove ended sandboxes with their logs and kept changes
    Rm(RmArgs),
    /// Copy files into or out of a living sandbox
    Cp(CpArgs),
    /// Show what a sandbox changed in its workspace
    Diff(DiffArgs),
    /// Write a sandbox's changes back to the workspace
    Apply(ApplyArgs),
    /// Show or change where a living sandbox may write in its workspace
    Rights(ChangeRightsArgs),
    /// Show the phase of a living sandbox, or move it to another
    Phase(PhaseArgs),
    /// Keep a living microVM with its memory; it goes on
    Snapshot(SnapshotArgs),
    /// Make a sandbox that goes on from a snapshot; prints its id
    Restore(RestoreArgs),
    /// Copy a living microVM; prints the ids of the copies
    Fork(ForkArgs),
    /// Give tasks to agents whose every step is done behind a wall, and look at what they did
    #[command(subcommand)]
    Agent(AgentVerb),
    /// Get, list and remove images
    #[command(subcommand)]
    Image(ImageVerb),
    /// Install, call and make tools that run as WebAssembly
    #[command(subcommand)]
    Tool(ToolVerb),
    /// Write, check and explain policies: what may run where
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Make, narrow and revoke grants: what the holder of a token may do
    #[command(subcommand)]
    Grant(GrantVerb),
    /// Decide on what was refused and can be allowed by a person
    #[command(subcommand)]
    Approvals(ApprovalsVerb),
    /// Show and explain what sandboxes reached, and propose rules
    #[command(subcommand)]
    Net(Box<NetVerb>),
    /// Name secrets, and say which endpoint may see each
    #[command(subcommand)]
    Secret(SecretVerb),
    /// Look after what microVMs are made of
    #[command(subcommand)]
    Vm(VmVerb),
    /// Read and verify the log of what was decided and done
    #[command(subcommand)]
    Audit(Box<AuditVerb>),
    /// Serve the API: sandboxes, commands, files and tools for many clients
    #[command(
        after_help = "The state is in a file of RINGWALL_HOME, or, for several engines on one \
        state, in the PostgreSQL database that RINGWALL_POSTGRESQL names (host=/run/postgresql dbname=ringwall)."
    )]
    Serve(Box<ServeDaemonArgs>),
    /// Serve an agent over the Model Context Protocol, on standard input and output
    Mcp(Box<McpArgs>),
    /// Check what this machine can do and how to fix what it cannot
    Doctor(DoctorArgs),
    /// Attack every wall of this machine from inside, and report what got through
    Verify(VerifyArgs),
    /// Remove what crashed runs left behind
    Gc(OutputArgs),
    /// Print a completion script for a shell
    Completions {
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the manual page, or write one for every command into a directory
    Man {
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
    /// A file with the token of the grant that must allow it
    #[arg(long, value_name = "FILE", requires = "phase")]
    pub(crate) grant: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeRightsArgs {
    /// Id, beginning of an id, or name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// Everything can be written again
    #[arg(long, conflicts_with_all = ["may_write", "may_only_read"])]
    pub(crate) everywhere: bool,
    /// Nothing can be written any more
    #[arg(long, conflicts_with_all = ["may_write", "may_only_read", "everywhere"])]
    pub(crate) nowhere: bool,
    #[command(flatten)]
    pub(crate) rights: RightsArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Also list sandboxes that have ended but still hold changes or a log
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// How often to look again
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    pub(crate) every: Duration,
    /// Text, or one JSON document a line until nobody reads any more
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    pub(crate) format: AgentFormat,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Go on until the sandbox ends
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// How long its processes get to end by themselves
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::duration)]
    pub(crate) grace: Duration,
    #[arg(value_name = "ID", required = true)]
    pub(crate) sandboxes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// End the sandbox first if it is running
    #[arg(short, long)]
    pub(crate) force: bool,
    #[arg(value_name = "ID", required = true)]
    pub(crate) sandboxes: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CpArgs {
    /// What to copy: a path of this machine, or ID:PATH
    #[arg(value_name = "SRC", value_parser = values::sandbox_path())]
    pub(crate) source: SandboxPath,
    /// Where to: a path of this machine, or ID:PATH
    #[arg(value_name = "DST", value_parser = values::sandbox_path())]
    pub(crate) destination: SandboxPath,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Only count changed lines per file
    #[arg(long, conflicts_with = "name_only")]
    pub(crate) stat: bool,
    /// Only list what changed, one path a line
    #[arg(long)]
    pub(crate) name_only: bool,
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// Also write this protected path (hooks, CI, editor or shell configuration)
    #[arg(long, value_name = "PATH")]
    pub(crate) allow_protected: Vec<PathBuf>,
    /// Leave this path out, with what is below it
    #[arg(long, value_name = "PATH")]
    pub(crate) except: Vec<PathBuf>,
    /// Overwrite files that were changed here since the run
    #[arg(long)]
    pub(crate) force: bool,
    /// Take plain changes only: no new executables, hooks, configuration, links or dot-directories,
    /// unless they are named with --allow-protected
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// Only these paths, and what is below them [default: everything]
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// Get an image from a registry
    Pull {
        /// For example docker.io/library/alpine:3.20 or 127.0.0.1:5000/tools@sha256:...
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List images
    Ls(OutputArgs),
    /// Show an image: its layers, its root image for VMs and what it wants to run
    Inspect {
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Make an image's root image for VMs, unless it is there, and print its path
    Root {
        #[arg(value_name = "REF")]
        reference: String,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove images that no sandbox uses
    Rm {
        #[arg(value_name = "REF", required = true)]
        references: Vec<String>,
    },
    /// Read an image from an OCI layout directory or a `docker save` archive
    Import {
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Store the image under this name [default: the name it carries]
        #[arg(long, value_name = "REF")]
        name: Option<String>,
        /// Let a name that the file carries replace an image of that name
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Start a microVM with this image and say how long that took
    #[arg(long, value_name = "IMAGE")]
    pub(crate) vm_start: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Only this wall; may be given more than once
    #[arg(long = "wall", value_name = "WALL")]
    pub(crate) walls: Vec<Wall>,
    /// Leave out microVMs, which take longer
    #[arg(long, conflicts_with = "walls")]
    pub(crate) quick: bool,
    /// Attack without any wall: shows that the attacks can work, and must fail
    #[arg(long, conflicts_with_all = ["walls", "quick"])]
    pub(crate) control: bool,
    /// Attack another sandbox: a command that runs the command behind it, in words without quotes
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["walls", "quick", "control"])]
    pub(crate) behind: Option<String>,
    /// Play this many rounds of random actions instead of the known attacks
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["quick", "control", "behind"])]
    pub(crate) adversary: Option<u32>,
    /// The first round's seed, to repeat it; a new one if there is none
    #[arg(long, value_name = "NUMBER", requires = "adversary")]
    pub(crate) seed: Option<u64>,
    /// How the report is printed; rounds of random actions know `table` and `json`
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub(crate) format: VerifyFormat,
    /// Write the report into this file too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Use a wall that did not hold all the same; stands in the audit log
    #[arg(long, value_name = "WALL", requires = "reason", conflicts_with_all = ["walls", "quick", "control", "report"])]
    pub(crate) accept_risk: Option<Wall>,
    /// Why the risk is taken
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
    /// How results are printed
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "text")]
    format: Format,
}

impl OutputArgs {
    /// Where somebody else has decided.
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
