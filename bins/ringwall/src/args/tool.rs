//! The flags of `ringwall tool`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use ringwall_spec::{DirAccess, ToolDigest, Wall};
use ringwall_tool::{DirGrant, Grants, LimitWishes, ToolName};
use ringwall_workspace::{names_secret, resolve_shown};

use super::{NetworkArgs, OutputArgs, values};
use crate::spec::NAMES_SECRET;

#[derive(Debug, Subcommand)]
pub(crate) enum ToolVerb {
    /// List tools
    Ls(OutputArgs),
    /// Install a tool from a file, an OCI layout or a registry
    Add(AddArgs),
    /// Remove installed tools
    Rm {
        /// NAME, NAME@VERSION or NAME@sha256:...
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Show a tool's purpose, input, output and requested access
    Inspect {
        /// NAME, NAME@VERSION, NAME@sha256:... or a .wasm file
        #[arg(value_name = "TOOL")]
        tool: ToolRef,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Call a tool once
    #[command(after_help = "Exit codes: 0 the tool gave its output, 1 it failed, 124 time limit, \
        125 Ringwall's own error or bad input, 137 another limit or a crash.")]
    Call(Box<CallArgs>),
    /// Create the source of a new tool
    New(NewArgs),
    /// Serve calls of tools as lines of JSON
    #[command(
        after_help = "A request is {\"id\":1,\"tool\":\"grep\",\"input\":{...}}, with \"seed\" \
        where chance must repeat. Its answer is {\"id\":1,\"output\":...,\"digest\":...,\"meter\":...} or \
        {\"id\":1,\"error\":{\"code\":...,\"message\":...}}; answers come as they are ready. \
        The end of the input ends it."
    )]
    Serve(ServeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// A file, an OCI layout or a name in a registry. ./FILE, FILE.wasm, ./DIR, .tar or oci:DIR:TAG
    #[arg(value_name = "SOURCE")]
    pub(crate) source: String,
    /// Install it under this name [default: the name in its manifest]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Install it only with this SHA-256
    #[arg(long, value_name = "sha256:HEX")]
    pub(crate) digest: Option<ToolDigest>,
    /// Lock the name until the tool is removed
    #[arg(long)]
    pub(crate) pin: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// NAME, NAME@VERSION, NAME@sha256:... or a .wasm file
    #[arg(value_name = "TOOL")]
    pub(crate) tool: ToolRef,
    /// Pass this input: JSON, @FILE, or - for standard input
    #[arg(short, long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    pub(crate) input: String,
    /// Repeat randomness and stop clocks, so that outputs repeat
    #[arg(long, value_name = "N", value_parser = values::long_count)]
    pub(crate) seed: Option<u64>,
    /// Read the required grant's token from a file
    #[arg(long, value_name = "FILE", conflicts_with = "wall")]
    pub(crate) grant: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) inside: InsideArgs,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
    /// Of what is reached, a tool gets the hosts that it wants.
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) limits: ToolLimitArgs,
}

/// Where the wasm ring is that the tool runs in; alone on this machine if nothing is said.
#[derive(Debug, Args)]
#[command(next_help_heading = "Wall")]
pub(crate) struct InsideArgs {
    /// Call it in this sandbox. --dir then names directories of the sandbox
    #[arg(long, value_name = "SANDBOX", conflicts_with_all = ["wall", "image", "workspace"])]
    pub(crate) sandbox: Option<String>,
    /// Call it in a new sandbox whose wall ends in wasm. --dir then names directories of the
    /// sandbox
    #[arg(long, value_name = "WALL")]
    pub(crate) wall: Option<Wall>,
    /// Use this image for a container or vm ring
    #[arg(long, value_name = "REF", requires = "wall")]
    pub(crate) image: Option<String>,
    /// Show a copy of this directory. `ringwall apply` writes the changes back
    #[arg(long, value_name = "DIR", requires = "wall")]
    pub(crate) workspace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve the tools of this folder, and swap changed ones in
    #[arg(long, value_name = "DIR")]
    pub(crate) watch: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) grants: GrantArgs,
    #[command(flatten)]
    pub(crate) limits: ToolLimitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct NewArgs {
    /// The name of the tool
    #[arg(value_name = "NAME")]
    pub(crate) name: ToolName,
    /// Use this language
    #[arg(long, value_name = "LANGUAGE", default_value = "rust")]
    pub(crate) lang: Language,
    /// The directory to create it in [default: a new directory NAME]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Rust,
    Python,
    Javascript,
}

/// A tool by name, or a file that need not be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolRef {
    Name(ToolName),
    File(PathBuf),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Grants")]
pub(crate) struct GrantArgs {
    /// Let the tool read DIR as GUEST, and write it with :rw
    #[arg(long = "dir", value_name = "GUEST=DIR[:rw]", value_parser = directory)]
    dirs: Vec<DirGrant>,
    /// Give the tool an environment variable. Your own environment never enters
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct ToolLimitArgs {
    /// Limit the time of a call: 500ms, 10s [default: the tool's request, else 2s]
    #[arg(long, value_name = "TIME", value_parser = values::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Limit the memory of a call [default: the tool's request, else 64M]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// Limit computation, about one unit an instruction [default: the tool's request, else 10^10]
    #[arg(long, value_name = "N", value_parser = values::long_count, allow_hyphen_values = true)]
    fuel: Option<u64>,
    /// Limit the bytes of output [default: the tool's request, else 1M]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, allow_hyphen_values = true)]
    output_limit: Option<u64>,
}

impl GrantArgs {
    pub(crate) fn grants(&self) -> Grants {
        Grants { dirs: self.dirs.clone(), env: self.env.clone() }
    }

    /// Resolves the directories of this host. Their links are resolved once, so policy decides about the
    /// directories that tools get.
    pub(crate) fn resolved(&self) -> anyhow::Result<Grants> {
        let mut grants = self.grants();
        for dir in &mut grants.dirs {
            let wrong = || format!("--dir {} cannot be granted", dir.host.display());
            if names_secret(&dir.host) {
                bail!("{}: {NAMES_SECRET}", wrong());
            }
            dir.host = resolve_shown(&dir.host).with_context(wrong)?;
        }
        Ok(grants)
    }
}

impl ToolLimitArgs {
    pub(crate) fn wishes(&self) -> LimitWishes {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        LimitWishes {
            time_ms: self.timeout.map(milliseconds),
            memory_bytes: self.memory,
            output_bytes: self.output_limit,
            fuel: self.fuel,
        }
    }
}

impl std::str::FromStr for ToolRef {
    type Err = ringwall_tool::ToolNameError;

    /// No name has a slash or ends in `.wasm`.
    fn from_str(text: &str) -> Result<ToolRef, Self::Err> {
        if text.contains('/') || text.ends_with(".wasm") {
            return Ok(ToolRef::File(PathBuf::from(text)));
        }
        text.parse().map(ToolRef::Name)
    }
}

fn directory(text: &str) -> Result<DirGrant, String> {
    let wrong =
        || format!("{text:?} is no grant; write GUEST=DIR, for example /work=. or /work=src:rw");
    let (guest, host) = text.split_once('=').ok_or_else(wrong)?;
    let (host, access) = match host.strip_suffix(":rw") {
        Some(host) => (host, DirAccess::Write),
        None => (host.strip_suffix(":ro").unwrap_or(host), DirAccess::Read),
    };
    if !Path::new(guest).is_absolute() || host.is_empty() {
        return Err(wrong());
    }
    Ok(DirGrant { guest: guest.to_owned(), host: PathBuf::from(host), access })
}

fn variable(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some(("", _)) => Err("the variable has no name; write NAME=VALUE"),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("the value is missing; write NAME=VALUE, the environment is never copied"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_reads_unless_it_says_otherwise() {
        let grant = |text| directory(text).map(|dir| (dir.guest, dir.host, dir.access));
        let expected = |host: &str, access| Ok(("/work".to_owned(), PathBuf::from(host), access));
        assert_eq!(grant("/work=src"), expected("src", DirAccess::Read));
        assert_eq!(grant("/work=src:ro"), expected("src", DirAccess::Read));
        assert_eq!(grant("/work=src:rw"), expected("src", DirAccess::Write));
        assert_eq!(grant("/work=a=b:c"), expected("a=b:c", DirAccess::Read));
        for bad in ["", "/work", "work=src", "/work=", "/work=:rw", "=src"] {
            assert!(grant(bad).unwrap_err().contains("write GUEST=DIR"), "{bad}");
        }
    }

    #[test]
    fn a_tool_is_a_name_or_a_file() {
        let file = |text: &str| Ok(ToolRef::File(PathBuf::from(text)));
        assert_eq!("./grep".parse(), file("./grep"));
        assert_eq!("grep.wasm".parse(), file("grep.wasm"));
        assert!(matches!("grep@1.0.0".parse(), Ok(ToolRef::Name(_))));
        assert!("Grep".parse::<ToolRef>().is_err());
    }
}
