//! What of a person's own settings an agent behind the wall gets: named keys, and nothing that could be a
//! secret. Agents keep keys, tokens and headers in the same files.

use serde_json::{Map, Value};

/// How a file is written, and which parts of it are taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Paths of keys, with a dot between the parts.
    Json(&'static [&'static str]),
    Toml(&'static [&'static str]),
    /// One plain value to a line. Lists and nested values are left out.
    YamlLines(&'static [&'static str]),
    /// Instructions for the agent, whole.
    Prose,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(
        "{place} looks like a secret, which no agent gets; keep it in a variable of your environment or with `ringwall secret add`, and take it out of that file"
    )]
    Secret { place: String },
    #[error("it cannot be read as {0}")]
    Unreadable(&'static str),
}

/// Parts of names under which agents keep secrets.
const CLOSED: [&str; 12] = [
    "env",
    "key",
    "token",
    "header",
    "secret",
    "passw",
    "credential",
    "helper",
    "cookie",
    "auth",
    "bearer",
    "cert",
];

/// What secrets of well-known services begin with.
const PREFIXES: [&str; 27] = [
    "sk-",
    "sk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "hf_",
    "eyJ",
    "SG.",
    "dop_v1_",
    "gsk_",
    "xai-",
    "AGE-SECRET-KEY-",
];
const SHORTEST_SECRET: usize = 20;
/// Letters and digits in one piece: people do not write that by hand.
const SHORTEST_RANDOM: usize = 32;

/// What of a file goes behind the wall.
pub(crate) fn kept(form: &Form, text: &str) -> Result<String, SettingsError> {
    match form {
        Form::Json(keys) => {
            let all: Value =
                serde_json::from_str(text).map_err(|_| SettingsError::Unreadable("JSON"))?;
            Ok(picked(&all, keys)?.to_string())
        }
        Form::Toml(keys) => {
            let unreadable = SettingsError::Unreadable("TOML");
            let all: Value = toml::from_str(text).map_err(|_| unreadable)?;
            let mut lines = String::new();
            push_toml(&mut lines, "", &picked(&all, keys)?);
            Ok(lines)
        }
        Form::YamlLines(keys) => plain_lines(text, keys),
        Form::Prose => {
            for (number, line) in text.lines().enumerate() {
                if has_known_secret(line) {
                    return Err(SettingsError::Secret { place: format!("line {}", number + 1) });
                }
            }
            Ok(text.to_owned())
        }
    }
}

fn picked(all: &Value, keys: &[&str]) -> Result<Value, SettingsError> {
    let mut kept = Map::new();
    for path in keys {
        let found = path.split('.').try_fold(all, |value, part| value.get(part));
        if let Some(value) = found {
            put(&mut kept, path, clean(path, value)?);
        }
    }
    Ok(Value::Object(kept))
}

fn put(into: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(into.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            let inner = into.entry(first).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// Lines `a.b = value`. What JSON writes of a string, a number and a list of these is TOML, too.
fn push_toml(lines: &mut String, path: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let plain = !name.is_empty() && name.chars().all(bare);
                let name =
                    if plain { name.clone() } else { Value::from(name.as_str()).to_string() };
                let dot = if path.is_empty() { "" } else { "." };
                push_toml(lines, &format!("{path}{dot}{name}"), value);
            }
        }
        Value::Null => {}
        Value::Array(items) if items.iter().any(|it| it.is_object() || it.is_array()) => {}
        value => lines.push_str(&format!("{path} = {value}\n")),
    }
}

/// Without names that are closed, at any depth.
fn clean(place: &str, value: &Value) -> Result<Value, SettingsError> {
    let below = |name: &str, value: &Value| clean(&format!("{place}.{name}"), value);
    Ok(match value {
        Value::Object(fields) => {
            let open = fields.iter().filter(|(name, _)| !is_closed(name) && !is_secret(name));
            let kept = open.map(|(name, value)| Ok((name.clone(), below(name, value)?)));
            Value::Object(kept.collect::<Result<_, SettingsError>>()?)
        }
        Value::Array(items) => {
            let kept = items.iter().enumerate();
            let kept = kept.map(|(index, value)| below(&index.to_string(), value));
            Value::Array(kept.collect::<Result<_, _>>()?)
        }
        Value::String(text) if is_secret(text) => {
            return Err(SettingsError::Secret { place: place.to_owned() });
        }
        other => other.clone(),
    })
}

/// Lines `key: value` that are whole by themselves.
fn plain_lines(text: &str, keys: &[&str]) -> Result<String, SettingsError> {
    let mut kept = String::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(": ").filter(|(key, _)| keys.contains(key)) else {
            continue;
        };
        let value = value.trim();
        if is_secret(value) {
            return Err(SettingsError::Secret { place: key.to_owned() });
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./ ".contains(&byte);
        if !value.is_empty() && value.bytes().all(is_plain) {
            kept.push_str(&format!("{key}: {value}\n"));
        }
    }
    Ok(kept)
}

fn is_closed(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CLOSED.iter().any(|part| name.contains(part))
}

fn is_secret(text: &str) -> bool {
    let is_random = |piece: &str| {
        let count = |what: fn(&u8) -> bool| piece.bytes().filter(what).count();
        piece.len() >= SHORTEST_RANDOM
            && count(u8::is_ascii_digit) >= 3
            && count(u8::is_ascii_alphabetic) >= 3
    };
    let pieces = text.split(|one: char| !(one.is_ascii_alphanumeric() || "_+=".contains(one)));
    has_known_secret(text) || pieces.into_iter().any(is_random)
}

fn has_known_secret(text: &str) -> bool {
    let mut words = text.split(|one: char| !(one.is_ascii_alphanumeric() || "_-.".contains(one)));
    let is_known = |word: &str| {
        word.len() >= SHORTEST_SECRET && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
    };
    // `https://user:password@host`
    let has_password = text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ', '"', '\'', ')', '>']).next().unwrap_or("");
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    });
    words.any(is_known) || text.contains("-----BEGIN") || has_password
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: Form = Form::Json(&["model", "permissions", "ui.theme"]);
    const TOML: Form = Form::Toml(&["model", "tui"]);
    const YAML: Form = Form::YamlLines(&["model", "dark-mode"]);

    #[test]
    fn only_named_keys_are_kept() {
        let text = r#"{"model": "opus", "env": {"AWS_SECRET_ACCESS_KEY": "REAL"}, "apiKeyHelper": "cat key",
            "ui": {"theme": "dark", "other": 1}, "permissions": {"allow": ["Read(./**)"]}, "headers": {"a": "b"}}"#;
        let kept: Value = serde_json::from_str(&kept(&JSON, text).unwrap()).unwrap();
        let expected = serde_json::json!({"model": "opus", "ui": {"theme": "dark"},
            "permissions": {"allow": ["Read(./**)"]}});
        assert_eq!(kept, expected);
        let text = "model = \"gpt-5\"\n[mcp_servers.gh.env]\nGITHUB_TOKEN = \"REAL\"\n[tui]\ntheme = \"x\"\n";
        let toml = super::kept(&TOML, text).unwrap();
        assert_eq!(toml, "model = \"gpt-5\"\ntui.theme = \"x\"\n");
        assert!(toml::from_str::<Value>(&toml).is_ok());
        let text = "anthropic-api-key: REAL\nmodel: sonnet\napi-key:\n  - x=REAL\ndark-mode: true # REAL\n\
                    \u{20}model: REAL\nset-env: A=REAL\n";
        assert_eq!(super::kept(&YAML, text).unwrap(), "model: sonnet\n");
    }

    #[test]
    fn closed_names_inside_what_is_kept_are_left_out() {
        let text = r#"{"permissions": {"allow": [{"Env": {"A": "REAL"}, "ok": 1}], "apiToken": "REAL",
            "X-Auth-Header": "REAL", "deep": {"deeper": [{"HEADERS": "REAL"}]}}}"#;
        let kept = kept(&JSON, text).unwrap();
        assert!(!kept.contains("REAL") && kept.contains("ok"), "{kept}");
    }

    #[test]
    fn a_value_that_looks_like_a_secret_is_refused_where_it_stands() {
        let secret = |form: &Form, text: &str| match kept(form, text) {
            Err(SettingsError::Secret { place }) => place,
            other => panic!("{text}: {other:?}"),
        };
        for value in [
            "sk-ant-REAL-KEY-OF-THE-USER",
            "Bash(curl -H 'Authorization: Bearer ghp_0123456789abcdefghij')",
            "https://ann:hunter2@example.com/x",
            "4f0e4d3c9ad052ab8dd3fa220b2a30a6",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            let json = serde_json::json!({"permissions": {"allow": ["Read", value]}}).to_string();
            assert_eq!(secret(&JSON, &json), "permissions.allow.1");
            let toml = format!("model = {}\n", serde_json::json!(value));
            assert_eq!(secret(&TOML, &toml), "model");
            assert_eq!(secret(&YAML, &format!("model: {value}\n")), "model");
        }
        assert_eq!(secret(&Form::Prose, "use\nexport K=sk-ant-REAL-KEY-OF-THE-USER\n"), "line 2");
        let prose = "Run `make test`. See https://example.com/a@b and commit 4f0e4d3c9ad052ab8dd3fa220b2a30a6.";
        assert_eq!(kept(&Form::Prose, prose).unwrap(), prose);
    }

    #[test]
    fn usual_values_are_no_secrets() {
        for value in [
            "us.anthropic.claude-3-5-sonnet-20241022-v2:0",
            "claude-sonnet-4-5-20250929",
            "Bash(cargo test:*)",
            "/home/ann/projects/a-rather-long-name-of-a-directory/2024",
            "0b2a30a6-4f0e-4d3c-9ad0-52ab8dd3fa22",
        ] {
            assert!(!is_secret(value), "{value}");
        }
    }
}
