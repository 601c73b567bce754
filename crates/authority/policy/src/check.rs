//! `policy check`: the classic mistakes, each with its line and the fix, and what makes a policy
//! unusable.

use std::time::Duration;

use cedar_policy::{ValidationMode, Validator};
use serde::Serialize;

use crate::decide::{Task, Work};
use crate::guard_rails;
use crate::host::HostFacts;
use crate::layer::Layer;
use crate::lower::Act;
use crate::place::{PlaceRequest, Refusal};
use crate::stack::Stack;
use crate::values::Grant;
use crate::words::{At, Kind, Profile, Reach, Tier, ToolReach};
use ringwall_spec::{Preset, RingKind};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Warning,
    /// The policy must not be used like this.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub file: String,
    pub line: usize,
    /// `too-permissive`, `too-restrictive`, `no-timeout`, `network`, `shared-state`, `no-wall`
    pub mistake: &'static str,
    pub message: String,
    pub fix: String,
}

/// Collects findings about one layer.
struct Findings<'a> {
    layer: &'a Layer,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn warn(&mut self, mistake: &'static str, offset: usize, message: String, fix: &str) {
        self.found.push(Finding {
            severity: Severity::Warning,
            file: self.layer.path.clone(),
            line: self.layer.line(offset),
            mistake,
            message,
            fix: fix.to_owned(),
        });
    }
}

impl Stack {
    /// Everything that is wrong or suspicious, errors first.
    pub fn check(&self) -> Vec<Finding> {
        let mut all = self.cells_without_wall();
        all.extend(self.not_valid());
        for layer in self.layers() {
            let mut findings = Findings { layer, found: Vec::new() };
            findings.tiers();
            findings.routes();
            findings.limits();
            findings.network();
            findings.elevations();
            all.extend(findings.found);
        }
        all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        all
    }

    /// Every profile, kind and tier for which there is a route but no wall that policy permits.
    fn cells_without_wall(&self) -> Vec<Finding> {
        let Some(base) = self.layers().first() else { return Vec::new() };
        let host = HostFacts::of_rings(|_| None);
        let mut found: Vec<Finding> = Vec::new();
        for kind in Kind::ALL {
            let Some(route) = base.file.route(*kind) else { continue };
            for profile in Profile::ALL {
                for tier in base.file.tiers.iter().flat_map(|tiers| tiers.value.keys()) {
                    let task =
                        Task { tier: Some(*tier), profile: Some(*profile), ..Task::default() };
                    let work = Work { tool: None, kind: Some(kind.name().to_owned()) };
                    let request = PlaceRequest { task, work, ..PlaceRequest::default() };
                    let record = self.place(&request, &host);
                    let Err(Refusal::NoWall { why, rules, .. }) = record.plan() else { continue };
                    if rules.iter().any(|rule| rule.rule.ends_with(".kinds")) {
                        continue;
                    }
                    let message = format!(
                        "{kind} work has a route but no permitted wall with profile {profile}: {why}"
                    );
                    if !found.iter().any(|finding| finding.message == message) {
                        found.push(Finding {
                            severity: Severity::Error,
                            file: base.path.clone(),
                            line: base.line(route.offset),
                            mistake: "no-wall",
                            message,
                            fix: format!("add a wall to routes.{kind} that is strong enough"),
                        });
                    }
                }
            }
        }
        found
    }

    /// Lowered rules are valid by how they are made; this shows it for the policy at hand.
    fn not_valid(&self) -> Vec<Finding> {
        let error = |layer: &Layer, message: String| Finding {
            severity: Severity::Error,
            file: layer.path.clone(),
            line: 1,
            mistake: "not-valid",
            message,
            fix: "this is a fault of Ringwall; please report it".to_owned(),
        };
        let mut found = Vec::new();
        for layer in self.layers() {
            let validator = match guard_rails::schema() {
                Ok(schema) => Validator::new(schema),
                Err(wrong) => return vec![error(layer, wrong)],
            };
            for act in Act::ALL {
                match layer.set(act) {
                    Err(wrong) => found.push(error(layer, wrong.to_string())),
                    Ok(set) => {
                        let result = validator.validate(&set.policies, ValidationMode::Strict);
                        found.extend(
                            result.validation_errors().map(|wrong| error(layer, wrong.to_string())),
                        );
                    }
                }
            }
        }
        found
    }
}

impl Findings<'_> {
    fn tiers(&mut self) {
        let Some(tiers) = &self.layer.file.tiers else {
            if self.layer.base {
                let message = "no tier is defined, so nothing is allowed".to_owned();
                self.warn("too-restrictive", 0, message, "add [tiers.medium] and the others");
            }
            return;
        };
        for tier in Tier::ALL.iter().filter(|tier| !tiers.value.contains_key(tier)) {
            if self.layer.base {
                let message = format!("tier {tier} is not defined, so its tasks can do nothing");
                self.warn("too-restrictive", tiers.offset, message, "add its table to [tiers]");
            }
        }
        for (tier, At { value: rules, offset }) in &tiers.value {
            let everything = |list: &[crate::PathPattern], root_only: bool| {
                list.iter().any(|path| {
                    path.is_everything() && (!root_only || path.as_str().starts_with('/'))
                })
            };
            if *tier != Tier::High && everything(&rules.write, true) {
                let message = format!("tier {tier} may write everywhere");
                self.warn("too-permissive", *offset, message, "name the paths that it needs");
            }
            if *tier == Tier::Low && rules.network.value != Reach::None {
                let message = format!("tier low reaches a network ({})", rules.network.value);
                let fix = "write network = \"none\"; untrusted work sends out what it reads";
                self.warn("network", rules.network.offset, message, fix);
            }
            if *tier == Tier::Medium && rules.network.value == Reach::Open {
                let message = "tier medium reaches every host".to_owned();
                self.warn(
                    "network",
                    rules.network.offset,
                    message,
                    "write network = \"allowlist\"",
                );
            }
            if *tier == Tier::Low
                && matches!(rules.tools.value, ToolReach::All | ToolReach::Approved)
            {
                let message = format!("tier low may call tools that write ({})", rules.tools.value);
                self.warn(
                    "too-permissive",
                    rules.tools.offset,
                    message,
                    "write tools = \"read-only\"",
                );
            }
            if rules.read.is_empty() && rules.write.is_empty() {
                let message = format!("tier {tier} can neither read nor write a file");
                self.warn("too-restrictive", *offset, message, "give it /tmp/** at least");
            }
            let kept = rules.write.iter().find(|path| !path.as_str().starts_with("/tmp"));
            if let Some(path) = kept.filter(|_| *tier == Tier::Low) {
                let message = format!("tier low writes {}, which others read later", path.as_str());
                self.warn("shared-state", *offset, message, "let it write /tmp/** only");
            }
        }
    }

    fn routes(&mut self) {
        let file = &self.layer.file;
        let Some(routes) = &file.routes else {
            if self.layer.base {
                let message = "no kind of work has a route, so nothing can run".to_owned();
                self.warn("too-restrictive", 0, message, "add [routes]");
            }
            return;
        };
        for kind in Kind::ALL.iter().filter(|kind| routes.value.of(**kind).is_none()) {
            if self.layer.base {
                let message = format!("{kind} work has no route, so it cannot run");
                self.warn("too-restrictive", routes.offset, message, "add it to [routes]");
            }
        }
        let Some(untrusted) = &routes.value.untrusted else { return };
        let weak = untrusted.value.iter().find(|wall| !wall.0.rings().contains(&RingKind::Vm));
        if let Some(weak) = weak {
            let message = format!("untrusted work may share the host's kernel, in {}", weak.0);
            self.warn("too-permissive", untrusted.offset, message, "give it walls with a vm ring");
        }
        if !routes.value.is_fresh(Kind::Untrusted) {
            let message = "untrusted work may run in a sandbox that other work uses".to_owned();
            self.warn("shared-state", untrusted.offset, message, "add fresh = [\"untrusted\"]");
        }
    }

    fn limits(&mut self) {
        let file = &self.layer.file;
        let timeout = file.limits.as_ref().and_then(|limits| limits.value.timeout.as_ref());
        let offset = file.limits.as_ref().map_or(0, |limits| limits.offset);
        match timeout {
            None if self.layer.base => {
                let message = "no timeout is set; jobs get the default of 30s".to_owned();
                self.warn("no-timeout", offset, message, "write timeout = \"10m\" under [limits]");
            }
            Some(time) if time.value.0 > Duration::from_secs(4 * 3600) => {
                let message = "a loop without end would run for hours".to_owned();
                self.warn("no-timeout", time.offset, message, "lower limits.timeout to 4h or less");
            }
            Some(time) if time.value.0 < Duration::from_secs(1) => {
                let message = "hardly any job ends within limits.timeout".to_owned();
                self.warn("too-restrictive", time.offset, message, "raise it to some seconds");
            }
            _ => {}
        }
        let memory = file.limits.as_ref().and_then(|limits| limits.value.memory.as_ref());
        if let Some(memory) = memory.filter(|memory| memory.value.0 < 32 << 20) {
            let message = "hardly any job fits into limits.memory".to_owned();
            self.warn("too-restrictive", memory.offset, message, "raise it to 64M or more");
        }
    }

    fn network(&mut self) {
        let file = &self.layer.file;
        let tiers = || file.tiers.iter().flat_map(|tiers| tiers.value.values());
        let reached = |reach| tiers().find(|tier| tier.value.network.value == reach);
        let connected = reached(Reach::Open).or_else(|| reached(Reach::Allowlist));
        let Some(network) = &file.network else {
            if let Some(tier) = connected.filter(|_| self.layer.base) {
                let message = "tiers have a network, but nothing says where to".to_owned();
                let fix = "add [network], with presets = [\"none\"] if nothing is to be reached";
                self.warn("network", tier.offset, message, fix);
            }
            return;
        };
        let listed = !network.value.allow.is_empty();
        if listed && self.layer.base && reached(Reach::Allowlist).is_none() {
            let message = "the allowlist counts for no tier".to_owned();
            let fix = "write network = \"allowlist\" in a tier, or leave it out";
            self.warn("too-restrictive", network.offset, message, fix);
        }
        let open = |presets: &&At<Vec<Preset>>| presets.value.contains(&Preset::Open);
        if let Some(presets) = network.value.presets.as_ref().filter(open) {
            let message = "the preset open allows every host".to_owned();
            self.warn("network", presets.offset, message, "name the hosts that are needed");
        }
        for allow in &network.value.allow {
            if allow.value.passthrough {
                let message = format!(
                    "what goes to {} is not looked into: no method, path or content counts",
                    allow.value.host
                );
                self.warn(
                    "network",
                    allow.offset,
                    message,
                    "leave passthrough out if TLS can be opened",
                );
            }
        }
        if let Some(tier) = connected.filter(|_| self.layer.base && file.taint.is_none()) {
            let message = "who has read what a stranger wrote may still send out".to_owned();
            let fix = "add [taint] with sources and effects = [\"no-network\", \"no-secrets\"]";
            self.warn("network", tier.offset, message, fix);
        }
    }

    fn elevations(&mut self) {
        for elevation in &self.layer.file.elevation {
            let rules = &elevation.value;
            if rules.max.value.0 > Duration::from_secs(8 * 3600) {
                let message =
                    format!("the elevation {} lasts longer than a working day", rules.name);
                self.warn("too-permissive", rules.max.offset, message, "lower max");
            }
            let wide = rules.grants.iter().any(|grant| {
                matches!(grant, Grant::Write(path)
                    if path.is_everything() && path.as_str().starts_with('/'))
            });
            if wide {
                let message = format!("the elevation {} gives everything at once", rules.name);
                self.warn("too-permissive", elevation.offset, message, "grant what is needed");
            }
        }
    }
}
