//! Tools that run as WebAssembly, each as a tool of the protocol: as it describes itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{Tool, ToolAnnotations};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::api::{Failure, encoded};
use crate::catalogue::object;
use crate::server::Done;
use crate::session::{CallError, Session};

/// Where a tool that works on files sees the workspace.
const WORK: &str = "/work";
const MOST_TOOLS: usize = 256;

/// Manifests that were looked at, by the tool's digest: what a digest stands for never changes.
#[derive(Debug, Default)]
pub(crate) struct KnownTools {
    manifests: Mutex<BTreeMap<String, Arc<Value>>>,
}

impl KnownTools {
    /// What is offered in this session.
    pub(crate) async fn list(&self, session: &Session) -> Result<Vec<Tool>, Failure> {
        let entries = session.api.get("/v1/tools").await?;
        let mut tools = Vec::new();
        for entry in entries.as_array().into_iter().flatten().take(MOST_TOOLS) {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            if !session.settings.tools.offers(text("name")) {
                continue;
            }
            // One that cannot be described cannot be offered, and the others can.
            if let Ok(manifest) = self.manifest(session, text("name"), Some(text("digest"))).await {
                tools.extend(described(session, &manifest));
            }
        }
        Ok(tools)
    }

    async fn manifest(
        &self,
        session: &Session,
        name: &str,
        digest: Option<&str>,
    ) -> Result<Arc<Value>, Failure> {
        let known = |digest: &str| {
            let known = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(digest).map(Arc::clone)
        };
        if let Some(manifest) = digest.and_then(known) {
            return Ok(manifest);
        }
        let found = session.api.get(&format!("/v1/tools/{}", encoded(name))).await?;
        let manifest = Arc::new(found.get("manifest").cloned().ok_or(Failure::Nonsense)?);
        let digest = found.get("digest").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut known = self.manifests.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_TOOLS {
            known.clear();
        }
        known.insert(digest, Arc::clone(&manifest));
        Ok(manifest)
    }
}

/// What the workspace is to this tool: nothing, to be read, or to be written.
fn wish(manifest: &Value) -> Option<&str> {
    let wishes = manifest.pointer("/wants/dirs")?.as_array()?;
    let work = wishes.iter().find(|wish| wish.get("path").and_then(Value::as_str) == Some(WORK))?;
    work.get("access").and_then(Value::as_str)
}

fn described(session: &Session, manifest: &Value) -> Option<Tool> {
    let text = |name: &str| manifest.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut input = manifest.get("input")?.as_object()?.clone();
    // The protocol takes objects only; a schema that says nothing else takes them, too.
    if input.entry("type").or_insert_with(|| json!("object")) != "object" {
        return None;
    }
    let mut words = text("summary").to_owned();
    if !text("description").is_empty() {
        words = format!("{words}\n\n{}", text("description"));
    }
    let writes = may_write(session) && wish(manifest) == Some("rw");
    let hints = ToolAnnotations::with_title(text("name"))
        .read_only(!writes)
        .destructive(writes)
        .idempotent(!writes)
        .open_world(false);
    let mut tool =
        Tool::new(text("name").to_owned(), words, Arc::new(input)).with_annotations(hints);
    if is_object(manifest) {
        tool = tool.with_raw_output_schema(object(manifest.get("output")?.clone()));
    }
    Some(tool)
}

/// A grant lets no tool write to the host.
fn may_write(session: &Session) -> bool {
    session.settings.tools_write && session.api.is_owner()
}

/// Whether the tool's output is what the protocol calls structured.
fn is_object(manifest: &Value) -> bool {
    manifest.pointer("/output/type").and_then(Value::as_str) == Some("object")
}

pub(crate) async fn call(
    session: &Session,
    known: &KnownTools,
    name: &str,
    input: Value,
    context: &RequestContext<RoleServer>,
) -> Result<Done, CallError> {
    let manifest = known.manifest(session, name, None).await.map_err(|failure| match &failure {
        Failure::Refused { code, .. } if matches!(code.as_str(), "not-found" | "bad-request") => {
            CallError::NoSuchTool(name.to_owned())
        }
        _ => failure.into(),
    })?;
    let mut body = json!({ "input": input });
    if let Some(workspace) = &session.settings.workspace {
        if let Some(access) = wish(&manifest) {
            let write = may_write(session) && access == "rw";
            body["dirs"] = json!([{"guest": WORK, "path": workspace, "write": write}]);
        }
        if session.api.is_owner() {
            body["policy_directory"] = json!(workspace);
        }
    }
    let url = format!("/v1/tools/{}/call", encoded(name));
    let result = tokio::select! {
        result = session.api.post(&url, &body) => result?,
        // It ends at its own time limit at the latest; nobody waits for it.
        () = context.ct.cancelled() => return Err(CallError::Cancelled),
    };
    let failed = result.get("error").filter(|error| !error.is_null());
    if let Some(failed) = failed {
        let text = |name: &str| failed.get(name).and_then(Value::as_str).unwrap_or_default();
        let why = format!("{} ({}), behind wasm", text("message"), text("code"));
        return Err(CallError::Tool(why));
    }
    let output = result.get("output").cloned().unwrap_or(Value::Null);
    let done = Done::theirs(output, "wasm");
    Ok(if is_object(&manifest) { done } else { done.plain() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, Way};
    use crate::session::Settings;

    fn tool(manifest: &Value, write: bool) -> Option<Value> {
        tool_of(manifest, write, None)
    }

    fn tool_of(manifest: &Value, write: bool, token: Option<&str>) -> Option<Value> {
        let settings = Settings { tools_write: write, ..Settings::default() };
        let api = Api::new(Way::Router(axum::Router::new()), token.map(Into::into));
        let tool = described(&Session::new(api, settings), manifest)?;
        Some(serde_json::to_value(tool).unwrap())
    }

    #[test]
    fn a_tool_is_offered_as_it_describes_itself() {
        let manifest = json!({
            "name": "patch", "summary": "Applies patches.", "description": "More.",
            "input": {"type": "object", "properties": {"patch": {"type": "string"}}},
            "output": {"type": "object"},
            "wants": {"dirs": [{"path": "/work", "access": "rw"}]},
        });
        let shown = tool(&manifest, false).unwrap();
        assert_eq!(shown["name"], "patch");
        assert_eq!(shown["description"], "Applies patches.\n\nMore.");
        assert_eq!(shown["inputSchema"], manifest["input"]);
        assert_eq!(shown["outputSchema"]["type"], "object");
        assert_eq!(shown["annotations"]["readOnlyHint"], true);
        assert_eq!(tool(&manifest, true).unwrap()["annotations"]["destructiveHint"], true);
        let of_holder = tool_of(&manifest, true, Some("token")).unwrap();
        assert_eq!(of_holder["annotations"]["readOnlyHint"], true, "a grant lets no tool write");
    }

    #[test]
    fn what_the_protocol_cannot_say_is_left_out() {
        let anything = json!({"name": "echo", "summary": "s", "input": {}, "output": {}});
        let shown = tool(&anything, false).unwrap();
        assert_eq!(shown["inputSchema"]["type"], "object");
        assert!(shown.get("outputSchema").is_none());
        let array = json!({"name": "x", "summary": "s", "input": {"type": "array"}, "output": {}});
        assert!(tool(&array, false).is_none());
    }
}
