//! What taints a task by its files: a `path:` source of the policy names files, and text has no name once a command,
//! a tool or a link has carried it elsewhere. So the output of all that could have read such a file taints.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use ringwall_audit::{Event, Id, Ids, Text};
use ringwall_desk::Top;
use ringwall_wire::{ClientError, ErrorCode, FileKind, RemoteError};

use crate::files::PATIENCE;
use crate::journal::Entry;
use crate::supervisor::{AgentError, Halt, Supervisor};

impl Supervisor<'_> {
    /// Writes down that the task is tainted from this step on, if it is not yet.
    pub(crate) fn take_in(&mut self, step: u64, source: String) -> Result<(), AgentError> {
        if self.state.taint.is_some() {
            return Ok(());
        }
        let label = format!("step {step} of {}", self.journal.id);
        let event = Event::TaintSet { source: Text::new(&source), label: Text::new(label) };
        let ids = Ids::default().task(Id::new(self.caller.task()));
        self.world.engine.record(vec![(ids, event)])?;
        self.write(Entry::Tainted { step, source }, false)
    }

    /// The `path:` source of which the sandbox shows something, if there is one. What a command or a tool with
    /// files says or writes there could be text of it. A task that is tainted already is not looked at.
    pub(crate) fn shown_source(&self) -> Result<Option<String>, Halt> {
        if self.state.taint.is_some() {
            return Ok(None);
        }
        let site = self.site()?;
        let shown = self.rules.tainting_paths().into_iter().find(|place| match &place.top {
            Top::Workspace(inside) => self.may_be_there(&site.root().join(inside), false),
            Top::Host(path) => self.may_be_there(path, true),
        });
        Ok(shown.map(|place| place.pattern))
    }

    /// Finds the `path:` source that a tool outside of the sandbox could read: it sees the host's workspace.
    pub(crate) fn source_on_host(&self) -> Option<String> {
        let workspace = self.state.options.workspace.as_deref()?;
        let missing = |inside: &Path| {
            let found = std::fs::symlink_metadata(workspace.join(inside));
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        let mut places = self.rules.tainting_paths().into_iter();
        let shown = places.find(|it| matches!(&it.top, Top::Workspace(at) if !missing(at)))?;
        Some(shown.pattern)
    }

    /// What reading a path taints with that names no source: it leads through a link, or a command could have put
    /// text of a source there.
    pub(crate) fn taint_of_place(&self, path: &str) -> Result<Option<String>, Halt> {
        if self.state.taint.is_some() || self.rules.tainting_paths().is_empty() {
            return Ok(None);
        }
        let (linked, written) = (self.may_have_link(path)?, self.site()?.worked_in.get());
        if !linked && !written {
            return Ok(None);
        }
        let shown = self.shown_source()?;
        Ok(shown.map(|pattern| match linked {
            true => format!("the link ./{path}, which may lead to path:{pattern}"),
            false => format!("the file ./{path}, which may be a copy from path:{pattern}"),
        }))
    }

    /// Whether the sandbox may have this path. Only a clear answer is a no. `fixed`: a command there cannot change
    /// the rights of it, so that a refusal is a no as well.
    fn may_be_there(&self, path: &Path, fixed: bool) -> bool {
        match self.kind_of(path) {
            Ok(_) => true,
            Err(ClientError::Remote(RemoteError { code: ErrorCode::NotFound, .. })) => false,
            Err(ClientError::Remote(RemoteError { code: ErrorCode::NotPermitted, .. })) => !fixed,
            Err(_) => true,
        }
    }

    /// Whether a part of a path of the workspace may be a link.
    fn may_have_link(&self, path: &str) -> Result<bool, Halt> {
        let mut at = self.site()?.root().to_owned();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at.push(part);
            match self.kind_of(&at) {
                Ok(FileKind::Symlink) => return Ok(true),
                Ok(_) => {}
                // Nothing is there to be read.
                Err(ClientError::Remote(RemoteError { code: ErrorCode::NotFound, .. })) => break,
                Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Gives the kind of a path without following it if it is a link.
    fn kind_of(&self, path: &Path) -> Result<FileKind, ClientError> {
        let Some(site) = &self.site else { return Err(ClientError::Disconnected) };
        let client = site.files().until(Instant::now() + PATIENCE);
        client.stat(path.as_os_str().as_bytes()).map(|stat| stat.kind)
    }
}
