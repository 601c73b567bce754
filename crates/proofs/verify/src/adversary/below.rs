//! Another sandbox in a part of the same workspace, as its owner may start one at any time. A command of the
//! first one may have put a link there, or do so meanwhile.

use std::io;
use std::path::{Path, PathBuf};

use ringwall_engine::with_causes;
use ringwall_probes::Dice;
use ringwall_spec::{Command, Ending, SandboxId, SandboxSpec, WorkspaceMode, WorkspaceSpec};
use ringwall_workspace::{ApplyOptions, Wanted, apply};

use super::kept::Answer;
use super::oracles::sight;
use super::round::Round;
use super::script::Kind;
use crate::run::Collected;
use crate::verify_permit;

/// Parts of a workspace that commands write to.
const PARTS: [&str; 4] = ["docs", "src", "docs/d", "d"];
/// All that is in it is protected. By its own short paths nothing there is.
const PROTECTED: &str = ".git/hooks";
const STEPS: u32 = 16;

impl Round<'_> {
    /// Starts such a sandbox, plays in it, and applies its changes.
    pub(super) fn run_below(&mut self, dice: &mut Dice) -> io::Result<(String, Answer<()>)> {
        let direct = self.script.kind == Kind::Direct;
        let part = match direct {
            true => dice.one_of(&PARTS).copied().unwrap_or("docs"),
            false => PROTECTED,
        };
        let mode = match direct && dice.one_in(2) {
            true => WorkspaceMode::ReadWrite,
            false => WorkspaceMode::CopyOnWrite,
        };
        let answer = self.play_below(Path::new(part), mode, dice.number());
        Ok((format!("run of {STEPS} actions in {part}, {mode:?}"), answer))
    }

    fn play_below(&mut self, part: &Path, mode: WorkspaceMode, seed: u64) -> Answer<()> {
        let (raising, engine) = (self.workshop.raising, &self.workshop.engine);
        let path = raising.resolve(&self.ground.workspace.join(part))?;
        let workspace = Some(WorkspaceSpec { path, mode });
        let spec = SandboxSpec { workspace, rights: None, ..self.spec.clone() };
        let spec = ringwall_spec::validate(spec).map_err(|error| with_causes(&error))?;
        let permit = verify_permit(spec.into());
        let sandbox = raising.raise(engine, &permit).map_err(|error| with_causes(&error))?;
        let id = sandbox.id().clone();
        let argv = self.command(seed, STEPS);
        let mut collected = Collected::default();
        let started = sandbox.start(&Command { argv, ..Command::default() });
        let ended = started.map(|job| job.wait(&mut collected));
        self.heard(&collected.0);
        let settled = sandbox.settle(Ending::Stopped).map_err(|error| with_causes(&error));
        let applied = settled.and_then(|_| self.apply_below(&id, part));
        ended
            .map_err(|error| with_causes(&error))
            .and_then(|ended| ended.map_err(|error| with_causes(&error)))?;
        applied
    }

    /// Applies what that sandbox changed. Nothing of it may be taken where all is protected.
    fn apply_below(&mut self, id: &SandboxId, part: &Path) -> Answer<()> {
        let engine = &self.workshop.engine;
        // A run that changed nothing leaves no record.
        let Ok(record) = engine.find(id.as_str()) else { return Ok(()) };
        let changes = engine.changes(&record).map_err(|error| with_causes(&error));
        let applied = changes.and_then(|changes| {
            let all = changes.entries().iter().map(|change| change.path.as_path().to_owned());
            let options =
                ApplyOptions { allow_protected: self.may_take(all), ..Default::default() };
            let chosen = changes.select(&Wanted::default());
            let applied = chosen.and_then(|chosen| apply(&chosen, &options));
            applied.map_err(|error| with_causes(&error))
        });
        let removed = engine.remove(&record).map_err(|error| with_causes(&error));
        let done = applied?;
        let taken = done.applied.iter().chain(&done.already).next();
        if let Some(path) = taken.filter(|_| part == Path::new(PROTECTED)) {
            let path = part.join(path.as_path());
            let seen = sight("apply", format!("{} is protected and was written", path.display()));
            self.seen = self.seen.take().or(Some(seen));
        }
        removed
    }

    /// The protected paths that `apply` is told to take: none, but for a test of the oracle.
    pub(super) fn may_take(&self, paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
        match self.workshop.raising.applies_protected() {
            true => paths.collect(),
            false => Vec::new(),
        }
    }
}
