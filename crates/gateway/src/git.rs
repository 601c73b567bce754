//! Git over HTTP: fetching by rule, and pushing only to the branches that the rule names.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::CONTENT_ENCODING;
use hyper::http::request::Parts;
use thiserror::Error;

use crate::pack::{BadPack, LONGEST_PACK};
use crate::rules::GitRights;

/// The list of commands; the objects follow it.
const LONGEST_LIST: usize = 64 * 1024;
const MOST_COMMANDS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Fetch,
    /// The list of references before a push.
    PushRefs,
    Push,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadGit {
    #[error("the rule for this host allows git only, over its smart protocol")]
    NotGit,
    #[error("the rule for this host does not allow fetching")]
    Fetch,
    #[error("the rule for this host does not allow pushing")]
    Push,
    #[error("the push's list of commands is broken or too long")]
    List,
    #[error("a push with options or a certificate is not let through")]
    Extra,
    #[error("{0} may not be pushed to")]
    Reference(String),
    #[error("{0} would be deleted")]
    Delete(String),
    #[error("tag {0} would be moved")]
    MovedTag(String),
    #[error(
        "{0} would be rewritten, or it cannot be told from the pushed commits that it would not"
    )]
    Rewritten(String),
    #[error(transparent)]
    Pack(#[from] BadPack),
}

/// One line of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub old: String,
    pub new: String,
    pub reference: String,
}

pub fn classify(method: &Method, path: &str, query: Option<&str>) -> Result<Asked, BadGit> {
    // The repository's path must be as plain as any path rule wants it.
    crate::target::check_path(path).map_err(|_| BadGit::NotGit)?;
    match (method.as_str(), query) {
        ("GET", Some("service=git-upload-pack")) if path.ends_with("/info/refs") => {
            Ok(Asked::Fetch)
        }
        ("GET", Some("service=git-receive-pack")) if path.ends_with("/info/refs") => {
            Ok(Asked::PushRefs)
        }
        ("POST", None) if path.ends_with("/git-upload-pack") => Ok(Asked::Fetch),
        ("POST", None) if path.ends_with("/git-receive-pack") => Ok(Asked::Push),
        _ => Err(BadGit::NotGit),
    }
}

pub fn check(asked: Asked, rights: &GitRights) -> Result<(), BadGit> {
    match asked {
        Asked::Fetch if rights.fetch => Ok(()),
        Asked::Fetch => Err(BadGit::Fetch),
        Asked::PushRefs | Asked::Push if rights.push.is_empty() && rights.tags.is_empty() => {
            Err(BadGit::Push)
        }
        Asked::PushRefs | Asked::Push => Ok(()),
    }
}

/// Reads the list of commands off the front of a push, and judges it. Where an existing branch is
/// moved, the pack is read too. Gives back what was read.
pub(crate) async fn check_push(
    head: &Parts,
    body: &mut Incoming,
    rights: &GitRights,
) -> Result<Bytes, BadGit> {
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(BadGit::List);
    }
    let mut read = BytesMut::new();
    let (commands, length) = loop {
        if let Some(list) = parse_commands(&read)? {
            break list;
        }
        read.extend_from_slice(&next_piece(body).await?.ok_or(BadGit::List)?);
    };
    for command in &commands {
        judge(command, rights)?;
    }
    let moved: Vec<&Command> = commands.iter().filter(|one| !is_zero(&one.old)).collect();
    if rights.rewrite || moved.is_empty() {
        return Ok(read.freeze());
    }
    while let Some(piece) = next_piece(body).await? {
        read.extend_from_slice(&piece);
        if read.len() > LONGEST_PACK {
            return Err(BadPack.into());
        }
    }
    check_forward(&moved, &read[length..])?;
    Ok(read.freeze())
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, BadGit> {
    match body.frame().await {
        None => Ok(None),
        Some(frame) => {
            let frame = frame.map_err(|_| BadGit::List)?;
            Ok(Some(frame.into_data().unwrap_or_default()))
        }
    }
}

/// Every branch that is moved must be shown to move forward, by the commits in the pack itself.
pub fn check_forward(moved: &[&Command], pack: &[u8]) -> Result<(), BadGit> {
    let Some(first) = moved.first() else {
        return Ok(());
    };
    let parents = crate::pack::parents(pack, first.old.len())?;
    match moved.iter().find(|one| !crate::pack::moves_forward(&parents, &one.old, &one.new)) {
        Some(one) => Err(BadGit::Rewritten(crate::event::bounded(&one.reference))),
        None => Ok(()),
    }
}

/// The commands of a push and the length of their list, once it is complete.
pub fn parse_commands(bytes: &[u8]) -> Result<Option<(Vec<Command>, usize)>, BadGit> {
    let mut commands = Vec::new();
    let mut at = 0;
    loop {
        let Some(length) = bytes.get(at..at + 4) else {
            return if bytes.len() > LONGEST_LIST { Err(BadGit::List) } else { Ok(None) };
        };
        let digits = length.iter().all(u8::is_ascii_hexdigit);
        let length = std::str::from_utf8(length).ok().filter(|_| digits).ok_or(BadGit::List)?;
        let length = usize::from_str_radix(length, 16).map_err(|_| BadGit::List)?;
        if length == 0 {
            return Ok(Some((commands, at + 4)));
        }
        if length <= 4 || at + length > LONGEST_LIST || commands.len() >= MOST_COMMANDS {
            return Err(BadGit::List);
        }
        let Some(line) = bytes.get(at + 4..at + length) else {
            return Ok(None);
        };
        at += length;
        if let Some(command) = parse_line(line, commands.is_empty())? {
            commands.push(command);
        }
    }
}

/// One line; `None` for one that only says where a shallow clone ends.
fn parse_line(line: &[u8], first: bool) -> Result<Option<Command>, BadGit> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text = std::str::from_utf8(line).map_err(|_| BadGit::List)?;
    let (text, capabilities) = match text.split_once('\0') {
        Some((text, capabilities)) if first => (text, capabilities),
        Some(_) => return Err(BadGit::List),
        None => (text, ""),
    };
    if text == "push-cert" || capabilities.split(' ').any(|one| one == "push-options") {
        return Err(BadGit::Extra);
    }
    if let Some(id) = text.strip_prefix("shallow ") {
        return if is_id(id) { Ok(None) } else { Err(BadGit::List) };
    }
    let mut words = text.splitn(3, ' ');
    let (Some(old), Some(new), Some(reference)) = (words.next(), words.next(), words.next()) else {
        return Err(BadGit::List);
    };
    if !is_id(old) || !is_id(new) || old.len() != new.len() {
        return Err(BadGit::List);
    }
    Ok(Some(Command { old: old.into(), new: new.into(), reference: reference.into() }))
}

fn is_id(text: &str) -> bool {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    matches!(text.len(), 40 | 64) && text.bytes().all(lower)
}

pub fn judge(command: &Command, rights: &GitRights) -> Result<(), BadGit> {
    let reference = || crate::event::bounded(&command.reference);
    let odd = |byte: u8| byte <= b' ' || byte >= 0x7f || b"*?[\\^~:".contains(&byte);
    if command.reference.contains("..") || command.reference.bytes().any(odd) {
        return Err(BadGit::Reference(reference()));
    }
    if is_zero(&command.new) {
        return Err(BadGit::Delete(reference()));
    }
    if let Some(branch) = command.reference.strip_prefix("refs/heads/") {
        return if named(branch, &rights.push) {
            Ok(())
        } else {
            Err(BadGit::Reference(reference()))
        };
    }
    match command.reference.strip_prefix("refs/tags/") {
        Some(tag) if !named(tag, &rights.tags) => Err(BadGit::Reference(reference())),
        Some(_) if !is_zero(&command.old) => Err(BadGit::MovedTag(reference())),
        Some(_) => Ok(()),
        None => Err(BadGit::Reference(reference())),
    }
}

fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

fn named(name: &str, patterns: &[String]) -> bool {
    !name.is_empty()
        && patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "1111111111111111111111111111111111111111";
    const NEW: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    fn rights() -> GitRights {
        GitRights {
            fetch: true,
            push: vec!["agent/*".into(), "fix".into()],
            tags: vec!["v1".into()],
            rewrite: false,
        }
    }

    #[test]
    fn only_git_is_spoken() {
        let get = |path, query| classify(&Method::GET, path, query);
        assert_eq!(get("/a/b.git/info/refs", Some("service=git-upload-pack")), Ok(Asked::Fetch));
        assert_eq!(get("/a/b/info/refs", Some("service=git-receive-pack")), Ok(Asked::PushRefs));
        let post = |path| classify(&Method::POST, path, None);
        assert_eq!(post("/a/b/git-upload-pack"), Ok(Asked::Fetch));
        assert_eq!(post("/a/b/git-receive-pack"), Ok(Asked::Push));
        for (path, query) in [
            ("/a/b/info/refs", None),
            ("/a/b/info/refs", Some("service=git-upload-pack&x=1")),
            ("/a/b/HEAD", None),
            ("/a/../b/info/refs", Some("service=git-upload-pack")),
            ("/login", None),
        ] {
            assert_eq!(get(path, query), Err(BadGit::NotGit), "{path} {query:?}");
        }
        assert!(check(Asked::Push, &GitRights { fetch: true, ..GitRights::default() }).is_err());
        assert!(check(Asked::Fetch, &GitRights::default()).is_err());
    }

    #[test]
    fn a_list_is_read_however_it_is_cut() {
        let list = line(&format!("{OLD} {NEW} refs/heads/fix\0 report-status agent=git/2\n"))
            + &line(&format!("shallow {OLD}"))
            + &line(&format!("{ZERO} {NEW} refs/heads/agent/x\n"))
            + "0000PACK";
        let end = list.len() - 4;
        for cut in 0..end {
            assert_eq!(parse_commands(&list.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        let (commands, length) = parse_commands(list.as_bytes()).unwrap().unwrap();
        assert_eq!(length, end);
        assert_eq!(commands.len(), 2);
        assert_eq!(commands[1].reference, "refs/heads/agent/x");
        assert!(commands.iter().all(|command| judge(command, &rights()).is_ok()));
        assert_eq!(parse_commands(b"0000"), Ok(Some((Vec::new(), 4))));
    }

    #[test]
    fn what_the_rule_does_not_name_is_refused() {
        let command = |old: &str, new: &str, reference: &str| Command {
            old: old.into(),
            new: new.into(),
            reference: reference.into(),
        };
        for bad in [
            command(OLD, NEW, "refs/heads/main"),
            command(OLD, NEW, "refs/heads/agent"),
            command(OLD, NEW, "refs/heads/agent/../main"),
            command(OLD, ZERO, "refs/heads/fix"),
            command(OLD, NEW, "refs/tags/v1"),
            command(ZERO, NEW, "refs/tags/v2"),
            command(ZERO, NEW, "refs/notes/x"),
            command(ZERO, NEW, "HEAD"),
        ] {
            assert!(judge(&bad, &rights()).is_err(), "{bad:?}");
        }
        assert!(judge(&command(ZERO, NEW, "refs/tags/v1"), &rights()).is_ok());
        let options = line(&format!("{OLD} {NEW} refs/heads/fix\0push-options")) + "0000";
        assert_eq!(parse_commands(options.as_bytes()), Err(BadGit::Extra));
        for broken in ["0003", "0001", "zzzz", "00g0", "0008abcd0000", "fffff"] {
            assert!(!matches!(parse_commands(broken.as_bytes()), Ok(Some(_))), "{broken}");
        }
        let hidden = line(&format!("{OLD} {NEW} refs/heads/fix\0a"))
            + &line(&format!("{OLD} {NEW} refs/heads/fix\0b"))
            + "0000";
        assert_eq!(parse_commands(hidden.as_bytes()), Err(BadGit::List));
    }
}
