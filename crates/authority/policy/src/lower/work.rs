//! Lowering of what is run and called: routes, floors, risk levels, kinds and tools of trust levels.

use super::expr::{all, any, context, is, not, one_of, principal, resource, tool, truth};
use super::{Rule, Source, expr::E};
use crate::file::ToolRule;
use crate::strength::{Inside, known_at_least};
use crate::values::{Grant, WallName, Walls};
use crate::words::{Kind, Risk, TaintEffect, ToolReach, Trust};

/// The walls of a risk level for which a first layer says none: the product's own table.
fn own_floor(risk: Risk) -> Walls {
    let walls: &[&str] = match risk {
        Risk::Low => &["process"],
        Risk::Medium => &["container", "wasm"],
        Risk::High => &["container"],
        Risk::VeryHigh => &["vm/container"],
    };
    let known = walls.iter().filter_map(|wall| WallName::try_from((*wall).to_owned()).ok());
    Walls(known.collect())
}

fn in_wall_of(least: &[WallName]) -> E {
    let least: Vec<_> = least.iter().map(|wall| wall.0.clone()).collect();
    let of = |inside: Inside| {
        let walls = known_at_least(&least, inside);
        let walls: Vec<String> = walls.iter().map(ToString::to_string).collect();
        one_of(&walls, context("wall"))
    };
    let for_tools = all([context("tool"), of(Inside::Tool)]);
    any([for_tools, all([not(context("tool")), of(Inside::Command)])])
}

impl Source<'_> {
    pub(super) fn run(self) -> Vec<Rule> {
        let mut rules = self.routes();
        if let Some(floor) = &self.file.floor {
            let when = not(in_wall_of(&floor.value.0));
            rules.push(Rule::forbid("floor", floor.offset, when));
        }
        rules.extend(self.risk_levels());
        rules.extend(self.tiers_of_run());
        if let Some(effect) = self.file.taint_effect(TaintEffect::Isolate) {
            let isolated = match self.file.route(Kind::Untrusted) {
                Some(route) => self.on_route(Kind::Untrusted, &route.value),
                None => truth(false),
            };
            let when = all([principal("tainted"), not(isolated)]);
            let rule = Rule::forbid("taint.isolate", effect.offset, when);
            rules.push(rule.unless(self.taint_lifted()));
        }
        rules
    }

    fn on_route(self, kind: Kind, walls: &[WallName]) -> E {
        let fresh = self.file.routes.as_ref().is_some_and(|routes| routes.value.is_fresh(kind));
        let fresh = fresh.then(|| context("fresh"));
        all([in_wall_of(walls)].into_iter().chain(fresh))
    }

    fn routes(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for kind in Kind::ALL {
            let of_kind = is(resource("kind"), kind.name());
            let name = format!("routes.{kind}");
            match self.file.route(*kind) {
                Some(route) => {
                    let when = all([of_kind, self.on_route(*kind, &route.value)]);
                    rules.push(Rule::permit(name, route.offset, when));
                }
                None if !self.base => rules.push(Rule::inherited(&name, of_kind)),
                None => {}
            }
        }
        rules
    }

    fn risk_levels(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for risk in Risk::ALL {
            let row = self.file.risk_levels.as_ref().and_then(|rows| rows.value.get(risk));
            let (walls, offset) = match row {
                Some(row) => (row.value.clone(), row.offset),
                None if self.base => {
                    (own_floor(*risk), self.file.risk.as_ref().map_or(0, |at| at.offset))
                }
                None => continue,
            };
            let of_risk = is(principal("risk"), risk.name());
            let when = all([of_risk, not(in_wall_of(&walls.0))]);
            rules.push(Rule::forbid(format!("risk-levels.{risk}"), offset, when));
        }
        rules
    }

    fn tiers_of_run(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        let present: Vec<&str> = self
            .file
            .trust_levels
            .iter()
            .flat_map(|t| t.value.keys())
            .map(|trust| trust.name())
            .collect();
        if self.base {
            let offset =
                self.file.trust_levels.as_ref().map_or(0, |trust_levels| trust_levels.offset);
            rules.push(Rule::forbid(
                "trust-levels",
                offset,
                not(one_of(&present, principal("trust"))),
            ));
        }
        for (trust, of_trust) in
            self.file.trust_levels.iter().flat_map(|trust_levels| &trust_levels.value)
        {
            let Some(kinds) = &of_trust.value.kinds else { continue };
            let names: Vec<&str> = kinds.value.iter().map(|kind| kind.name()).collect();
            let when =
                all([is(principal("trust"), trust.name()), not(one_of(&names, resource("kind")))]);
            let lifted = self.lifted(|grant| match grant {
                Grant::Run(kind) => Some(is(resource("kind"), kind.name())),
                _ => None,
            });
            let rule = Rule::forbid(format!("trust-levels.{trust}.kinds"), kinds.offset, when);
            rules.push(rule.unless(lifted));
        }
        rules
    }

    pub(super) fn call(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        let listed = |picked: fn(&ToolRule) -> bool| -> E {
            let tools = self.file.tool.iter().filter(|tool| picked(&tool.value));
            let (exact, patterns): (Vec<_>, Vec<_>) = tools
                .flat_map(|tool| &tool.value.names)
                .partition(|name| !name.as_str().contains('*'));
            let exact: Vec<&str> = exact.iter().map(|name| name.as_str()).collect();
            any([one_of(&exact, resource("name"))]
                .into_iter()
                .chain(patterns.into_iter().map(tool)))
        };
        let read_only = || any([resource("readOnly"), listed(|tool| tool.read_only)]);
        for trust in Trust::ALL {
            let of_trust = is(principal("trust"), trust.name());
            let Some(row) = self.file.trust_rules(*trust) else {
                if !self.base {
                    rules.push(Rule::inherited(&format!("trust-levels.{trust}.tools"), of_trust));
                }
                continue;
            };
            let reach = &row.value.tools;
            let fits = match reach.value {
                ToolReach::None => continue,
                ToolReach::ReadOnly => read_only(),
                ToolReach::Approved => listed(|tool| tool.approved),
                ToolReach::All => truth(true),
            };
            let name = format!("trust-levels.{trust}.tools");
            rules.push(Rule::permit(name, reach.offset, all([of_trust, fits])));
        }
        rules.extend(self.by_elevation(|grant| match grant {
            Grant::Call(pattern) => Some(tool(pattern)),
            _ => None,
        }));
        if let Some(effect) = self.file.taint_effect(TaintEffect::ReadOnlyTools) {
            let when = all([principal("tainted"), not(read_only())]);
            let rule = Rule::forbid("taint.read-only-tools", effect.offset, when);
            rules.push(rule.unless(self.taint_lifted()));
        }
        rules
    }

    pub(super) fn taint_lifted(self) -> Vec<E> {
        self.lifted(|grant| (*grant == Grant::Taint).then(|| truth(true)))
    }
}
