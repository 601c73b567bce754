//! Attacks from inside the walls. Each test is one attack, named after the layer that must stop it.
//!
//! An attack is a Perl script without modules, run behind every kind of wall. Its effect is looked
//! for from outside where that can be done, and the same script is run without a wall first or
//! alongside: an attack that nobody would notice proves nothing.

#[cfg(test)]
mod deciding;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod environment;
#[cfg(test)]
mod exhaust;
#[cfg(test)]
mod hostile_image;
#[cfg(test)]
mod network;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod output;
#[cfg(test)]
mod persist;
#[cfg(test)]
mod privilege;
#[cfg(test)]
mod quotas;
#[cfg(test)]
mod reading;
#[cfg(test)]
mod shown;
#[cfg(test)]
mod support;
#[cfg(test)]
mod syscalls;
#[cfg(test)]
mod unseen;
#[cfg(test)]
mod warden;
#[cfg(test)]
mod wasm;
#[cfg(test)]
mod workspace;
#[cfg(test)]
mod writing;
