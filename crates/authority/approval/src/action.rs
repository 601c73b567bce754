//! Exactly what was asked for. An approval is bound to the hash of all of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;

use ringwall_grant::{ActionHash, Ask, Request};
use ringwall_spec::{Command, SandboxSpec, shown};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bounds of what a request can say. A person must be able to read it.
pub const MAX_WORD_BYTES: usize = 256;
pub const MAX_RESOURCE_BYTES: usize = 4096;
pub const MAX_PARAMETERS: usize = 64;
pub const MAX_PARAMETER_BYTES: usize = 16 << 10;

/// What nobody can be elevated to: deciding is for people with keys, not for holders of grants.
const CONTROL: [&str; 7] = ["approv", "deny", "elevat", "grant", "policy", "revoke", "key"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    #[error("the {0} of the action is empty")]
    Empty(&'static str),
    #[error("the {0} of the action is longer than {1} bytes; nobody could judge it")]
    TooLong(&'static str, usize),
    #[error("the action has more than {MAX_PARAMETERS} parameters; nobody could judge it")]
    TooManyParameters,
    #[error(
        "{0:?} cannot be approved: approvals, grants, policy and keys are decided by people, never through an approval"
    )]
    Control(String),
}

/// One action, in one incarnation of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    pub task: String,
    pub tenant: String,
    /// What is done: `connect`, `write`, `tool`.
    pub action: String,
    /// To what, in its one spelling.
    pub resource: String,
    /// All else that makes a difference, such as a tool's input.
    pub parameters: BTreeMap<String, String>,
    pub sandbox: String,
    /// Another one for each life of a sandbox, so that a name that is used again is another sandbox.
    pub incarnation: String,
}

impl Action {
    /// The action that a request is for, in a sandbox.
    pub fn of(
        request: &Request,
        parameters: BTreeMap<String, String>,
        sandbox: impl Into<String>,
        incarnation: impl Into<String>,
    ) -> Action {
        let (action, resource) = match &request.ask {
            Ask::Identity => ("identity", "-".to_owned()),
            Ask::Tool { name } => ("tool", name.clone()),
            Ask::Read { path } => ("read", path.clone()),
            Ask::Write { path } => ("write", path.clone()),
            Ask::Connect { host, port, method } => {
                ("connect", format!("{} {host}:{port}", method.as_deref().unwrap_or("-")))
            }
            Ask::Secret { name } => ("secret", name.clone()),
            Ask::Phase { name } => ("phase", name.clone()),
            Ask::Place { kind, wall } => ("place", format!("{kind} {wall}")),
        };
        Action {
            task: request.task.clone(),
            tenant: request.tenant.clone(),
            action: action.to_owned(),
            resource,
            parameters,
            sandbox: sandbox.into(),
            incarnation: incarnation.into(),
        }
    }

    /// SHA-256 of all fields, each with its length before it, so that no two actions look alike.
    pub fn hash(&self) -> ActionHash {
        let mut hash = Sha256::new();
        let mut field = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        field("ringwall action 1");
        let Action { task, tenant, action, resource, parameters, sandbox, incarnation } = self;
        for text in [task, tenant, action, resource, sandbox, incarnation] {
            field(text);
        }
        for (name, value) in parameters {
            field(name);
            field(value);
        }
        ActionHash(hash.finalize().into())
    }

    pub(crate) fn validate(&self) -> Result<(), ActionError> {
        let words = [
            ("task", &self.task),
            ("tenant", &self.tenant),
            ("name", &self.action),
            ("sandbox", &self.sandbox),
            ("incarnation", &self.incarnation),
        ];
        for (what, text) in words {
            bounded(what, text, MAX_WORD_BYTES)?;
        }
        bounded("resource", &self.resource, MAX_RESOURCE_BYTES)?;
        if self.parameters.len() > MAX_PARAMETERS {
            return Err(ActionError::TooManyParameters);
        }
        let bytes: usize =
            self.parameters.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_PARAMETER_BYTES {
            return Err(ActionError::TooLong("parameters", MAX_PARAMETER_BYTES));
        }
        // Tools are named by their owners; a tool of ours that decides would be called so.
        let named = if self.action == "tool" { &self.resource } else { &self.action };
        let bare =
            named.trim_start_matches("ringwall").trim_start_matches(['.', '-', '_', '/', ':']);
        if CONTROL.iter().any(|control| bare.to_ascii_lowercase().starts_with(control)) {
            return Err(ActionError::Control(named.clone()));
        }
        Ok(())
    }
}

fn bounded(what: &'static str, text: &str, most: usize) -> Result<(), ActionError> {
    match text.len() {
        0 => Err(ActionError::Empty(what)),
        length if length > most => Err(ActionError::TooLong(what, most)),
        _ => Ok(()),
    }
}

/// For people: whatever a terminal would obey is escaped.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Action { action, resource, parameters, sandbox, incarnation, .. } = self;
        write!(f, "{} {} in {} ", shown(action), shown(resource), shown(sandbox))?;
        write!(f, "({})", shown(incarnation))?;
        for (name, value) in parameters {
            write!(f, "\n  {} = {}", shown(name), shown(value))?;
        }
        Ok(())
    }
}

/// Everything in which two requests for a sandbox behind the same wall can differ.
pub fn sandbox_parameters(
    spec: &SandboxSpec,
    command: Option<&Command>,
) -> BTreeMap<String, String> {
    let text = |value: serde_json::Result<String>| value.unwrap_or_default();
    let mut parameters = command_parameters(command);
    let entries = [
        ("image", spec.image.clone().unwrap_or_default()),
        ("workspace", text(serde_json::to_string(&spec.workspace))),
        ("rights", text(serde_json::to_string(&spec.rights))),
        ("paths", text(serde_json::to_string(&spec.read_only_paths))),
        ("limits", text(serde_json::to_string(&spec.limits))),
        ("network", text(serde_json::to_string(&spec.egress))),
    ];
    parameters.extend(entries.map(|(name, value)| (name.to_owned(), value)));
    if spec.own_filters {
        parameters.insert("own filters".to_owned(), "yes".to_owned());
    }
    parameters
}

/// Everything in which two commands can differ that is known before they start.
pub fn command_parameters(command: Option<&Command>) -> BTreeMap<String, String> {
    let words: Vec<String> =
        command.into_iter().flat_map(|it| &it.argv).map(|word| exact(word)).collect();
    let list = serde_json::to_string(&words).unwrap_or_default();
    let mut parameters = BTreeMap::from([("command".to_owned(), list)]);
    let Some(command) = command else { return parameters };
    for (name, value) in &command.env {
        // The last of a name is the one that counts.
        parameters.insert(format!("variable {}", exact(name)), exact(value));
    }
    if let Some(directory) = &command.cwd {
        parameters.insert("directory".to_owned(), exact(directory.as_os_str()));
    }
    parameters
}

/// As it is where it is text, else with every byte that is none written out.
fn exact(text: &OsStr) -> String {
    text.to_str().map_or_else(|| format!("{text:?}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action() -> Action {
        let ask = Ask::Connect { host: "a.example".to_owned(), port: 443, method: None };
        let parameters = [("a".to_owned(), "b".to_owned())].into();
        Action::of(&Request::new("t", "acme", ask), parameters, "sandbox", "1")
    }

    #[test]
    fn every_field_makes_another_hash() {
        let mut hashes = vec![action().hash()];
        let changes: [fn(&mut Action); 9] = [
            |action| action.task.push('x'),
            |action| action.tenant.push('x'),
            |action| action.action.push('x'),
            |action| action.resource.push('x'),
            |action| action.sandbox.push('x'),
            |action| action.incarnation.push('x'),
            |action| drop(action.parameters.insert("a".to_owned(), "c".to_owned())),
            |action| action.parameters.clear(),
            // The same bytes, cut elsewhere.
            |action| {
                action.sandbox = "sandbo".to_owned();
                action.incarnation = "x1".to_owned();
            },
        ];
        for change in changes {
            let mut other = action();
            change(&mut other);
            hashes.push(other.hash());
        }
        let all = hashes.len();
        hashes.sort_by_key(|hash| hash.0);
        hashes.dedup();
        assert_eq!(hashes.len(), all);
    }

    #[test]
    fn what_decides_cannot_be_approved() {
        for name in ["approve", "ringwall.approvals.approve", "grant-new", "Policy", "revoke"] {
            let as_action = Action { action: name.to_owned(), ..action() };
            let as_tool =
                Action { action: "tool".to_owned(), resource: name.to_owned(), ..action() };
            for wrong in [as_action, as_tool] {
                assert!(matches!(wrong.validate(), Err(ActionError::Control(_))), "{wrong:?}");
            }
        }
        action().validate().unwrap();
    }

    #[test]
    fn a_command_with_other_variables_or_in_another_directory_is_another() {
        let command = |env: &[(&str, &str)], cwd: Option<&str>| Command {
            argv: vec!["make".into()],
            env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            cwd: cwd.map(Into::into),
            terminal: None,
            stdin: false,
        };
        let all = [
            command_parameters(None),
            command_parameters(Some(&command(&[], None))),
            command_parameters(Some(&command(&[("LD_PRELOAD", "/tmp/x")], None))),
            command_parameters(Some(&command(&[("LD_PRELOAD", "/tmp/y")], None))),
            command_parameters(Some(&command(&[], Some("/tmp")))),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{one:?}");
        }
        let last = command(&[("A", "1"), ("A", "2")], None);
        assert_eq!(command_parameters(Some(&last))["variable A"], "2");
    }

    #[test]
    fn texts_are_bounded() {
        let long = |bytes| "x".repeat(bytes);
        let wrong = [
            Action { resource: long(MAX_RESOURCE_BYTES + 1), ..action() },
            Action { sandbox: long(MAX_WORD_BYTES + 1), ..action() },
            Action { incarnation: String::new(), ..action() },
            Action { parameters: [(long(1), long(MAX_PARAMETER_BYTES))].into(), ..action() },
            Action {
                parameters: (0..=MAX_PARAMETERS).map(|at| (at.to_string(), long(1))).collect(),
                ..action()
            },
        ];
        for action in wrong {
            assert!(action.validate().is_err());
        }
    }

    #[test]
    fn a_terminal_gets_no_orders_from_an_action() {
        let resource = "\x1b[2J\u{202e}x\n\u{e0041}\u{61c}\u{ad}".to_owned();
        let text = Action { resource, ..action() }.to_string();
        let expected = "\\u{1b}[2J\\u{202e}x\\u{a}\\u{e0041}\\u{61c}\\u{ad}";
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
