//! The tools that every model is offered, with their JSON Schemas. WASM tools come on top of these and
//! bring their own.

use ringwall_agent_model::ToolOffer;
use serde_json::{Value, json};

/// The tools that are built in. `phases` and `elevations` are those of the policy.
pub(crate) fn offers(phases: &[String], elevations: &[String], sub_agents: bool) -> Vec<ToolOffer> {
    let mut offers = changing();
    offers.extend(reading());
    if !phases.is_empty() {
        offers.push(offer(
            "phase",
            "Move the task to another phase, which changes what can be written.",
            json!({ "to": { "type": "string", "enum": phases } }),
            &["to"],
        ));
    }
    if !elevations.is_empty() {
        offers.push(offer(
            "ask_approval",
            "Ask a person for what was refused. The task stops until the person has answered.",
            json!({
                "elevation": { "type": "string", "enum": elevations },
                "reason": text("For the person"),
            }),
            &["elevation", "reason"],
        ));
    }
    if sub_agents {
        offers.push(offer(
            "sub_agent",
            "Give a part of the task to another agent with no more rights than yours. It works in \
             the same workspace; its steps and tokens count as yours.",
            json!({
                "task": text("All that it needs to know"),
                "tools": { "type": "array", "items": { "type": "string" } },
                "read_only": { "type": "boolean" },
                "max_steps": { "type": "integer", "minimum": 1 },
            }),
            &["task"],
        ));
    }
    offers
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn path() -> Value {
    text("From the workspace, such as src/main.rs")
}

fn changing() -> Vec<ToolOffer> {
    vec![
        offer(
            "exec",
            "Run a shell command in the sandbox, in the workspace. kind says what it is: build \
             (compilers, tests, the project's own tools), files (moving and changing files), or \
             untrusted (anything that was downloaded or that you do not know, and what you leave out). \
             It can only make the command count as more dangerous than what is known of it.",
            json!({
                "command": text("For sh -c"),
                "kind": { "type": "string", "enum": ["build", "files", "untrusted"] },
                "timeout_seconds": { "type": "integer", "minimum": 1 },
            }),
            &["command"],
        ),
        offer(
            "read_file",
            "Read a text file.",
            json!({
                "path": path(),
                "from_line": { "type": "integer", "minimum": 0 },
                "lines": { "type": "integer", "minimum": 1 },
            }),
            &["path"],
        ),
        offer(
            "write_file",
            "Write a text file, and the directories above it. What was there is replaced.",
            json!({ "path": path(), "content": text("All of the file") }),
            &["path", "content"],
        ),
        offer(
            "edit_file",
            "Replace a text in a file. It must be there exactly once, unless all is true.",
            json!({
                "path": path(),
                "old": text("The text, exactly as it is in the file"),
                "new": text("What it becomes"),
                "all": { "type": "boolean" },
            }),
            &["path", "old", "new"],
        ),
    ]
}

fn reading() -> Vec<ToolOffer> {
    vec![
        offer("list_files", "List a directory.", json!({ "path": path() }), &[]),
        offer(
            "search_files",
            "Find a text in all files below a directory.",
            json!({ "text": text("A part of one line"), "path": path() }),
            &["text"],
        ),
        offer(
            "extract",
            "Have a text file that strangers may have written read by a model without tools, which \
             answers one question; only values that fit the JSON Schema come back.",
            json!({
                "path": path(),
                "schema": { "type": "object", "description": "JSON Schema of the answer" },
                "question": text("What to find out"),
            }),
            &["path", "schema", "question"],
        ),
        offer(
            "plan",
            "Say what you are going to do, as a list of steps; say it again when it changes.",
            json!({ "steps": { "type": "array", "items": { "type": "string" } } }),
            &["steps"],
        ),
    ]
}

fn offer(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolOffer {
    ToolOffer {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
    }
}
