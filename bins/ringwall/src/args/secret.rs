//! The flags of `ringwall secret`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringwall_spec::HostPattern;

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretVerb {
    /// Name a secret. Without a flag its value is read from standard input
    Add(SecretAddArgs),
    /// List secrets and their endpoints, never values
    Ls(OutputArgs),
    /// Forget secrets
    Rm {
        /// Names of secrets
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
    /// Bind a secret to its endpoint
    Bind(Box<SecretBindArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct SecretAddArgs {
    /// Read it from this file at each use. Mode 0600, and yours
    #[arg(long, value_name = "FILE", group = "source")]
    pub(crate) file: Option<PathBuf>,
    /// Take it from this variable of your environment at each start
    #[arg(long, value_name = "VARIABLE", group = "source")]
    pub(crate) env: Option<String>,
    /// Run this command for it, without a shell: `pass show github`
    #[arg(long, value_name = "CMD", num_args = 1.., group = "source")]
    pub(crate) command: Vec<String>,
    /// Name of the secret
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct SecretBindArgs {
    /// Name of the secret
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The only host that sees it. *.DOMAIN is one more label
    #[arg(value_name = "HOST")]
    pub(crate) host: HostPattern,
    /// Use it only at this port
    #[arg(long, value_name = "PORT", default_value = "443")]
    pub(crate) port: u16,
    /// Use it only in requests with this method
    #[arg(long = "method", value_name = "METHOD")]
    pub(crate) methods: Vec<String>,
    /// Use it only for this path and all below it
    #[arg(long = "path", value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// Put it into this header
    #[arg(long, value_name = "HEADER", default_value = "authorization")]
    pub(crate) header: String,
    /// Use another form, as JSON: aws_sigv4 or oauth
    #[arg(long, value_name = "JSON", conflicts_with = "header")]
    pub(crate) form: Option<String>,
    /// Refuse requests to the endpoint that do not use it
    #[arg(long)]
    pub(crate) require: bool,
    /// Start the placeholder with this text, for programs that check it
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) prefix: String,
    /// Put the placeholder into this variable [default: the name in capitals]
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) variable: Option<String>,
}
