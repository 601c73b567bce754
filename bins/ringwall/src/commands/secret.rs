//! `ringwall secret`: names for secrets, and the one endpoint that may see each.

use std::io::{self, IsTerminal};

use anyhow::Context;
use ringwall_egress::{Form, Provider};
use ringwall_engine::{Engine, SecretBinding, StoredSecret, usual_variable};

use super::{for_each, open_engine};
use crate::args::{SecretAddArgs, SecretBindArgs, SecretVerb};
use crate::report::{self, Table};

pub(super) fn run(verb: SecretVerb) -> anyhow::Result<()> {
    let engine = open_engine()?;
    match verb {
        SecretVerb::Add(args) => add(&engine, args),
        SecretVerb::Ls(output) => list(&engine, output.json()),
        SecretVerb::Rm { names } => for_each(&names, |name| Ok(engine.remove_secret(name)?)),
        SecretVerb::Bind(args) => bind(&engine, *args),
    }
}

fn add(engine: &Engine, args: SecretAddArgs) -> anyhow::Result<()> {
    let from = match (args.file, args.env) {
        (Some(file), _) => {
            Provider::File(std::path::absolute(file).context("the file has an empty name")?)
        }
        (None, Some(variable)) => Provider::Environment(variable),
        (None, None) if !args.command.is_empty() => Provider::Command(args.command),
        (None, None) => {
            if io::stdin().is_terminal() {
                report::note("type the secret, then Enter and Ctrl-D");
            }
            engine.add_secret_value(&args.name, io::stdin().lock())?;
            return Ok(());
        }
    };
    Ok(engine.add_secret(&args.name, from)?)
}

fn bind(engine: &Engine, args: SecretBindArgs) -> anyhow::Result<()> {
    let form = match &args.form {
        Some(text) => serde_json::from_str(text).context("--form is no form of a secret")?,
        None => Form::Header(args.header),
    };
    let binding = SecretBinding {
        host: args.host,
        port: args.port,
        methods: args.methods,
        paths: args.paths,
        require: args.require,
        form,
        prefix: args.prefix,
        variable: args.variable.unwrap_or_else(|| usual_variable(&args.name)),
    };
    Ok(engine.bind_secret(&args.name, binding)?)
}

fn list(engine: &Engine, as_json: bool) -> anyhow::Result<()> {
    let secrets = engine.secrets()?;
    if as_json {
        return Ok(report::json(&secrets)?);
    }
    let mut table = Table::new(["NAME", "FROM", "FOR", "VARIABLE"]);
    for (name, secret) in &secrets {
        let [from, endpoint, variable] = described(secret);
        table.row([name, &from, &endpoint, &variable]);
    }
    Ok(report::text(table.to_string())?)
}

fn described(secret: &StoredSecret) -> [String; 3] {
    let from = match &secret.from {
        Provider::File(path) => format!("file {}", path.display()),
        Provider::Environment(variable) => format!("variable {variable}"),
        Provider::Command(words) => format!("command {}", words.join(" ")),
        Provider::Beside(_) => "elsewhere".to_owned(),
    };
    let (endpoint, variable) = match &secret.binding {
        Some(bound) => (format!("{}:{}", bound.host, bound.port), bound.variable.clone()),
        None => ("nobody".to_owned(), String::new()),
    };
    [from, endpoint, variable]
}
