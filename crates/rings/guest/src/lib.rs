//! What a microVM boots: guest kernels, their command lines, and the initramfs.
//!
//! A kernel is a directory: Debian's cloud kernel, taken apart by `scripts/guest-kernel.sh`, or a
//! minimal one that [`build`] makes from Debian's sources. See `docs/internals/kernel.md`.
//!
//! Invariant: nothing is booted that another user of the host could have changed.

pub mod build;
mod command_line;
mod cpio;
mod initramfs;
mod kernels;
mod place;
mod trust;
mod tsc;

pub use initramfs::{GuestFile, InitramfsError, initramfs, initramfs_in, known_initramfs};
pub use kernels::{Flavour, Kernel, KernelError, Kernels};
pub use trust::Distrust;
pub use tsc::host_tsc_khz;
