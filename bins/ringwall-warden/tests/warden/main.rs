//! A real warden in a process of its own, asked over a real socket by the engine's client.
//!
//! No namespaces are needed here: what the walls do is tested where they are built.

#[cfg(test)]
mod facts;
#[cfg(test)]
mod files;
#[cfg(test)]
mod flow;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod raise;
