//! The built programs and the network: real clients behind real walls against real servers on
//! loopback, and probes of every way out.

#[cfg(test)]
mod clients;
#[cfg(test)]
mod direct;
#[cfg(test)]
mod life;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod probes;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tools;
