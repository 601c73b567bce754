//! The adversary's half inside a wall: random sequences of primitive actions, composed from a seed.
//!
//! A probe tries one known idea. The adversary has no idea: it does anything that a job can
//! do, in a random order, with the paths that the host's half told it of. It does not judge. It prints
//! everything that it reads, and the host's half, which knows the secrets, looks for them there.

mod actions;
mod helpers;

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Dice, Scene};
use actions::ACTIONS;

pub use helpers::{HELPERS, help};

/// The variable that every job in a sandbox has.
const INSIDE: &str = "RINGWALL";
/// Descriptors that are kept for later actions.
const MOST_KEPT: usize = 24;
/// Between two actions, in milliseconds.
const LONGEST_PAUSE: u64 = 10;
/// The most bytes of one file, for the journal and for the search for secrets.
const MOST_SHOWN: usize = 256;

/// What one command of the adversary is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Play {
    pub scene: Scene,
    pub seed: u64,
    /// Is in everything that the command writes, so that it can be told when it was written.
    pub stamp: String,
    pub steps: u32,
}

/// What became of one action.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Played {
    pub step: u32,
    pub action: String,
    /// With which paths and numbers.
    pub with: String,
    pub answer: String,
}

/// Names in the workspace, few enough that actions meet each other.
const NAMES: [&str; 27] = [
    "docs/a",
    "docs/b",
    "docs/d/x",
    "docs/d",
    "docs",
    "src/a",
    "src/b",
    "src/d/x",
    "src/d",
    "src",
    "top",
    "d",
    "d/x",
    "link",
    "docs/link",
    ".git/hooks/post-commit",
    ".git/config",
    ".git",
    "ours/hooks/post-commit",
    "src/monitor",
    "more.config",
    "ringwall.toml",
    "later",
    "later/.env",
    ".env",
    "docs/.env",
    "src/id_rsa",
];
/// The names that directories have, if they are there.
const DIRECTORIES: [&str; 5] = ["docs", "src", "docs/d", "src/d", "d"];
/// Ways to the same path, past a check of its beginning.
const WAYS: [&str; 7] = [
    "",
    "/proc/self/root",
    "/proc/thread-self/root",
    "/proc/1/root",
    "/proc/self/cwd/../../../../../../../..",
    "/proc/1/cwd/../../../../../..",
    "/tmp/../../..",
];

/// One command of the adversary while it runs.
pub(crate) struct Player<'a> {
    dice: Dice,
    scene: &'a Scene,
    stamp: &'a str,
    program: &'a str,
    workspace: PathBuf,
    kept: Vec<OwnedFd>,
    children: Vec<Child>,
    /// With what the action that is under way was done.
    with: String,
}

/// Makes the actions of a play, and prints a line of JSON for each. Only inside a wall: some of them would
/// harm a host, such as signals to the first process.
pub fn play(play: &Play, program: &str, out: &mut impl Write) -> io::Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        return Err(io::Error::other("the adversary plays inside a wall only"));
    }
    let workspace = std::env::current_dir()?;
    // Each step has dice of its own: an action draws by its circumstances, and must not change the next.
    let dice = Dice::new(play.seed);
    let mut player = Player {
        dice: dice.clone(),
        scene: &play.scene,
        stamp: &play.stamp,
        program,
        workspace,
        kept: Vec::new(),
        children: Vec::new(),
        with: String::new(),
    };
    for step in 0..play.steps {
        player.dice = dice.branch(step.into());
        let Some((name, action)) = player.choose() else { break };
        player.with.clear();
        let answer = match action(&mut player) {
            Ok(done) => done,
            Err(error) => error.to_string(),
        };
        player.let_go_of_some();
        // The owner has its turns meanwhile.
        std::thread::sleep(Duration::from_millis(player.dice.number() % LONGEST_PAUSE));
        let with = std::mem::take(&mut player.with);
        let played = Played { step, action: name.to_owned(), with, answer };
        serde_json::to_writer(&mut *out, &played)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

impl Player<'_> {
    fn choose(&mut self) -> Option<(&'static str, actions::Action)> {
        let all: u32 = ACTIONS.iter().map(|row| row.weight).sum();
        let mut left = u32::try_from(self.dice.below(all as usize)).ok()?;
        for row in ACTIONS {
            if left < row.weight {
                return Some((row.name, row.action));
            }
            left -= row.weight;
        }
        None
    }

    fn let_go_of_some(&mut self) {
        let extra = self.kept.len().saturating_sub(MOST_KEPT);
        self.kept.drain(..extra);
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Notes what the action is done with.
    fn note(&mut self, what: impl std::fmt::Display) {
        if !self.with.is_empty() {
            self.with.push_str(", ");
        }
        self.with.push_str(&what.to_string());
    }

    fn noted(&mut self, path: PathBuf) -> PathBuf {
        self.note(path.display());
        path
    }

    /// A name in the workspace, as it is written from inside it.
    fn own(&mut self) -> PathBuf {
        let name = match self.dice.one_in(4) {
            true => {
                let hidden = self.dice.one_of(&self.scene.hidden).cloned();
                hidden.unwrap_or_else(|| PathBuf::from(".env"))
            }
            false => PathBuf::from(self.dice.one_of(&NAMES).copied().unwrap_or("top")),
        };
        let path = match self.dice.below(4) {
            0 => self.workspace.join(name),
            1 => Path::new("/proc/self/cwd").join(name),
            _ => name,
        };
        self.noted(path)
    }

    /// Something of the host.
    fn outside(&mut self) -> PathBuf {
        let scene = self.scene;
        let lists: [&[PathBuf]; 8] = [
            &scene.secrets,
            &scene.canaries,
            &scene.shown,
            &scene.policies,
            &scene.approvals,
            &scene.keys,
            &scene.records,
            &scene.logs,
        ];
        let list = self.dice.one_of(&lists).copied().unwrap_or_default();
        let path = self.dice.one_of(list).cloned().unwrap_or_else(|| PathBuf::from("/etc/shadow"));
        let way = self.dice.one_of(&WAYS).copied().unwrap_or_default();
        self.noted(PathBuf::from(format!("{way}{}", path.display())))
    }

    /// A directory of the workspace, by its short name: the path has to be the same for all.
    fn directory(&mut self) -> PathBuf {
        let name = self.dice.one_of(&DIRECTORIES).copied().unwrap_or("docs");
        self.noted(PathBuf::from(name))
    }

    /// What the host shows is the only thing outside that is there; so it comes up more often.
    fn shown_or_anything(&mut self) -> PathBuf {
        let shown = self.dice.one_of(&self.scene.shown).cloned();
        match shown.filter(|_| self.dice.one_in(2)) {
            Some(path) => self.noted(path),
            None => self.anything(),
        }
    }

    fn anything(&mut self) -> PathBuf {
        if self.dice.one_in(3) { self.outside() } else { self.own() }
    }

    /// A directory above the workspace or above the shown paths of the host.
    fn above(&mut self) -> PathBuf {
        let shown = self.scene.shown.iter().filter_map(|path| path.parent());
        let places: Vec<PathBuf> = std::iter::once(self.workspace.as_path())
            .chain(shown)
            .flat_map(Path::ancestors)
            .filter(|path| path.parent().is_some())
            .map(Path::to_owned)
            .collect();
        let path = self.dice.one_of(&places).cloned().unwrap_or_else(|| PathBuf::from("/tmp"));
        self.noted(path)
    }

    fn keep(&mut self, descriptor: impl Into<OwnedFd>) {
        self.kept.push(descriptor.into());
    }
}

/// The beginning of a file's content, as text.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..MOST_SHOWN).unwrap_or(bytes)).into_owned()
}

fn names_in(path: &Path) -> io::Result<String> {
    let mut names = String::new();
    for entry in fs::read_dir(path)?.flatten().take(32) {
        names.push_str(&entry.file_name().to_string_lossy());
        names.push(' ');
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
