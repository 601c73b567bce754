//! Lowering of what is run and called: routes, floors, profiles, kinds and tools of tiers.

use super::expr::{all, any, context, is, not, one_of, principal, resource, tool, truth};
use super::{Rule, Source, expr::E};
use crate::file::ToolRule;
use crate::strength::{Inside, known_at_least};
use crate::values::{Grant, WallName, Walls};
use crate::words::{Kind, Profile, TaintEffect, Tier, ToolReach};

/// The walls of a profile for which a first layer says none: the product's own table.
fn own_floor(profile: Profile) -> Walls {
    let walls: &[&str] = match profile {
        Profile::Low => &["process"],
        Profile::Medium => &["container", "wasm"],
        Profile::High => &["container"],
        Profile::VeryHigh => &["vm/container"],
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
        rules.extend(self.profiles());
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

    fn profiles(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        for profile in Profile::ALL {
            let row = self.file.profiles.as_ref().and_then(|rows| rows.value.get(profile));
            let (walls, offset) = match row {
                Some(row) => (row.value.clone(), row.offset),
                None if self.base => {
                    (own_floor(*profile), self.file.profile.as_ref().map_or(0, |at| at.offset))
                }
                None => continue,
            };
            let of_profile = is(principal("profile"), profile.name());
            let when = all([of_profile, not(in_wall_of(&walls.0))]);
            rules.push(Rule::forbid(format!("profiles.{profile}"), offset, when));
        }
        rules
    }

    fn tiers_of_run(self) -> Vec<Rule> {
        let mut rules = Vec::new();
        let present: Vec<&str> =
            self.file.tiers.iter().flat_map(|t| t.value.keys()).map(|tier| tier.name()).collect();
        if self.base {
            let offset = self.file.tiers.as_ref().map_or(0, |tiers| tiers.offset);
            rules.push(Rule::forbid("tiers", offset, not(one_of(&present, principal("tier")))));
        }
        for (tier, of_tier) in self.file.tiers.iter().flat_map(|tiers| &tiers.value) {
            let Some(kinds) = &of_tier.value.kinds else { continue };
            let names: Vec<&str> = kinds.value.iter().map(|kind| kind.name()).collect();
            let when =
                all([is(principal("tier"), tier.name()), not(one_of(&names, resource("kind")))]);
            let lifted = self.lifted(|grant| match grant {
                Grant::Run(kind) => Some(is(resource("kind"), kind.name())),
                _ => None,
            });
            let rule = Rule::forbid(format!("tiers.{tier}.kinds"), kinds.offset, when);
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
        for tier in Tier::ALL {
            let of_tier = is(principal("tier"), tier.name());
            let Some(row) = self.file.tier_rules(*tier) else {
                if !self.base {
                    rules.push(Rule::inherited(&format!("tiers.{tier}.tools"), of_tier));
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
            let name = format!("tiers.{tier}.tools");
            rules.push(Rule::permit(name, reach.offset, all([of_tier, fits])));
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
