//! One sandbox from its start to its end: commands of the adversary in it, moves of its owner between and
//! beside them, and a look by every oracle after each command.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_desk::Permit;
use ringwall_engine::{Asked, Job, with_causes};
use ringwall_policy::{Task, Work};
use ringwall_probes::{Play, Played, Scene};
use ringwall_spec::{RingKind, SandboxSpec, Wall, WorkspaceMode, WorkspaceSpec, WriteRights};

use super::ground::{Ground, stamp};
use super::kept::{Answer, Kept};
use super::oracles::{self, KernelLog, Sight, sight};
use super::owner::some_rights;
use super::script::{Kind, Script, Scripted, Turn};
use crate::run::{Collected, SESSION, Workshop, limits};
use crate::stage::Stage;
use crate::verify_permit;

const STEPS: u32 = 70;
const PAUSE: Duration = Duration::from_millis(30);
/// Beside what the limit gives: processes that are being ended hold their memory a moment longer.
const MEMORY_SLACK: u64 = 32 << 20;
/// The longest that the engine may take for one answer.
const LONGEST_ANSWER: Duration = Duration::from_secs(90);

pub(super) struct Round<'a> {
    pub(super) workshop: &'a Workshop<'a>,
    pub(super) script: Script,
    pub(super) kept: Kept<'a>,
    pub(super) ground: Ground,
    pub(super) stage: Stage,
    pub(super) spec: SandboxSpec,
    pub(super) kernel_log: KernelLog,
    /// The number of the command that runs, or ran last.
    command: usize,
    /// For each command, where it could write at one time or another.
    pub(super) allowed: Vec<Vec<WriteRights>>,
    /// What commands said, and what the log of the sandbox has.
    said: Vec<u8>,
    inside: Vec<String>,
    journal: Vec<String>,
    /// What an oracle saw while the owner made a move.
    pub(super) seen: Option<Sight>,
    pub(super) namespaces: BTreeSet<PathBuf>,
}

impl<'a> Round<'a> {
    /// A living sandbox of this wall; else why this host has none.
    pub(super) fn begin(
        workshop: &'a Workshop<'a>,
        wall: &Wall,
        script: Script,
    ) -> Result<Round<'a>, String> {
        let words = |error: io::Error| error.to_string();
        let kernel_log = KernelLog::from_now(&workshop.raising.kernel_log());
        let mut dice = script.beginning.clone();
        let direct = script.kind == Kind::Direct;
        let ground = Ground::lay(&mut dice, &workshop.program, direct).map_err(words)?;
        let limits = limits(Some(wall), SESSION);
        let mut stage = Stage::set(&workshop.program, &workshop.state, &limits).map_err(words)?;
        only_laid_out(&mut stage.scene);
        stage.scene.elsewhere = vec![ground.elsewhere.clone()];
        let guest = script.kind == Kind::Guest;
        if !guest {
            stage.scene.shown = ["", "file", "directory"].map(|it| ground.shown.join(it)).to_vec();
        }
        let mut spec = SandboxSpec {
            workspace: Some(WorkspaceSpec {
                path: ground.workspace.clone(),
                mode: if direct { WorkspaceMode::ReadWrite } else { WorkspaceMode::CopyOnWrite },
            }),
            ..workshop.spec(wall, SESSION)
        };
        if !guest {
            spec.read_only_paths = vec![ground.shown.clone(), ground.program.clone()];
        }
        workshop.raising.change(&mut spec, &stage.scene);
        let keeper = workshop.raising.has_keeper();
        let mode = spec.workspace.as_ref().map(|workspace| workspace.mode);
        if mode == Some(WorkspaceMode::CopyOnWrite) {
            let some = dice.one_in(2).then(|| some_rights(&mut dice));
            // Where there is no keeper, only a sandbox that began with rights can change them.
            spec.rights = some.or((!keeper).then(WriteRights::everywhere));
        }
        let routed = matches!(wall.rings(), [RingKind::Process | RingKind::Container]);
        let by_policy = dice.one_in(2) && routed && keeper && !direct;
        let permit = permit(workshop, spec.clone(), by_policy.then_some(&ground))?;
        let kind = script.kind;
        let mut journal = vec![format!("raise {wall}, {kind:?}, by policy: {by_policy}")];
        let kept = Kept::raise(&workshop.engine, workshop.raising, &permit)?;
        journal.push(format!("sandbox {}", kept.id));
        Ok(Round {
            workshop,
            script,
            kept,
            ground,
            stage,
            spec,
            kernel_log,
            command: 0,
            allowed: Vec::new(),
            said: Vec::new(),
            inside: Vec::new(),
            journal,
            seen: None,
            namespaces: BTreeSet::new(),
        })
    }

    /// All of it; gives what the first oracle saw.
    pub(super) fn play(&mut self) -> io::Result<Option<Sight>> {
        for (command, scripted) in self.script.commands.clone().into_iter().enumerate() {
            self.command = command;
            if let Some(seen) = self.one_command(scripted)? {
                self.kept.abandon();
                return Ok(Some(seen));
            }
            if !self.kept.is_running() {
                break;
            }
        }
        let ended = self.kept.end();
        self.answered("stop", ended);
        let seen = self.judge(&[])?;
        let seen = match seen {
            None => self.take_over()?,
            seen => seen,
        };
        if seen.is_some() {
            self.kept.abandon();
            return Ok(seen);
        }
        self.clean_up()
    }

    pub(super) fn actions(&self) -> u64 {
        self.inside.len() as u64
    }

    pub(super) fn moves(&self) -> u64 {
        self.journal.len() as u64
    }

    pub(super) fn journal(&self) -> &[String] {
        &self.journal
    }

    pub(super) fn inside(&self) -> &[String] {
        &self.inside
    }

    /// A command of the adversary with the facts that are known by now.
    pub(super) fn command(&self, seed: u64, steps: u32) -> Vec<OsString> {
        let hidden = self.ground.hidden.iter().cloned().collect();
        let scene = Scene { hidden, ..self.stage.scene.clone() };
        let play = Play { scene, seed, stamp: stamp(self.command), steps };
        let program = match self.spec.wall.image_ring() {
            Some(_) => self.workshop.program_inside(&self.spec.wall),
            None => self.ground.program.clone(),
        };
        let play = serde_json::to_string(&play).unwrap_or_default();
        vec![program.into(), "--adversary".into(), play.into()]
    }

    pub(super) fn run_to_its_end(&mut self, argv: Vec<OsString>) -> Answer<()> {
        let mut collected = Collected::default();
        let started = self.kept.start(argv);
        let ended =
            started.map(|job| job.wait(&mut collected).map_err(|error| with_causes(&error)));
        self.heard(&collected.0);
        ended.and_then(|ended| ended).map(drop)
    }

    /// Notes what the engine said to a move, and looks at how it said it.
    pub(super) fn answered(&mut self, asked: &str, answer: Answer<()>) {
        let said = match &answer {
            Ok(()) => "done",
            Err(words) => {
                let odd = oracles::plain_words(asked, words);
                self.seen = self.seen.take().or(odd);
                words
            }
        };
        self.journal.push(format!("command {}: {asked}: {said}", self.command));
    }

    /// Where commands may write from now on, beside where they could until now.
    pub(super) fn note_rights(&mut self) {
        let now = self.kept.rights();
        let command = self.command;
        if let (Ok(now), Some(list)) = (now, self.allowed.get_mut(command)) {
            list.push(now);
        }
    }

    pub(super) fn heard(&mut self, said: &[u8]) {
        self.said.extend_from_slice(said);
        for line in said.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line = match serde_json::from_slice::<Played>(line) {
                Ok(Played { step, action, with, answer }) => {
                    format!("command {}, {step}: {action} {with}: {answer}", self.command)
                }
                Err(_) => String::from_utf8_lossy(line).into_owned(),
            };
            self.inside.push(line);
        }
    }

    /// Moves, a command with moves beside it, and a look at everything.
    fn one_command(&mut self, scripted: Scripted) -> io::Result<Option<Sight>> {
        let Scripted { seed, before, beside } = scripted;
        self.allowed.push(Vec::new());
        for turn in before {
            self.make(turn, false)?;
        }
        // Nothing has written meanwhile, so only the rights count in which the command begins.
        self.allowed.iter_mut().skip(self.command).for_each(Vec::clear);
        self.note_rights();
        let argv = self.command(seed, STEPS);
        let job = match self.kept.start(argv) {
            Ok(job) => job,
            Err(words) => {
                self.answered("start", Err(words));
                return self.judge(&[]);
            }
        };
        let said = self.beside(job, beside)?;
        self.heard(&said);
        self.judge(&[])
    }

    /// The owner's moves while a command runs; gives what that said. All of them are made, also those for
    /// which the command was too quick.
    fn beside(&mut self, job: Job, turns: Vec<Turn>) -> io::Result<Vec<u8>> {
        std::thread::scope(|scope| {
            let running = scope.spawn(move || {
                let mut collected = Collected::default();
                let ended = job.wait(&mut collected).map_err(|error| with_causes(&error));
                (collected.0, ended)
            });
            let mut turns = turns.into_iter();
            loop {
                self.watch();
                match turns.next() {
                    Some(turn) => self.make_in_time(turn)?,
                    None if running.is_finished() => break,
                    None => {}
                }
                std::thread::sleep(PAUSE);
            }
            let (said, ended) = running.join().map_err(|_| io::Error::other("it panicked"))?;
            self.answered("the command's end", ended.map(drop));
            Ok(said)
        })
    }

    fn make_in_time(&mut self, turn: Turn) -> io::Result<()> {
        let (chosen, begun) = (turn.chosen, Instant::now());
        self.make(turn, true)?;
        if begun.elapsed() > LONGEST_ANSWER {
            let late = sight("engine-answers", format!("{chosen:?} took too long"));
            self.seen = self.seen.take().or(Some(late));
        }
        Ok(())
    }

    /// What shows only while a command runs.
    fn watch(&mut self) {
        self.watch_memory();
        let locked = oracles::locked(&self.ground.shown.join("file"));
        self.seen = self.seen.take().or(locked);
    }

    fn watch_memory(&mut self) {
        let processes = oracles::marked(&self.stage.scene.mark, self.stage.scene.victim);
        let host = oracles::namespaces("self");
        for pid in &processes {
            let inside = oracles::namespaces(pid);
            self.namespaces.extend(inside.difference(&host).cloned());
        }
        let held = oracles::memory(&processes);
        let limit = self.spec.limits.memory_bytes;
        if held > limit + limit / 4 + MEMORY_SLACK {
            let seen = sight("memory", format!("{} MiB are held", held >> 20));
            self.seen = self.seen.take().or(Some(seen));
        }
    }

    /// Every oracle that can be asked at any time. `taken`: what `apply` wrote.
    pub(super) fn judge(&mut self, taken: &[PathBuf]) -> io::Result<Option<Sight>> {
        if let Some(seen) = self.seen.take() {
            return Ok(Some(seen));
        }
        let log = self.kept.log().and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        for (place, bytes) in [("output", &self.said), ("log", &log)] {
            if self.tells_a_secret(bytes) {
                return Ok(Some(sight("secrets", format!("a secret is in the {place}"))));
            }
        }
        self.said.clear();
        let changed = self.ground.changed(taken)?;
        if !changed.is_empty() {
            return Ok(Some(sight(
                "files",
                format!("changed on the host: {}", changed.join(", ")),
            )));
        }
        let seen = self.stage.look();
        let told = if !seen.changed.is_empty() {
            Some(sight("canaries", format!("{:?} changed", seen.changed)))
        } else if !seen.heard.is_empty() {
            Some(sight("listeners", format!("heard {:?}", seen.heard)))
        } else if seen.victim_gone {
            Some(sight("processes", "a process of the host was ended"))
        } else {
            self.kernel_log.alarm()
        };
        Ok(told)
    }

    pub(super) fn tells_a_secret(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        self.stage.secret_in(&text)
            || self.ground.secrets.iter().any(|secret| text.contains(secret.as_str()))
    }
}

/// Random actions go for targets that were laid out for them, and for nothing real.
fn only_laid_out(scene: &mut Scene) {
    let ours = |path: &Path| path.to_string_lossy().contains("/.ringwall-verify-");
    let lists = [
        &mut scene.secrets,
        &mut scene.canaries,
        &mut scene.sockets,
        &mut scene.policies,
        &mut scene.approvals,
        &mut scene.keys,
        &mut scene.records,
        &mut scene.logs,
        &mut scene.engine_sockets,
    ];
    for list in lists {
        list.retain(|path| ours(path));
    }
}

/// As a person's own order, or by the policy that is laid out.
fn permit(
    workshop: &Workshop<'_>,
    spec: SandboxSpec,
    by_policy: Option<&Ground>,
) -> Result<Permit, String> {
    let Some(ground) = by_policy else {
        let spec = ringwall_spec::validate(spec).map_err(|error| with_causes(&error))?;
        return Ok(verify_permit(spec.into()));
    };
    let (wall, limits) = (spec.wall.clone(), spec.limits.clone());
    let asked = Asked {
        spec,
        wall: Some(wall),
        task: Task::default(),
        work: Work { tool: None, kind: Some("files".to_owned()) },
        notes: Default::default(),
        network_at_most: None,
        search: None,
    };
    let decision = workshop.engine.admit(asked, &|_| limits.clone(), &ground.policy);
    decision.map(verify_permit).map_err(|error| with_causes(&error))
}
