//! The flags of `ringwall vm`.

use clap::Subcommand;

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum VmVerb {
    /// List and build guest kernels
    #[command(subcommand)]
    Kernel(KernelVerb),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelVerb {
    /// Build a small, fast kernel from Debian's sources
    #[command(
        after_help = "Takes about a quarter of an hour of one processor's time and 2 GB of disk while it \
        runs. The sources come from this system's package manager."
    )]
    Build(OutputArgs),
    /// List kernels, the one that microVMs boot first
    Ls(OutputArgs),
}
