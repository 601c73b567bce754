//! Secrets by name: where each comes from and the one endpoint that it is for. Values are only where
//! their providers keep them, and in the gateway of a sandbox that may use them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ringwall_egress::{Form, Provider, ProviderError, SecretSpec};
use ringwall_safekeeping::{
    Content, Directory, FileError, Trust, create_new, if_there, read, replace,
};
use ringwall_spec::{Host, HostPattern, ModelEndpoint, SandboxSpec};
use serde::{Deserialize, Serialize};

use crate::config::Engine;

const MAX_RECORD_BYTES: u64 = 64 << 10;
/// What the gateway takes, and a line end.
const MAX_VALUE_BYTES: u64 = (16 << 10) + 2;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{0:?} is no name for a secret: 1 to 64 letters, digits, dots, hyphens or underscores")]
    Name(String),
    #[error("there is no secret {0}; add it with `ringwall secret add {0}`")]
    Unknown(String),
    #[error("there is a secret {0} already; `ringwall secret rm {0}` removes it")]
    Known(String),
    #[error(
        "secret {0} is bound to no endpoint, so nobody can use it; see `ringwall secret bind --help`"
    )]
    Unbound(String),
    #[error("secret {name} is bound to {host}, so it cannot be the key of the model at {url}")]
    Elsewhere { name: String, host: HostPattern, url: String },
    #[error("the secret is empty, or longer than 16 KiB")]
    Value,
    #[error("invalid variable name {0:?}: expected letters, digits and underscores")]
    Variable(String),
    #[error("the secrets in {path:?} cannot be read or written")]
    Io { path: PathBuf, source: io::Error },
}

/// A secret as it is kept: everything but its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredSecret {
    pub from: Provider,
    #[serde(default)]
    pub binding: Option<SecretBinding>,
}

/// The only endpoint that may see a secret, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretBinding {
    pub host: HostPattern,
    pub port: u16,
    pub methods: Vec<String>,
    pub paths: Vec<String>,
    /// Requests to the endpoint without the placeholder are refused.
    pub require: bool,
    pub form: Form,
    /// What the placeholder begins with.
    pub prefix: String,
    /// The variable in which jobs find the placeholder.
    pub variable: String,
}

/// A secret that a sandbox may use.
#[derive(Debug, Clone)]
pub(crate) struct KnownSecret {
    pub(crate) spec: SecretSpec,
    variable: String,
}

impl KnownSecret {
    /// Opens what the gateway shall read, and gives the spec that says so.
    pub(crate) fn open(&self, opened: &mut Vec<OwnedFd>) -> Result<SecretSpec, ProviderError> {
        let mut spec = self.spec.clone();
        let mut open = |provider: &mut Provider| {
            let number = opened.len();
            opened.push(provider.open()?);
            *provider = Provider::Beside(number);
            Ok(())
        };
        open(&mut spec.from)?;
        match &mut spec.form {
            Form::Header(_) => {}
            Form::AwsSigV4(form) => form.session_token.iter_mut().try_for_each(open)?,
            Form::OAuth(form) => form.client_secret.iter_mut().try_for_each(open)?,
        }
        Ok(spec)
    }

    /// Where jobs find the placeholder in their environment.
    pub(crate) fn variable(&self) -> &str {
        &self.variable
    }

    /// The variables of the engine's own environment that it is read from.
    pub(crate) fn needs_variable(&self) -> Option<&str> {
        match &self.spec.from {
            Provider::Environment(name) => Some(name),
            _ => None,
        }
    }
}

/// The variable in which jobs find the placeholder of a secret that names none.
pub fn usual_variable(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let text: String = name.chars().map(plain).collect();
    if text.starts_with(|c: char| c.is_ascii_digit()) { format!("_{text}") } else { text }
}

fn check_name(name: &str) -> Result<(), SecretError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let valid = (1..=64).contains(&name.len())
        && name.bytes().all(fine)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if valid { Ok(()) } else { Err(SecretError::Name(name.to_owned())) }
}

fn check_variable(name: &str) -> Result<(), SecretError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let valid = (1..=128).contains(&name.len())
        && name.bytes().all(fine)
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if valid { Ok(()) } else { Err(SecretError::Variable(name.to_owned())) }
}

impl Engine {
    fn secrets_dir(&self) -> PathBuf {
        self.home.join("secrets")
    }

    fn secret_file(&self, name: &str) -> Result<PathBuf, SecretError> {
        check_name(name)?;
        Ok(self.secrets_dir().join(format!("{name}.json")))
    }

    /// A name for a secret that is elsewhere.
    pub fn add_secret(&self, name: &str, from: Provider) -> Result<(), SecretError> {
        let path = self.secret_file(name)?;
        let text = to_text(&StoredSecret { from, binding: None });
        let made = Directory::make(&self.secrets_dir(), Trust::Own);
        match made.and_then(|_| create_new(&path, Content::durable(&text))) {
            Err(FileError::Exists(_)) => Err(SecretError::Known(name.to_owned())),
            Err(error) => Err(SecretError::Io { path, source: error.into() }),
            Ok(()) => Ok(()),
        }
    }

    /// Keeps a value in a file of our own, and gives it a name.
    pub fn add_secret_value(&self, name: &str, value: impl Read) -> Result<(), SecretError> {
        let record = self.secret_file(name)?;
        if record.exists() {
            return Err(SecretError::Known(name.to_owned()));
        }
        let path = self.secrets_dir().join(format!("{name}.value"));
        let wrong = |source| SecretError::Io { path: path.clone(), source };
        let mut bytes = Vec::new();
        value.take(MAX_VALUE_BYTES).read_to_end(&mut bytes).map_err(wrong)?;
        let empty = bytes.iter().all(|byte| matches!(byte, b'\n' | b'\r'));
        if empty || bytes.len() as u64 == MAX_VALUE_BYTES {
            return Err(SecretError::Value);
        }
        // What a crash left of an earlier try is replaced.
        Directory::make(&self.secrets_dir(), Trust::Own)
            .and_then(|_| replace(&path, Content::durable(&bytes)))
            .map_err(|error| wrong(error.into()))?;
        self.add_secret(name, Provider::File(path))
    }

    /// Says which endpoint may see a secret.
    pub fn bind_secret(&self, name: &str, binding: SecretBinding) -> Result<(), SecretError> {
        check_variable(&binding.variable)?;
        let mut stored = self.stored_secret(name)?;
        stored.binding = Some(binding);
        let path = self.secret_file(name)?;
        replace(&path, Content::durable(&to_text(&stored)))
            .map_err(|error| SecretError::Io { path, source: error.into() })
    }

    /// Forgets a secret; of a value that we keep, also the value.
    pub fn remove_secret(&self, name: &str) -> Result<(), SecretError> {
        let path = self.secret_file(name)?;
        self.stored_secret(name)?;
        let wrong = |source| SecretError::Io { path: path.clone(), source };
        fs::remove_file(&path).map_err(wrong)?;
        match fs::remove_file(self.secrets_dir().join(format!("{name}.value"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(wrong(error)),
            _ => Ok(()),
        }
    }

    /// All secrets by name.
    pub fn secrets(&self) -> Result<BTreeMap<String, StoredSecret>, SecretError> {
        let path = self.secrets_dir();
        let wrong = |source| SecretError::Io { path: path.clone(), source };
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.map_err(wrong)?,
        };
        let mut all = BTreeMap::new();
        for entry in entries {
            let name = entry.map_err(wrong)?.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            all.insert(name.to_owned(), self.stored_secret(name)?);
        }
        Ok(all)
    }

    pub(crate) fn known_secrets(&self, names: &[String]) -> Result<Vec<KnownSecret>, SecretError> {
        names.iter().map(|name| self.known_secret(name)).collect()
    }

    /// Where the key of a model is read from. A secret that is bound to an endpoint stays with it.
    pub(crate) fn model_key(&self, model: &ModelEndpoint) -> Result<Option<Provider>, SecretError> {
        let Some(name) = &model.key else { return Ok(None) };
        let stored = self.stored_secret(name)?;
        let elsewhere = |binding: &SecretBinding| !is_at(&model.base_url, &binding.host);
        match stored.binding.filter(elsewhere) {
            Some(binding) => Err(SecretError::Elsewhere {
                name: name.clone(),
                host: binding.host,
                url: model.base_url.clone(),
            }),
            None => Ok(Some(stored.from)),
        }
    }

    /// What a keeper needs of our environment for the secrets of its sandbox.
    pub(crate) fn variables_of_secrets(
        &self,
        spec: &SandboxSpec,
    ) -> Result<Vec<(String, OsString)>, SecretError> {
        let names = spec.egress.iter().flat_map(|egress| &egress.secrets);
        let mut variables = Vec::new();
        for name in names {
            let known = self.known_secret(name)?;
            if let Some(name) = known.needs_variable() {
                variables.extend(std::env::var_os(name).map(|value| (name.to_owned(), value)));
            }
        }
        Ok(variables)
    }

    fn known_secret(&self, name: &str) -> Result<KnownSecret, SecretError> {
        let stored = self.stored_secret(name)?;
        let binding = stored.binding.ok_or_else(|| SecretError::Unbound(name.to_owned()))?;
        Ok(KnownSecret {
            spec: SecretSpec {
                name: name.to_owned(),
                from: stored.from,
                host: binding.host,
                port: binding.port,
                methods: binding.methods,
                paths: binding.paths,
                require: binding.require,
                form: binding.form,
                prefix: binding.prefix,
                placeholder: None,
            },
            variable: binding.variable,
        })
    }

    fn stored_secret(&self, name: &str) -> Result<StoredSecret, SecretError> {
        let path = self.secret_file(name)?;
        let wrong = |source| SecretError::Io { path: path.clone(), source };
        let found = if_there(read(&path, Trust::Own, MAX_RECORD_BYTES));
        let text = found.map_err(|error| wrong(error.into()))?;
        let text = text.ok_or_else(|| SecretError::Unknown(name.to_owned()))?;
        serde_json::from_slice(&text).map_err(|error| wrong(error.into()))
    }
}

/// Whether a URL is of this host.
fn is_at(url: &str, host: &HostPattern) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    Host::parse_authority(authority, Some(443)).is_ok_and(|(name, _)| host.matches(&name))
}

fn to_text(stored: &StoredSecret) -> Vec<u8> {
    // Plain data of ours always has a text.
    serde_json::to_vec(stored).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_variables_follow_from_them() {
        for name in ["", "../x", "a/b", ".hidden", "a b", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name("github-ro.1").is_ok());
        assert_eq!(usual_variable("github-ro"), "GITHUB_RO");
        assert_eq!(usual_variable("1password"), "_1PASSWORD");
        assert!(check_variable("GITHUB_TOKEN").is_ok());
        for name in ["", "1A", "A=B", "A B"] {
            assert!(check_variable(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_url_is_of_the_host_in_its_authority_and_of_no_other() {
        let is_at = |url, host: &str| super::is_at(url, &host.parse().unwrap());
        assert!(is_at("https://api.example.com", "api.example.com"));
        assert!(is_at("https://api.example.com", "*.example.com"));
        assert!(is_at("https://API.example.com:8443/x", "api.example.com"));
        for url in ["https://evil.example/api.example.com", "https://api.example.com.evil.example"]
        {
            assert!(!is_at(url, "api.example.com"), "{url}");
        }
        assert!(!is_at("https://api.example.com@evil.example/", "api.example.com"));
    }
}
