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
use crate::words::{At, Kind, Reach, Risk, ToolReach, Trust};
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
            findings.trust_levels();
            findings.routes();
            findings.limits();
            findings.network();
            findings.elevations();
            all.extend(findings.found);
        }
        all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        all
    }

    /// Every risk level, kind and trust level for which there is a route but no wall that policy permits.
    fn cells_without_wall(&self) -> Vec<Finding> {
        let Some(base) = self.layers().first() else { return Vec::new() };
        let host = HostFacts::of_rings(|_| None);
        let mut found: Vec<Finding> = Vec::new();
        for kind in Kind::ALL {
            let Some(route) = base.file.route(*kind) else { continue };
            for risk in Risk::ALL {
                for trust in
                    base.file.trust_levels.iter().flat_map(|trust_levels| trust_levels.value.keys())
                {
                    let task = Task { trust: Some(*trust), risk: Some(*risk), ..Task::default() };
                    let work = Work { tool: None, kind: Some(kind.name().to_owned()) };
                    let request = PlaceRequest { task, work, ..PlaceRequest::default() };
                    let record = self.place(&request, &host);
                    let Err(Refusal::NoWall { why, rules, .. }) = record.plan() else { continue };
                    if rules.iter().any(|rule| rule.rule.ends_with(".kinds")) {
                        continue;
                    }
                    let message = format!(
                        "{kind} work has a route but no permitted wall with risk level {risk}: {why}"
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
    fn trust_levels(&mut self) {
        let Some(trust_levels) = &self.layer.file.trust_levels else {
            if self.layer.base {
                let message = "no trust level is defined, so nothing is allowed".to_owned();
                self.warn(
                    "too-restrictive",
                    0,
                    message,
                    "add [trust-levels.medium] and the others",
                );
            }
            return;
        };
        for trust in Trust::ALL.iter().filter(|trust| !trust_levels.value.contains_key(trust)) {
            if self.layer.base {
                let message =
                    format!("trust level {trust} is not defined, so its tasks can do nothing");
                self.warn(
                    "too-restrictive",
                    trust_levels.offset,
                    message,
                    "add its table to [trust-levels]",
                );
            }
        }
        for (trust, At { value: rules, offset }) in &trust_levels.value {
            let everything = |list: &[crate::PathPattern], root_only: bool| {
                list.iter().any(|path| {
                    path.is_everything() && (!root_only || path.as_str().starts_with('/'))
                })
            };
            if *trust != Trust::High && everything(&rules.write, true) {
                let message = format!("trust level {trust} may write everywhere");
                self.warn("too-permissive", *offset, message, "name the paths that it needs");
            }
            if *trust == Trust::Low && rules.network.value != Reach::None {
                let message =
                    format!("trust level low reaches a network ({})", rules.network.value);
                let fix = "write network = \"none\"; untrusted work sends out what it reads";
                self.warn("network", rules.network.offset, message, fix);
            }
            if *trust == Trust::Medium && rules.network.value == Reach::Open {
                let message = "trust level medium reaches every host".to_owned();
                self.warn(
                    "network",
                    rules.network.offset,
                    message,
                    "write network = \"allowlist\"",
                );
            }
            if *trust == Trust::Low
                && matches!(rules.tools.value, ToolReach::All | ToolReach::Approved)
            {
                let message =
                    format!("trust level low may call tools that write ({})", rules.tools.value);
                self.warn(
                    "too-permissive",
                    rules.tools.offset,
                    message,
                    "write tools = \"read-only\"",
                );
            }
            if rules.read.is_empty() && rules.write.is_empty() {
                let message = format!("trust level {trust} can neither read nor write a file");
                self.warn("too-restrictive", *offset, message, "give it /tmp/** at least");
            }
            let kept = rules.write.iter().find(|path| !path.as_str().starts_with("/tmp"));
            if let Some(path) = kept.filter(|_| *trust == Trust::Low) {
                let message =
                    format!("trust level low writes {}, which others read later", path.as_str());
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
        let trust_levels =
            || file.trust_levels.iter().flat_map(|trust_levels| trust_levels.value.values());
        let reached = |reach| trust_levels().find(|trust| trust.value.network.value == reach);
        let connected = reached(Reach::Open).or_else(|| reached(Reach::Allowlist));
        let Some(network) = &file.network else {
            if let Some(trust) = connected.filter(|_| self.layer.base) {
                let message = "trust levels have a network, but nothing says where to".to_owned();
                let fix = "add [network], with presets = [\"none\"] if nothing is to be reached";
                self.warn("network", trust.offset, message, fix);
            }
            return;
        };
        let listed = !network.value.allow.is_empty();
        if listed && self.layer.base && reached(Reach::Allowlist).is_none() {
            let message = "the allowlist counts for no trust level".to_owned();
            let fix = "write network = \"allowlist\" in a trust level, or leave it out";
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
        if let Some(trust) = connected.filter(|_| self.layer.base && file.taint.is_none()) {
            let message = "who has read what a stranger wrote may still send out".to_owned();
            let fix = "add [taint] with sources and effects = [\"no-network\", \"no-secrets\"]";
            self.warn("network", trust.offset, message, fix);
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
