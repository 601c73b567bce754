//! Raises each wall once, as `ringwall run` does, and says what came of it.
//!
//! The engine of the trial has a home of its own inside the real one: on the same file system, with an
//! image of no files, and gone afterwards. Nothing of it is in the audit log or the image store.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringwall_desk::{SystemCaller, system_permit};
use ringwall_engine::{Engine, EngineConfig, Programs, ToolCall};
use ringwall_image::{Digest, ImportOptions, NoProgress};
use ringwall_safekeeping::{Hold, Lock, Wait, hold, lock, random_name};
use ringwall_spec::{
    Ending, RingKind, SandboxSpec, ToolStatus, Wall, WorkspaceMode, WorkspaceSpec, validate,
};

/// Begins the name of a trial's directory in the engine's home.
const PREFIX: &str = ".doctor-";

/// Held as long as the trial runs.
const LOCK: &str = "lock";

const IMAGE: &str = "ringwall.doctor/empty:1";

/// A command that does nothing: a function `_start` and a page of memory.
const TOOL: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x05\x03\x01\0\x01\
    \x07\x13\x02\x06memory\x02\0\x06_start\0\0\x0a\x04\x01\x02\0\x0b";

/// The result of raising one wall.
#[derive(Debug)]
pub(super) enum Raised {
    Up {
        took: Duration,
        /// Facts that were read from inside and held against the plan.
        facts: usize,
    },
    Failed(anyhow::Error),
}

/// The results of all walls that can be raised in a moment.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) process: Raised,
    pub(super) workspace: Raised,
    pub(super) container: Raised,
    pub(super) nested: Raised,
    pub(super) wasm: Raised,
}

/// Where the trial's engine lives. It goes with this value.
struct Site {
    directory: PathBuf,
    programs: Programs,
    /// Directories above that were not there before, the innermost first.
    made: Vec<PathBuf>,
    _lock: Lock,
}

pub(super) fn run(config: &EngineConfig) -> Trial {
    let site = Site::make(config).map_err(|error| {
        let home = config.home.display();
        anyhow::Error::new(error).context(format!("{home} cannot be used for state"))
    });
    let of = |wall: &str, with: With| match &site {
        Ok(site) => timed(|| site.raise(wall, with)),
        Err(error) => Raised::Failed(anyhow::anyhow!("{error:#}")),
    };
    Trial {
        process: of("process", With::Nothing),
        workspace: of("process", With::Workspace),
        container: of("container", With::Image),
        nested: of("container/process", With::Image),
        wasm: match &site {
            Ok(site) => timed(|| site.call_tool()),
            Err(error) => Raised::Failed(anyhow::anyhow!("{error:#}")),
        },
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    Workspace,
    Image,
}

fn timed(raise: impl FnOnce() -> anyhow::Result<usize>) -> Raised {
    let begun = Instant::now();
    match raise() {
        Ok(facts) => Raised::Up { took: begun.elapsed(), facts },
        Err(error) => Raised::Failed(error),
    }
}

impl Site {
    fn make(config: &EngineConfig) -> io::Result<Site> {
        let private = |path: &Path| DirBuilder::new().mode(0o700).recursive(true).create(path);
        let missing = config.home.ancestors().take_while(|path| !path.exists());
        let made = missing.map(Path::to_owned).collect();
        private(&config.home)?;
        // One at a time: a trial whose lock is not held yet looks abandoned.
        let turn = File::open(&config.home)?;
        hold(&turn, Hold::Alone, Wait::Forever)?;
        remove_abandoned(config);
        let name = format!("{PREFIX}{}", random_name::<8>()?);
        let directory = config.home.canonicalize()?.join(name);
        private(&directory)?;
        let lock = lock(&directory.join(LOCK), Hold::Alone)?;
        let programs = config.programs.clone();
        let site = Site { directory, programs, made, _lock: lock };
        private(&site.project())?;
        Ok(site)
    }

    fn config(&self) -> EngineConfig {
        EngineConfig { home: self.directory.join("home"), programs: self.programs.clone() }
    }

    fn project(&self) -> PathBuf {
        self.directory.join("project")
    }

    /// To a wall whose evidence was checked, as every command waits for it.
    fn raise(&self, wall: &str, with: With) -> anyhow::Result<usize> {
        let engine = Engine::open_for_one_sandbox(self.config(), None)?;
        let mut spec = SandboxSpec::new(wall.parse::<Wall>()?);
        match with {
            With::Nothing => {}
            With::Workspace => {
                let path = self.project();
                let mode = WorkspaceMode::CopyOnWrite;
                spec.workspace = Some(WorkspaceSpec { path, mode });
            }
            With::Image => {
                self.write_layout()?;
                engine.images()?.import(
                    &self.layout(),
                    ImportOptions::named(IMAGE),
                    &NoProgress,
                )?;
                spec.image = Some(IMAGE.to_owned());
            }
        }
        let sandbox = engine.raise(&system_permit(SystemCaller::Doctor, validate(spec)?))?;
        let facts = sandbox.evidence().iter().map(|ring| ring.checks.len()).sum();
        sandbox.settle(Ending::Stopped)?;
        Ok(facts)
    }

    /// Compiles a tool and calls it: that takes both programs of the wasm ring.
    fn call_tool(&self) -> anyhow::Result<usize> {
        let host = Engine::open(self.config())?
            .tools(&|decision| system_permit(SystemCaller::Doctor, decision))?;
        let compiled = host.compile(TOOL)?;
        let call = ToolCall::command(compiled.digest, "doctor", Vec::new(), Vec::new());
        let outcome = host.call(&call)?;
        anyhow::ensure!(
            outcome.status == ToolStatus::Exited { code: 0 },
            "a tool that does nothing ended with {:?}",
            outcome.status
        );
        let facts = outcome.evidence.iter().filter(|ring| ring.ring == RingKind::Wasm);
        Ok(facts.map(|ring| ring.checks.len()).sum())
    }

    fn layout(&self) -> PathBuf {
        self.directory.join("layout")
    }

    /// An OCI layout with one image, whose one layer is an archive of nothing.
    fn write_layout(&self) -> io::Result<()> {
        let blobs = self.layout().join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let put = |bytes: &[u8]| -> io::Result<serde_json::Value> {
            let digest = Digest::of(bytes);
            fs::write(blobs.join(digest.hex()), bytes)?;
            Ok(serde_json::json!({ "digest": digest.to_string(), "size": bytes.len() }))
        };
        let typed = |mut blob: serde_json::Value, media: &str| {
            blob["mediaType"] = format!("application/vnd.oci.image.{media}").into();
            blob
        };
        let layer = [0; 1024];
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = serde_json::json!({
            "architecture": architecture, "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": [Digest::of(&layer).to_string()] },
        });
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": typed(put(config.to_string().as_bytes())?, "config.v1+json"),
            "layers": [typed(put(&layer)?, "layer.v1.tar")],
        });
        let manifest = typed(put(manifest.to_string().as_bytes())?, "manifest.v1+json");
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [manifest] });
        fs::write(self.layout().join("index.json"), index.to_string())?;
        fs::write(self.layout().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
        for directory in &self.made {
            // A directory that holds other files by now stays.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Removes trials that were killed: no process holds their lock.
fn remove_abandoned(config: &EngineConfig) {
    let entries = fs::read_dir(&config.home).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let directory = entry.path();
        let Ok(lock) = File::open(directory.join(LOCK)) else { continue };
        if !hold(&lock, Hold::Alone, Wait::Never).is_ok_and(|free| free) {
            continue;
        }
        let programs = config.programs.clone();
        let left = EngineConfig { home: directory.join("home"), programs };
        if let Ok(engine) = Engine::open(left) {
            let _ = engine.gc();
        }
        let _ = fs::remove_dir_all(&directory);
    }
}
