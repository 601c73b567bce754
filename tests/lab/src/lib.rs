//! The lab: boots other machines under QEMU without KVM, runs Ringwall there and judges the results.
//!
//! Machines and jobs are data (`tests/lab/machines`, `tests/lab/jobs`). A machine boots a Debian
//! kernel with a root file system from the cache (`scripts/lab-setup.sh`) and a second disk with
//! programs and scripts. An agent inside takes jobs over a virtio serial port and sends back what
//! they printed. The console of every machine is kept.

pub mod agent;
pub mod bad_input;
pub mod disk;
pub mod emulator;
pub mod job;
pub mod judge;
pub mod lab;
pub mod machine;
pub mod message;
pub mod page;
pub mod results;

#[cfg(test)]
mod tests;
