//! Real guests behind the `vm` wall, booted by a real monitor, as people would use them.
//!
//! One file per promise. `make setup` installs QEMU and a guest kernel, `make build` makes the
//! programs; where one of these is missing every test fails and says so. A guest takes a second or
//! two to boot, so tests that can share one do.

#[cfg(test)]
mod channel;
#[cfg(test)]
mod docker;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod escape;
#[cfg(test)]
mod filters;
#[cfg(test)]
mod leftovers;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod living;
#[cfg(test)]
mod monitors;
#[cfg(test)]
mod network;
#[cfg(test)]
mod ordinary_user;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod site;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tools;
#[cfg(test)]
mod walls;
#[cfg(test)]
mod workspace;
