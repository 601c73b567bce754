//! The built programs, used as people use them.
//!
//! One file per promise of the command line. `make e2e-test` builds the programs first.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod container;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod first_commands;
#[cfg(test)]
mod granted;
#[cfg(test)]
mod image;
#[cfg(test)]
mod install;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod json;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod living;
#[cfg(test)]
mod ordinary_user;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod permits;
#[cfg(test)]
mod places;
#[cfg(test)]
mod plan;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod recording;
#[cfg(test)]
mod replaced;
#[cfg(test)]
mod revoked;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod shown;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod software;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod stuck;
#[cfg(test)]
mod support;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tool;
#[cfg(test)]
mod tool_nested;
#[cfg(test)]
mod tool_serve;
#[cfg(test)]
mod verify;
#[cfg(test)]
mod workspace;
