//! Git over HTTP: fetching by rule, and pushing only to the branches that the rule names.

use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use ringwall_rules::{FETCH, PUSH, REFERENCES, target};
use ringwall_spec::GitRights;
use thiserror::Error;

use crate::fetch::{self, LONGEST_FETCH};
use crate::held::{self, Reading};
use crate::pack::{BadPack, LONGEST_PACK};
use crate::problem::Problem;
use crate::task::Task;

/// The list of commands; the objects follow it.
const LONGEST_LIST: usize = 64 * 1024;
const MOST_COMMANDS: usize = 64;
const FETCH_TYPE: &str = "application/x-git-upload-pack-request";
const PUSH_TYPE: &str = "application/x-git-receive-pack-request";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The list of references before a fetch.
    FetchRefs,
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
    #[error("the request is not one of git's to fetch, so a rule for git does not let it through")]
    Request,
    #[error("{0} is pushed twice at once")]
    Twice(String),
    #[error(
        "a pushed commit is said to have no parents; fetch the whole history (`git fetch --unshallow`) and push again"
    )]
    Shallow,
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

/// The list of commands of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    pub commands: Vec<Command>,
    /// Commits that the client knows no parents of.
    pub shallow: Vec<String>,
    /// Where the pack begins.
    pub length: usize,
}

pub fn classify(method: &Method, path: &str, query: Option<&str>) -> Result<Asked, BadGit> {
    // The repository's path must be as plain as any path rule wants it.
    target::check_path(path).map_err(|_| BadGit::NotGit)?;
    let of_repository =
        |end: &str| path.strip_suffix(end).is_some_and(|repository| repository.len() > 1);
    match (method.as_str(), query) {
        ("GET", Some("service=git-upload-pack")) if of_repository(REFERENCES) => {
            Ok(Asked::FetchRefs)
        }
        ("GET", Some("service=git-receive-pack")) if of_repository(REFERENCES) => {
            Ok(Asked::PushRefs)
        }
        ("POST", None) if of_repository(FETCH) => Ok(Asked::Fetch),
        ("POST", None) if of_repository(PUSH) => Ok(Asked::Push),
        _ => Err(BadGit::NotGit),
    }
}

pub fn check(asked: Asked, rights: &GitRights) -> Result<(), BadGit> {
    match asked {
        Asked::FetchRefs | Asked::Fetch if rights.fetch => Ok(()),
        Asked::FetchRefs | Asked::Fetch => Err(BadGit::Fetch),
        Asked::PushRefs | Asked::Push if rights.push.is_empty() && rights.tags.is_empty() => {
            Err(BadGit::Push)
        }
        Asked::PushRefs | Asked::Push => Ok(()),
    }
}

/// Judges a request under a rule for git. Gives back what was read of its body.
pub(crate) async fn guard(
    task: &Arc<Task>,
    head: &mut Parts,
    body: &mut Incoming,
    rights: &GitRights,
) -> Result<Option<Bytes>, Problem> {
    let asked = classify(&head.method, head.uri.path(), head.uri.query())?;
    check(asked, rights)?;
    match asked {
        Asked::FetchRefs | Asked::PushRefs if body.is_end_stream() => Ok(None),
        Asked::FetchRefs | Asked::PushRefs => Err(BadGit::NotGit.into()),
        Asked::Fetch => check_fetch(task, head, body).await.map(Some),
        Asked::Push => check_push(task, head, body, rights).await.map(Some),
    }
}

fn check_type(head: &Parts, wanted: &str) -> Result<(), BadGit> {
    let mut types = head.headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(kind), None) if kind.as_bytes() == wanted.as_bytes() => Ok(()),
        _ => Err(BadGit::NotGit),
    }
}

/// A request to fetch is read whole. What was packed goes on unpacked: it is the same that was judged.
async fn check_fetch(
    task: &Arc<Task>,
    head: &mut Parts,
    body: &mut Incoming,
) -> Result<Bytes, Problem> {
    check_type(head, FETCH_TYPE)?;
    let packed = match head.headers.get_all(CONTENT_ENCODING).iter().collect::<Vec<_>>()[..] {
        [] => false,
        [one] if one.as_bytes() == b"gzip" => true,
        _ => return Err(BadGit::Request.into()),
    };
    let mut reading = Reading::new(task, LONGEST_FETCH);
    reading.read_to_end(body).await?;
    if !packed {
        fetch::check_request(reading.bytes())?;
        return Ok(reading.into_bytes());
    }
    // One at a time: each may unpack to much more than it is.
    let _turn = task.shared.judging.acquire().await.map_err(|_| Problem::Broken)?;
    let plain = fetch::unpacked(reading.bytes())?;
    fetch::check_request(&plain)?;
    head.headers.remove(CONTENT_ENCODING);
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(plain.len()));
    Ok(held::kept(&task.shared.room, plain)?)
}

/// Reads the list of commands off the front of a push, and judges it. Where an existing branch is
/// moved, the pack is read too.
async fn check_push(
    task: &Arc<Task>,
    head: &Parts,
    body: &mut Incoming,
    rights: &GitRights,
) -> Result<Bytes, Problem> {
    check_type(head, PUSH_TYPE)?;
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(BadGit::List.into());
    }
    let mut reading = Reading::new(task, LONGEST_PACK);
    let list = loop {
        if let Some(list) = parse_commands(reading.bytes())? {
            break list;
        }
        if !reading.more(body).await? {
            return Err(BadGit::List.into());
        }
    };
    for command in &list.commands {
        judge(command, rights)?;
    }
    if rights.rewrite || list.moved().next().is_none() {
        return Ok(reading.into_bytes());
    }
    reading.read_to_end(body).await?;
    let read = reading.into_bytes();
    // One push at a time is unpacked, and not where connections are served.
    let turn = Arc::clone(&task.shared.judging).acquire_owned().await;
    let judged = read.clone();
    let verdict = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        list.check_forward(&judged[list.length..])
    });
    verdict.await.map_err(|_| Problem::Broken)??;
    Ok(read)
}

impl List {
    /// Branches that exist already.
    fn moved(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|one| !is_zero(&one.old))
    }

    /// Every branch that is moved must be shown to move forward, by the commits in the pack itself.
    pub fn check_forward(&self, pack: &[u8]) -> Result<(), BadGit> {
        let Some(first) = self.moved().next() else {
            return Ok(());
        };
        let parents = crate::pack::parents(pack, first.old.len())?;
        // A server may take the client's word for it that a commit has no parents.
        if self.shallow.iter().any(|id| parents.contains_key(id)) {
            return Err(BadGit::Shallow);
        }
        let forward = |one: &&Command| crate::pack::moves_forward(&parents, &one.old, &one.new);
        match self.moved().find(|one| !forward(one)) {
            Some(one) => Err(BadGit::Rewritten(crate::event::bounded(&one.reference))),
            None => Ok(()),
        }
    }
}

/// The list of commands of a push, once it is complete.
pub fn parse_commands(bytes: &[u8]) -> Result<Option<List>, BadGit> {
    let mut list = List::default();
    let mut at = 0;
    loop {
        let Some(length) = bytes.get(at..at + 4) else {
            return if bytes.len() > LONGEST_LIST { Err(BadGit::List) } else { Ok(None) };
        };
        let digits = length.iter().all(u8::is_ascii_hexdigit);
        let length = std::str::from_utf8(length).ok().filter(|_| digits).ok_or(BadGit::List)?;
        let length = usize::from_str_radix(length, 16).map_err(|_| BadGit::List)?;
        if length == 0 {
            list.length = at + 4;
            return Ok(Some(list));
        }
        if length <= 4 || at + length > LONGEST_LIST || list.commands.len() >= MOST_COMMANDS {
            return Err(BadGit::List);
        }
        let Some(line) = bytes.get(at + 4..at + length) else {
            return Ok(None);
        };
        at += length;
        parse_line(line, &mut list)?;
    }
}

/// One line: a command, or where a shallow clone ends.
fn parse_line(line: &[u8], list: &mut List) -> Result<(), BadGit> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let text = std::str::from_utf8(line).map_err(|_| BadGit::List)?;
    let (text, capabilities) = match text.split_once('\0') {
        Some((text, capabilities)) if list.commands.is_empty() => (text, capabilities),
        Some(_) => return Err(BadGit::List),
        None => (text, ""),
    };
    if text == "push-cert" || capabilities.split(' ').any(|one| one == "push-options") {
        return Err(BadGit::Extra);
    }
    if let Some(id) = text.strip_prefix("shallow ") {
        if !is_id(id) {
            return Err(BadGit::List);
        }
        list.shallow.push(id.to_owned());
        return Ok(());
    }
    let mut words = text.splitn(3, ' ');
    let (Some(old), Some(new), Some(reference)) = (words.next(), words.next(), words.next()) else {
        return Err(BadGit::List);
    };
    if !is_id(old) || !is_id(new) || old.len() != new.len() {
        return Err(BadGit::List);
    }
    // Of two commands for one reference a server might follow either.
    if list.commands.iter().any(|one| one.reference == reference) {
        return Err(BadGit::Twice(crate::event::bounded(reference)));
    }
    list.commands.push(Command { old: old.into(), new: new.into(), reference: reference.into() });
    Ok(())
}

pub(crate) fn is_id(text: &str) -> bool {
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
        assert_eq!(
            get("/a/b.git/info/refs", Some("service=git-upload-pack")),
            Ok(Asked::FetchRefs)
        );
        assert_eq!(get("/a/b/info/refs", Some("service=git-receive-pack")), Ok(Asked::PushRefs));
        let post = |path| classify(&Method::POST, path, None);
        assert_eq!(post("/a/b/git-upload-pack"), Ok(Asked::Fetch));
        assert_eq!(post("/a/b/git-receive-pack"), Ok(Asked::Push));
        for (path, query) in [
            ("/a/b/info/refs", None),
            ("/a/b/info/refs", Some("service=git-upload-pack&x=1")),
            ("/a/b/HEAD", None),
            ("/a/../b/info/refs", Some("service=git-upload-pack")),
            (REFERENCES, Some("service=git-upload-pack")),
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
        let list = parse_commands(list.as_bytes()).unwrap().unwrap();
        assert_eq!(list.length, end);
        assert_eq!(list.commands.len(), 2);
        assert_eq!(list.shallow, [OLD]);
        assert_eq!(list.commands[1].reference, "refs/heads/agent/x");
        assert!(list.commands.iter().all(|command| judge(command, &rights()).is_ok()));
        assert_eq!(parse_commands(b"0000"), Ok(Some(List { length: 4, ..List::default() })));
        let twice = line(&format!("{OLD} {NEW} refs/heads/fix\0 a"))
            + &line(&format!("{ZERO} {NEW} refs/heads/fix"))
            + "0000";
        assert!(matches!(parse_commands(twice.as_bytes()), Err(BadGit::Twice(_))));
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
