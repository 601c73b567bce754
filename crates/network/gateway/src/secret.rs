//! Secrets of tasks. A secret is never printed, and wiped when it is dropped.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use ringwall_egress::Provider;
use thiserror::Error;
use zeroize::Zeroizing;

const LONGEST: usize = 16 * 1024;

/// A value that leaves the gateway only in the header that it is bound to.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "nothing may print a secret")]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a value that can stand in a header; a final line end is dropped.
    pub fn new(mut bytes: Zeroizing<Vec<u8>>) -> Result<Self, NoSecret> {
        while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            bytes.pop();
        }
        if bytes.is_empty() {
            return Err(NoSecret::Empty);
        }
        if bytes.len() > LONGEST {
            return Err(NoSecret::TooLong);
        }
        if !bytes.iter().all(|byte| (b' '..0x7f).contains(byte)) {
            return Err(NoSecret::Unprintable);
        }
        Ok(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value as text; [`Secret::new`] has seen to it that it is.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[derive(Debug, Error)]
pub enum NoSecret {
    #[error("the secret is empty")]
    Empty,
    #[error("the secret is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the secret has bytes that HTTP forbids in headers")]
    Unprintable,
    #[error("it cannot be read: {0}")]
    Read(std::io::Error),
    #[error("the gateway reads secrets only from descriptors that come with the order")]
    NotBeside,
}

/// The descriptors from which the secrets of one task are read, each at most once.
#[derive(Debug, Default)]
pub struct Sources(Vec<Option<OwnedFd>>);

impl Sources {
    pub fn new(descriptors: Vec<OwnedFd>) -> Self {
        Self(descriptors.into_iter().map(Some).collect())
    }

    pub(crate) fn load(&mut self, from: &Provider) -> Result<Secret, NoSecret> {
        let Provider::Beside(number) = from else {
            return Err(NoSecret::NotBeside);
        };
        let source = self.0.get_mut(*number).and_then(Option::take).ok_or(NoSecret::NotBeside)?;
        Secret::new(bounded(File::from(source)).map_err(NoSecret::Read)?)
    }
}

/// Reads into one buffer that never moves, so that no copy stays behind in freed memory.
fn bounded(mut from: impl Read) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; LONGEST + 2]);
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_once_from_what_came_beside() {
        let variable = |value: &str| {
            let (reads, mut writes) = std::io::pipe().unwrap();
            std::io::Write::write_all(&mut writes, value.as_bytes()).unwrap();
            OwnedFd::from(reads)
        };
        let mut sources =
            Sources::new(vec![variable("hush\n"), variable(""), variable("a\nb"), variable("\n")]);
        let mut load = |number| sources.load(&Provider::Beside(number));
        assert_eq!(load(0).ok().unwrap().bytes(), b"hush");
        assert!(matches!(load(0), Err(NoSecret::NotBeside)));
        assert!(matches!(load(1), Err(NoSecret::Empty)));
        assert!(matches!(load(2), Err(NoSecret::Unprintable)));
        assert!(matches!(load(3), Err(NoSecret::Empty)));
        assert!(matches!(load(4), Err(NoSecret::NotBeside)));
        let file = Provider::File("/etc/hostname".into());
        assert!(matches!(sources.load(&file), Err(NoSecret::NotBeside)));
    }
}
