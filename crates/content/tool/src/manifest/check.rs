//! What must hold of a manifest beyond its shape.

use std::collections::BTreeSet;

use ringwall_spec::HostPattern;

use super::{Kind, LimitWishes, Manifest, ManifestError, Wants};

const MAX_NAME: usize = 64;
const MAX_SUMMARY: usize = 200;
const MAX_DESCRIPTION: usize = 64 << 10;
const MAX_WISHES: usize = 64;
const MAX_EXAMPLES: usize = 64;
/// Where the ring keeps what every program may expect; no tool's own directory goes there.
const RESERVED: [&str; 3] = ["/dev", "/proc", "/sys"];

type Checked = Result<(), ManifestError>;

impl Manifest {
    pub(super) fn check(&self) -> Checked {
        if self.schema != 1 {
            let problem = format!("{} is no format that is known; write 1", self.schema);
            return Err(ManifestError::wrong("/schema", problem));
        }
        check_name(&self.name)?;
        if let Err(error) = semver::Version::parse(&self.version) {
            let problem =
                format!("{:?} is no version such as 1.2.0: {error}", shown(&self.version));
            return Err(ManifestError::wrong("/version", problem));
        }
        check_line("/summary", &self.summary, MAX_SUMMARY)?;
        if self.description.len() > MAX_DESCRIPTION {
            let problem = format!("it is longer than {MAX_DESCRIPTION} bytes");
            return Err(ManifestError::wrong("/description", problem));
        }
        self.wants.check()?;
        self.limits.check()?;
        if self.examples.len() > MAX_EXAMPLES {
            let problem = format!("there are more than {MAX_EXAMPLES}");
            return Err(ManifestError::wrong("/examples", problem));
        }
        match (self.kind, &self.command) {
            (Kind::Component, Some(_)) => {
                Err(ManifestError::wrong("/command", "only the kind `command` has one; remove it"))
            }
            (Kind::Command, None) => Err(ManifestError::wrong(
                "/command",
                "the kind `command` needs one: how input becomes arguments, see docs/reference/tool-contract.md",
            )),
            _ => Ok(()),
        }
    }
}

/// `[a-z][a-z0-9-]{0,63}`: fit for a command line, a file and a URL.
pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.len() <= MAX_NAME
}

fn check_name(name: &str) -> Checked {
    if is_name(name) {
        return Ok(());
    }
    let problem = format!(
        "{:?} is no name; use a-z, 0-9 and '-', a letter first, at most {MAX_NAME} in all",
        shown(name)
    );
    Err(ManifestError::wrong("/name", problem))
}

fn check_line(at: &str, text: &str, most: usize) -> Checked {
    let problem = if text.trim().is_empty() {
        "it is empty; say in one line what it is for".to_owned()
    } else if text.chars().any(char::is_control) {
        "it must be one line without control characters".to_owned()
    } else if text.len() > most {
        format!("it is longer than {most} bytes")
    } else {
        return Ok(());
    };
    Err(ManifestError::wrong(at, problem))
}

impl Wants {
    fn check(&self) -> Checked {
        let lists = [("dirs", self.dirs.len()), ("http", self.http.len()), ("env", self.env.len())];
        for (list, count) in lists {
            if count > MAX_WISHES {
                let problem = format!("there are more than {MAX_WISHES}");
                return Err(ManifestError::wrong(format!("/wants/{list}"), problem));
            }
        }
        self.check_dirs()?;
        for (index, host) in self.http.iter().enumerate() {
            if !is_host(host) {
                let problem = format!(
                    "{:?} is no host; write a name such as api.example.com, without https:// and path",
                    shown(host)
                );
                return Err(ManifestError::wrong(format!("/wants/http/{index}"), problem));
            }
        }
        let mut seen = BTreeSet::new();
        for (index, name) in self.env.iter().enumerate() {
            let at = || format!("/wants/env/{index}");
            if !is_variable(name) {
                let problem =
                    format!("{:?} is no variable; use A-Z, a-z, 0-9 and '_'", shown(name));
                return Err(ManifestError::wrong(at(), problem));
            }
            if !seen.insert(name) {
                return Err(ManifestError::wrong(at(), format!("{name} is there twice")));
            }
        }
        Ok(())
    }

    fn check_dirs(&self) -> Checked {
        for (index, dir) in self.dirs.iter().enumerate() {
            let at = format!("/wants/dirs/{index}/path");
            let path = &dir.path;
            if !is_plain_path(path) {
                let problem = format!(
                    "{:?} is no directory for a tool; write an absolute path such as /work, without . and ..",
                    shown(path)
                );
                return Err(ManifestError::wrong(at, problem));
            }
            if RESERVED.iter().any(|reserved| is_beneath(path, reserved)) {
                return Err(ManifestError::wrong(at, format!("{path} is not for tools")));
            }
            let before = &self.dirs[..index];
            if let Some(other) = before
                .iter()
                .find(|other| is_beneath(path, &other.path) || is_beneath(&other.path, path))
            {
                let problem = format!("{path} and {} overlap; ask for one of them", other.path);
                return Err(ManifestError::wrong(at, problem));
            }
        }
        Ok(())
    }
}

fn is_plain_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    path.len() <= 256
        && !path.chars().any(char::is_control)
        && rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn is_beneath(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= 128
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    text == "*" || (HostPattern::parse(host).is_ok() && port_fits)
}

impl LimitWishes {
    fn check(&self) -> Checked {
        let wishes = [
            ("time_ms", self.time_ms),
            ("memory_bytes", self.memory_bytes),
            ("output_bytes", self.output_bytes),
            ("fuel", self.fuel),
        ];
        match wishes.into_iter().find(|(_, wish)| *wish == Some(0)) {
            Some((name, _)) => {
                let problem = "nothing can run with 0; leave it out or write a number";
                Err(ManifestError::wrong(format!("/limits/{name}"), problem))
            }
            None => Ok(()),
        }
    }
}

/// Hostile text cut to what an error message can bear.
fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
