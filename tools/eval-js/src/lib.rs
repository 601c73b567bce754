//! `eval-js`: runs JavaScript in a fresh, empty engine; and the runtime for tools made of a script.
//!
//! The engine (QuickJS) is set up once, by `prepare`, when the tool is built: a snapshot of the
//! memory after that is what ships, so that a call begins with a ready engine. Each call has an
//! instance of its own and leaves nothing behind.

mod engine;
mod errors;
#[cfg(target_family = "wasm")]
mod export;
mod modules;
mod state;

use std::collections::BTreeMap;

use ringwall_tool_sdk::Failure;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use engine::Engine;
pub use state::Log;

#[derive(Debug, Deserialize)]
pub struct Input {
    pub script: String,
    /// What the script finds as `input`.
    pub input: Option<Box<RawValue>>,
    /// Modules that the script may import, by name.
    #[serde(default)]
    pub modules: BTreeMap<String, String>,
    /// Refuse to make code out of text.
    #[serde(default)]
    pub strict: bool,
}

#[derive(Debug, Serialize)]
pub struct Output {
    /// What the script gave to `output`, else its last expression or default export.
    pub value: Box<RawValue>,
    pub logs: Vec<Log>,
    /// Some of the log was left out.
    pub truncated: bool,
}

/// One call of the tool `eval-js`.
pub fn eval(engine: &Engine, input: Input) -> Result<Output, Failure> {
    if input.strict {
        engine.be_strict()?;
    }
    state::begin(input.modules);
    let result = engine.run(&input.script, input.input.as_deref().map_or("null", RawValue::get));
    let (logs, truncated) = state::end();
    match result {
        Ok(json) => Ok(Output { value: raw(json)?, logs, truncated }),
        Err(failure) => Err(errors::with_logs(failure, &logs)),
    }
}

fn raw(json: String) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(json)
        .map_err(|error| Failure::new("internal", format_args!("the value is no JSON: {error}")))
}
