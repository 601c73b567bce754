//! The end of a round: `diff`, `apply`, `rm` and `gc`, and a look at what each of them did.

use std::io;
use std::path::{Path, PathBuf};

use ringwall_engine::with_causes;
use ringwall_probes::Scene;
use ringwall_workspace::{ApplyOptions, Changes, Wanted, apply, is_protected};

use super::oracles::{self, Sight, sight};
use super::round::Round;
use super::script::Kind;

impl Round<'_> {
    /// `diff` and `apply`, when the sandbox has ended.
    pub(super) fn take_over(&mut self) -> io::Result<Option<Sight>> {
        if self.script.kind == Kind::Direct {
            // There is nothing to take: it was written where it is.
            return Ok(None);
        }
        let changes = match self.kept.changes() {
            Ok(changes) => changes,
            Err(words) => {
                // A sandbox that was broken keeps no changes, and that is told.
                self.answered("diff at the end", Err(words));
                return Ok(self.seen.take());
            }
        };
        if let Some(seen) = self.judge_changes(&changes) {
            return Ok(Some(seen));
        }
        let taken = self.apply(&changes);
        for path in &taken {
            let path_shown = path.display();
            if is_protected(&self.ground.workspace, path) {
                let words = format!("{path_shown} is protected and was written");
                return Ok(Some(sight("apply", words)));
            }
            if self.ground.is_named(path) {
                let words = format!("the repository names {path_shown}, which was written");
                return Ok(Some(sight("apply", words)));
            }
        }
        if let Some(seen) = self.judge(&taken)? {
            return Ok(Some(seen));
        }
        let misplaced = self.ground.misplaced(&self.allowed)?;
        Ok(misplaced.map(|words| sight("rights", words)))
    }

    /// First all of it, then without the protected paths, then also without those that the repository names:
    /// a refusal takes nothing. Gives the written paths.
    fn apply(&mut self, changes: &Changes) -> Vec<PathBuf> {
        let all = changes.entries().iter().map(|change| change.path.as_path().to_owned());
        let all: Vec<PathBuf> = all.collect();
        let of = |wanted: &dyn Fn(&Path) -> bool| -> Vec<PathBuf> {
            all.iter().filter(|path| wanted(path)).cloned().collect()
        };
        let protected = of(&|path| is_protected(&self.ground.workspace, path));
        let named = of(&|path| self.ground.is_named(path));
        let force = self.script.force;
        let allow_protected = self.may_take(protected.iter().chain(&named).cloned());
        let mut taken: Vec<PathBuf> = Vec::new();
        for except in [Vec::new(), protected.clone(), [protected, named].concat()] {
            let asked = format!("apply without {except:?}, force: {force}");
            let allow_protected = allow_protected.clone();
            let options = ApplyOptions { force, allow_protected, ..ApplyOptions::default() };
            let wanted = Wanted { only: Vec::new(), except };
            let applied = changes.select(&wanted).and_then(|chosen| apply(&chosen, &options));
            let answer = applied.map(|done| {
                let paths = done.applied.iter().chain(&done.already);
                taken.extend(paths.map(|path| path.as_path().to_owned()));
            });
            self.answered(&asked, answer.map_err(|error| with_causes(&error)));
        }
        taken
    }

    /// No change where nothing could ever be written, and no secret in one.
    fn judge_changes(&self, changes: &Changes) -> Option<Sight> {
        for change in changes.entries() {
            let path = change.path.as_path();
            let mut ever = self.allowed.iter().flatten();
            if !ever.any(|rights| rights.allows(path)) {
                return Some(sight("rights", format!("{} was changed", path.display())));
            }
            let file = changes.content_of(change).and_then(|path| std::fs::read(path).ok());
            // Where a link leads, and the names.
            let told = serde_json::to_vec(change).unwrap_or_default();
            if self.tells_a_secret(&file.unwrap_or_default()) || self.tells_a_secret(&told) {
                return Some(sight("secrets", format!("a secret is in {}", path.display())));
            }
        }
        None
    }

    /// After `rm` and `gc` nothing of it is left.
    pub(super) fn clean_up(&mut self) -> io::Result<Option<Sight>> {
        let removed = self.kept.remove();
        self.answered("rm", removed);
        let swept = self.kept.gc();
        self.answered("gc", swept);
        if let Some(seen) = self.seen.take() {
            return Ok(Some(seen));
        }
        let id = self.kept.id.as_str().to_owned();
        let state = self.workshop.home.join("sandboxes");
        let files = std::fs::read_dir(state)?.flatten();
        let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
        if let Some(name) = names.into_iter().find(|name| name.contains(&id)) {
            return Ok(Some(sight("leftovers", format!("{name} is in the state directory"))));
        }
        let Scene { mark, victim, .. } = &self.stage.scene;
        let left = oracles::leftovers(&id, mark, *victim, &self.namespaces);
        Ok(left.or_else(|| self.kernel_log.alarm()))
    }
}
