//! How a daemon is set up. `ringwall serve` makes it of its flags.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// What is not said is safe: the owner's socket, and nothing else.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The unix socket, for the owner only.
    pub socket: PathBuf,
    /// A TCP address, for holders of grants only.
    #[serde(default)]
    pub listen: Option<SocketAddr>,
    /// Needed for an address that is not loopback.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// PostgreSQL instead of a file in the engine's home, as libpq names a server.
    #[serde(skip)]
    pub postgresql: Option<String>,
    /// Jobs at once, of all tenants and of each.
    pub jobs: usize,
    pub jobs_per_tenant: usize,
    /// Memory limits of all sandboxes together; this machine's memory if nothing is said.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// End when nobody has been connected for so long. For a daemon that was started by the way.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// Sandboxes that are kept ready.
    #[serde(default)]
    pub warm: Vec<WarmKind>,
    /// How long requests under way get when the daemon is told to end.
    pub grace_ms: u64,
}

/// So many sandboxes with usual limits, and nothing of the host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmKind {
    pub wall: String,
    #[serde(default)]
    pub image: Option<String>,
    pub count: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM: the server's certificate, and those above it.
    pub certificate: PathBuf,
    /// PEM, readable by the owner only.
    pub key: PathBuf,
}
