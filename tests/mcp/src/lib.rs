//! Tests of `ringwall mcp`, of `/mcp` and of `ringwall mcp wrap`, by a client of our own and by those
//! of others. See `support` for what they stand on.

#[cfg(test)]
mod asking;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod http;
#[cfg(test)]
mod preset;
#[cfg(test)]
mod spelled;
#[cfg(test)]
mod stdio;
#[cfg(test)]
mod support;
#[cfg(test)]
mod wrap;
