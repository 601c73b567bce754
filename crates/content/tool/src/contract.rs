//! One tool, ready to be called: its manifest, its schemas compiled, its command line parsed.

use ringwall_spec::{ToolDigest, ToolKind, ToolStatus};
use serde::Serialize;
use serde_json::{Value, json};

use crate::manifest::{Kind, Manifest, ManifestError, Stdout};
use crate::schema::{Misfit, Schema};
use crate::template::Template;

const MOST_CODE: usize = 64;
const MOST_MESSAGE: usize = 4096;

#[derive(Debug)]
pub struct Tool {
    pub digest: ToolDigest,
    pub kind: ToolKind,
    manifest: Manifest,
    identity: String,
    input: Schema,
    output: Schema,
    template: Option<Template>,
}

/// What goes to the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Component { json: Vec<u8> },
    Command { args: Vec<String>, stdin: Vec<u8> },
}

/// Why a call gave no output. Codes are kebab-case and stable, messages are for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{code}: {message}")]
pub struct Failure {
    pub code: String,
    pub message: String,
}

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.to_owned(), message: message.into() }
    }
}

impl Tool {
    /// Compiles what the manifest says; `kind` is what the file really is.
    pub fn new(
        digest: ToolDigest,
        kind: ToolKind,
        manifest: Manifest,
    ) -> Result<Tool, ManifestError> {
        let fits = match kind {
            ToolKind::Component => manifest.kind == Kind::Component,
            ToolKind::CommandComponent | ToolKind::CommandModule => manifest.kind == Kind::Command,
        };
        if !fits {
            let is = if kind == ToolKind::Component { "component" } else { "command" };
            let problem = format!("the file is a {is}; write {is:?}");
            return Err(ManifestError::wrong("/kind", problem));
        }
        let compile = |name: &str, schema: &Value| {
            Schema::compile(schema).map_err(|error| {
                ManifestError::wrong(format!("/{name}{}", error.at), error.problem)
            })
        };
        let input = compile("input", &manifest.input)?;
        let output = compile("output", &manifest.output)?;
        let template = manifest.command.as_ref().map(|shape| {
            Template::parse(shape, &manifest.input)
                .map_err(|(at, error)| ManifestError::wrong(at, error.to_string()))
        });
        let template = template.transpose()?;
        let identity = digest.to_string();
        Ok(Tool { digest, kind, manifest, identity, input, output, template })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// As the tool calls itself. A stranger's file can have any name here: nothing is decided by it.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// What policies and grants are asked about: the name that a person gave it when it was installed, and of
    /// a file its digest.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) fn installed_as(self, name: &str) -> Tool {
        Tool { identity: name.to_owned(), ..self }
    }

    /// Whether the manifest's own examples fit its schemas. Done when a tool is installed.
    pub fn check_examples(&self) -> Result<(), ManifestError> {
        for (index, example) in self.manifest.examples.iter().enumerate() {
            let parts =
                [("input", &example.input, &self.input), ("output", &example.output, &self.output)];
            for (part, value, schema) in parts {
                schema.check(value.clone(), value.to_string().len()).map_err(|misfit| {
                    let problem = format!("it does not fit the schema of the {part}: {misfit}");
                    ManifestError::wrong(format!("/examples/{index}/{part}"), problem)
                })?;
            }
        }
        Ok(())
    }

    /// Checks the input and turns it into what the tool takes. What was checked is what is passed
    /// on: a text with a name twice, say, means one thing only from here on.
    pub fn request(&self, input: &[u8]) -> Result<Request, Failure> {
        let value = serde_json::from_slice(input)
            .map_err(|error| Failure::new("bad-input", format!("the input is no JSON: {error}")))?;
        self.request_of(value, input.len())
    }

    /// The same for an input of about `bytes` that has been parsed.
    pub fn request_of(&self, value: Value, bytes: usize) -> Result<Request, Failure> {
        let value = self
            .input
            .check(value, bytes)
            .map_err(|misfit| Failure::new("bad-input", format!("the input is wrong {misfit}")))?;
        let Some(template) = &self.template else {
            return Ok(Request::Component { json: value.to_string().into_bytes() });
        };
        let filled = template.fill(&value);
        let (args, stdin) = filled.map_err(|problem| Failure::new("bad-input", problem))?;
        Ok(Request::Command { args, stdin })
    }

    /// Turns what came back into the output, checked, or into the reason why there is none.
    pub fn result(
        &self,
        status: &ToolStatus,
        output: &[u8],
        errors: &[u8],
    ) -> Result<Value, Failure> {
        match status {
            ToolStatus::Returned => self.parse_output(output),
            ToolStatus::Exited { code } => self.exited(*code, output, errors),
            ToolStatus::Failed { code, message } => Err(Failure {
                code: kebab(code),
                message: message.chars().take(MOST_MESSAGE).collect(),
            }),
            other => Err(ended(other)),
        }
    }

    fn exited(&self, code: u8, output: &[u8], errors: &[u8]) -> Result<Value, Failure> {
        let shape = self.manifest.command.as_ref().map(|command| command.stdout);
        if shape == Some(Stdout::Json) {
            if code == 0 {
                return self.parse_output(output);
            }
            let said = String::from_utf8_lossy(errors);
            let said: String = said.trim().chars().take(MOST_MESSAGE).collect();
            return Err(Failure::new("exit", format!("exit code {code}: {said}")));
        }
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let value = json!({ "stdout": text(output), "stderr": text(errors), "exit_code": code });
        self.check_output(value, output.len() + errors.len())
    }

    fn parse_output(&self, output: &[u8]) -> Result<Value, Failure> {
        let value: Value = serde_json::from_slice(output).map_err(|error| {
            Failure::new("bad-output", format!("what the tool returned is no JSON: {error}"))
        })?;
        self.check_output(value, output.len())
    }

    fn check_output(&self, value: Value, bytes: usize) -> Result<Value, Failure> {
        self.output.check(value, bytes).map_err(|misfit: Misfit| {
            let message = format!("what the tool returned does not fit its own schema {misfit}");
            Failure::new("bad-output", message)
        })
    }
}

/// Whether an input asks a tool for its strict mode. Only a plain `true` does.
pub fn asks_strict(input: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Strict {
        #[serde(default)]
        strict: Value,
    }
    // A list would do for a structure, too.
    input.trim_ascii_start().starts_with(b"{")
        && serde_json::from_slice::<Strict>(input)
            .is_ok_and(|input| input.strict == Value::Bool(true))
}

/// Codes come from tools; what is none is not passed on as one.
fn kebab(code: &str) -> String {
    let fits = !code.is_empty()
        && code.len() <= MOST_CODE
        && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if fits { code.to_owned() } else { "failed".to_owned() }
}

fn ended(status: &ToolStatus) -> Failure {
    let limit = |what: &str| Failure::new("limit", what);
    match status {
        ToolStatus::Timeout => Failure::new(
            "timeout",
            "the tool was stopped at its time limit; give it more with --timeout",
        ),
        ToolStatus::OutOfFuel => limit("the tool used up its fuel; give it more with --fuel"),
        ToolStatus::MemoryLimit => {
            limit("the tool reached its memory limit; give it more with --memory")
        }
        ToolStatus::StackOverflow => limit("the tool used up its stack"),
        ToolStatus::OutputLimit => limit("the tool wrote more than its output limit"),
        ToolStatus::HostCallLimit => limit("the tool asked its host for too much"),
        ToolStatus::Trapped { reason } => {
            Failure::new("trapped", format!("the tool crashed: {reason}"))
        }
        ToolStatus::Denied { what } => Failure::new("denied", what.clone()),
        // Those that end with something to show are told apart by the caller.
        ToolStatus::Returned | ToolStatus::Exited { .. } | ToolStatus::Failed { .. } => {
            Failure::new("failed", "the tool failed")
        }
    }
}

#[cfg(test)]
mod tests;
