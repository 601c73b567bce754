//! Files with environment variables, as `docker run --env-file` takes them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};

/// More is no list of variables.
const MAX_ENV_FILE_BYTES: u64 = 1 << 20;

/// One `KEY=VALUE` a line, in bytes. The caller's own environment never enters, so a name alone is wrong.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("{shown} cannot be read"))?;
    let mut bytes = Vec::new();
    file.take(MAX_ENV_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= MAX_ENV_FILE_BYTES, "{shown} is too long; 1M is the most");
    let mut variables = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let Some(at) = line.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else {
            bail!("{shown}, line {number}: write KEY=VALUE, the environment is never copied");
        };
        let text = |part: &[u8]| OsStr::from_bytes(part).to_owned();
        variables.push((text(&line[..at]), text(&line[at + 1..])));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_variables_and_the_rest_is_named() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("env");
        std::fs::write(&path, "# a\n\nA=1\r\n  B=x=y \nC=\n").unwrap();
        let read = super::read(&path).unwrap();
        let pair = |(name, value): (&str, &str)| (OsString::from(name), OsString::from(value));
        assert_eq!(read, [("A", "1"), ("B", "x=y "), ("C", "")].map(pair));
        std::fs::write(&path, "A=1\nHOME\n").unwrap();
        assert!(super::read(&path).unwrap_err().to_string().contains("line 2"));
    }
}
