//! JSON Schema 2020-12: compiled once for each tool, told in words when a value does not fit.
//!
//! Schemas come from tools and are hostile, as are the outputs held against them. Nothing is
//! fetched; patterns match in linear time; and a schema that refers to itself in place is refused. The
//! steps of a check are counted first: beyond a bound it is not begun, and a long one runs on a thread
//! of its own, which is given up after a while and ends by itself.

mod cost;
mod shape;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Steps of a check that is done right away: some milliseconds of work at most.
const CHEAP_STEPS: u64 = 300_000;
/// Steps of a check after which it can be told what does not fit, and where. To tell it, parts of the
/// value are checked again, once for each level of nesting.
const MOST_TOLD_STEPS: u64 = 20_000_000;
/// Steps of any check: seconds of work.
const MOST_STEPS: u64 = 500_000_000;
/// How long a costly check may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Deeply nested values meet deeply nested schemas here.
const STACK_BYTES: usize = 64 << 20;
/// Problems told at once.
const MOST_PROBLEMS: usize = 5;
/// Larger values get one problem told: collecting all could take more memory than the value.
const ALL_PROBLEMS_BELOW: usize = 64 << 10;
/// Memory of one compiled pattern, and patterns of one schema.
const MOST_PATTERN_BYTES: usize = 1 << 19;
const MOST_PATTERNS: usize = 128;
const MOST_SHOWN: usize = 300;
const MOST_OPTIONS: usize = 20;

/// A compiled schema.
#[derive(Debug, Clone)]
pub struct Schema {
    validator: Arc<Validator>,
    source: Arc<Value>,
    /// A check took too long once; no other one is begun.
    given_up: Arc<AtomicBool>,
}

/// Why a schema is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema is wrong at {}: {problem}", place(at))]
pub struct SchemaError {
    /// JSON Pointer into the schema.
    pub at: String,
    pub problem: String,
}

/// Where and how a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    problems: Vec<(String, String)>,
}

impl Schema {
    pub fn compile(schema: &Value) -> Result<Schema, SchemaError> {
        shape::check(schema)?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(MOST_PATTERN_BYTES))
            .build(schema)
            .map_err(|error| SchemaError {
                at: error.instance_path().to_string(),
                problem: told(&error).1,
            })?;
        let given_up = Arc::new(AtomicBool::new(false));
        let (validator, source) = (Arc::new(validator), Arc::new(schema.clone()));
        Ok(Schema { validator, source, given_up })
    }

    /// Holds a value of about `bytes` of JSON against the schema and gives it back if it fits.
    pub fn check(&self, value: Value, bytes: usize) -> Result<Value, Misfit> {
        if let Ok(_cheap) = cost::steps(&self.source, &value, CHEAP_STEPS) {
            return examine(&self.validator, value, Telling::some_of(bytes));
        }
        if self.given_up.load(Ordering::Relaxed) {
            return Err(Misfit::too_costly());
        }
        let (validator, source) = (Arc::clone(&self.validator), Arc::clone(&self.source));
        let (send, receive) = mpsc::sync_channel(1);
        let body = move || {
            let checked = match cost::steps(&source, &value, MOST_STEPS) {
                Ok(steps) if steps <= MOST_TOLD_STEPS => {
                    examine(&validator, value, Telling::some_of(bytes))
                }
                Ok(_) => examine(&validator, value, Telling::Nothing),
                Err(cost::TooMuch) => Err(Misfit::too_costly()),
            };
            // Nobody listens any more if the check took too long.
            let _ = send.send(checked);
        };
        let thread = std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
        if thread.spawn(body).is_err() {
            return Err(Misfit::whole("no thread could be started to check it"));
        }
        receive.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            self.given_up.store(true, Ordering::Relaxed);
            Err(Misfit::too_costly())
        })
    }
}

/// How much is said about what does not fit.
#[derive(Clone, Copy)]
enum Telling {
    Nothing,
    First,
    Some,
}

impl Telling {
    fn some_of(bytes: usize) -> Telling {
        if bytes < ALL_PROBLEMS_BELOW { Telling::Some } else { Telling::First }
    }
}

fn examine(validator: &Validator, value: Value, telling: Telling) -> Result<Value, Misfit> {
    if validator.is_valid(&value) {
        return Ok(value);
    }
    let problems = match telling {
        Telling::Nothing => {
            return Err(Misfit::whole("it does not fit, in a place not looked for"));
        }
        Telling::First => validator.validate(&value).err().iter().map(told).collect(),
        Telling::Some => {
            validator.iter_errors(&value).take(MOST_PROBLEMS).map(|error| told(&error)).collect()
        }
    };
    Err(Misfit { problems })
}

/// Where the problem is, and what was expected there.
fn told(error: &ValidationError<'_>) -> (String, String) {
    let at = error.instance_path().to_string();
    let found = error.instance();
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let expected = match kind {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(many) => {
                    many.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            (at, format!("expected {expected}, found {}", type_of(found)))
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map_or(&[][..], Vec::as_slice);
            let shown: Vec<String> =
                options.iter().take(MOST_OPTIONS).map(Value::to_string).collect();
            let more = if options.len() > MOST_OPTIONS { ", ..." } else { "" };
            (at, format!("expected one of {}{more}", shown.join(", ")))
        }
        ValidationErrorKind::Required { property } => (at, format!("{property} is missing")),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let first = unexpected.first().map(|name| name.replace('~', "~0").replace('/', "~1"));
            (cut(format!("{at}/{}", first.unwrap_or_default())), "nothing has this name".to_owned())
        }
        _ => {
            let short = match &**found {
                Value::Array(_) | Value::Object(_) => false,
                Value::String(text) => text.len() <= 60,
                _ => true,
            };
            let text =
                if short { error.to_string() } else { error.masked_with("this").to_string() };
            (at, text)
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_SHOWN {
        text.truncate(text.floor_char_boundary(MOST_SHOWN));
        text.push('…');
    }
    text
}

fn place(at: &str) -> &str {
    if at.is_empty() { "its top" } else { at }
}

impl Misfit {
    fn too_costly() -> Misfit {
        let patience = PATIENCE.as_secs();
        Misfit::whole(format!("its schema takes more than {patience} s to check; make it simpler"))
    }

    pub(crate) fn whole(problem: impl Into<String>) -> Misfit {
        Misfit { problems: vec![(String::new(), problem.into())] }
    }

    /// JSON Pointers and what was expected there, the first problem first.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &str)> {
        self.problems.iter().map(|(at, problem)| (at.as_str(), problem.as_str()))
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (at, problem)) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}at {}: {}", place(at), cut(problem.clone()))?;
        }
        Ok(())
    }
}

impl std::error::Error for Misfit {}

#[cfg(test)]
mod tests;
