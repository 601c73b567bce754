//! The repository's own rules, as tests: what may depend on what, how large a file may grow, what
//! every file starts with, and what must never be named.
//!
//! A rule that only stands in a document is soon broken; each one here names the file and what to
//! do about it when it fails.

#[cfg(test)]
mod commits;
#[cfg(test)]
mod deny;
#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod layering;
#[cfg(test)]
mod lexer;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod paths;
#[cfg(test)]
mod permits;
#[cfg(test)]
mod pictures;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod repository;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod seccomp;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod words;
