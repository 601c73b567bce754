//! From text to a policy file: bounded first, then read, then checked for what one table says of
//! another. Every fault names its line and column.

use std::collections::BTreeSet;
use std::time::Duration;

use ringwall_spec::{Allow, Limits, Preset};

use crate::file::PolicyFile;
use crate::values::{Grant, Name};
use crate::words::{At, line_and_column, suggestion};

/// The longest policy file that is read.
pub const MOST_BYTES: usize = 1 << 20;

/// What is wrong with a policy, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct Fault {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub message: String,
}

/// Reads one file. `name` is how messages call it.
pub(crate) fn parse(name: &str, text: &str) -> Result<PolicyFile, Fault> {
    let reader = Reader { name, text };
    if text.len() > MOST_BYTES {
        return Err(reader.fault(0, format!("the file is larger than {MOST_BYTES} bytes")));
    }
    let file: PolicyFile = toml::from_str(text).map_err(|error| reader.toml_fault(&error))?;
    reader.check(&file)?;
    Ok(file)
}

/// The faults of one text.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

impl Reader<'_> {
    pub(crate) fn fault(&self, offset: usize, message: impl Into<String>) -> Fault {
        let (line, column) = line_and_column(self.text, offset);
        Fault { file: self.name.to_owned(), line, column, message: message.into() }
    }

    pub(crate) fn toml_fault(&self, error: &toml::de::Error) -> Fault {
        let offset = error.span().map_or(0, |span| span.start);
        // Only the first line: the rest would repeat the text.
        let message = error.message().lines().next().unwrap_or("not readable");
        self.fault(offset, with_suggestion(message))
    }

    fn check(&self, file: &PolicyFile) -> Result<(), Fault> {
        if file.version.value != 1 {
            let message = format!("version {} is not known; write version = 1", file.version.value);
            return Err(self.fault(file.version.offset, message));
        }
        self.check_counts(file)?;
        self.check_routes(file)?;
        self.check_limits(file)?;
        self.check_network(file)?;
        self.check_phases(file)?;
        self.check_elevations(file)
    }

    fn check_counts(&self, file: &PolicyFile) -> Result<(), Fault> {
        let at = |offset: Option<usize>| offset.unwrap_or(0);
        let network = file.network.as_ref();
        let counts = [
            (file.tool.len(), 4096, "[[tool]]", file.tool.last().map(|tool| tool.offset)),
            (network.map_or(0, |n| n.value.allow.len()), 4096, "[[network.allow]]", None),
            (network.map_or(0, |n| n.value.deny.len()), 4096, "[[network.deny]]", None),
            (file.secrets.as_ref().map_or(0, |s| s.value.len()), 256, "secrets", None),
            (file.phases.as_ref().map_or(0, |p| p.value.len()), 64, "phases", None),
            (file.elevation.len(), 64, "[[elevation]]", file.elevation.last().map(|e| e.offset)),
            (file.approver.len(), 64, "[[approver]]", file.approver.last().map(|a| a.offset)),
        ];
        for (count, most, what, offset) in counts {
            if count > most {
                let message = format!("{count} of {what}; at most {most}");
                return Err(self.fault(at(offset), message));
            }
        }
        let trust_levels =
            file.trust_levels.iter().flat_map(|trust_levels| trust_levels.value.values());
        let lists = trust_levels
            .flat_map(|trust| {
                [(trust.offset, trust.value.read.len()), (trust.offset, trust.value.write.len())]
            })
            .chain(file.phases.iter().flat_map(|phases| phases.value.values()).flat_map(|phase| {
                let PhaseLengths { write, deny, next } = phase_lengths(&phase.value);
                [(phase.offset, write), (phase.offset, deny), (phase.offset, next)]
            }))
            .chain(file.tool.iter().map(|tool| (tool.offset, tool.value.names.len())))
            .chain(file.elevation.iter().map(|e| (e.offset, e.value.grants.len())))
            .chain(network.iter().flat_map(|n| &n.value.allow).map(|allow| {
                (allow.offset, allow.value.methods.len().max(allow.value.paths.len()))
            }));
        for (offset, count) in lists {
            if count > 256 {
                return Err(self.fault(offset, format!("a list of {count}; at most 256")));
            }
        }
        Ok(())
    }

    fn check_routes(&self, file: &PolicyFile) -> Result<(), Fault> {
        let routes = file.routes.iter().flat_map(|routes| {
            let routes = &routes.value;
            [&routes.compute, &routes.files, &routes.build, &routes.untrusted]
        });
        for route in routes.flatten() {
            if route.value.is_empty() {
                return Err(self.fault(route.offset, "a route needs at least one wall"));
            }
            if route.value.len() > 15 {
                return Err(self.fault(route.offset, "a route has at most 15 walls"));
            }
        }
        let floors =
            file.floor.iter().chain(file.risk_levels.iter().flat_map(|p| p.value.values()));
        for floor in floors {
            if floor.value.0.is_empty() || floor.value.0.len() > 15 {
                return Err(self.fault(floor.offset, "name between 1 and 15 walls"));
            }
        }
        Ok(())
    }

    fn check_limits(&self, file: &PolicyFile) -> Result<(), Fault> {
        let Some(rules) = &file.limits else { return Ok(()) };
        let mut limits = Limits::default();
        rules.value.lower(&mut limits);
        limits.validate().map_err(|error| self.fault(rules.offset, error.to_string()))
    }

    fn check_network(&self, file: &PolicyFile) -> Result<(), Fault> {
        let Some(network) = &file.network else { return Ok(()) };
        if let Some(presets) = &network.value.presets {
            let alone = |preset| presets.value.contains(&preset) && presets.value.len() > 1;
            if alone(Preset::None) || alone(Preset::Open) {
                let message = "none and open stand alone; leave the others out";
                return Err(self.fault(presets.offset, message));
            }
        }
        for allow in &network.value.allow {
            self.check_allow(file, allow)?;
        }
        for deny in &network.value.deny {
            ringwall_rules::check_deny(&deny.value)
                .map_err(|error| self.fault(deny.offset, error.to_string()))?;
        }
        Ok(())
    }

    fn check_allow(&self, file: &PolicyFile, allow: &At<Allow>) -> Result<(), Fault> {
        let rule = &allow.value;
        ringwall_rules::check_allow(rule.clone())
            .map_err(|error| self.fault(allow.offset, error.to_string()))?;
        let Some(secret) = &rule.secret else { return Ok(()) };
        if rule.host.exact().is_none() {
            let message =
                format!("the secret {secret} would go to whatever {} is; name one host", rule.host);
            return Err(self.fault(allow.offset, message));
        }
        self.known(allow.offset, "secret", "secrets", secret, &names_of_secrets(file))
    }

    fn check_phases(&self, file: &PolicyFile) -> Result<(), Fault> {
        let names: Vec<&str> =
            file.phases.iter().flat_map(|p| p.value.keys()).map(Name::as_str).collect();
        if let Some(phase) = &file.phase {
            self.known(phase.offset, "phase", "[phases]", phase.value.as_str(), &names)?;
        }
        for phase in file.phases.iter().flat_map(|phases| phases.value.values()) {
            for next in &phase.value.next {
                self.known(next.offset, "phase", "[phases]", next.value.as_str(), &names)?;
            }
        }
        Ok(())
    }

    fn check_elevations(&self, file: &PolicyFile) -> Result<(), Fault> {
        let mut people = BTreeSet::new();
        let mut groups = BTreeSet::new();
        for approver in &file.approver {
            if !people.insert(approver.value.name.as_str()) {
                let message = format!("a second approver {}", approver.value.name);
                return Err(self.fault(approver.offset, message));
            }
            groups.extend(approver.value.groups.iter().map(|group| format!("group:{group}")));
        }
        let known: Vec<String> =
            people.iter().map(|name| (*name).to_owned()).chain(groups).collect();
        let mut names = BTreeSet::new();
        for elevation in &file.elevation {
            let (at, rules) = (elevation.offset, &elevation.value);
            if !names.insert(rules.name.as_str()) {
                return Err(self.fault(at, format!("a second elevation {}", rules.name)));
            }
            if rules.grants.is_empty() || rules.approvers.is_empty() {
                return Err(self.fault(at, "an elevation needs grants and approvers"));
            }
            let week = Duration::from_secs(7 * 24 * 3600);
            if rules.max.value.0.is_zero() || rules.max.value.0 > week {
                return Err(
                    self.fault(rules.max.offset, "max is more than nothing and at most 168h")
                );
            }
            for approver in &rules.approvers {
                self.known(approver.offset, "approver", "[[approver]]", &approver.value, &known)?;
            }
            for grant in &rules.grants {
                match grant {
                    Grant::Secret(secret) => {
                        let secrets = names_of_secrets(file);
                        self.known(at, "secret", "secrets", secret.as_str(), &secrets)?;
                    }
                    Grant::Connect(host) => ringwall_rules::check_host(host)
                        .map_err(|error| self.fault(at, error.to_string()))?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn known<S: AsRef<str>>(
        &self,
        offset: usize,
        what: &str,
        table: &str,
        name: &str,
        known: &[S],
    ) -> Result<(), Fault> {
        if known.iter().any(|known| known.as_ref() == name) {
            return Ok(());
        }
        let near = suggestion(name, known);
        Err(self.fault(offset, format!("no {what} {name:?} in {table}{near}")))
    }
}

struct PhaseLengths {
    write: usize,
    deny: usize,
    next: usize,
}

fn phase_lengths(phase: &crate::file::PhaseRules) -> PhaseLengths {
    PhaseLengths { write: phase.write.len(), deny: phase.deny.len(), next: phase.next.len() }
}

fn names_of_secrets(file: &PolicyFile) -> Vec<&str> {
    file.secrets.iter().flat_map(|s| &s.value).map(|name| name.value.as_str()).collect()
}

/// The name that a key of earlier versions has now.
fn new_name(key: &str) -> Option<&'static str> {
    match key {
        "tier" => Some("trust"),
        "tiers" => Some("trust-levels"),
        "profile" => Some("risk"),
        "profiles" => Some("risk-levels"),
        _ => None,
    }
}

/// serde names the unknown word and all known ones, each between backquotes. Adds the near one.
fn with_suggestion(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    let unknown = message.starts_with("unknown field") || message.starts_with("unknown variant");
    match words.next().filter(|_| unknown) {
        Some(word) if new_name(word).is_some_and(|new| message.contains(&format!("`{new}`"))) => {
            let new = new_name(word).unwrap_or_default();
            format!("the key {word} is called {new} now; write {new}")
        }
        Some(word) => {
            let known: Vec<&str> = words.collect();
            let plain = message.replace("unknown field", "unknown key");
            format!("{}{}", plain.replace('`', ""), suggestion(word, &known))
        }
        None => message.replace('`', ""),
    }
}
