//! Raises a wall, has the probe program attack in it, and collects what came of it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringwall_engine::{Engine, EngineConfig, Output, RaiseError, Sandbox, with_causes};
use ringwall_image::NoProgress;
use ringwall_policy::AdmittedSpec;
use ringwall_probes::{Account, Class, Probe, Scene};
use ringwall_spec::{
    Command, Ending, Limits, RingKind, SandboxSpec, Wall, WorkspaceMode, WorkspaceSpec,
};
use tempfile::TempDir;

use crate::image;
use crate::judge::{Finding, Known, Verdict, judge, unexplained};
use crate::report::{Report, Skipped, WallReport};
use crate::stage::{Seen, Stage};

/// How a wall comes up. Tests that show that attacks notice a missing protection have ways of their own.
pub trait Raising {
    /// A last word on what is asked for.
    fn change(&self, _spec: &mut SandboxSpec, _scene: &Scene) {}

    fn raise(&self, engine: &Engine, admitted: &AdmittedSpec) -> Result<Sandbox, RaiseError> {
        engine.raise(admitted)
    }
}

/// As for any job.
#[derive(Debug, Clone, Copy, Default)]
pub struct AsPlanned;

impl Raising for AsPlanned {}

/// What to verify.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only these walls.
    pub walls: Vec<Wall>,
    /// Only walls that are raised in milliseconds.
    pub quick: bool,
    /// No wall at all: the control that must fail.
    pub control: bool,
    /// Not one of our walls but somebody else's: a command that runs the command behind it.
    pub behind: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(
        "the program {0} is missing next to ringwall; install all of Ringwall's programs in one directory"
    )]
    ProgramMissing(String),
    #[error("the stage for the attacks could not be set")]
    Stage(#[source] io::Error),
    #[error("the image of the attacks could not be made")]
    Image(#[source] ringwall_image::ImportError),
    #[error("the store of images cannot be used")]
    Store(#[source] ringwall_image::StoreError),
    #[error(transparent)]
    Open(#[from] ringwall_engine::OpenError),
}

/// What every sandbox of the attacks has: little, so that it is soon found out whether it is kept.
fn limits(wall: Option<&Wall>, timeout: Duration) -> Limits {
    let guest = wall.is_some_and(|wall| wall.outermost() == RingKind::Vm);
    Limits {
        timeout,
        memory_bytes: if guest { 256 << 20 } else { 128 << 20 },
        pids: 64,
        disk_bytes: 32 << 20,
        disk_inodes: 4096,
        output_bytes: 4 << 20,
        open_files: 256,
        ..Limits::default()
    }
}

const SESSION: Duration = Duration::from_secs(240);
/// For attacks that go on until they are stopped; a guest needs longer to fill its disk.
const ENDLESS: Duration = Duration::from_secs(6);

/// Runs the probes behind the walls; `tell` hears how far it is.
pub fn verify(
    config: &EngineConfig,
    options: &Options,
    raising: &dyn Raising,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, VerifyError> {
    let begun = Instant::now();
    let workshop = Workshop::open(config, raising)?;
    let mut report = Report::new(options.control);
    if options.control || !options.behind.is_empty() {
        let name = options.behind.first().map(|word| word.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| "none".to_owned());
        tell(&name);
        let attacked = workshop.attack(&Ground::Other(&options.behind))?;
        report.walls.push(WallReport { wall: name, ..attacked });
    } else {
        let (walls, skipped) = choose(options);
        report.skipped.extend(skipped);
        for wall in walls {
            tell(&wall.to_string());
            match workshop.can_raise(&wall) {
                Ok(()) => report.walls.push(workshop.attack(&Ground::Wall(&wall))?),
                Err(reason) => report.skipped.push(Skipped { wall: wall.to_string(), reason }),
            }
        }
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn choose(options: &Options) -> (Vec<Wall>, Vec<Skipped>) {
    let quick = ["process", "container"];
    let all = ["process", "container", "vm", "vm/process", "vm/container"];
    let names: &[&str] = if options.quick { &quick } else { &all };
    let known = names.iter().filter_map(|name| name.parse::<Wall>().ok());
    let wanted: Vec<Wall> =
        if options.walls.is_empty() { known.collect() } else { options.walls.clone() };
    let (tools, walls) = wanted
        .into_iter()
        .partition::<Vec<_>, _>(|wall| wall.rings().last() == Some(&RingKind::Wasm));
    let skipped = |wall: String| Skipped {
        wall,
        reason: "the probes are native programs, and a wasm ring runs none".to_owned(),
    };
    let mut left: Vec<_> = tools.iter().map(|wall| skipped(wall.to_string())).collect();
    if options.walls.is_empty() {
        left.push(skipped("wasm".to_owned()));
    }
    if options.quick && options.walls.is_empty() {
        left.push(Skipped { wall: "vm".to_owned(), reason: "left out by --quick".to_owned() });
    }
    (walls, left)
}

/// An engine of its own, with an image and a workspace for the attacks.
struct Workshop<'a> {
    engine: Engine,
    program: PathBuf,
    /// Ringwall's real state.
    state: PathBuf,
    workspace: PathBuf,
    raising: &'a dyn Raising,
    _directory: TempDir,
}

/// Where the attacks are made.
enum Ground<'a> {
    Wall(&'a Wall),
    Other(&'a [OsString]),
}

impl<'a> Ground<'a> {
    fn wall(&self) -> Option<&'a Wall> {
        match self {
            Ground::Wall(wall) => Some(wall),
            Ground::Other(_) => None,
        }
    }
}

/// What one run of the probe program gave.
struct Session {
    accounts: Vec<Account>,
    ending: String,
    /// Whether the program ran at all.
    started: bool,
}

impl<'a> Workshop<'a> {
    fn open(config: &EngineConfig, raising: &'a dyn Raising) -> Result<Workshop<'a>, VerifyError> {
        let program = config.programs.launcher.with_file_name("ringwall-probe");
        if !program.is_file() {
            return Err(VerifyError::ProgramMissing(program.display().to_string()));
        }
        fs::create_dir_all(&config.home).map_err(VerifyError::Stage)?;
        let made = tempfile::Builder::new().prefix("verify-").tempdir_in(&config.home);
        let directory = made.map_err(VerifyError::Stage)?;
        let home = directory.path().join("home");
        let engine = Engine::open(EngineConfig { home, programs: config.programs.clone() })?;
        let workspace = directory.path().join("workspace");
        let prepare = || -> io::Result<PathBuf> {
            fs::create_dir(&workspace)?;
            let copy = workspace.join("probe");
            fs::copy(&program, &copy)?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
            image::write(directory.path(), &program)
        };
        let image = prepare().map_err(VerifyError::Stage)?;
        let store = engine.images().map_err(VerifyError::Store)?;
        store.import(&image, Some(image::NAME), &NoProgress).map_err(VerifyError::Image)?;
        Ok(Workshop {
            engine,
            program,
            state: config.home.clone(),
            workspace,
            raising,
            _directory: directory,
        })
    }

    fn spec(&self, wall: &Wall, timeout: Duration) -> SandboxSpec {
        SandboxSpec {
            image: wall.image_ring().map(|_| image::NAME.to_owned()),
            workspace: Some(WorkspaceSpec {
                path: self.workspace.clone(),
                mode: WorkspaceMode::CopyOnWrite,
            }),
            limits: limits(Some(wall), timeout),
            ..SandboxSpec::new(wall.clone())
        }
    }

    /// Whether this host can raise the wall; else why not.
    fn can_raise(&self, wall: &Wall) -> Result<(), String> {
        // A probe that is none: the program starts, says so, and ends.
        let words = ["--one", "{}", "none"].map(OsString::from);
        let raised = self.run(wall, None, SESSION, words.to_vec());
        raised.map(|_| ()).map_err(|error| error.to_string())
    }

    /// All attacks behind one wall, or behind none.
    fn attack(&self, ground: &Ground<'_>) -> Result<WallReport, VerifyError> {
        let begun = Instant::now();
        let wall = ground.wall();
        let limits = limits(wall, SESSION);
        let mut stage =
            Stage::set(&self.program, &self.state, &limits).map_err(VerifyError::Stage)?;
        if wall.is_some() {
            stage.scene.workspace = Some(PathBuf::from("."));
        }
        let scene = &stage.scene;
        let all = ringwall_probes::all();
        let (endless, others): (Vec<_>, Vec<_>) =
            all.iter().partition(|probe| probe.class == Class::Exhaust);
        let session = |probes: &[&Probe], timeout| self.session(ground, scene, probes, timeout);
        let first = session(&others, SESSION);
        let lasting: Vec<&Probe> =
            others.iter().copied().filter(|probe| probe.class == Class::Persist).collect();
        let second = session(&lasting, SESSION);
        let alone: Vec<_> =
            endless.into_iter().map(|probe| (probe, session(&[probe], ENDLESS))).collect();
        let seen = stage.look();
        let mut findings = Vec::new();
        {
            let secret_in = |text: &str| stage.secret_in(text);
            for probe in &others {
                // What counts of a lasting effect is what the next one finds.
                let of = if probe.class == Class::Persist { &second } else { &first };
                findings.push(of.judge(probe, wall, &seen, &secret_in));
            }
            for (probe, session) in &alone {
                findings.push(session.judge(probe, wall, &seen, &secret_in));
            }
        }
        if unexplained(&findings, &seen) {
            findings.push(Finding {
                probe: "unexplained",
                class: Class::WriteOutside,
                stands_for: "an effect on the host that no attack told of",
                verdict: Verdict::Breach,
                detail: format!("{seen:?}"),
            });
        }
        let name = wall.map_or_else(|| "none".to_owned(), ToString::to_string);
        Ok(WallReport { wall: name, seconds: begun.elapsed().as_secs_f64(), findings })
    }

    fn session(
        &self,
        ground: &Ground<'_>,
        scene: &Scene,
        probes: &[&Probe],
        timeout: Duration,
    ) -> Session {
        // A scene is paths and numbers; what cannot be told as text cannot be attacked.
        let told = serde_json::to_string(scene).unwrap_or_default();
        let names: Vec<&str> = probes.iter().map(|probe| probe.name).collect();
        // In one word: some sandboxes take only a few.
        let words: Vec<OsString> = vec![told.into(), names.join(",").into()];
        let ran = match ground {
            Ground::Wall(wall) => self.run(wall, Some(scene), timeout, words),
            Ground::Other(behind) => self.run_elsewhere(behind, words),
        };
        match ran {
            Ok((output, ending)) => {
                let lines = output.split(|byte| *byte == b'\n');
                let accounts = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
                Session { accounts, ending, started: true }
            }
            Err(error) => {
                Session { accounts: Vec::new(), ending: error.to_string(), started: false }
            }
        }
    }

    /// Gives what the program printed, and how it ended.
    fn run(
        &self,
        wall: &Wall,
        scene: Option<&Scene>,
        timeout: Duration,
        words: Vec<OsString>,
    ) -> Result<(Vec<u8>, String), Box<dyn std::error::Error>> {
        let mut spec = self.spec(wall, timeout);
        if let Some(scene) = scene {
            self.raising.change(&mut spec, scene);
        }
        let admitted = ringwall_policy::admit(spec)?;
        let sandbox =
            self.raising.raise(&self.engine, &admitted).map_err(|error| with_causes(&error))?;
        let program = match wall.image_ring() {
            Some(_) => PathBuf::from(image::PROGRAM),
            None => self.workspace.join("probe"),
        };
        let mut argv = vec![program.into_os_string()];
        argv.extend(words);
        let mut collected = Collected::default();
        let started = sandbox
            .start(&Command { argv, ..Command::default() })
            .map_err(|error| with_causes(&error));
        let ended = started.map(|job| job.wait(&mut collected));
        // Whatever became of the job, the wall comes down.
        let how = ended.as_ref().ok().and_then(|ended| ended.as_ref().ok());
        let settled = sandbox.settle(how.copied().unwrap_or(Ending::Stopped));
        let ending = match ended? {
            Ok(ending) => format!("{ending:?}"),
            // An attack may have ended more than itself.
            Err(error) => with_causes(&error),
        };
        settled.map_err(|error| with_causes(&error))?;
        Ok((collected.0, ending))
    }

    /// Without any of our walls, behind another command if there is one.
    fn run_elsewhere(
        &self,
        behind: &[OsString],
        words: Vec<OsString>,
    ) -> Result<(Vec<u8>, String), Box<dyn std::error::Error>> {
        let program = self.program.clone().into_os_string();
        let mut line = behind.iter().cloned().chain([program]);
        let first = line.next().unwrap_or_default();
        let output = std::process::Command::new(first)
            .args(line)
            .args(words)
            .current_dir(&self.workspace)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        Ok((output.stdout, output.status.to_string()))
    }
}

impl Session {
    fn judge(
        &self,
        probe: &Probe,
        wall: Option<&Wall>,
        seen: &Seen,
        secret_in: &dyn Fn(&str) -> bool,
    ) -> Finding {
        let account = self.accounts.iter().find(|account| account.probe == probe.name);
        judge(
            probe,
            account,
            &Known { wall, seen, secret_in, ending: &self.ending, started: self.started },
        )
    }
}

/// What the program printed on its standard output.
#[derive(Default)]
struct Collected(Vec<u8>);

impl Output for Collected {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
