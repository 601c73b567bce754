//! Walls as they should be, but for one thing, and all attacks on each of them.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ringwall_desk::Permit;
use ringwall_engine::{
    Engine, EngineConfig, Programs, Protection, RaiseError, Sandbox, with_causes,
};
use ringwall_spec::{SandboxSpec, WorkspaceMode, WriteRights};
use ringwall_verify::{Finding, Options, Raising, Scene, Verdict, verify};
use tempfile::TempDir;

/// A wall as it should be, but for this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Flaw {
    Without(&'static [Protection]),
    /// A directory of the host is shown, secrets and all.
    HostMount,
    /// A directory of the host is shown without its secrets, and any user may write there.
    WritableMount,
    /// What a job writes into its workspace is there for the next.
    SharedVolume,
    /// A job that never ends is not ended.
    NoTimeout,
}

pub(crate) const WITHOUT_READ_ONLY: &[Protection] = &[Protection::ReadOnlyShown];

/// Longer than the attack that only takes time.
const LONG: Duration = Duration::from_secs(60);
/// A workspace of root's is refused where commands would write to it.
pub(crate) const ORDINARY: u32 = 12_345;

/// The stand-ins of the stage that every user can be let into.
fn places(scene: &Scene) -> impl Iterator<Item = &Path> {
    let places = scene.secrets.iter().filter_map(|path| path.parent());
    places.filter(|place| place.starts_with("/var/tmp"))
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of the test's own");
}

impl Raising for Flaw {
    fn change(&self, spec: &mut SandboxSpec, scene: &Scene) {
        match self {
            Flaw::Without(_) => {}
            Flaw::HostMount => {
                // Such mounts are often careless: every user may read their files.
                for place in places(scene) {
                    set_mode(place, 0o755);
                    set_mode(&place.join("secret.txt"), 0o644);
                    spec.read_only_paths.push(place.to_owned());
                }
            }
            Flaw::WritableMount => {
                // Locks there would be seen first.
                spec.read_only_paths.retain(|path| !path.ends_with("shown"));
                for place in places(scene) {
                    let _ = std::fs::remove_file(place.join("secret.txt"));
                    set_mode(place, 0o777);
                    set_mode(&place.join("canary.txt"), 0o666);
                    set_mode(&place.join("canaries"), 0o777);
                    spec.read_only_paths.push(place.to_owned());
                }
            }
            Flaw::SharedVolume => {
                if let Some(workspace) = &mut spec.workspace {
                    // As an ordinary user, the workspace is that user's already.
                    let _ =
                        std::os::unix::fs::chown(&workspace.path, Some(ORDINARY), Some(ORDINARY));
                    workspace.mode = WorkspaceMode::ReadWrite;
                }
            }
            Flaw::NoTimeout => spec.limits.timeout = LONG,
        }
    }

    fn raise(&self, engine: &Engine, permit: &Permit) -> Result<Sandbox, RaiseError> {
        match self.missing() {
            [] => engine.raise(permit),
            missing => engine.raise_without(permit, missing),
        }
    }

    fn has_keeper(&self) -> bool {
        false
    }

    fn change_rights(
        &self,
        engine: &Engine,
        sandbox: &mut Sandbox,
        rights: &WriteRights,
    ) -> Result<(), String> {
        let changed = engine.change_rights_without(sandbox, rights, self.missing());
        changed.map_err(|error| with_causes(&error))
    }
}

impl Flaw {
    fn missing(self) -> &'static [Protection] {
        match self {
            Flaw::Without(missing) => missing,
            Flaw::WritableMount => WITHOUT_READ_ONLY,
            Flaw::HostMount | Flaw::SharedVolume | Flaw::NoTimeout => &[],
        }
    }
}

pub(crate) fn home() -> TempDir {
    tempfile::Builder::new().prefix("ringwall-weakened-").tempdir().expect("a directory")
}

pub(crate) fn config(home: &TempDir) -> EngineConfig {
    let names = ["ringwall-launcher", "ringwall-warden", "ringwall-probe"];
    let directory = ringwall_testkit::programs::built(&names);
    let program = |name: &str| directory.join(name);
    let programs =
        Programs { launcher: program("ringwall-launcher"), warden: program("ringwall-warden") };
    EngineConfig { home: home.path().join("home"), programs }
}

/// The attacked place: a wall with this flaw.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ground {
    pub(crate) wall: String,
    pub(crate) flaw: Flaw,
}

type Found = Arc<OnceLock<Vec<Finding>>>;

/// What became of every attack there. Each wall is attacked once, however many tests ask.
pub(crate) fn findings(ground: &Ground) -> Vec<Finding> {
    static ALL: Mutex<Option<HashMap<Ground, Found>>> = Mutex::new(None);
    let found = {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.get_or_insert_default().entry(ground.clone()).or_default().clone()
    };
    found.get_or_init(|| attack(ground)).clone()
}

fn attack(ground: &Ground) -> Vec<Finding> {
    let home = home();
    let config = config(&home);
    let walls = vec![ground.wall.parse().expect("a wall")];
    let options = Options { walls, ..Options::default() };
    let report = verify(&config, &options, &ground.flaw, &mut |_| {}).expect("a report");
    assert_eq!(report.walls.len(), 1, "{:?}", report.skipped);
    let all: Vec<Finding> = report.walls.into_iter().flat_map(|wall| wall.findings).collect();
    let tested = all.iter().filter(|one| one.verdict != Verdict::NotTested).count();
    assert!(tested > 100, "{ground:?}: only {tested} attacks could be made");
    all
}

/// The names of the attacks that got through there.
pub(crate) fn through(ground: &Ground) -> Vec<&'static str> {
    let found = findings(ground).into_iter();
    found.filter(|one| one.verdict == Verdict::Breach).map(|one| one.probe).collect()
}

/// The names of the attacks that got through a wall with this flaw.
pub(crate) fn noticed(wall: &str, flaw: Flaw) -> Vec<&'static str> {
    through(&Ground { wall: wall.to_owned(), flaw })
}
