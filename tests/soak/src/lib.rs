//! Crashes, repetition and concurrency: nothing is left behind, nobody is harmed.
//!
//! One file per promise. `make build` makes the programs that are tested here. Where these tests
//! say that nothing is left, they mean every process that was started, every mount, control group
//! and namespace, and every file in the state directory.

#[cfg(test)]
mod adversary;
#[cfg(test)]
mod cleaning;
#[cfg(test)]
mod crashes;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod kill_points;
#[cfg(test)]
mod library;
#[cfg(test)]
mod other_verbs;
#[cfg(test)]
mod repetition;
#[cfg(test)]
mod support;
