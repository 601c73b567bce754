//! Walls with one protection missing. Each must be noticed by at least one attack of `ringwall verify`:
//! the proof that its probes can fail, and that none of the protections is there for show.

#[cfg(test)]
mod missing;
