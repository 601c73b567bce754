//! `ringwall create`: a sandbox that lives on.

use std::time::Duration;

use anyhow::Context;
use ringwall_desk::Keeper;
use ringwall_engine::EngineConfig;
use ringwall_spec::{Command, Limits};
use serde::Deserialize;

use super::open_engine;
use crate::args::{CreateArgs, SandboxArgs};
use crate::granted::Admitted;
use crate::spec::{admit, warn_of_flags, warn_of_network};
use crate::{daemon, here, report};

/// How long a sandbox runs that is not stopped.
const LIFETIME: Duration = Duration::from_secs(3600);

pub(super) fn run(mut args: CreateArgs) -> anyhow::Result<()> {
    here::take(&mut args.sandbox)?;
    let command = (!args.command.is_empty()).then_some(Command {
        argv: args.command,
        env: args.env,
        cwd: args.cwd,
        terminal: None,
        stdin: false,
    });
    let default = Limits { timeout: LIFETIME, ..Limits::default() };
    if by_daemon(&args.sandbox, &default, command.as_ref(), args.output.json())? {
        return Ok(());
    }
    let engine = open_engine()?;
    // What it may use is taken from the grant's budget for as long as it could live.
    let Admitted { placed, .. } = admit(&engine, &args.sandbox, default, command.as_ref())?;
    let busy = super::run::starting(&placed.permit);
    let record = match engine.create(&placed.permit, command.as_ref()) {
        Ok(record) => record,
        Err(error) => {
            placed.reservation.give_back()?;
            return Err(error.into());
        }
    };
    drop(busy);
    warn_of_flags(&args.sandbox);
    warn_of_network(&placed.permit);
    placed.leave_to(Keeper::Itself, &record.id)?;
    if args.output.json() {
        report::json(&record)?;
    } else {
        report::text(format!("{}\n", record.id))?;
    }
    Ok(())
}

/// The daemon pulls nothing.
pub(super) fn has_image(args: &SandboxArgs) -> bool {
    let image = args.image.as_ref();
    image.is_none_or(|image| open_engine().is_ok_and(|it| it.has_image(image).unwrap_or(false)))
}

/// What the daemon says of a sandbox that it has made.
#[derive(Deserialize)]
struct Made {
    id: String,
    warning: Option<String>,
}

/// Has the daemon create it, if one is there and takes it; it may have one ready.
fn by_daemon(
    args: &SandboxArgs,
    default: &Limits,
    command: Option<&Command>,
    json: bool,
) -> anyhow::Result<bool> {
    let Some(stream) = daemon::connect_to_start(&EngineConfig::from_environment()?.home) else {
        return Ok(false);
    };
    let asked = daemon::sandbox_asked(args, default.clone(), command)?;
    let Some(ask) = asked.filter(|_| has_image(args)) else { return Ok(false) };
    let lost =
        "the daemon has gone, and whether the sandbox was made is not known; see `ringwall ps`";
    let (status, body) = daemon::post(stream, "/v1/sandboxes", &ask).context(lost)?;
    if status != 201 {
        daemon::failed(status, &body)?;
        return Ok(false);
    }
    let made: Made = serde_json::from_slice(&body).context(lost)?;
    warn_of_flags(args);
    made.warning.iter().for_each(|warning| report::note(warning));
    if json {
        report::json(&open_engine()?.find(&made.id)?)?;
    } else {
        report::text(format!("{}\n", made.id))?;
    }
    Ok(true)
}
