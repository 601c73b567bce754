//! Raises a wall, has the probe program attack in it, and collects what came of it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringwall_audit::{AuditPaths, Verify, verifier_key};
use ringwall_engine::{Engine, EngineConfig, Output, with_causes};
use ringwall_image::{ImportOptions, NoProgress};
use ringwall_probes::{Class, Probe, Reach, Scene};
use ringwall_spec::{
    Command, Ending, Limits, RingKind, SandboxSpec, Wall, WorkspaceMode, WorkspaceSpec,
};
use tempfile::TempDir;

use crate::drill;
use crate::image;
use crate::judge::{Finding, short, unexplained};
use crate::raising::Raising;
use crate::report::{Report, Skipped, WallReport};
use crate::session::{Session, told};
use crate::stage::{Stage, random};
use crate::verify_permit;

/// What to verify.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only these walls.
    pub walls: Vec<Wall>,
    /// Only walls that are raised in milliseconds.
    pub quick: bool,
    /// No wall at all: the control that must fail.
    pub control: bool,
    /// Hostile code where each ring's warden runs, too.
    pub drills: bool,
    /// A third-party wall instead of ours: a command that runs the command behind it.
    pub behind: Vec<OsString>,
    /// The built-in tool `fetch`, with which tools that were given a host go for others.
    pub fetch: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(
        "the program {0} is missing next to ringwall; install all of Ringwall's programs in one directory"
    )]
    ProgramMissing(String),
    #[error(
        "no program can play in {walls}, which runs tools only; name a wall such as process with --wall"
    )]
    NoPrograms { walls: String },
    #[error("the stage for the attacks could not be set")]
    Stage(#[source] io::Error),
    #[error("the image of the attacks could not be made")]
    Image(#[source] ringwall_image::ImportError),
    #[error("tools cannot be run: {0}")]
    Tools(String),
    #[error("the store of images cannot be used")]
    Store(#[source] ringwall_image::StoreError),
    #[error(transparent)]
    Open(#[from] ringwall_engine::OpenError),
}

/// What every sandbox of the attacks has: little, so that it is soon found out whether it is kept.
pub(crate) fn limits(wall: Option<&Wall>, timeout: Duration) -> Limits {
    let guest = wall.is_some_and(|wall| wall.outermost() == RingKind::Vm);
    let tools = wall.is_some_and(Wall::has_tools_inside);
    Limits {
        timeout,
        memory_bytes: match (guest, tools) {
            // Where no control group counts real use, all that a WASM warden reserves counts.
            (false, true) => 1 << 30,
            (true, _) => 256 << 20,
            (false, false) => 128 << 20,
        },
        pids: 64,
        disk_bytes: 32 << 20,
        disk_inodes: 4096,
        output_bytes: 4 << 20,
        open_files: 256,
        ..Limits::default()
    }
}

/// In the workspace of the attacks; rules hide them by their names.
pub(crate) const HIDDEN: [&str; 2] = [".env", "deep/id_rsa"];

pub(crate) const SESSION: Duration = Duration::from_secs(240);
/// For attacks that go on until they are stopped; a guest needs longer to fill its disk.
const ENDLESS: Duration = Duration::from_secs(6);

/// For attacks that go for the kernel's memory: more than this fits into the buffers of the few
/// descriptors that a job has.
const LITTLE_MEMORY: u64 = 32 << 20;

/// Whether the attack goes for memory of the kernel that it meets.
pub(crate) fn fills_the_kernel(probe: &Probe) -> bool {
    probe.class == Class::Exhaust && probe.reach == Reach::Kernel
}

/// Runs the probes behind the walls; `tell` hears how far it is.
pub fn verify(
    config: &EngineConfig,
    options: &Options,
    raising: &dyn Raising,
    tell: &mut dyn FnMut(&str),
) -> Result<Report, VerifyError> {
    let begun = Instant::now();
    let workshop = Workshop::open(config, options, raising)?;
    let mut report = Report::new(options.control);
    if options.control || !options.behind.is_empty() {
        let name = options.behind.first().map(|word| word.to_string_lossy().into_owned());
        let name = name.unwrap_or_else(|| "none".to_owned());
        tell(&name);
        match workshop.starts_behind(&options.behind) {
            Ok(()) => {
                let attacked = workshop.attack(&Ground::Other(&options.behind))?;
                report.walls.push(WallReport { wall: name, ..attacked });
            }
            Err(reason) => report.skipped.push(Skipped { wall: name, reason }),
        }
    } else {
        let (walls, skipped) = choose(options);
        report.skipped.extend(skipped);
        let mut raised = Vec::new();
        for wall in walls {
            tell(&wall.to_string());
            match workshop.attack_wall(&wall)? {
                Ok(attacked) => report.walls.push(attacked),
                Err(reason) => {
                    report.skipped.push(Skipped { wall: wall.to_string(), reason });
                    continue;
                }
            }
            raised.push(wall);
        }
        if options.drills {
            report.drills = drill::all(&workshop, &raised, tell)?;
        }
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn choose(options: &Options) -> (Vec<Wall>, Vec<Skipped>) {
    let quick = ["process", "container", "wasm", "process/wasm", "container/wasm"];
    let guests = ["vm", "vm/process", "vm/container", "vm/wasm", "vm/container/wasm"];
    let guests: &[&str] = if options.quick { &[] } else { &guests };
    let known = quick.iter().chain(guests).filter_map(|name| name.parse::<Wall>().ok());
    let walls: Vec<Wall> =
        if options.walls.is_empty() { known.collect() } else { options.walls.clone() };
    let mut left = Vec::new();
    if options.quick && options.walls.is_empty() {
        left.push(Skipped { wall: "vm".to_owned(), reason: "left out by --quick".to_owned() });
    }
    (walls, left)
}

/// An engine of its own, with an image and a workspace for the attacks.
pub(crate) struct Workshop<'a> {
    pub(crate) engine: Engine,
    /// Where that keeps its state.
    pub(crate) home: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) fetch: Option<PathBuf>,
    /// Ringwall's real state.
    pub(crate) state: PathBuf,
    pub(crate) workspace: PathBuf,
    /// The content of the hidden files of the workspace.
    pub(crate) secret: String,
    pub(crate) raising: &'a dyn Raising,
    _directory: TempDir,
}

/// Where the attacks are made.
pub(crate) enum Ground<'a> {
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

/// What a run behind another command gave.
struct Elsewhere {
    output: Vec<u8>,
    errors: Vec<u8>,
    ending: String,
}

impl<'a> Workshop<'a> {
    pub(crate) fn open(
        config: &EngineConfig,
        options: &Options,
        raising: &'a dyn Raising,
    ) -> Result<Workshop<'a>, VerifyError> {
        let program = config.programs.launcher.with_file_name("ringwall-probe");
        if !program.is_file() {
            return Err(VerifyError::ProgramMissing(program.display().to_string()));
        }
        fs::create_dir_all(&config.home).map_err(VerifyError::Stage)?;
        let made = tempfile::Builder::new().prefix("verify-").tempdir_in(&config.home);
        let directory = made.map_err(VerifyError::Stage)?;
        let home = directory.path().join("home");
        let engine =
            Engine::open(EngineConfig { home: home.clone(), programs: config.programs.clone() })?;
        let real = directory.path().canonicalize().map_err(VerifyError::Stage)?;
        let workspace = real.join("workspace");
        let secret = format!("secret-{:x}", random());
        let prepare = || -> io::Result<PathBuf> {
            fs::create_dir_all(workspace.join("deep"))?;
            for name in HIDDEN {
                fs::write(workspace.join(name), &secret)?;
            }
            let copy = workspace.join("probe");
            fs::copy(&program, &copy)?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
            image::write(directory.path(), &program)
        };
        let image = prepare().map_err(VerifyError::Stage)?;
        let store = engine.images().map_err(VerifyError::Store)?;
        store
            .import(&image, ImportOptions::named(image::NAME), &NoProgress)
            .map_err(VerifyError::Image)?;
        Ok(Workshop {
            engine,
            home,
            program,
            fetch: options.fetch.clone(),
            state: config.home.clone(),
            workspace,
            secret,
            raising,
            _directory: directory,
        })
    }

    pub(crate) fn spec(&self, wall: &Wall, timeout: Duration) -> SandboxSpec {
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

    /// The attacks that fit a wall; else why this host cannot raise it.
    fn attack_wall(&self, wall: &Wall) -> Result<Result<WallReport, String>, VerifyError> {
        if wall.rings().last() == Some(&RingKind::Wasm) {
            return match self.attack_with_tools(wall) {
                Err(VerifyError::Tools(reason)) => Ok(Err(reason)),
                attacked => attacked.map(Ok),
            };
        }
        match self.can_raise(wall) {
            Ok(()) => self.attack(&Ground::Wall(wall)).map(Ok),
            Err(reason) => Ok(Err(reason)),
        }
    }

    /// Whether this host can raise the wall; else why not.
    fn can_raise(&self, wall: &Wall) -> Result<(), String> {
        // A probe that is none: the program starts, says so, and ends.
        let words = ["--one", "{}", "none"].map(OsString::from);
        let raised = self.run(wall, (None, false), SESSION, words.to_vec());
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
        stage.keep_secret(&self.secret);
        stage.scene.hidden = HIDDEN.map(PathBuf::from).to_vec();
        let scene = &stage.scene;
        let all = ringwall_probes::all();
        // What a guest's kernel holds is in the guest's memory, which is all it has.
        let in_guest = wall.is_some_and(|wall| wall.outermost() == RingKind::Vm);
        let told = all.iter().filter(|probe| !(in_guest && fills_the_kernel(probe)));
        let (endless, others): (Vec<&Probe>, Vec<&Probe>) =
            told.partition(|probe| probe.class == Class::Exhaust);
        let (gateway, plain): (Vec<&Probe>, Vec<&Probe>) =
            others.iter().copied().partition(|probe| probe.class == Class::Gateway);
        let session = |probes: &[&Probe], timeout| self.session(ground, scene, probes, timeout);
        let first = session(&plain, SESSION);
        let networked = session(&gateway, SESSION);
        let lasting: Vec<&Probe> =
            others.iter().copied().filter(|probe| probe.class == Class::Persist).collect();
        let second = session(&lasting, SESSION);
        let little = Scene { memory_bytes: LITTLE_MEMORY, ..scene.clone() };
        let alone: Vec<_> = endless
            .into_iter()
            .map(|probe| {
                let scene = if fills_the_kernel(probe) { &little } else { scene };
                (probe, self.session(ground, scene, &[probe], ENDLESS))
            })
            .collect();
        let mut seen = stage.look();
        seen.log_forged = wall.is_some() && self.log_is_forged();
        let mut findings = Vec::new();
        {
            let secret_in = |text: &str| stage.secret_in(text);
            for probe in &others {
                let of = match probe.class {
                    // What counts of a lasting effect is what the next one finds.
                    Class::Persist => &second,
                    Class::Gateway => &networked,
                    _ => &first,
                };
                findings.push(of.judge(probe, wall, &seen, &secret_in));
            }
            for (probe, session) in &alone {
                findings.push(session.judge(probe, wall, &seen, &secret_in));
            }
        }
        if unexplained(&findings, &seen) {
            findings.push(Finding::unexplained(&seen));
        }
        let name = wall.map_or_else(|| "none".to_owned(), ToString::to_string);
        Ok(WallReport { wall: name, seconds: begun.elapsed().as_secs_f64(), findings })
    }

    pub(crate) fn session(
        &self,
        ground: &Ground<'_>,
        scene: &Scene,
        probes: &[&Probe],
        timeout: Duration,
    ) -> Session {
        // In one word: some sandboxes take only a few.
        let words = told(scene, probes).map(OsString::from).to_vec();
        // Without a gateway there would be nothing to get past.
        let networked = !probes.is_empty() && probes.iter().all(|one| one.class == Class::Gateway);
        let ran = match ground {
            Ground::Wall(wall) => self.run(wall, (Some(scene), networked), timeout, words),
            Ground::Other(behind) => self
                .run_elsewhere(behind, words)
                .map(|ran| (ran.output, ran.ending))
                .map_err(Into::into),
        };
        match ran {
            Ok((output, ending)) => Session::new(&output, ending),
            Err(error) => Session::not_started(error.to_string()),
        }
    }

    /// Gives what the program printed, and how it ended.
    fn run(
        &self,
        wall: &Wall,
        (scene, networked): (Option<&Scene>, bool),
        timeout: Duration,
        words: Vec<OsString>,
    ) -> Result<(Vec<u8>, String), Box<dyn std::error::Error>> {
        let mut spec = self.spec(wall, timeout);
        if networked {
            let rule = serde_json::json!({
                "layers": [{"allow": [{"host": ringwall_probes::ALLOWED_NAME, "port": 443}]}],
            });
            spec.egress = Some(serde_json::from_value(rule)?);
        }
        if let Some(scene) = scene {
            spec.limits.memory_bytes = scene.memory_bytes;
            // A guest sees nothing of the host's files.
            if wall.outermost() != RingKind::Vm {
                let shown = scene.shown.iter().filter_map(|path| path.parent()).take(1);
                spec.read_only_paths.extend(shown.map(PathBuf::from));
            }
            self.raising.change(&mut spec, scene);
        }
        let permit = verify_permit(ringwall_spec::validate(spec)?.into());
        let sandbox =
            self.raising.raise(&self.engine, &permit).map_err(|error| with_causes(&error))?;
        let mut argv = vec![self.program_inside(wall).into_os_string()];
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

    /// Whether the log of all these sandboxes is not whole, or has a line that an attack wrote.
    pub(crate) fn log_is_forged(&self) -> bool {
        let paths = AuditPaths::in_home(&self.home);
        let Ok(text) = fs::read_to_string(paths.log()) else {
            // Gone, or not begun yet.
            return paths.verifier_key().exists();
        };
        let whole = verifier_key(&paths.verifier_key()).ok().and_then(|key| {
            let (log, state) = (paths.log(), Some(paths.state()));
            let verified = ringwall_audit::verify(&Verify { log, key, known: Vec::new(), state });
            verified.ok().map(|report| report.is_whole())
        });
        whole != Some(true) || text.lines().any(|line| line.starts_with("{\"forged\""))
    }

    /// The probe program as a job behind this wall names it.
    pub(crate) fn program_inside(&self, wall: &Wall) -> PathBuf {
        match wall.image_ring() {
            Some(_) => PathBuf::from(image::PROGRAM),
            None => self.workspace.join("probe"),
        }
    }

    /// Whether the probe program runs at all behind another command; else what that says.
    fn starts_behind(&self, behind: &[OsString]) -> Result<(), String> {
        // A program that is given nothing says how it wants to be called.
        let ran = self.run_elsewhere(behind, Vec::new()).map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&ran.errors).into_owned();
        match said.contains("usage: ringwall-probe") {
            true => Ok(()),
            false => Err(short(&format!("{}: {said}", ran.ending))),
        }
    }

    /// Without any of our walls, behind another command if there is one.
    fn run_elsewhere(&self, behind: &[OsString], words: Vec<OsString>) -> io::Result<Elsewhere> {
        let program = self.program.clone().into_os_string();
        let mut line = behind.iter().cloned().chain([program]);
        let first = line.next().unwrap_or_default();
        let output = std::process::Command::new(first)
            .args(line)
            .args(words)
            .current_dir(&self.workspace)
            .stdin(Stdio::null())
            .output()?;
        let (ending, errors) = (output.status.to_string(), output.stderr);
        Ok(Elsewhere { output: output.stdout, errors, ending })
    }
}

/// What the program printed on its standard output.
#[derive(Default)]
pub(crate) struct Collected(pub(crate) Vec<u8>);

impl Output for Collected {
    fn stdout(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}
