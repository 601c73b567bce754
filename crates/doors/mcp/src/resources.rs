//! What can be read without a tool: files and directories of sandboxes, and what calls have written.

use std::time::Duration;

use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::Value;

use crate::api::encoded;
use crate::commands::written;
use crate::files;
use crate::session::{CallError, Session};

const SCHEME: &str = "ringwall://";
/// The most of a file or a log in one answer.
const MOST_BYTES: usize = 1 << 20;
/// A call that is silent for that long has written all that there is to read now.
const SILENCE: Duration = Duration::from_millis(300);
const MOST_LISTED: usize = 100;

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("ringwall://sandbox/{sandbox}/files{+path}", "file")
            .with_description("A file of a sandbox; a directory as the list of its entries"),
        ResourceTemplate::new("ringwall://call/{call}/log", "log")
            .with_description("What a command has written, until two minutes after its end")
            .with_mime_type("text/plain"),
    ]
}

pub(crate) async fn list(session: &Session) -> Vec<Resource> {
    let mut found = Vec::new();
    let mut add = |id: &str, name: Option<&str>, wall: &str| {
        let shown = name.unwrap_or(id);
        let uri = format!("{SCHEME}sandbox/{id}/files/");
        let words = format!("The root directory of sandbox {shown}, behind {wall}");
        found.push(Resource::new(uri, format!("files of {shown}")).with_description(words));
    };
    if session.api.is_owner() {
        for (id, made) in session.made().iter().filter(|(_, made)| !made.stopped) {
            add(id, made.name.as_deref(), &made.wall);
        }
    } else if let Ok(page) =
        session.api.get(&format!("/v1/sandboxes?state=running&limit={MOST_LISTED}")).await
    {
        for row in page.get("items").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| row.get(name).and_then(Value::as_str);
            add(text("id").unwrap_or_default(), text("name"), &crate::session::wall_of(row));
        }
    }
    found.truncate(MOST_LISTED);
    found
}

pub(crate) async fn read(session: &Session, uri: &str) -> Result<ReadResourceResult, CallError> {
    let unknown = || CallError::Arguments(format!("there is no resource {uri:?}"));
    let rest = uri.strip_prefix(SCHEME).ok_or_else(unknown)?;
    let contents = if let Some(rest) = rest.strip_prefix("sandbox/") {
        let (sandbox, path) = rest.split_once("/files").ok_or_else(unknown)?;
        let path = decoded(path).filter(|path| path.starts_with('/')).ok_or_else(unknown)?;
        read_file(session, uri, (sandbox, &path)).await?
    } else if let Some(call) = rest.strip_prefix("call/").and_then(|it| it.strip_suffix("/log")) {
        ResourceContents::text(log(session, call).await?, uri)
    } else {
        return Err(unknown());
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

async fn read_file(
    session: &Session,
    uri: &str,
    (sandbox, path): (&str, &str),
) -> Result<ResourceContents, CallError> {
    let (id, _) = session.sandbox(sandbox).await?;
    if path.ends_with('/') {
        let names = files::entries(session, &id, path).await?;
        let line = |entry: &Value| {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let slash = if text("kind") == "directory" { "/" } else { "" };
            format!("{}{slash}\n", text("name"))
        };
        return Ok(ResourceContents::text(names.iter().map(line).collect::<String>(), uri));
    }
    let bytes = session.api.bytes(&files::file(&id, path), MOST_BYTES).await?;
    Ok(match files::shown(&bytes) {
        ("text", text) => ResourceContents::text(text, uri),
        (_, base64) => ResourceContents::blob(base64, uri),
    })
}

/// The owner could read the log of any call; an agent that asks for the owner, those of its sandboxes.
async fn log(session: &Session, call: &str) -> Result<String, CallError> {
    if session.api.is_owner() && !session.is_running(call) {
        let row = session.api.get(&format!("/v1/calls/{}", encoded(call))).await?;
        let sandbox = row.get("sandbox").and_then(Value::as_str).unwrap_or_default().to_owned();
        session.sandbox(&sandbox).await?;
    }
    let mut events = session.api.events(&format!("/v1/calls/{}/events", encoded(call))).await?;
    let mut all = Vec::new();
    while let Ok(next) = tokio::time::timeout(SILENCE, events.next()).await {
        match next? {
            Some(event) if event.kind == "ended" => break,
            Some(event) => all.extend_from_slice(&written(&event)),
            None => break,
        }
        if all.len() > MOST_BYTES {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

/// Percent codes as bytes; a path that is then no text is none of ours.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let code = others.get(..2).and_then(|code| std::str::from_utf8(code).ok())?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        rest = &others[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_in_paths_are_read_and_broken_ones_refused() {
        assert_eq!(decoded("/tmp/a%20b").as_deref(), Some("/tmp/a b"));
        assert_eq!(decoded("/tmp/%c3%a9").as_deref(), Some("/tmp/\u{e9}"));
        for broken in ["/%", "/%4", "/%zz", "/%ff"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }
}
