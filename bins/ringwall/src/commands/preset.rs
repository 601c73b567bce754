//! `ringwall run --preset`: a whole third-party coding agent behind a wall.
//!
//! It reaches its model and nothing else, holds a placeholder where it would hold a key, and works on a
//! copy of the workspace, of which a person takes over the good parts.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ringwall_egress::{Form, Provider};
use ringwall_engine::{Engine, Sandbox, SecretBinding};
use ringwall_spec::{Limits, Outcome};
use ringwall_wire::{Parents, WriteHow};

use super::run::{on_terminal, run_within};
use super::{apply, diff, open_engine};
use crate::args::{ApplyArgs, DiffArgs, OutputArgs, RunArgs};
use crate::presets::{Key, Preset, SettingsError, kept};
use crate::report;

/// Settings are short.
const MOST_CONFIG_BYTES: u64 = 1 << 20;

pub(super) fn run(preset: &Preset, mut args: RunArgs) -> anyhow::Result<ExitCode> {
    let engine = open_engine()?;
    args.sandbox.network.secrets.extend(keys(&engine, preset)?);
    drop(engine);
    let sandbox = &mut args.sandbox;
    if sandbox.workspace.is_none() && sandbox.workspace_rw.is_none() {
        sandbox.workspace = Some(PathBuf::from("."));
    }
    let home = Preset::home();
    let own = preset.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let own = own.chain([(OsString::from("HOME"), home.clone().into_os_string())]);
    // First, so that flags say otherwise.
    args.job.env.splice(0..0, own);
    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        (args.job.interactive, args.job.tty) = (true, true);
    }
    let (apply_all, json) = (args.apply, args.output.json());
    let prepare = |sandbox: &Sandbox| copy_config(sandbox, preset, &home);
    let limits = on_terminal(&args, limits());
    let (code, outcome) = run_within(args, limits, None, &prepare)?;
    if !json {
        take_over(preset, &outcome, apply_all)?;
    }
    Ok(code)
}

/// An agent works for hours and starts compilers; flags and policy say otherwise.
fn limits() -> Limits {
    Limits {
        timeout: Duration::from_secs(8 * 3600),
        memory_bytes: 4 << 30,
        cpu_milli: 2000,
        pids: 1024,
        disk_bytes: 4 << 30,
        disk_inodes: 500_000,
        output_bytes: 1 << 30,
        open_files: 8192,
    }
}

/// The secrets that the agent may use: those that are there by name, and those in the environment.
fn keys(engine: &Engine, preset: &Preset) -> anyhow::Result<Vec<String>> {
    let known = engine.secrets()?;
    let mut names = Vec::new();
    for key in preset.keys {
        let in_environment = std::env::var_os(key.variable).is_some_and(|value| !value.is_empty());
        match known.iter().find(|(name, _)| *name == key.secret) {
            // Taken from the environment once, and now not there.
            Some((_, secret)) if is_from(&secret.from, key) && !in_environment => continue,
            Some(_) => {}
            None if in_environment => remember(engine, key)?,
            None => continue,
        }
        names.push(key.secret.to_owned());
    }
    if names.is_empty() {
        let variables: Vec<_> = preset.keys.iter().map(|key| key.variable).collect();
        let secret = preset.keys.first().map_or("", |key| key.secret);
        anyhow::bail!(
            "{name} has no key for its model: set {variables}, or keep one elsewhere with \
             `ringwall secret add {secret}` and `ringwall secret bind {secret}`",
            name = preset.name,
            variables = variables.join(" or ")
        );
    }
    Ok(names)
}

fn is_from(provider: &Provider, key: &Key) -> bool {
    matches!(provider, Provider::Environment(variable) if variable == key.variable)
}

/// Gives the key a name, and the one endpoint that may see it. The value stays where it is.
fn remember(engine: &Engine, key: &Key) -> anyhow::Result<()> {
    engine.add_secret(key.secret, Provider::Environment(key.variable.to_owned()))?;
    let binding = SecretBinding {
        host: key.host.parse()?,
        port: 443,
        methods: Vec::new(),
        paths: Vec::new(),
        require: false,
        form: Form::Header(key.header.to_owned()),
        prefix: key.prefix.to_owned(),
        variable: key.inside.to_owned(),
    };
    Ok(engine.bind_secret(key.secret, binding)?)
}

/// Copies, so that what the agent changes in its settings ends with the wall.
fn copy_config(sandbox: &Sandbox, preset: &Preset, home: &Path) -> anyhow::Result<()> {
    let files = sandbox.files().context("the ring takes no files")?;
    files.make_dir(path_bytes(home), 0o700, Parents::Create)?;
    let Some(own_home) = std::env::var_os("HOME").map(PathBuf::from) else { return Ok(()) };
    for config in preset.config {
        let path = own_home.join(config.path);
        let Ok(file) = File::open(&path) else { continue };
        if !file.metadata()?.is_file() {
            continue;
        }
        let kept = match kept(&config.form, &text_of(file)?) {
            Ok(kept) => kept,
            Err(unreadable @ SettingsError::Unreadable(_)) => {
                let path = report::printable(config.path);
                report::note(&format!("~/{path} is left out: {unreadable}"));
                continue;
            }
            Err(secret) => return Err(secret).context(format!("~/{} is not copied", config.path)),
        };
        let place = home.join(config.path);
        if let Some(above) = place.parent() {
            files.make_dir(path_bytes(above), 0o700, Parents::Create)?;
        }
        files.write_file(path_bytes(&place), 0o600, WriteHow::Replace, &mut kept.as_bytes())?;
    }
    Ok(())
}

/// A file that is too long, or no text, is cut or shown so, and then no settings.
fn text_of(file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(MOST_CONFIG_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn path_bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// Shows what changed, and writes it to the workspace if a person says so.
fn take_over(preset: &Preset, outcome: &Outcome, apply_all: bool) -> anyhow::Result<()> {
    if outcome.changes.is_none_or(|changes| changes.is_empty()) {
        return Ok(());
    }
    let sandbox = outcome.id.to_string();
    if !apply_all {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Ok(());
        }
        diff::run(&DiffArgs { stat: false, name_only: false, sandbox: sandbox.clone() })?;
        let mut err = io::stderr();
        write!(err, "Write these changes to the workspace? [y/N] ")?;
        err.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            report::note(&format!("kept apart: ringwall apply {sandbox}"));
            return Ok(());
        }
    }
    apply::run(&ApplyArgs {
        allow_protected: Vec::new(),
        except: preset.own.iter().map(PathBuf::from).collect(),
        force: false,
        strict: false,
        output: OutputArgs::default(),
        sandbox,
        paths: Vec::new(),
    })
}
