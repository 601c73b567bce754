//! What went wrong in a script, with its place, as a failure of the tool.

use std::fmt::Write as _;

use ringwall_tool_sdk::Failure;
use ringwall_tool_sdk::budget::cut;
use rquickjs::{Ctx, Error, Value};

use crate::state::Log;

/// The name under which a script appears in traces.
pub(crate) const SCRIPT: &str = "script.js";
const MOST_MESSAGE: usize = 4_000;
/// How many of the last log lines a failure repeats: often they say why.
const LAST_LOGS: usize = 20;

/// The pending exception of the engine, or the engine's own error, as a failure.
pub(crate) fn failure(context: &Ctx<'_>, error: &Error) -> Failure {
    match error {
        Error::Exception => thrown(&context.catch()),
        other => Failure::new("script-error", other),
    }
}

/// `TypeError: x is not a function (line 3, column 5)` and the trace. A thrown object may bring a
/// failure code of its own as `code`.
fn thrown(value: &Value<'_>) -> Failure {
    let Some(object) = value.as_object() else {
        let text = value.as_string().and_then(|text| text.to_string().ok());
        let text = text.or_else(|| value.ctx().json_stringify(value).ok()??.to_string().ok());
        return limited("script-error", format!("thrown: {}", text.unwrap_or_default()));
    };
    let field = |name: &str| object.get::<_, Option<String>>(name).ok().flatten();
    let name = field("name").unwrap_or_else(|| "Error".to_owned());
    let mut message = format!("{name}: {}", field("message").unwrap_or_default());
    let trace = field("stack").unwrap_or_default();
    if let Some((line, column)) = trace.lines().find_map(place) {
        let _ = write!(message, " (line {line}, column {column})");
    }
    if trace.trim().lines().count() > 1 {
        let _ = write!(message, "\n{}", trace.trim_end());
    }
    let code = field("code").filter(|code| is_code(code));
    limited(code.as_deref().unwrap_or("script-error"), message)
}

/// Line and column of the first frame in the script itself.
fn place(frame: &str) -> Option<(u32, u32)> {
    let (_, after) = frame.split_once(&format!("{SCRIPT}:"))?;
    let mut numbers = after.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn is_code(code: &str) -> bool {
    !code.is_empty()
        && code.len() <= 64
        && code
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

pub(crate) fn with_logs(mut failure: Failure, logs: &[Log]) -> Failure {
    if !logs.is_empty() {
        failure.message.push_str("\nlogged before:");
    }
    for log in &logs[logs.len().saturating_sub(LAST_LOGS)..] {
        let _ = write!(failure.message, "\n  {}: {}", log.level, log.text);
    }
    limited(&failure.code, failure.message)
}

fn limited(code: &str, mut message: String) -> Failure {
    cut(&mut message, MOST_MESSAGE);
    Failure::new(code, message)
}
