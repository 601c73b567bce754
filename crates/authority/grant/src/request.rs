//! What is asked of a grant at an enforcement point.

use std::fmt;

use ringwall_safekeeping::hex;

use crate::keys::PublicKey;
use crate::names::{
    MAX_NAME_BYTES, MAX_PATH_BYTES, NameError, is_canonical_path, is_host, is_method, plain,
};

/// One thing that the holder wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Nothing but to be who it is: the call needs a grant of the task, and no right.
    Identity,
    Tool {
        name: String,
    },
    /// Paths are resolved by the enforcement point: absolute, with no `.`, `..` or link in them.
    Read {
        path: String,
    },
    Write {
        path: String,
    },
    /// No method: not HTTP, or not known to be.
    Connect {
        host: String,
        port: u16,
        method: Option<String>,
    },
    Secret {
        name: String,
    },
    Phase {
        name: String,
    },
    /// A sandbox for a kind of work, behind a wall.
    Place {
        kind: String,
        wall: String,
    },
}

/// A request: who it must be for, what it wants, and which elevations could help it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub task: String,
    pub tenant: String,
    pub ask: Ask,
    pub sought: Option<Sought>,
}

/// The exact action that a request is part of, for elevations that were given for just that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    pub action: ActionHash,
    pub trusted: Vec<TrustedApprovers>,
}

/// Whose signature makes an elevation of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedApprovers {
    pub elevation: String,
    pub keys: Vec<PublicKey>,
}

/// SHA-256 of exactly what was asked for. `ringwall-approval` computes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActionHash(pub [u8; 32]);

impl Request {
    pub fn new(task: impl Into<String>, tenant: impl Into<String>, ask: Ask) -> Request {
        Request { task: task.into(), tenant: tenant.into(), ask, sought: None }
    }

    /// Lets elevations count that one of these signed for this action.
    pub fn with_elevations(mut self, action: ActionHash, trusted: Vec<TrustedApprovers>) -> Self {
        self.sought = Some(Sought { action, trusted });
        self
    }
}

impl Ask {
    /// Enforcement points get names and paths from hostile places, and a grant speaks only of those
    /// with one spelling.
    pub(crate) fn validate(&self) -> Result<(), NameError> {
        let name = |what, text| plain(what, text, MAX_NAME_BYTES);
        match self {
            Ask::Identity => Ok(()),
            Ask::Tool { name: tool } => name("the tool's name", tool),
            Ask::Read { path } | Ask::Write { path } => {
                if path.len() > MAX_PATH_BYTES {
                    return Err(NameError::TooLong("the path", MAX_PATH_BYTES));
                }
                is_canonical_path(path).then_some(()).ok_or_else(|| NameError::Path(path.clone()))
            }
            Ask::Connect { host, method, .. } => {
                if !is_host(host) {
                    return Err(NameError::Host(host.clone()));
                }
                match method {
                    Some(method) if !is_method(method) => Err(NameError::Method(method.clone())),
                    _ => Ok(()),
                }
            }
            Ask::Secret { name: secret } => name("the secret's name", secret),
            Ask::Phase { name: phase } => name("the phase", phase),
            Ask::Place { kind, wall } => {
                name("the kind of work", kind).and_then(|()| name("the wall", wall))
            }
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Identity => f.write_str("a call"),
            Ask::Tool { name } => write!(f, "calling the tool {name:?}"),
            Ask::Read { path } => write!(f, "reading {path:?}"),
            Ask::Write { path } => write!(f, "writing {path:?}"),
            Ask::Connect { host, port, method } => match method {
                Some(method) => write!(f, "{method} to {host}:{port}"),
                None => write!(f, "connecting to {host}:{port}"),
            },
            Ask::Secret { name } => write!(f, "using the secret {name:?}"),
            Ask::Phase { name } => write!(f, "changing to the phase {name:?}"),
            Ask::Place { kind, wall } => write!(f, "{kind:?} work behind the wall {wall:?}"),
        }
    }
}

impl fmt::Debug for ActionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActionHash({self})")
    }
}

impl fmt::Display for ActionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}
