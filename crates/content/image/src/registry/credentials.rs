//! Passwords that a person has stored with `docker login`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::RegistryError;
use crate::reference::DEFAULT_REGISTRY;

const MAX_FILE_BYTES: u64 = 1 << 20;
/// The name under which `docker login` files the default registry.
const DEFAULT_REGISTRY_KEY: &str = "index.docker.io";

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

// No Debug: this holds passwords.
#[derive(Deserialize)]
struct Entry {
    /// Base 64 of `user:password`.
    #[serde(default)]
    auth: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    password: Option<String>,
}

/// The value of an `Authorization` header for `host`, if docker's config file has one. Credential
/// helpers are programs and are not run.
pub(super) fn find(config: Option<&Path>, host: &str) -> Result<Option<String>, RegistryError> {
    let Some(path) = config else { return Ok(None) };
    let failed = |source| RegistryError::Credentials { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.is_file() || found.len() > MAX_FILE_BYTES => {
            return Err(failed(io::Error::other("it is too large or not a file")));
        }
        Ok(_) => {}
    }
    let bytes = fs::read(path).map_err(failed)?;
    // The parser's own message could quote a password.
    let config: DockerConfig = serde_json::from_slice(&bytes)
        .map_err(|_| failed(io::Error::other("it is not valid JSON of the expected shape")))?;
    let wanted = if host == DEFAULT_REGISTRY { DEFAULT_REGISTRY_KEY } else { host };
    let entry = config.auths.iter().find(|(key, _)| host_of(key) == wanted).map(|(_, entry)| entry);
    Ok(entry.and_then(basic_authorization))
}

/// Keys are hosts, or URLs from older days such as `https://host/v1/`.
fn host_of(key: &str) -> &str {
    let rest = key.split_once("://").map_or(key, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

fn basic_authorization(entry: &Entry) -> Option<String> {
    if let Some(auth) = entry.auth.as_deref().filter(|auth| !auth.is_empty()) {
        let is_base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
        return auth.bytes().all(is_base64).then(|| format!("Basic {auth}"));
    }
    let (username, password) = (entry.username.as_deref()?, entry.password.as_deref()?);
    Some(format!("Basic {}", base64(format!("{username}:{password}").as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for position in 0..4 {
            let index = (group >> (18 - 6 * position)) & 63;
            let padding = position > chunk.len();
            text.push(if padding { '=' } else { char::from(ALPHABET[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(json: &str, host: &str) -> Result<Option<String>, RegistryError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.json");
        fs::write(&path, json).unwrap();
        find(Some(&path), host)
    }

    #[test]
    fn base64_has_the_usual_padding() {
        for (text, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn credentials_are_found_for_their_own_host_only() {
        let json = r#"{"auths":{"127.0.0.1:5000":{"auth":"dTpw"},
            "https://registry.test/v1/":{"username":"u","password":"p"}}}"#;
        assert_eq!(find_in(json, "127.0.0.1:5000").unwrap().as_deref(), Some("Basic dTpw"));
        assert_eq!(find_in(json, "registry.test").unwrap().as_deref(), Some("Basic dTpw"));
        assert_eq!(find_in(json, "127.0.0.1:5001").unwrap(), None);
        assert_eq!(find(Some(Path::new("/nonexistent/config.json")), "x").unwrap(), None);
    }

    #[test]
    fn a_broken_file_is_named_without_its_content() {
        let error = find_in(r#"{"auths":{"h":{"auth":secret}}}"#, "h").unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.to_string().contains("config.json") && !source.contains("secret"));
    }
}
