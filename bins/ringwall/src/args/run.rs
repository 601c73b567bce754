//! The flags of `run`, `create` and `exec`, and the image that may stand before a command.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::docker::DockerArgs;
use super::{JobArgs, OutputArgs, SandboxArgs, Verb, values};
use crate::presets::Preset;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Print the checked facts of every ring and limit to standard error
    #[arg(long)]
    pub(crate) evidence: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Run a known coding agent: claude-code, codex, gemini or aider. It reaches its model, the
    /// gateway keeps its key, and it works on a copy of the workspace
    #[arg(long, value_name = "AGENT", value_parser = Preset::named, conflicts_with = "no_workspace")]
    pub(crate) preset: Option<&'static Preset>,
    /// Apply the agent's changes to the workspace without asking
    #[arg(long, requires = "preset")]
    pub(crate) apply: bool,
    /// Print the decision and the plan, and start nothing. `ringwall plan` does the same
    #[arg(long, conflicts_with = "preset")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) docker: DockerArgs,
    /// The command and its arguments. IMAGE CMD runs it in an image
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
    /// The command does not stand after `--`, so its first word may be meant as an image.
    #[arg(skip)]
    pub(crate) may_begin_with_image: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Set an environment variable of the command
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = values::environment_variable())]
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Start the command in this directory of the sandbox
    #[arg(short = 'w', long = "cwd", alias = "workdir", value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    #[command(flatten)]
    docker: DockerArgs,
    /// A command to start at once. `ringwall logs` shows its output
    #[arg(value_name = "CMD", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Kill the command after this time [default: the sandbox's own limit]
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// Name another kind of work than the sandbox's. Refused if the policy wants a stronger wall
    /// for it
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Id, unique beginning of an id, or name of the sandbox
    #[arg(value_name = "ID")]
    pub(crate) sandbox: String,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Takes the first word for the image in `run IMAGE CMD` and `create IMAGE`, where it can be nothing
/// else: a name with a tag, a digest or a registry, or one before `--`.
pub(super) fn find_image(verb: &mut Verb, line: &[OsString]) {
    let (sandbox, docker, command) = match verb {
        Verb::Run(args) | Verb::Plan(args) => {
            args.may_begin_with_image = !is_after_dashes(&args.command, line);
            (&mut args.sandbox, &args.docker, &mut args.command)
        }
        Verb::Create(args) => (&mut args.sandbox, &args.docker, &mut args.command),
        _ => return,
    };
    docker.take_over(sandbox);
    if sandbox.image.is_some() || is_after_dashes(command, line) {
        return;
    }
    let dashes = command.get(1).is_some_and(|word| word == "--");
    let image = command.first().and_then(|word| word.to_str());
    if let Some(image) = image.filter(|word| dashes || is_image(word)) {
        sandbox.image = Some(image.to_owned());
        command.drain(..if dashes { 2 } else { 1 });
    }
}

/// Whether what stands right before the command is `--`.
fn is_after_dashes(command: &[OsString], line: &[OsString]) -> bool {
    let before = line.len().checked_sub(command.len() + 1);
    before.and_then(|at| line.get(at)).is_some_and(|word| word == OsStr::new("--"))
}

/// Whether a word is the name of an image and not of a program.
fn is_image(word: &str) -> bool {
    let is_path = word.starts_with(['/', '.', '~']) || word.contains('=');
    let (first, rest) = word.split_once('/').unwrap_or((word, ""));
    let has_registry = !rest.is_empty() && (first.contains('.') || first.contains(':'));
    let has_version = word.contains(':') || word.contains("@sha256:");
    !is_path && (has_registry || has_version) && word.parse::<ringwall_image::Reference>().is_ok()
}
