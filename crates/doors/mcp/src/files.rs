//! Files in sandboxes, and what sandboxes changed.

use base64::Engine as _;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::encoded;
use crate::server::{Done, arguments};
use crate::session::{CallError, Session};

const MOST_READ: usize = 1 << 20;
const USUAL_READ: usize = 64 << 10;
const MOST_DIFF: usize = 1 << 20;
/// What is listed of a directory.
const MOST_ENTRIES: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    sandbox: String,
    path: String,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    max_bytes: Option<usize>,
}

pub(crate) async fn read(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: Read = arguments(given)?;
    let (id, wall) = session.sandbox(&asked.sandbox).await?;
    let most = asked.max_bytes.unwrap_or(USUAL_READ).clamp(1, MOST_READ);
    let (bytes, more) = session.api.part(&file(&id, &asked.path), (asked.offset, most)).await?;
    let mut value = json!({"path": asked.path, "offset": asked.offset, "bytes": bytes.len(),
        "more": more, "wall": wall});
    let (field, text) = shown(&bytes);
    value[field] = json!(text);
    Ok(Done::theirs(value, &wall))
}

/// Where the API has a file of a sandbox.
pub(crate) fn file(id: &str, path: &str) -> String {
    format!("/v1/sandboxes/{}/files?path={}", encoded(id), encoded(path))
}

/// As text, or as base64 where it is none.
pub(crate) fn shown(bytes: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(bytes) {
        Ok(text) => ("text", text.to_owned()),
        // A character that the bound cut in two does not make bytes of a text.
        Err(error) if error.error_len().is_none() => {
            ("text", String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned())
        }
        Err(_) => ("base64", base64::engine::general_purpose::STANDARD.encode(bytes)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    sandbox: String,
    path: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
    #[serde(default)]
    executable: bool,
}

pub(crate) async fn write(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: Write = arguments(given)?;
    let bytes = match (asked.text, asked.base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| CallError::Arguments("`base64` is no base64".to_owned()))?,
        _ => return Err(CallError::Arguments("give either `text` or `base64`".to_owned())),
    };
    let (id, wall) = session.sandbox(&asked.sandbox).await?;
    let (count, mode) = (bytes.len(), if asked.executable { 0o755 } else { 0o644 });
    session.api.put(&format!("{}&mode={mode}", file(&id, &asked.path)), bytes).await?;
    Ok(Done::ours(json!({"path": asked.path, "bytes": count, "wall": wall}), &wall))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    sandbox: String,
    path: String,
}

pub(crate) async fn list(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: List = arguments(given)?;
    let (id, wall) = session.sandbox(&asked.sandbox).await?;
    let entries = entries(session, &id, &asked.path).await?;
    Ok(Done::theirs(json!({"path": asked.path, "entries": entries, "wall": wall}), &wall))
}

pub(crate) async fn entries(
    session: &Session,
    id: &str,
    path: &str,
) -> Result<Vec<Value>, CallError> {
    let url = format!("/v1/sandboxes/{}/directory?path={}", encoded(id), encoded(path));
    let listed = session.api.get(&url).await?;
    let entries = listed.as_array().cloned().unwrap_or_default();
    if entries.len() > MOST_ENTRIES {
        let why =
            format!("the directory has {} entries, the most is {MOST_ENTRIES}", entries.len());
        return Err(CallError::Bounds(why));
    }
    Ok(entries)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Diff {
    sandbox: String,
}

pub(crate) async fn diff(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: Diff = arguments(given)?;
    let (id, wall) = session.sandbox(&asked.sandbox).await?;
    let url = format!("/v1/sandboxes/{}/diff", encoded(&id));
    let patch = session.api.bytes(&url, MOST_DIFF).await?;
    let patch = String::from_utf8_lossy(&patch);
    Ok(Done::theirs(json!({"patch": patch, "wall": wall}), &wall))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Apply {
    sandbox: String,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    except: Vec<String>,
}

pub(crate) async fn apply(session: &Session, given: Value) -> Result<Done, CallError> {
    let asked: Apply = arguments(given)?;
    let (id, _) = session.sandbox(&asked.sandbox).await?;
    let body = json!({"paths": asked.paths, "except": asked.except});
    let url = format!("/v1/sandboxes/{}/apply", encoded(&id));
    let applied = session.api.post(&url, &body).await?;
    Ok(Done::ours(applied, "none: written to the host's workspace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_come_as_base64() {
        assert_eq!(shown(b"hi"), ("text", "hi".to_owned()));
        assert_eq!(shown(b"\xff\xfe").0, "base64");
        let cut = &"ab\u{e9}".as_bytes()[..3];
        assert_eq!(shown(cut), ("text", "ab".to_owned()));
    }
}
