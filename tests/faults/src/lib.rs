//! What the machine does to Ringwall: a full or frozen disk, exhausted limits, broken pipes and files, a
//! locked store, killed helpers under load.
//!
//! After each fault: nothing is left that has no limits, nothing is lost that was acknowledged, errors say
//! what happened, and Ringwall goes on without anybody's help. `RINGWALL_FAULTS` is how often the faults
//! that come at random moments are repeated.

#[cfg(test)]
mod clocks;
#[cfg(test)]
mod disks;
#[cfg(test)]
mod files;
#[cfg(test)]
mod killed;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod pipes;
#[cfg(test)]
mod support;
