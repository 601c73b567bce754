//! Walls with protections missing. Each must be noticed by at least one attack of `ringwall verify`: the proof
//! that its attacks and its oracles can fail, and that none of the protections is there for show.
//!
//! [`flaw`] has the walls, and the findings about each; [`missing`] asks for attacks that notice, and
//! [`oracles`] for the adversary's oracles.

#[cfg(test)]
mod flaw;
#[cfg(test)]
mod missing;
#[cfg(test)]
mod oracles;
