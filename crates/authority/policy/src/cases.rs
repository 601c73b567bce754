//! Allow and deny cases beside a policy (`ringwall.test.toml`): read, asked, compared.

use serde::{Deserialize, Serialize};

use crate::decide::{Decision, Task};
use crate::host::HostFacts;
use crate::parse::{Fault, MOST_BYTES, Reader};
use crate::pattern::Anchors;
use crate::place::PlaceRequest;
use crate::request::{Asked, parse_asked};
use crate::stack::Stack;
use crate::words::{At, Risk, Trust};

const MOST_CASES: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CaseFile {
    test: Vec<At<Case>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Case {
    name: String,
    /// `write ./docs/a`, `run build`, `connect GET https://host/path`
    ask: String,
    expect: Expected,
    trust: Option<Trust>,
    risk: Option<Risk>,
    phase: Option<String>,
    #[serde(default)]
    tainted: bool,
    #[serde(default)]
    elevated: Vec<String>,
    /// The wall that `run` must give.
    wall: Option<String>,
    /// The beginning of the name of a rule that must have decided.
    rule: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Expected {
    Allow,
    Deny,
}

/// What came of one case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    pub name: String,
    pub line: usize,
    pub passed: bool,
    /// What was decided, and how that differs.
    pub why: String,
}

impl Stack {
    /// Asks every case of a test file. `./` is a workspace below the home, and every wall can be
    /// raised: cases are about the policy, not about this machine.
    pub fn run_cases(&self, file: &str, text: &str) -> Result<Vec<CaseResult>, Fault> {
        let reader = Reader { name: file, text };
        if text.len() > MOST_BYTES {
            return Err(reader.fault(0, format!("the file is larger than {MOST_BYTES} bytes")));
        }
        let cases: CaseFile = toml::from_str(text).map_err(|error| reader.toml_fault(&error))?;
        if cases.test.len() > MOST_CASES {
            return Err(reader.fault(0, format!("more than {MOST_CASES} cases")));
        }
        cases.test.iter().map(|case| self.run_case(&reader, case)).collect()
    }

    fn run_case(&self, reader: &Reader<'_>, case: &At<Case>) -> Result<CaseResult, Fault> {
        let At { value: case, offset } = case;
        let anchors = Anchors {
            home: Some("/home/user".into()),
            workspace: Some("/home/user/project".into()),
        };
        let words: Vec<&str> = case.ask.split_whitespace().collect();
        let asked = parse_asked(&words, &anchors)
            .map_err(|error| reader.fault(*offset, error.to_string()))?;
        let task = Task {
            trust: case.trust,
            risk: case.risk,
            phase: case.phase.clone(),
            tainted: case.tainted,
            elevated: case.elevated.iter().cloned().collect(),
        };
        let (decision, wall) = self.answer(task, asked);
        let mut differs = Vec::new();
        if decision.allowed != (case.expect == Expected::Allow) {
            differs
                .push(if decision.allowed { "it is allowed" } else { "it is denied" }.to_owned());
        }
        if let Some(expected) =
            case.wall.as_ref().filter(|expected| wall.as_ref() != Some(expected))
        {
            let got = wall.as_deref().unwrap_or("none");
            differs.push(format!("the wall is {got}, not {expected}"));
        }
        let decided = |name: &str| decision.rules.iter().any(|rule| rule.rule.starts_with(name));
        if let Some(rule) = case.rule.as_ref().filter(|rule| !decided(rule)) {
            differs.push(format!("{rule} did not decide"));
        }
        let why = if differs.is_empty() {
            decision.why
        } else {
            format!("{}: {}", differs.join(", "), decision.why)
        };
        let line = reader.fault(*offset, "").line;
        Ok(CaseResult { name: case.name.clone(), line, passed: differs.is_empty(), why })
    }

    fn answer(&self, task: Task, asked: Asked) -> (Decision, Option<String>) {
        match asked {
            Asked::Act(action) => (self.decide(&task, &action), None),
            Asked::Place { work, wall } => {
                let request = PlaceRequest { task, work, wall, ..PlaceRequest::default() };
                let record = self.place(&request, &HostFacts::of_rings(|_| None));
                let (why, wall) = match record.plan() {
                    Ok(plan) => (format!("placed in {}", plan.wall), Some(plan.wall.to_string())),
                    Err(refusal) => (refusal.to_string(), None),
                };
                let allowed = wall.is_some();
                let decision =
                    Decision { allowed, rules: record.rules, why, elevations: Vec::new() };
                (decision, wall)
            }
        }
    }
}
