//! What one session may use, and what it made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::api::{Api, Failure, encoded};

/// A session that makes more sandboxes than this has lost count of them.
const MOST_MADE: usize = 64;
/// How long the end of a session waits for each sandbox to end.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why nothing came of a tool's call. The model reads this.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{}", refused_in_words(.0))]
    Api(#[from] Failure),
    #[error("the arguments are wrong: {0}")]
    Arguments(String),
    #[error("refused: {0}")]
    Bounds(String),
    #[error("there is no tool {0:?}")]
    NoSuchTool(String),
    /// What a tool itself said.
    #[error("{0}")]
    Tool(String),
    /// What the person said who was asked.
    #[error("refused: {0}")]
    Person(String),
    #[error("the call was cancelled, and what it had started was ended")]
    Cancelled,
}

/// The refusal, and what a person could do about it.
fn refused_in_words(failure: &Failure) -> String {
    let Failure::Refused { code, elevation, question, .. } = failure else {
        return failure.to_string();
    };
    let more = match (elevation, code.as_str()) {
        // Its own words say which approval waits, and where a person decides.
        (Some(_), _) if question.is_some() => {
            ". You cannot allow it: tell the person what you need it for and where to decide, and call \
             this tool again with the same arguments once they have"
                .to_owned()
        }
        (Some(name), _) => format!(
            ". The policy offers the elevation `{name}` for this: a person can allow it, and you cannot. \
             Say what you need it for, and ask them to run `ringwall approvals ls`"
        ),
        (None, "still-running") => ". Call sandbox_stop first; it keeps the changes".to_owned(),
        (None, _) => String::new(),
    };
    format!("refused: {failure}{more}")
}

/// Which tools are offered: names, or beginnings of names with a `*` behind them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Allowlist(Vec<String>);

impl Allowlist {
    /// Nothing said is all; what is said is a list with commas.
    pub(crate) fn parse(text: Option<&str>) -> Allowlist {
        let names = text.into_iter().flat_map(|text| text.split(','));
        Allowlist(names.map(|name| name.trim().to_owned()).collect())
    }

    pub(crate) fn offers(&self, tool: &str) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => tool == pattern,
        };
        self.0.is_empty() || self.0.iter().any(fits)
    }
}

/// What was settled when the session began, by a person or a configuration, never by the agent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub(crate) tools: Allowlist,
    /// The directory of the host that sandboxes and tools see, and the only one.
    pub(crate) workspace: Option<PathBuf>,
    /// The owner lets tools write there. Commands never do: their changes are applied.
    pub(crate) tools_write: bool,
    /// The wall of every sandbox. Without one, policy and agent choose.
    pub(crate) wall: Option<String>,
    pub(crate) image: Option<String>,
    /// Sandboxes live on when the session ends.
    pub(crate) keep: bool,
}

/// A sandbox that this session made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) name: Option<String>,
    pub(crate) wall: String,
    pub(crate) workspace: Option<String>,
    pub(crate) stopped: bool,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) api: Api,
    pub(crate) settings: Settings,
    made: Mutex<BTreeMap<String, Made>>,
    /// Calls under way, to be killed with the session.
    calls: Mutex<BTreeSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(api: Api, settings: Settings) -> Session {
        Session { api, settings, made: Mutex::default(), calls: Mutex::default() }
    }

    /// The directory that the agent may use of those that it may ask for.
    pub(crate) fn workspace(&self, asked: Option<&str>) -> Result<Option<PathBuf>, CallError> {
        let Some(top) = &self.settings.workspace else {
            // A grant says which; without one there is none.
            return match asked {
                Some(path) if !self.api.is_owner() => Ok(Some(PathBuf::from(path))),
                None => Ok(None),
                Some(_) => Err(CallError::Bounds(
                    "this session has no workspace; a person can start `ringwall mcp` with --workspace DIR"
                        .to_owned(),
                )),
            };
        };
        let Some(asked) = asked else { return Ok(Some(top.clone())) };
        let outside = || {
            let why =
                format!("{asked:?} is not in the workspace of this session, {}", top.display());
            CallError::Bounds(why)
        };
        if !self.api.is_owner() {
            // Whether it exists is told only to those whose grant has it: the route asks, and takes no links.
            let path = top.join(asked);
            let plain = path.components().all(|part| !matches!(part, Component::ParentDir));
            return (plain && path.starts_with(top)).then_some(Some(path)).ok_or_else(outside);
        }
        // The one spelling that counts: no link leads out of it.
        let real = std::fs::canonicalize(top.join(asked)).map_err(|_| outside())?;
        let inside = real.starts_with(top);
        inside.then_some(Some(real)).ok_or_else(outside)
    }

    /// How many sandboxes there may be.
    pub(crate) fn has_room(&self) -> Result<(), CallError> {
        let living = lock(&self.made).values().filter(|made| !made.stopped).count();
        if living < MOST_MADE {
            return Ok(());
        }
        Err(CallError::Bounds(format!("this session has {MOST_MADE} sandboxes; stop some first")))
    }

    pub(crate) fn remember(&self, id: &str, made: Made) {
        lock(&self.made).insert(id.to_owned(), made);
    }

    pub(crate) fn made(&self) -> Vec<(String, Made)> {
        lock(&self.made).iter().map(|(id, made)| (id.clone(), made.clone())).collect()
    }

    pub(crate) fn stopped(&self, id: &str) {
        if let Some(made) = lock(&self.made).get_mut(id) {
            made.stopped = true;
        }
    }

    /// The sandbox that is meant, with its wall. The owner sees all of them, an agent that asks for
    /// the owner only its own.
    pub(crate) async fn sandbox(&self, named: &str) -> Result<(String, String), CallError> {
        let own = lock(&self.made)
            .iter()
            .find(|(id, made)| *id == named || made.name.as_deref() == Some(named))
            .map(|(id, made)| (id.clone(), made.wall.clone()));
        if let Some(own) = own {
            return Ok(own);
        }
        if self.api.is_owner() {
            let why = format!("this session has made no sandbox {named:?}; see sandbox_create");
            return Err(CallError::Bounds(why));
        }
        let row = self.api.get(&format!("/v1/sandboxes/{}", encoded(named))).await?;
        let id = row.get("id").and_then(Value::as_str).unwrap_or(named).to_owned();
        Ok((id, wall_of(&row)))
    }

    pub(crate) fn begun(self: &Arc<Self>, call: &str) -> Running {
        lock(&self.calls).insert(call.to_owned());
        Running { session: Arc::clone(self), call: call.to_owned() }
    }

    /// Whether a call's log is this session's to read.
    pub(crate) fn is_running(&self, call: &str) -> bool {
        lock(&self.calls).contains(call)
    }

    /// Ends all that the session started and nobody asked to keep.
    pub(crate) async fn end(&self) {
        let calls: Vec<String> = std::mem::take(&mut *lock(&self.calls)).into_iter().collect();
        for call in calls {
            let _ = self.api.delete(&format!("/v1/calls/{call}")).await;
        }
        if self.settings.keep {
            return;
        }
        for (id, made) in self.made() {
            if !made.stopped {
                // What it changed in a workspace is somebody's work.
                let keep = made.workspace.is_some();
                let path = format!("/v1/sandboxes/{id}?grace_ms=500&keep={keep}");
                let _ = tokio::time::timeout(PATIENCE, self.api.delete(&path)).await;
            }
        }
    }
}

pub(crate) fn wall_of(sandbox: &Value) -> String {
    let wall = sandbox.pointer("/spec/wall").and_then(Value::as_str);
    wall.unwrap_or("unknown").to_owned()
}

/// A call under way. Dropped before its end it is killed.
#[derive(Debug)]
pub(crate) struct Running {
    session: Arc<Session>,
    call: String,
}

impl Running {
    pub(crate) fn over(self) {
        lock(&self.session.calls).remove(&self.call);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !lock(&self.session.calls).remove(&self.call) {
            return;
        }
        let (session, call) = (Arc::clone(&self.session), self.call.clone());
        // At the very end of a process there is no runtime; then the session's end kills it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = session.api.delete(&format!("/v1/calls/{call}")).await;
            });
        }
    }
}

/// The one spelling of a directory, if it is one.
pub(crate) fn directory(path: &Path) -> Option<PathBuf> {
    let real = std::fs::canonicalize(path).ok()?;
    real.is_dir().then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Way;

    fn session(settings: Settings, token: Option<&str>) -> Session {
        let way = Way::Router(axum::Router::new());
        Session::new(Api::new(way, token.map(Into::into)), settings)
    }

    #[test]
    fn an_allowlist_offers_names_and_beginnings() {
        assert!(Allowlist::parse(None).offers("anything"));
        let list = Allowlist::parse(Some("grep, sandbox_fs_*"));
        assert!(list.offers("grep") && list.offers("sandbox_fs_read"));
        assert!(!list.offers("sandbox_exec") && !list.offers("grep2"));
        assert!(!Allowlist::parse(Some("")).offers("grep"), "an empty list offers nothing");
    }

    #[test]
    fn an_owners_session_stays_in_its_workspace() {
        let top = tempfile::tempdir().unwrap();
        let root = directory(top.path()).unwrap();
        let (inside, outside) = (root.join("in"), root.join("out"));
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        let settings = Settings { workspace: Some(inside.clone()), ..Settings::default() };
        let session = session(settings, None);
        assert_eq!(session.workspace(None).unwrap(), Some(inside.clone()));
        assert_eq!(session.workspace(Some("sub")).unwrap(), Some(inside.join("sub")));
        for wrong in ["..", "link", "/", "../out", "missing", outside.to_str().unwrap()] {
            assert!(session.workspace(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn without_a_workspace_only_a_grant_can_give_one() {
        let owner = session(Settings::default(), None);
        assert!(owner.workspace(Some("/srv")).is_err());
        assert_eq!(owner.workspace(None).unwrap(), None);
        let holder = session(Settings::default(), Some("rwg_x"));
        assert_eq!(holder.workspace(Some("/srv")).unwrap(), Some(PathBuf::from("/srv")));
    }

    #[tokio::test]
    async fn an_owners_session_knows_only_its_own_sandboxes() {
        let session = session(Settings::default(), None);
        let made = Made {
            name: Some("web".to_owned()),
            wall: "process".to_owned(),
            workspace: None,
            stopped: false,
        };
        session.remember("abc", made);
        assert_eq!(session.sandbox("web").await.unwrap().0, "abc");
        assert!(matches!(session.sandbox("other").await, Err(CallError::Bounds(_))));
    }

    #[test]
    fn a_refusal_tells_what_a_person_could_do() {
        let failure = Failure::Refused {
            status: 403,
            code: "denied-by-policy".to_owned(),
            detail: "not behind this wall".to_owned(),
            elevation: Some("deploy".to_owned()),
            question: None,
        };
        let words = CallError::from(failure).to_string();
        assert!(words.contains("`deploy`") && words.contains("ringwall approvals"), "{words}");
    }
}
