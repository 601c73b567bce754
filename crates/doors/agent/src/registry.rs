//! What a model can ask for: the registry of tools, and the wishes that calls of them are.

use std::path::{Component, Path};

use ringwall_desk::WorkKind;
use serde::Deserialize;
use serde_json::Value;

/// The longest text that a model may write to a file at once.
const MAX_TEXT_BYTES: usize = 1 << 20;
const MAX_PATH_BYTES: usize = 4096;
const MAX_COMMAND_BYTES: usize = 64 << 10;
const MAX_PLAN_STEPS: usize = 64;

/// The tools that can change nothing in the workspace. A command could.
pub(crate) const READ_ONLY: [&str; 5] =
    ["read_file", "list_files", "search_files", "extract", "plan"];

/// Tells whether a name is one of a WASM tool.
type IsWasm<'a> = &'a dyn Fn(&str) -> bool;

/// What a model asks for, checked as far as it can be without looking at anything.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wish {
    Exec(Exec),
    Read {
        path: String,
        from_line: u64,
        lines: u64,
    },
    Write {
        path: String,
        content: String,
    },
    Edit {
        path: String,
        old: String,
        new: String,
        all: bool,
    },
    List {
        path: String,
    },
    Search {
        text: String,
        path: String,
    },
    Plan {
        steps: Vec<String>,
    },
    Phase {
        to: String,
    },
    AskApproval {
        elevation: String,
        reason: String,
    },
    SubAgent(SubTask),
    /// Reads a text without tools and gives back only what fits the schema.
    Extract {
        path: String,
        schema: Value,
        question: String,
    },
    Wasm {
        tool: String,
        input: Value,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exec {
    pub(crate) command: String,
    /// What the model says of it, which counts only where it is worse than what is known.
    #[serde(default = "untrusted")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubTask {
    pub(crate) task: String,
    #[serde(default)]
    pub(crate) tools: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) read_only: bool,
    #[serde(default)]
    pub(crate) max_steps: Option<u64>,
}

fn untrusted() -> String {
    WorkKind::Untrusted.to_string()
}

impl Exec {
    /// The kind of work that it counts as: no less than whoever started the agent answers for, nor than
    /// the model says itself, and untrusted once the task is tainted.
    pub(crate) fn counts_as(&self, floor: Option<WorkKind>, tainted: bool) -> WorkKind {
        let said = WorkKind::declared(Some(&self.kind));
        let known = floor.filter(|_| !tainted).unwrap_or(WorkKind::Untrusted);
        said.max(known)
    }
}

fn default_lines() -> u64 {
    2000
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadInput {
    path: String,
    #[serde(default)]
    from_line: u64,
    #[serde(default = "default_lines")]
    lines: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteInput {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditInput {
    path: String,
    old: String,
    new: String,
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListInput {
    #[serde(default)]
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    text: String,
    #[serde(default)]
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanInput {
    steps: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseInput {
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalInput {
    elevation: String,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtractInput {
    path: String,
    schema: Value,
    question: String,
}

impl Wish {
    /// What a call asks for. `is_wasm` tells whether a name is one of a WASM tool.
    pub(crate) fn of(
        tool: &str,
        input: &Value,
        (workspace, is_wasm): (Option<&Path>, IsWasm<'_>),
    ) -> Result<Wish, String> {
        let relative = |path: &str| relative(path, workspace);
        let file = |path: &str| file(path, workspace);
        let wish = match tool {
            "exec" => Wish::Exec(exec(input)?),
            "read_file" => {
                let ReadInput { path, from_line, lines } = read(tool, input)?;
                Wish::Read { path: relative(&path)?, from_line, lines }
            }
            "write_file" => {
                let WriteInput { path, content } = read(tool, input)?;
                bounded("content", &content, MAX_TEXT_BYTES)?;
                Wish::Write { path: file(&path)?, content }
            }
            "edit_file" => {
                let EditInput { path, old, new, all } = read(tool, input)?;
                bounded("new", &new, MAX_TEXT_BYTES)?;
                if old.is_empty() {
                    return Err("old is empty; use write_file for a new file".to_owned());
                }
                Wish::Edit { path: file(&path)?, old, new, all }
            }
            "list_files" => {
                let ListInput { path } = read(tool, input)?;
                Wish::List { path: relative(&path)? }
            }
            "search_files" => {
                let SearchInput { text, path } = read(tool, input)?;
                if text.is_empty() || text.contains('\n') {
                    return Err("text must be a part of one line".to_owned());
                }
                Wish::Search { text, path: relative(&path)? }
            }
            "plan" => {
                let PlanInput { steps } = read(tool, input)?;
                if steps.len() > MAX_PLAN_STEPS {
                    return Err(format!("a plan has at most {MAX_PLAN_STEPS} steps"));
                }
                Wish::Plan { steps }
            }
            "phase" => {
                let PhaseInput { to } = read(tool, input)?;
                Wish::Phase { to }
            }
            "ask_approval" => {
                let ApprovalInput { elevation, reason } = read(tool, input)?;
                bounded("reason", &reason, 1000)?;
                Wish::AskApproval { elevation, reason }
            }
            "sub_agent" => Wish::SubAgent(read(tool, input)?),
            "extract" => {
                let ExtractInput { path, schema, question } = read(tool, input)?;
                bounded("question", &question, MAX_PATH_BYTES)?;
                Wish::Extract { path: relative(&path)?, schema, question }
            }
            other if is_wasm(other) => Wish::Wasm { tool: other.to_owned(), input: input.clone() },
            other => return Err(format!("there is no tool {other:?}")),
        };
        Ok(wish)
    }

    /// Whether doing it twice is as good as doing it once.
    pub(crate) fn can_be_repeated(&self) -> bool {
        matches!(
            self,
            Wish::Read { .. }
                | Wish::Write { .. }
                | Wish::List { .. }
                | Wish::Search { .. }
                | Wish::Plan { .. }
        )
    }
}

fn exec(input: &Value) -> Result<Exec, String> {
    let exec: Exec = read("exec", input)?;
    bounded("command", &exec.command, MAX_COMMAND_BYTES)?;
    if exec.command.contains('\0') {
        return Err("the command has a NUL byte".to_owned());
    }
    match exec.kind.as_str() {
        "build" | "files" | "untrusted" => Ok(exec),
        other => Err(format!("{other:?} is no kind of command; use build, files or untrusted")),
    }
}

fn read<T: for<'de> Deserialize<'de>>(tool: &str, input: &Value) -> Result<T, String> {
    T::deserialize(input).map_err(|error| format!("the input of {tool} is wrong: {error}"))
}

fn bounded(what: &str, text: &str, most: usize) -> Result<(), String> {
    match text.len() > most {
        true => Err(format!("{what} is longer than {most} bytes")),
        false => Ok(()),
    }
}

/// A path of the workspace in its one spelling: no `.`, `..` or slashes that mean nothing.
///
/// A model also sees where the workspace is inside, and may name it.
pub(crate) fn relative(path: &str, workspace: Option<&Path>) -> Result<String, String> {
    bounded("the path", path, MAX_PATH_BYTES)?;
    let tops = [Some(Path::new("/workspace")), workspace];
    let inside = tops.into_iter().flatten().find_map(|top| Path::new(path).strip_prefix(top).ok());
    let mut parts = Vec::new();
    for part in inside.unwrap_or(Path::new(path)).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => {
                let part = part.to_str().unwrap_or_default();
                if part.contains('\0') {
                    return Err("the path has a NUL byte".to_owned());
                }
                parts.push(part);
            }
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(format!(
                    "{path:?} is not in the workspace; files are named from there, without .."
                ));
            }
        }
    }
    Ok(parts.join("/"))
}

fn file(path: &str, workspace: Option<&Path>) -> Result<String, String> {
    let path = relative(path, workspace)?;
    if path.is_empty() { Err("the workspace itself is no file".to_owned()) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offers::offers;
    use proptest::prelude::*;
    use serde_json::json;

    fn wish(tool: &str, input: Value) -> Result<Wish, String> {
        Wish::of(tool, &input, (Some(Path::new("/home/me/project")), &|name| name == "grep"))
    }

    #[test]
    fn what_is_offered_is_understood() {
        let inputs = [
            ("exec", json!({"command": "make", "kind": "build", "timeout_seconds": 5})),
            ("read_file", json!({"path": "a"})),
            ("write_file", json!({"path": "a/b", "content": "x"})),
            ("edit_file", json!({"path": "a", "old": "x", "new": "y"})),
            ("list_files", json!({})),
            ("search_files", json!({"text": "x"})),
            ("extract", json!({"path": "a", "schema": {}, "question": "?"})),
            ("plan", json!({"steps": ["one"]})),
            ("phase", json!({"to": "x"})),
            ("ask_approval", json!({"elevation": "ci", "reason": "r"})),
            ("sub_agent", json!({"task": "t", "read_only": true})),
        ];
        let offered = offers(&["x".to_owned()], &["ci".to_owned()], true);
        assert_eq!(offered.len(), inputs.len());
        for (tool, input) in inputs {
            assert!(offered.iter().any(|offer| offer.name == tool), "{tool}");
            assert!(wish(tool, input.clone()).is_ok(), "{tool}");
            let mut extra = input;
            extra["unknown"] = json!(1);
            assert!(wish(tool, extra).is_err(), "{tool} takes what it does not know");
        }
        assert!(matches!(wish("grep", json!({"any": 1})), Ok(Wish::Wasm { .. })));
        assert!(wish("approve", json!({})).is_err());
    }

    #[test]
    fn what_the_model_says_of_a_command_can_only_raise_the_risk() {
        let kind = |said: Value, floor: Option<WorkKind>, tainted: bool| match wish("exec", said)
            .unwrap()
        {
            Wish::Exec(exec) => exec.counts_as(floor, tainted),
            other => panic!("{other:?}"),
        };
        let silent = || json!({"command": "make"});
        let said = |kind: &str| json!({"command": "make", "kind": kind});
        let build = Some(WorkKind::Build);
        assert_eq!(kind(said("build"), build, false), WorkKind::Build);
        assert_eq!(
            kind(said("files"), build, false),
            WorkKind::Build,
            "no less than is answered for"
        );
        assert_eq!(kind(silent(), build, false), WorkKind::Untrusted);
        assert_eq!(kind(said("untrusted"), build, false), WorkKind::Untrusted);
        for said in [said("build"), said("files"), silent()] {
            assert_eq!(
                kind(said.clone(), None, false),
                WorkKind::Untrusted,
                "nobody answers for it"
            );
            assert_eq!(kind(said, build, true), WorkKind::Untrusted, "the task is tainted");
        }
    }

    #[test]
    fn paths_stay_in_the_workspace() {
        let relative = |path: &str| relative(path, Some(Path::new("/home/me/project")));
        assert_eq!(relative("/workspace/a//b/./c/").unwrap(), "a/b/c");
        assert_eq!(relative("/home/me/project/a").unwrap(), "a");
        assert_eq!(relative("").unwrap(), "");
        for path in [
            "..",
            "a/../b",
            "/etc/passwd",
            "/workspacex",
            "a\0b",
            "/workspace/../etc",
            "/home/me/project2",
        ] {
            assert!(relative(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn what_is_too_long_or_makes_no_sense_is_refused() {
        assert!(wish("exec", json!({"command": "x".repeat(MAX_COMMAND_BYTES + 1)})).is_err());
        assert!(wish("exec", json!({"command": "x", "kind": "trusted"})).is_err());
        assert!(
            wish("write_file", json!({"path": "a", "content": "x".repeat(MAX_TEXT_BYTES + 1)}))
                .is_err()
        );
        assert!(wish("write_file", json!({"path": ".", "content": ""})).is_err());
        assert!(wish("read_file", json!("no object")).is_err());
    }

    proptest! {
        #[test]
        fn a_path_that_is_taken_has_no_way_out(path in "[a-z./]{0,20}") {
            if let Ok(inside) = relative(&path, None) {
                prop_assert!(!inside.starts_with('/'));
                prop_assert!(inside.split('/').all(|part| part != ".." && part != "."));
            }
        }
    }
}
