//! An image's configuration: what to run and how, and which layers it is made of.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

const MAX_STRINGS: usize = 4096;
const MAX_STRING_BYTES: usize = 128 * 1024;

/// How the image wants its program to be started. Everything in here is the image author's word:
/// the engine decides what of it to honour.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfig {
    pub env: Vec<(String, String)>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// Always absolute and without `..`.
    pub working_dir: Option<PathBuf>,
    /// `user`, `user:group`, by name or number, as the image has it.
    pub user: Option<String>,
}

/// Why an image's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the image configuration is not valid JSON of the expected shape")]
    Malformed(#[source] serde_json::Error),
    #[error("the image configuration's {0} has too many or too long entries")]
    TooLarge(&'static str),
    #[error("the image configuration's {0} contains a NUL byte")]
    Nul(&'static str),
    #[error("the image configuration's environment has an entry without a name")]
    UnnamedVariable,
    #[error("the image configuration's working directory {0:?} contains '..'")]
    WorkingDirectory(String),
}

/// The parts of a configuration that matter here.
#[derive(Debug)]
pub(crate) struct ParsedConfig {
    pub(crate) os: String,
    pub(crate) architecture: String,
    pub(crate) created: Option<String>,
    pub(crate) diff_ids: Vec<Digest>,
    pub(crate) image: ImageConfig,
}

#[derive(Deserialize)]
struct RawConfig {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    created: Option<String>,
    rootfs: RawRootfs,
    #[serde(default)]
    config: Option<RawRun>,
}

#[derive(Deserialize)]
struct RawRootfs {
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

// Docker writes `null` for an empty list, so every field is optional twice.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RawRun {
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
}

pub(crate) fn parse_config(bytes: &[u8]) -> Result<ParsedConfig, ConfigError> {
    let raw: RawConfig = serde_json::from_slice(bytes).map_err(ConfigError::Malformed)?;
    let run = raw.config.unwrap_or_default();
    let image = ImageConfig {
        env: parse_env(checked_list("environment", run.env)?)?,
        entrypoint: checked_list("entry point", run.entrypoint)?,
        cmd: checked_list("command", run.cmd)?,
        working_dir: parse_working_dir(checked_text("working directory", run.working_dir)?)?,
        user: checked_text("user", run.user)?,
    };
    Ok(ParsedConfig {
        os: raw.os,
        architecture: raw.architecture,
        created: raw.created.filter(|text| is_timestamp(text)),
        diff_ids: raw.rootfs.diff_ids.unwrap_or_default(),
        image,
    })
}

fn checked_list(what: &'static str, list: Option<Vec<String>>) -> Result<Vec<String>, ConfigError> {
    let list = list.unwrap_or_default();
    if list.len() > MAX_STRINGS || list.iter().any(|text| text.len() > MAX_STRING_BYTES) {
        return Err(ConfigError::TooLarge(what));
    }
    if list.iter().any(|text| text.contains('\0')) {
        return Err(ConfigError::Nul(what));
    }
    Ok(list)
}

fn checked_text(what: &'static str, text: Option<String>) -> Result<Option<String>, ConfigError> {
    let mut list = checked_list(what, text.map(|text| vec![text]))?;
    Ok(list.pop().filter(|text| !text.is_empty()))
}

fn parse_env(list: Vec<String>) -> Result<Vec<(String, String)>, ConfigError> {
    list.into_iter()
        .map(|entry| match entry.split_once('=') {
            Some(("", _)) => Err(ConfigError::UnnamedVariable),
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Ok((entry, String::new())),
        })
        .collect()
}

fn parse_working_dir(text: Option<String>) -> Result<Option<PathBuf>, ConfigError> {
    let Some(text) = text else { return Ok(None) };
    if text.split('/').any(|part| part == "..") {
        return Err(ConfigError::WorkingDirectory(text.chars().take(200).collect()));
    }
    // A relative directory is relative to the image's root.
    Ok(Some(PathBuf::from("/").join(text)))
}

/// The time is printed to terminals: let nothing through but what a timestamp is made of.
fn is_timestamp(text: &str) -> bool {
    text.len() <= 40
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'T' | b'Z' | b':' | b'.' | b'+' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(run: &str) -> Result<ParsedConfig, ConfigError> {
        parse_config(
            format!(r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":[]}},"config":{run}}}"#)
                .as_bytes(),
        )
    }

    #[test]
    fn everything_the_engine_needs_is_read() {
        let parsed = parse(
            r#"{"Env":["PATH=/bin","EMPTY=","A=b=c"],"Entrypoint":["/init"],"Cmd":["sh"],
                "WorkingDir":"/srv","User":"1000:100"}"#,
        )
        .unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            parsed.image,
            ImageConfig {
                env: vec![pair("PATH", "/bin"), pair("EMPTY", ""), pair("A", "b=c")],
                entrypoint: vec!["/init".into()],
                cmd: vec!["sh".into()],
                working_dir: Some("/srv".into()),
                user: Some("1000:100".into()),
            }
        );
    }

    #[test]
    fn nulls_and_absent_fields_mean_nothing_was_set() {
        let empty = ImageConfig::default();
        assert_eq!(parse("null").unwrap().image, empty);
        let nulls = r#"{"Env":null,"Entrypoint":null,"Cmd":null,"WorkingDir":"","User":""}"#;
        assert_eq!(parse(nulls).unwrap().image, empty);
    }

    #[test]
    fn hostile_values_are_refused() {
        assert!(matches!(parse(r#"{"Env":["=x"]}"#), Err(ConfigError::UnnamedVariable)));
        assert!(matches!(parse(r#"{"Cmd":["a\u0000b"]}"#), Err(ConfigError::Nul("command"))));
        assert!(matches!(
            parse(r#"{"WorkingDir":"/a/../.."}"#),
            Err(ConfigError::WorkingDirectory(_))
        ));
        let long = format!(r#"{{"User":"{}"}}"#, "x".repeat(MAX_STRING_BYTES + 1));
        assert!(matches!(parse(&long), Err(ConfigError::TooLarge("user"))));
    }

    #[test]
    fn a_creation_time_that_could_drive_a_terminal_is_dropped() {
        let with = |created: &str| {
            parse_config(format!(r#"{{"created":"{created}","rootfs":{{}}}}"#).as_bytes())
                .unwrap()
                .created
        };
        assert_eq!(with("2026-01-02T03:04:05Z").as_deref(), Some("2026-01-02T03:04:05Z"));
        assert_eq!(with("\\u001b[2J"), None);
    }
}
