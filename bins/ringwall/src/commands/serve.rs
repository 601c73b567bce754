//! `ringwall serve`: becomes the daemon, a program of its own.

use std::os::unix::process::CommandExt;

use anyhow::Context;
use ringwall_engine::EngineConfig;
use serde_json::json;

use crate::args::ServeDaemonArgs;
use crate::daemon::{default_socket, program};

pub(super) fn run(args: &ServeDaemonArgs) -> anyhow::Result<()> {
    let config = EngineConfig::from_environment()?;
    let program = program(&config)?;
    let socket = match &args.socket {
        Some(path) => std::path::absolute(path).context("--socket is empty; give a path")?,
        None => default_socket(&config.home),
    };
    let tls = args.tls_certificate.as_ref().zip(args.tls_key.as_ref());
    let tls = tls.map(|(certificate, key)| json!({ "certificate": certificate, "key": key }));
    let warm = args.warm.iter();
    let warm: Vec<_> = warm
        .map(|(wall, image, count)| json!({ "wall": wall, "image": image, "count": count }))
        .collect();
    let settings = json!({
        "socket": socket,
        "listen": args.listen,
        "tls": tls,
        "jobs": args.jobs,
        "jobs_per_tenant": args.jobs_per_tenant,
        "memory_bytes": args.memory,
        "warm": warm,
        "grace_ms": u64::try_from(args.grace.as_millis()).unwrap_or(u64::MAX),
    });
    let mut daemon = std::process::Command::new(&program);
    // Only returns if it does not work.
    let error = daemon.arg("serve").arg(settings.to_string()).current_dir("/").exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}
