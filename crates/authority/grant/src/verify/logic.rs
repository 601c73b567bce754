//! The token's own logic, run by its library within limits: our statements about the request, the
//! token's statements and checks, and one policy for what is asked.

use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

use biscuit_auth::builder::{AuthorizerBuilder, Check, Policy};
use biscuit_auth::{AuthorizerLimits, Biscuit, error};
use ringwall_spec::Host;

use super::{Refused, SeenElevation};
use crate::fact::{Fact, Term};
use crate::request::{Ask, Request};

/// For all of a check. Our own logic needs one pass; the time is for machines under load.
const LIMITS: AuthorizerLimits = AuthorizerLimits {
    max_facts: 20_000,
    max_iterations: 16,
    max_time: Duration::from_millis(500),
};

const CHECKS: [&str; 2] =
    ["check if want_task($t), task($t)", "check if want_tenant($t), tenant($t)"];

/// Our own logic, parsed once.
static PARSED_CHECKS: [OnceLock<Check>; 2] = [const { OnceLock::new() }; 2];
static PARSED_POLICIES: [OnceLock<Policy>; 8] = [const { OnceLock::new() }; 8];

/// The policy for each kind of request, on the statements of the first block; and its number.
const fn policy(ask: &Ask) -> (usize, &'static str) {
    match ask {
        Ask::Identity => (0, "allow if want(\"identity\")"),
        Ask::Tool { .. } => (
            1,
            "allow if want_tool($t), tool(\"exact\", $t) or want_tool($t), tool(\"prefix\", $p), $t.starts_with($p)",
        ),
        Ask::Read { .. } => (
            2,
            "allow if want_path($p), read($p, $q) or want_path($p), read($r, $q), $p.starts_with($q)",
        ),
        Ask::Write { .. } => (
            3,
            "allow if want_path($p), write($p, $q) or want_path($p), write($r, $q), $p.starts_with($q)",
        ),
        Ask::Connect { .. } => (
            4,
            "allow if want_endpoint($h, $p, $m), endpoint(\"exact\", $h, $q, $n), $q == 0 || $q == $p, $n == \"any\" || $n.contains($m) or want_endpoint($h, $p, $m), endpoint(\"below\", $s, $q, $n), $h.ends_with($s), $q == 0 || $q == $p, $n == \"any\" || $n.contains($m) or want_endpoint($h, $p, $m), endpoint(\"all\", $s, $q, $n), $q == 0 || $q == $p, $n == \"any\" || $n.contains($m)",
        ),
        Ask::Secret { .. } => (5, "allow if want_name($n), secret($n)"),
        Ask::Phase { .. } => (6, "allow if want_name($n), phase($n)"),
        Ask::Place { .. } => (7, "allow if want_place($k, $w), kind($k), wall($w)"),
    }
}

/// Runs the token's logic for a request that its rights allow, or that an elevation does.
pub(super) fn authorize(
    token: &Biscuit,
    request: &Request,
    elevation: Option<&SeenElevation>,
    now: u64,
) -> Result<(), Refused> {
    run(token, request, elevation, now).map_err(|error| Refused::logic(&error))
}

fn run(
    token: &Biscuit,
    request: &Request,
    elevation: Option<&SeenElevation>,
    now: u64,
) -> Result<(), error::Token> {
    let mut builder = AuthorizerBuilder::new().set_limits(LIMITS);
    for fact in statements(request, now) {
        builder = builder.fact(fact.to_builder())?;
    }
    for (text, parsed) in CHECKS.into_iter().zip(&PARSED_CHECKS) {
        builder = builder.check(once(parsed, text)?)?;
    }
    builder = match elevation {
        None => {
            let (number, text) = policy(&request.ask);
            builder.policy(once(&PARSED_POLICIES[number], text)?)?
        }
        Some(seen) => {
            let terms = [
                Term::Bytes(seen.elevation.action.0.to_vec()),
                Term::Text(seen.elevation.name.as_str().to_owned()),
            ];
            builder = builder.fact(Fact::new("want_elevation", terms).to_builder())?;
            builder.policy(elevated(seen)?)?
        }
    };
    builder.build(token)?.authorize().map(|_| ())
}

fn once<T: FromStr + Clone>(parsed: &OnceLock<T>, text: &str) -> Result<T, T::Err> {
    match parsed.get() {
        Some(known) => Ok(known.clone()),
        None => text.parse().map(|fresh| parsed.get_or_init(|| fresh).clone()),
    }
}

/// Only statements that this approver signed count.
fn elevated(seen: &SeenElevation) -> Result<Policy, error::Token> {
    let key = seen.approver.to_biscuit()?.print();
    let text = format!(
        "allow if want_elevation($a, $n), now($t), elevate($i, $n, $a, $u, $o), $t < $u trusting {key}"
    );
    Policy::from_str(&text)
}

fn statements(request: &Request, now: u64) -> Vec<Fact> {
    let text = |text: &str| Term::Text(text.to_owned());
    let mut wanted_also = None;
    let (kind, wanted) = match &request.ask {
        Ask::Identity => ("identity", None),
        Ask::Tool { name } => ("tool", Some(Fact::new("want_tool", [text(name)]))),
        Ask::Read { path } => ("read", Some(Fact::new("want_path", [text(path)]))),
        Ask::Write { path } => ("write", Some(Fact::new("want_path", [text(path)]))),
        Ask::Connect { host, port, method } => {
            // Between commas, as in the grant; without a method, what no list of methods has.
            let method = method.as_ref().map_or("-".to_owned(), |method| format!(",{method},"));
            let asks = |host: &str| {
                let terms = [text(host), Term::Number(i64::from(*port)), text(&method)];
                Fact::new("want_endpoint", terms)
            };
            // A grant names all hosts with one label more by `*.` and their parent.
            let read = Host::parse_bare(host).ok();
            let parent = read.as_ref().and_then(Host::parent);
            wanted_also = parent.map(|parent| asks(&format!("*.{parent}")));
            ("connect", Some(asks(host)))
        }
        Ask::Secret { name } => ("secret", Some(Fact::new("want_name", [text(name)]))),
        Ask::Phase { name } => ("phase", Some(Fact::new("want_name", [text(name)]))),
        Ask::Place { kind, wall } => {
            ("place", Some(Fact::new("want_place", [text(kind), text(wall)])))
        }
    };
    let mut facts = vec![
        Fact::new("want", [text(kind)]),
        Fact::new("want_task", [text(&request.task)]),
        Fact::new("want_tenant", [text(&request.tenant)]),
        Fact::new("now", [Term::Number(i64::try_from(now).unwrap_or(i64::MAX))]),
    ];
    facts.extend(wanted.into_iter().chain(wanted_also));
    facts
}
