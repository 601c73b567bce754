//! Policies, hosts and requests for the tests.

use ringwall_policy::*;
use ringwall_spec::Scheme;

pub(crate) fn layer(origin: OriginKind, text: &str) -> LayerText {
    LayerText {
        origin,
        path: format!("{origin:?}.toml").to_lowercase(),
        text: text.to_owned(),
        guard_rails: None,
        facts: FileFacts::default(),
    }
}

pub(crate) fn user(text: &str) -> Stack {
    Stack::load(vec![layer(OriginKind::User, text)]).unwrap()
}

pub(crate) fn shipped() -> Stack {
    user(DEFAULT_POLICY)
}

/// The shipped policy with something else in the place of a part of it.
pub(crate) fn shipped_but(part: &str, with: &str) -> String {
    assert!(DEFAULT_POLICY.contains(part), "{part}");
    DEFAULT_POLICY.replacen(part, with, 1)
}

pub(crate) fn everything() -> HostFacts {
    HostFacts::of_rings(|_| None)
}

pub(crate) fn anchors() -> Anchors {
    Anchors { home: Some("/home/u".into()), workspace: Some("/home/u/w".into()) }
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::new(text, &anchors()).unwrap()
}

pub(crate) fn task(trust: Trust) -> Task {
    Task { trust: Some(trust), ..Task::default() }
}

pub(crate) fn work(kind: Kind) -> PlaceRequest {
    PlaceRequest {
        work: Work { tool: None, kind: Some(kind.name().to_owned()) },
        ..PlaceRequest::default()
    }
}

pub(crate) fn get(host: &str, path: &str) -> Action {
    let stage = Stage::Request { method: "GET".into(), path: path.into() };
    Action::Connect { scheme: Scheme::Https, host: host.into(), port: 443, stage }
}

pub(crate) fn wall_of(record: &DecisionRecord) -> String {
    match record.plan() {
        Ok(plan) => plan.wall.to_string(),
        Err(refusal) => format!("refused: {refusal}"),
    }
}
