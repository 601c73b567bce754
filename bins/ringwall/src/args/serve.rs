//! The flags of `ringwall serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values;

#[derive(Debug, Args)]
pub(crate) struct ServeDaemonArgs {
    /// The unix socket, for you only; unless you are root it must be in Ringwall's home, which no
    /// ring shows [default: api.sock there]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Also listen on a TCP address, for holders of grants only; beyond loopback with TLS only
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The certificate of the TCP address, with those above it, as PEM
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"])]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Jobs at once
    #[arg(long, value_name = "N", default_value_t = usual_jobs().0, value_parser = values::count)]
    pub(crate) jobs: u32,
    /// Jobs at once of one tenant
    #[arg(long, value_name = "N", default_value_t = usual_jobs().1, value_parser = values::count)]
    pub(crate) jobs_per_tenant: u32,
    /// Memory limits of all sandboxes together [default: this machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Keep so many sandboxes of a wall ready, with usual limits: process=2, or with an image
    /// container@busybox=4
    #[arg(long, value_name = "WALL[@IMAGE]=N", value_parser = warm)]
    pub(crate) warm: Vec<(String, Option<String>, usize)>,
    /// How long requests under way get when the daemon is told to end
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
