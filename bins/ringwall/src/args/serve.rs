//! The flags of `ringwall serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

#[derive(Debug, Args)]
pub(crate) struct ServeDaemonArgs {
    /// Listen on this unix socket, for you only. Unless you are root, it must be in Ringwall's home
    /// [default: api.sock there]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Listen on TCP, too, for token holders. Beyond loopback it needs TLS
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Use this certificate with its chain for TCP, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Use this key of the certificate, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Limit commands at once
    #[arg(long, value_name = "N", default_value_t = usual_jobs().0, value_parser = values::count)]
    pub(crate) jobs: u32,
    /// Limit commands of one tenant at once
    #[arg(long, value_name = "N", default_value_t = usual_jobs().1, value_parser = values::count)]
    pub(crate) jobs_per_tenant: u32,
    /// Limit the memory limits of all sandboxes together [default: this machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Keep sandboxes of a wall ready: process=2, or container@busybox=4
    #[arg(long, value_name = "WALL[@IMAGE]=N", value_parser = warm)]
    pub(crate) warm: Vec<(String, Option<String>, usize)>,
    /// Give running requests this time when the daemon stops
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::duration)]
    pub(crate) grace: Duration,
}

/// Jobs at once, and those of one tenant.
pub(crate) fn usual_jobs() -> (u32, u32) {
    (64, 32)
}

fn warm(text: &str) -> Result<(String, Option<String>, usize), String> {
    let wrong = || format!("{text:?} is nothing to keep ready; write for example process=2");
    let (what, count) = text.rsplit_once('=').ok_or_else(wrong)?;
    let count = count.parse().ok().filter(|count| (1..=64).contains(count));
    let (wall, image) = match what.split_once('@') {
        Some((wall, image)) => (wall, Some(image.to_owned())),
        None => (what, None),
    };
    wall.parse::<ringwall_spec::Wall>().map_err(|error| error.to_string())?;
    Ok((wall.to_owned(), image, count.ok_or("keep 1 to 64 of a wall ready")?))
}
