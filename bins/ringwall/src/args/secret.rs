//! The flags of `ringwall secret`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringwall_spec::HostPattern;

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretVerb {
    /// Give a secret a name; without a flag its value is read from standard input
    Add(SecretAddArgs),
    /// List secrets and what they are bound to; values are never shown
    Ls(OutputArgs),
    /// Forget secrets
    Rm {
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Say which endpoint may see a secret, and how
    Bind(Box<SecretBindArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct SecretAddArgs {
    /// Read it from this file, which must be yours with mode 0600, whenever it is needed
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) file: Option<PathBuf>,
    /// Take it from this variable of the environment in which a sandbox is started
    #[arg(long, value_name = "VARIABLE", group = "source")]
    pub(crate) env: Option<String>,
    /// It is what this command prints, for example `pass show github`; no shell reads it
    #[arg(long, value_name = "CMD", num_args = 1.., group = "source")]
    pub(crate) command: Vec<String>,
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct SecretBindArgs {
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The only host that sees it; *.DOMAIN for all directly below a domain
    #[arg(value_name = "HOST")]
    pub(crate) host: HostPattern,
    #[arg(long, value_name = "PORT", default_value = "443")]
    pub(crate) port: u16,
    /// Only in requests with this method
    #[arg(long = "method", value_name = "METHOD")]
    pub(crate) methods: Vec<String>,
    /// Only in requests for this path and what is below it
    #[arg(long = "path", value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// The header in which it stands
    #[arg(long, value_name = "HEADER", default_value = "authorization")]
    pub(crate) header: String,
    /// Another way in which it goes into requests, as JSON: aws_sigv4 or oauth
    #[arg(long, value_name = "JSON", conflicts_with = "header")]
    pub(crate) form: Option<String>,
    /// Refuse requests to the endpoint that do not use it
    #[arg(long)]
    pub(crate) require: bool,
    /// What its placeholder begins with, for programs that check how their key looks
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,
    /// The variable in which jobs find the placeholder [default: the name in capital letters]
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) variable: Option<String>,
}
