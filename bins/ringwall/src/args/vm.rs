//! The flags of `ringwall vm`.

use clap::Subcommand;

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum VmVerb {
    /// List and make the kernels that microVMs boot
    #[command(subcommand)]
    Kernel(KernelVerb),
}

#[derive(Debug, Subcommand)]
pub(crate) enum KernelVerb {
    /// Make a small, fast kernel from Debian's sources, unless it is there
    #[command(
        after_help = "Takes about a quarter of an hour of one processor's time and 2 GB of disk while it \
        runs. The sources come from this system's package manager."
    )]
    Build(OutputArgs),
    /// List kernels, the one that a microVM would boot first
    Ls(OutputArgs),
}
