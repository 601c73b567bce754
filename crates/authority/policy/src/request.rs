//! Requests as people write them, for `explain` and for test cases: `write ./docs/a`,
//! `connect GET https://api.example.com/v1/`, `run build`.

use ringwall_spec::{Host, Scheme, Wall};

use crate::decide::{Action, Stage, Work};
use crate::pattern::{Anchors, FilePath};
use crate::values::ValueError;
use crate::words::suggestion;

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Where some work would run.
    Place {
        work: Work,
        wall: Option<Wall>,
    },
    Act(Action),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error("{0}")]
    Unknown(String),
    #[error("{verb} is asked as: {usage}")]
    Usage { verb: &'static str, usage: &'static str },
    #[error("{0:?} is no endpoint; write HOST:PORT or https://HOST/PATH")]
    Endpoint(String),
    #[error(transparent)]
    Value(#[from] ValueError),
    #[error("{0}")]
    Wall(String),
}

const VERBS: [(&str, &str); 10] = [
    ("run", "run KIND|tool:NAME [WALL]"),
    ("call", "call TOOL [read-only]"),
    ("read", "read PATH"),
    ("write", "write PATH"),
    ("connect", "connect METHOD URL, or connect HOST:PORT"),
    ("tunnel", "tunnel HOST:PORT"),
    ("secret", "secret NAME HOST[:PORT]"),
    ("phase", "phase NAME"),
    ("apply", "apply"),
    ("elevate", "elevate NAME"),
];

/// Reads a request of several words.
pub fn parse_asked(words: &[&str], anchors: &Anchors) -> Result<Asked, AskError> {
    let Some((verb, rest)) = words.split_first() else {
        return Err(AskError::Unknown("nothing was asked; for example: write ./docs/a".to_owned()));
    };
    let Some((name, usage)) = VERBS.into_iter().find(|(name, _)| name == verb) else {
        let known = VERBS.map(|(name, _)| name);
        let near = suggestion(verb, &known);
        let text = format!("{verb:?} cannot be asked; ask one of {}{near}", known.join(", "));
        return Err(AskError::Unknown(text));
    };
    let path = |text: &str| FilePath::new(text, anchors);
    let action = match (name, rest) {
        ("run", [what]) => return place(what, None),
        ("run", [what, wall]) => return place(what, Some(wall)),
        ("call", [tool]) => call(tool, false),
        ("call", [tool, "read-only"]) => call(tool, true),
        ("read", [file]) => Action::Read(path(file)?),
        ("write", [file]) => Action::Write(path(file)?),
        ("connect", [endpoint]) => connect(endpoint, Stage::Dial)?,
        ("tunnel", [endpoint]) => connect(endpoint, Stage::Tunnel)?,
        ("connect", [method, url]) => web_request(method, url)?,
        ("secret", [name, endpoint]) => {
            let (host, port) = host_and_port(endpoint, Scheme::Https)?;
            Action::UseSecret { name: (*name).to_owned(), host, port }
        }
        ("phase", [name]) => Action::ChangePhase((*name).to_owned()),
        ("apply", []) => Action::Apply,
        ("elevate", [name]) => Action::Elevate((*name).to_owned()),
        _ => return Err(AskError::Usage { verb: name, usage }),
    };
    Ok(Asked::Act(action))
}

fn place(what: &str, wall: Option<&str>) -> Result<Asked, AskError> {
    let wall = wall.map(str::parse::<Wall>).transpose();
    let wall = wall.map_err(|error| AskError::Wall(error.to_string()))?;
    let work = match what.strip_prefix("tool:") {
        Some(tool) => Work { tool: Some(tool.to_owned()), kind: None },
        None => Work { tool: None, kind: Some(what.to_owned()) },
    };
    Ok(Asked::Place { work, wall })
}

fn call(tool: &str, read_only: bool) -> Action {
    Action::Call { tool: tool.to_owned(), kind: None, read_only }
}

fn connect(endpoint: &str, stage: Stage) -> Result<Action, AskError> {
    let (scheme, authority) = match endpoint.split_once("://") {
        Some(("https", rest)) => (Some(Scheme::Https), rest),
        Some(("http", rest)) => (Some(Scheme::Http), rest),
        Some(_) => return Err(AskError::Endpoint(endpoint.to_owned())),
        None => (None, endpoint),
    };
    let (host, port) = host_and_port(authority, scheme.unwrap_or_default())?;
    let scheme = scheme.unwrap_or(Scheme::usual(Some(port)));
    Ok(Action::Connect { scheme, host, port, stage })
}

fn web_request(method: &str, url: &str) -> Result<Action, AskError> {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let (endpoint, path) = match url[authority..].find('/') {
        Some(at) => url.split_at(authority + at),
        None => (url, "/"),
    };
    let path = path.split(['?', '#']).next().unwrap_or_default().to_owned();
    connect(endpoint, Stage::Request { method: method.to_owned(), path })
}

fn host_and_port(text: &str, scheme: Scheme) -> Result<(String, u16), AskError> {
    let (host, port) = Host::parse_authority(text, Some(scheme.default_port()))
        .map_err(|_| AskError::Endpoint(text.to_owned()))?;
    Ok((host.bare(), port))
}
