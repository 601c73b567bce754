//! The gateway as a whole: what all tasks share, and the tasks that it serves.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use ringwall_egress::{Entrance, Settings, TaskInfo, TaskSpec};
use ringwall_rules::BadRules;
use ringwall_spec::RuleSet;
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::ca::CaError;
use crate::credential::BadSecret;
use crate::dial::{Trust, TrustError};
use crate::event::Sink;
use crate::exempt::{BadExempt, Exempt};
use crate::held::Room;
use crate::inference::BadInference;
use crate::listen::{self, Listeners, Serving};
use crate::meter::Usage;
use crate::resolve::{ResolveError, Resolver};
use crate::secret::Sources;
use crate::task::Task;

#[derive(Debug, Error)]
pub enum SetupError {
    #[error(transparent)]
    Names(#[from] ResolveError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Exempt(#[from] BadExempt),
}

#[derive(Debug, Error)]
pub enum TaskError {
    #[error("a task's id has 1 to 128 letters, digits, dots, hyphens or underscores")]
    Id,
    #[error("there is a task {0} already")]
    Known(String),
    #[error("there is no task {0}")]
    Unknown(String),
    #[error("the connection cannot be served: {0}")]
    Connection(std::io::Error),
    #[error(transparent)]
    Rules(#[from] BadRules),
    #[error(transparent)]
    Secret(#[from] BadSecret),
    #[error(transparent)]
    Authority(#[from] CaError),
    #[error(transparent)]
    Inference(#[from] BadInference),
}

/// What all tasks have in common.
pub(crate) struct Shared {
    pub(crate) resolver: Resolver,
    pub(crate) trust: Trust,
    pub(crate) exempt: Vec<Exempt>,
    pub(crate) sink: Arc<dyn Sink>,
    /// For bodies that are held whole.
    pub(crate) room: Arc<Room>,
    /// Whose turn it is to unpack what a task sent.
    pub(crate) judging: Arc<Semaphore>,
}

/// By id, with what accepts their connections.
type Tasks = HashMap<String, (Arc<Task>, Option<Serving>)>;

/// Serves the tasks that it is given, each on its own listening sockets.
#[expect(missing_debug_implementations, reason = "it holds secrets")]
pub struct Gateway {
    shared: Arc<Shared>,
    tasks: Mutex<Tasks>,
}

impl Gateway {
    /// Must be called within a tokio runtime.
    pub fn new(settings: &Settings, sink: Arc<dyn Sink>) -> Result<Self, SetupError> {
        let exempt = settings.exempt.iter().map(|text| Exempt::parse(text));
        let shared = Shared {
            resolver: Resolver::new(&settings.names)?,
            trust: Trust::new(&settings.roots)?,
            exempt: exempt.collect::<Result<_, _>>()?,
            sink,
            room: Arc::default(),
            judging: Arc::new(Semaphore::new(1)),
        };
        Ok(Self { shared: Arc::new(shared), tasks: Mutex::new(HashMap::new()) })
    }

    /// Makes a task known; it is served from [`Gateway::listen`] on. Reads its secrets from `sources`,
    /// so it may block.
    pub fn add(&self, spec: &TaskSpec, sources: Sources) -> Result<TaskInfo, TaskError> {
        check_id(&spec.id)?;
        if self.tasks().contains_key(&spec.id) {
            return Err(TaskError::Known(spec.id.clone()));
        }
        let task = Arc::new(Task::new(spec, sources, Arc::clone(&self.shared))?);
        let info = task.info();
        // Two calls at once for one id: the later one ends what it replaces.
        if let Some((replaced, _)) = self.tasks().insert(spec.id.clone(), (task, None)) {
            replaced.end();
        }
        Ok(info)
    }

    /// Serves a task on these sockets, and on none that it had before.
    pub fn listen(&self, id: &str, listeners: Listeners) -> Result<(), TaskError> {
        let task = self.task(id)?;
        let serving = listen::serve(&task, listeners);
        match self.tasks().get_mut(id) {
            Some((_, slot)) => *slot = Some(serving),
            None => return Err(TaskError::Unknown(id.to_owned())),
        }
        Ok(())
    }

    /// Serves one connection of a task. Must be called within a tokio runtime.
    pub fn connect(&self, id: &str, to: Entrance, stream: UnixStream) -> Result<(), TaskError> {
        let task = self.task(id)?;
        stream.set_nonblocking(true).map_err(TaskError::Connection)?;
        let stream = tokio::net::UnixStream::from_std(stream).map_err(TaskError::Connection)?;
        listen::connected(&task, stream, to);
        Ok(())
    }

    /// New rules for a task, every set of which must allow; open streams that they forbid are closed.
    pub fn reload(&self, id: &str, rules: &[RuleSet]) -> Result<(), TaskError> {
        let rules = ringwall_rules::check(rules)?;
        let task = self.task(id)?;
        task.set_rules(rules);
        Ok(())
    }

    /// Ends a task: its listening sockets and all its streams are closed.
    pub fn remove(&self, id: &str) -> Result<Usage, TaskError> {
        let (task, serving) =
            self.tasks().remove(id).ok_or_else(|| TaskError::Unknown(id.to_owned()))?;
        drop(serving);
        task.end();
        Ok(task.meter.usage())
    }

    pub fn usage(&self, id: &str) -> Result<Usage, TaskError> {
        Ok(self.task(id)?.meter.usage())
    }

    fn task(&self, id: &str) -> Result<Arc<Task>, TaskError> {
        let tasks = self.tasks();
        let (task, _) = tasks.get(id).ok_or_else(|| TaskError::Unknown(id.to_owned()))?;
        Ok(Arc::clone(task))
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for (task, _) in self.tasks().values() {
            task.end();
        }
    }
}

fn check_id(id: &str) -> Result<(), TaskError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let valid = (1..=128).contains(&id.len()) && id.bytes().all(fine);
    if valid { Ok(()) } else { Err(TaskError::Id) }
}
