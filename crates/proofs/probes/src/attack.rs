//! The attacks, by what they go for.

pub(crate) mod deciding;
pub(crate) mod deeds;
pub(crate) mod files;
pub(crate) mod gateway;
pub(crate) mod leak;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod objects;
pub(crate) mod persist;
pub(crate) mod privilege;
pub(crate) mod processes;
pub(crate) mod settings;

use std::io::{self, Read};
use std::path::Path;

use ringwall_linux::interface::{Answer, Interface};

use crate::Tried;

/// The part of a file that is read: a secret is at its beginning.
const MOST_READ: u64 = 4096;

pub(crate) fn knock(interface: &Interface) -> Tried {
    match interface.knock() {
        Answer::Refused(errno) => Tried::Failed(errno.to_string()),
        Answer::Reached(None) => Tried::Succeeded("the call was made".to_owned()),
        Answer::Reached(Some(errno)) => {
            Tried::Succeeded(format!("the kernel looked at its arguments: {errno}"))
        }
    }
}

/// The first that works is enough; else the reasons, each once.
fn any_of<T>(
    all: impl IntoIterator<Item = T>,
    mut attack: impl FnMut(T) -> Result<String, io::Error>,
) -> Tried {
    let mut reasons: Vec<String> = Vec::new();
    for one in all {
        match attack(one) {
            Ok(got) => return Tried::Succeeded(got),
            Err(error) => {
                let reason = error.to_string();
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
    }
    match reasons.is_empty() {
        true => Tried::Impossible("there is nothing to attack".to_owned()),
        false => Tried::Failed(reasons.join("; ")),
    }
}

/// The beginning of a file, if it can be read and has one.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MOST_READ).read_to_end(&mut bytes)?;
    match bytes.is_empty() {
        true => Err(io::Error::other("it is empty")),
        false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

fn succeeded_if(found: bool, yes: impl Into<String>, no: impl Into<String>) -> Tried {
    if found { Tried::Succeeded(yes.into()) } else { Tried::Failed(no.into()) }
}
