//! `ringwall net`: what sandboxes reached, what they could reach, and what to allow them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Context;
use ringwall_audit::{AuditPaths, Event, Filter, LogReader, Verdict};
use ringwall_egress::{Answer, Question};
use ringwall_engine::{Engine, EngineConfig, NetworkChange, PolicySearch};
use ringwall_spec::{RuleSet, Scheme};
use serde_json::json;

use super::{audit, open_engine};
use crate::args::{NetExplainArgs, NetLearnArgs, NetLogArgs, NetReloadArgs, NetVerb};
use crate::report;
use crate::spec::network;

const KIND: &str = "egress";

pub(super) fn run(verb: NetVerb) -> anyhow::Result<ExitCode> {
    match verb {
        NetVerb::Log(args) => log(&args)?,
        NetVerb::Explain(args) => return explain(&args),
        NetVerb::Learn(args) => learn(&args)?,
        NetVerb::Reload(args) => reload(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn reload(args: &NetReloadArgs) -> anyhow::Result<()> {
    let engine = open_engine()?;
    let record = engine.find(&args.sandbox)?;
    if args.tainted {
        engine.change_network(&record, NetworkChange::Taint)?;
    }
    let asked = network(&args.network)?;
    let reach =
        engine.change_network(&record, asked.map_or(NetworkChange::Again, NetworkChange::Ask))?;
    if args.output.json() {
        return Ok(report::json(&json!({ "sandbox": record.id, "reach": reach }))?);
    }
    let line = reach.join(", and of that ");
    Ok(report::text(format!("{}\n", report::printable(&line)))?)
}

fn paths() -> anyhow::Result<AuditPaths> {
    Ok(AuditPaths::in_home(&EngineConfig::from_environment()?.home))
}

fn filter(sandbox: Option<&str>) -> Filter {
    let sandbox = sandbox.map(Into::into);
    Filter { sandbox, kind: Some(KIND.to_owned()), ..Filter::default() }
}

fn log(args: &NetLogArgs) -> anyhow::Result<()> {
    let filter = filter(args.sandbox.as_deref());
    audit::show_last(&paths()?.log(), &filter, (args.lines, args.follow), args.output.json())
}

fn explain(args: &NetExplainArgs) -> anyhow::Result<ExitCode> {
    let engine = open_engine()?;
    let search = PolicySearch {
        named: args.policy.policy.clone(),
        ..PolicySearch::from_environment(std::env::current_dir().ok())
    };
    let egress = engine.network_of(&args.policy.task(), network(&args.network)?, &search)?;
    let rules = egress.map(|egress| egress.layers).unwrap_or_default();
    let mut all = Vec::new();
    for target in &args.targets {
        let answer = answer(&engine, target, args.method.as_deref(), &rules)?;
        all.push((target, answer));
    }
    let reached = all.iter().all(|(_, answer)| matches!(answer, Answer::Allowed { .. }));
    if args.output.json() {
        let document: Vec<_> = all
            .iter()
            .map(|(target, answer)| json!({"target": target, "answer": answer}))
            .collect();
        report::json(&document)?;
    } else {
        for (target, answer) in &all {
            report::text(format!("{}\n", report::printable(&line(target, answer))))?;
        }
    }
    Ok(if reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn line(target: &str, answer: &Answer) -> String {
    match answer {
        Answer::Allowed { rule, secret: None } => format!("{target}: allowed by {rule}"),
        Answer::Allowed { rule, secret: Some(secret) } => {
            format!("{target}: allowed by {rule}, with the secret {secret}")
        }
        Answer::Refused { reason } => format!("{target}: refused, {reason}"),
    }
}

/// A host alone asks for the connection, a URL for a request.
fn answer(
    engine: &Engine,
    target: &str,
    method: Option<&str>,
    rules: &[RuleSet],
) -> anyhow::Result<Answer> {
    let (scheme, rest) = match target.split_once("://") {
        Some(("http", rest)) => (Some(Scheme::Http), rest),
        Some(("https", rest)) => (Some(Scheme::Https), rest),
        Some((other, _)) => anyhow::bail!("{other:?} is no scheme that can be reached"),
        None => (None, target),
    };
    let (authority, path) = match rest.find('/') {
        Some(at) => (&rest[..at], Some(&rest[at..])),
        None => (rest, None),
    };
    let path = path.map(|path| path.split(['?', '#']).next().unwrap_or_default().to_owned());
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => {
            (host, Some(port.parse().with_context(|| format!("{port:?} is no port"))?))
        }
        _ => (authority, None),
    };
    let request = match (method, path) {
        (None, None) => None,
        (method, path) => {
            Some((method.unwrap_or("GET").to_owned(), path.unwrap_or_else(|| "/".to_owned())))
        }
    };
    let scheme = scheme.unwrap_or(Scheme::usual(port));
    let rules = rules.to_vec();
    let question = Question { rules, host: host.to_owned(), scheme, port, request };
    Ok(engine.explain_network(question)?)
}

/// The refused requests to one endpoint.
#[derive(Default)]
struct Wanted {
    times: u64,
    methods: BTreeSet<String>,
    reasons: BTreeSet<String>,
}

fn learn(args: &NetLearnArgs) -> anyhow::Result<()> {
    let filter = filter(args.sandbox.as_deref());
    let mut all: BTreeMap<(String, u16), Wanted> = BTreeMap::new();
    for record in LogReader::open(&paths()?.log())? {
        let record = record?;
        let Event::Egress(egress) = &record.event else { continue };
        let named = !egress.host.as_str().is_empty();
        if !filter.takes(&record) || egress.verdict == Verdict::Allowed || !named {
            continue;
        }
        // A name that was only looked up says no port.
        let port = if egress.port == 0 { 443 } else { egress.port };
        let wanted = all.entry((egress.host.as_str().to_owned(), port)).or_default();
        wanted.times += 1;
        let request = egress.request.as_ref().and_then(|it| it.as_str().split_once(' '));
        wanted.methods.extend(request.map(|(method, _)| method.to_owned()));
        wanted.reasons.extend(egress.reason.as_ref().map(|reason| reason.as_str().to_owned()));
    }
    if args.output.json() {
        let document: Vec<_> = all
            .iter()
            .map(|((host, port), wanted)| {
                json!({"host": host, "port": port, "times": wanted.times,
                    "methods": wanted.methods, "reasons": wanted.reasons})
            })
            .collect();
        return Ok(report::json(&document)?);
    }
    if all.is_empty() {
        report::note("nothing was refused, so there is nothing to propose");
        return Ok(());
    }
    report::text(proposal(&all))?;
    Ok(())
}

/// For a person to read, to strike out and to put into a policy.
fn proposal(all: &BTreeMap<(String, u16), Wanted>) -> String {
    let mut text = String::from(
        "# Refused, and proposed for ringwall.toml. Keep only what the work really needs.\n",
    );
    for ((host, port), wanted) in all {
        text.push_str(&format!("\n# {} times", wanted.times));
        for reason in &wanted.reasons {
            text.push_str(&format!("\n# {}", report::printable(reason)));
        }
        text.push_str(&format!("\n[[network.allow]]\nhost = {:?}\n", host));
        if *port != 443 {
            text.push_str(&format!("port = {port}\n"));
        }
        let methods: Vec<String> = wanted
            .methods
            .iter()
            .filter(|it| *it != "CONNECT")
            .map(|it| format!("{it:?}"))
            .collect();
        if !methods.is_empty() {
            text.push_str(&format!("methods = [{}]\n", methods.join(", ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_a_policy_that_can_be_read() {
        let mut all = BTreeMap::new();
        let methods = ["GET".to_owned(), "CONNECT".to_owned()].into();
        let reasons = ["no rule allows it\nhost = \"x\"".to_owned()].into();
        all.insert(("api.example.com".to_owned(), 8443), Wanted { times: 2, methods, reasons });
        let text = proposal(&all);
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let wanted = [
            "[[network.allow]]",
            "host = \"api.example.com\"",
            "port = 8443",
            "methods = [\"GET\"]",
        ];
        assert_eq!(lines, wanted);
    }
}
