//! The tools for sandboxes: names, what models are told of them, schemas, and honest hints.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use crate::session::Settings;

/// One of our own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    Create,
    Exec,
    RunCode,
    Read,
    Write,
    List,
    Diff,
    Apply,
    Stop,
}

impl Own {
    pub(crate) const ALL: [Own; 9] = [
        Own::Create,
        Own::Exec,
        Own::RunCode,
        Own::Read,
        Own::Write,
        Own::List,
        Own::Diff,
        Own::Apply,
        Own::Stop,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Own::Create => "sandbox_create",
            Own::Exec => "sandbox_exec",
            Own::RunCode => "sandbox_run_code",
            Own::Read => "sandbox_fs_read",
            Own::Write => "sandbox_fs_write",
            Own::List => "sandbox_fs_list",
            Own::Diff => "sandbox_fs_diff",
            Own::Apply => "sandbox_fs_apply",
            Own::Stop => "sandbox_stop",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Own> {
        Own::ALL.into_iter().find(|own| own.name() == name)
    }

    fn title(self) -> &'static str {
        match self {
            Own::Create => "Make a sandbox",
            Own::Exec => "Run a command in a sandbox",
            Own::RunCode => "Run code behind a wall",
            Own::Read => "Read a file in a sandbox",
            Own::Write => "Write a file in a sandbox",
            Own::List => "List a directory in a sandbox",
            Own::Diff => "Show what a sandbox changed",
            Own::Apply => "Write a sandbox's changes to the workspace",
            Own::Stop => "Stop a sandbox",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Own::Create => {
                "Makes a sandbox that lives until it is stopped, the session ends or its time is over. It \
                 shows the workspace copy-on-write: commands see all of it and may change it, and the \
                 host's files stay as they are until the changes are applied. Commands start in \
                 it. There is no network unless the policy gives one."
            }
            Own::Exec => {
                "Runs a command in a sandbox and waits for its end. Give `command` for a line of shell, or \
                 `argv` for a program with its arguments. An exit code other than 0 is a result, not an \
                 error of this tool."
            }
            Own::RunCode => {
                "Runs a piece of code. Without `sandbox` it runs behind a fresh wall that is gone \
                 afterwards, with the workspace to read and nothing kept; with one, it runs there."
            }
            Own::Read => "Reads a file of a sandbox: as text, or as base64 if it is none.",
            Own::Write => "Writes a file of a sandbox, or replaces it. Directories must exist.",
            Own::List => "Lists a directory of a sandbox.",
            Own::Diff => {
                "Shows as a patch what a sandbox changed in its workspace. The sandbox must have been \
                 stopped first (sandbox_stop keeps the changes)."
            }
            Own::Apply => {
                "Writes the changes of a stopped sandbox to the workspace on the host. Files that changed \
                 there meanwhile, and protected paths (hooks, CI, editor and shell configuration) are \
                 refused; only a person can apply those."
            }
            Own::Stop => {
                "Ends a sandbox with all that runs in it. Changes in its workspace are kept for \
                 sandbox_fs_diff and sandbox_fs_apply unless `keep` is false."
            }
        }
    }

    fn annotations(self) -> ToolAnnotations {
        let (read_only, destructive, idempotent, open_world) = match self {
            Own::Create => (false, false, false, false),
            // In the sandbox a command may destroy what it likes, and policy may give it a network.
            Own::Exec | Own::RunCode => (false, true, false, true),
            Own::Read | Own::List | Own::Diff => (true, false, true, false),
            Own::Write | Own::Apply | Own::Stop => (false, true, true, false),
        };
        ToolAnnotations::with_title(self.title())
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world)
    }

    fn input(self, settings: &Settings) -> Value {
        let sandbox = json!({"type": "string", "description": "The sandbox's id, or its name"});
        let path = json!({"type": "string", "description": "An absolute path inside the sandbox"});
        let timeout = json!({"type": "integer", "minimum": 1, "maximum": 86400,
            "description": "Killed after so many seconds, if not before by a limit of the sandbox"});
        let mut properties = match self {
            Own::Create => json!({
                "name": {"type": "string", "description": "A name of your own for it"},
                "workspace": {"type": "string",
                    "description": "A directory in this session's workspace, if not all of it"},
                "kind": {"type": "string",
                    "description": "The kind of work, for the policy: compute, files, build or untrusted"},
                "lifetime_seconds": {"type": "integer", "minimum": 1, "maximum": 86400},
                "memory_mib": {"type": "integer", "minimum": 16, "maximum": 1_048_576},
            }),
            Own::Exec => json!({
                "sandbox": sandbox,
                "command": {"type": "string", "description": "A line for `sh -c`"},
                "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                "cwd": {"type": "string", "description": "The working directory"},
                "env": {"type": "object", "additionalProperties": {"type": "string"}},
                "stdin": {"type": "string"},
                "timeout_seconds": timeout,
                "kind": {"type": "string",
                    "description": "The kind of work, for the policy: compute, files, build or untrusted; untrusted if nothing is said"},
            }),
            Own::RunCode => json!({
                "language": {"type": "string", "enum": ["python", "javascript", "shell"]},
                "code": {"type": "string"},
                "sandbox": sandbox,
                "stdin": {"type": "string"},
                "timeout_seconds": timeout,
                "kind": {"type": "string",
                    "description": "The kind of work, for the policy: compute, files, build or untrusted; untrusted if nothing is said"},
            }),
            Own::Read => json!({
                "sandbox": sandbox,
                "path": path,
                "offset": {"type": "integer", "minimum": 0, "description": "Where to begin"},
                "max_bytes": {"type": "integer", "minimum": 1, "maximum": 1_048_576},
            }),
            Own::Write => json!({
                "sandbox": sandbox,
                "path": path,
                "text": {"type": "string"},
                "base64": {"type": "string", "description": "The bytes, where they are no text"},
                "executable": {"type": "boolean"},
            }),
            Own::List => json!({"sandbox": sandbox, "path": path}),
            Own::Diff => json!({"sandbox": sandbox}),
            Own::Apply => json!({
                "sandbox": sandbox,
                "paths": {"type": "array", "items": {"type": "string"},
                    "description": "Only these, and what is below them; everything if empty"},
                "except": {"type": "array", "items": {"type": "string"}},
            }),
            Own::Stop => json!({
                "sandbox": sandbox,
                "keep": {"type": "boolean", "description": "Keep its changes; true if nothing is said"},
            }),
        };
        // What a person has settled is not the agent's to choose.
        if let (Own::Create | Own::RunCode, Some(fields)) = (self, properties.as_object_mut()) {
            if settings.wall.is_none() {
                let why = "The rings round the work, outermost first: process, container, vm, vm/container";
                fields.insert("wall".to_owned(), json!({"type": "string", "description": why}));
            }
            if settings.image.is_none() {
                let why = "The image of a container or vm ring";
                fields.insert("image".to_owned(), json!({"type": "string", "description": why}));
            }
        }
        let required: &[&str] = match self {
            Own::Create => &[],
            Own::Exec | Own::Diff | Own::Apply | Own::Stop => &["sandbox"],
            Own::RunCode => &["language", "code"],
            Own::Read | Own::Write | Own::List => &["sandbox", "path"],
        };
        json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false})
    }

    fn output(self) -> Value {
        let (text, number, truth) =
            (json!({"type": "string"}), json!({"type": "integer"}), json!({"type": "boolean"}));
        let wall = json!({"type": "string", "description": "The wall behind which it ran"});
        let (properties, required): (Value, &[&str]) = match self {
            Own::Create => (
                json!({"sandbox": text, "wall": wall, "workspace": {"type": ["string", "null"]},
                    "name": {"type": ["string", "null"]}}),
                &["sandbox", "wall"],
            ),
            Own::Exec | Own::RunCode => (
                json!({"exit_code": number, "ending": text, "stdout": text, "stderr": text,
                    "output_truncated": truth, "stopped_by": {"type": ["string", "null"]},
                    "call": text, "sandbox": {"type": ["string", "null"]}, "wall": wall}),
                &["exit_code", "ending", "stdout", "stderr", "wall"],
            ),
            Own::Read => (
                json!({"path": text, "text": text, "base64": text, "offset": number, "bytes": number,
                    "more": truth, "wall": wall}),
                &["path", "bytes", "more", "wall"],
            ),
            Own::Write => {
                (json!({"path": text, "bytes": number, "wall": wall}), &["path", "bytes", "wall"])
            }
            Own::List => (
                json!({"path": text, "entries": {"type": "array", "items": {"type": "object"}},
                    "wall": wall}),
                &["path", "entries", "wall"],
            ),
            Own::Diff => (json!({"patch": text, "wall": wall}), &["patch", "wall"]),
            Own::Apply => (
                json!({"applied": {"type": "array", "items": text},
                    "already": {"type": "array", "items": text}}),
                &["applied", "already"],
            ),
            Own::Stop => (
                json!({"sandbox": text, "kept": truth, "wall": wall}),
                &["sandbox", "kept", "wall"],
            ),
        };
        json!({"type": "object", "properties": properties, "required": required})
    }

    pub(crate) fn tool(self, settings: &Settings) -> Tool {
        Tool::new(self.name(), self.description(), object(self.input(settings)))
            .with_title(self.title())
            .with_raw_output_schema(object(self.output()))
            .with_annotations(self.annotations())
    }
}

pub(crate) fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(fields) => Arc::new(fields),
        _ => Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_offered_grants_approves_or_decides() {
        for own in Own::ALL {
            let tool = serde_json::to_value(own.tool(&Settings::default())).unwrap();
            assert_eq!(Own::named(own.name()), Some(own));
            let fields = tool["inputSchema"]["properties"].as_object().unwrap();
            for field in ["allow_protected", "force", "read_write", "read_only", "policy", "grant"]
            {
                assert!(!fields.contains_key(field), "{} offers {field}", own.name());
            }
            for word in ["approve", "grant_", "policy_", "secret"] {
                assert!(!own.name().contains(word));
            }
        }
    }

    #[test]
    fn what_a_person_settled_cannot_be_chosen() {
        let free = Own::Create.tool(&Settings::default());
        assert!(free.input_schema["properties"].get("wall").is_some());
        let settings = Settings {
            wall: Some("vm".to_owned()),
            image: Some("busybox".to_owned()),
            ..Settings::default()
        };
        for own in [Own::Create, Own::RunCode] {
            let fixed = own.tool(&settings);
            assert!(fixed.input_schema["properties"].get("wall").is_none());
            assert!(fixed.input_schema["properties"].get("image").is_none());
        }
    }

    #[test]
    fn hints_are_honest() {
        for own in Own::ALL {
            let hints = own.tool(&Settings::default()).annotations.unwrap();
            let reads = matches!(own, Own::Read | Own::List | Own::Diff);
            assert_eq!(hints.read_only_hint, Some(reads), "{}", own.name());
            assert!(!reads || hints.destructive_hint == Some(false));
        }
    }
}
