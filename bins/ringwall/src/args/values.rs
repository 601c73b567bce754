//! Readers of single values: sizes, times, counts, environment variables, paths in sandboxes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use ringwall_spec::{UnitError, parse_bytes, parse_cpus, parse_duration};

/// One side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SandboxPath {
    Host(PathBuf),
    Sandbox { id: String, path: PathBuf },
}

pub(super) fn duration(text: &str) -> Result<Duration, UnitError> {
    parse_duration(text)
}

pub(super) fn bytes(text: &str) -> Result<u64, UnitError> {
    parse_bytes(text)
}

pub(super) fn cpus(text: &str) -> Result<u32, UnitError> {
    parse_cpus(text)
}

pub(super) fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| not_a_count(text))
}

pub(super) fn long_count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| not_a_count(text))
}

fn not_a_count(text: &str) -> String {
    format!("{text:?} is not a count; write a whole number, for example 128")
}

/// `KEY=VALUE` in bytes: values need not be UTF-8.
pub(super) fn environment_variable() -> impl TypedValueParser<Value = (OsString, OsString)> {
    OsStringValueParser::new().try_map(|text| {
        let bytes = text.as_bytes();
        match bytes.iter().position(|byte| *byte == b'=') {
            Some(0) => Err("the variable has no name; write KEY=VALUE"),
            None => Err("the value is missing; write KEY=VALUE, the environment is never copied"),
            Some(at) => {
                let (key, value) = (&bytes[..at], &bytes[at + 1..]);
                Ok((OsStr::from_bytes(key).to_owned(), OsStr::from_bytes(value).to_owned()))
            }
        }
    })
}

/// `ID:PATH`, or a path of the host. A path with a colon is of the host if a slash comes first, so
/// `./a:b` names a file.
pub(super) fn sandbox_path() -> impl TypedValueParser<Value = SandboxPath> {
    OsStringValueParser::new().try_map(|text| {
        let bytes = text.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b':' || *byte == b'/');
        let Some(colon) = end.filter(|at| bytes[*at] == b':') else {
            return Ok(SandboxPath::Host(PathBuf::from(text)));
        };
        let id = std::str::from_utf8(&bytes[..colon]).ok().filter(|id| !id.is_empty());
        let path = bytes[colon + 1..].to_vec();
        match id {
            Some(_) if path.is_empty() => Err("there is no path after the colon; write ID:PATH"),
            Some(id) => {
                let path = PathBuf::from(OsString::from_vec(path));
                Ok(SandboxPath::Sandbox { id: id.to_owned(), path })
            }
            None => Err("there is no sandbox id before the colon; write ID:PATH or ./NAME"),
        }
    })
}
