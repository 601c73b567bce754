//! One wall to attack, with a place of its own outside.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::image;
use super::outcome::Outcome;

const PROGRAMS: [&str; 5] = [
    "ringwall",
    "ringwall-launcher",
    "ringwall-warden",
    "ringwall-wasm-warden",
    "ringwall-wasm-compiler",
];
/// A user with no entry anywhere, no groups and no rights.
const ORDINARY_ID: u32 = 12345;

/// Every script starts with these. Perl's `syscall` says -1 and sets `$!` where the kernel refuses,
/// and wants texts that it could change: `text` makes one.
const PRELUDE: &str = r#"
$| = 1;
sub try { my ($name, $result) = @_;
    print "try $name ", ((!defined $result || $result == -1) ? $!+0 : 0), "\n"; }
sub slurp { open(my $file, "<", $_[0]) or return undef; local $/; my $all = <$file>; $all }
sub list { opendir(my $dir, $_[0]) or return; grep { !/^\.\.?$/ } readdir $dir }
sub pids { grep { /^\d+$/ } list("/proc") }
sub text { my $copy = $_[0]; $copy }
"#;

/// The walls that are attacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    Process,
    /// Raised by somebody without any privilege.
    ProcessOfOrdinaryUser,
    Container,
    ContainerAndProcess,
    /// With a ring for tools inside; commands run in the process ring.
    ProcessAndTools,
}

impl Wall {
    fn all() -> Vec<Wall> {
        let mut walls = vec![Wall::Process, Wall::Container, Wall::ContainerAndProcess];
        if rustix::process::geteuid().is_root() {
            walls.push(Wall::ProcessOfOrdinaryUser);
        }
        walls
    }

    pub(crate) fn has_image(self) -> bool {
        matches!(self, Wall::Container | Wall::ContainerAndProcess)
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Wall::Process | Wall::ProcessOfOrdinaryUser => &["--wall", "process"],
            Wall::ProcessAndTools => &["--wall", "process/wasm"],
            Wall::Container => &["--wall", "container", "--image", "test:latest"],
            Wall::ContainerAndProcess => &["--wall", "container/process", "--image", "test:latest"],
        }
    }
}

/// The same attack against every wall.
pub(crate) fn at_every_wall(attack: impl Fn(&Arena)) {
    for wall in Wall::all() {
        attack(&Arena::new(wall));
    }
}

/// Everything that a test leaves behind is in here and goes away with it.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) wall: Wall,
    place: TempDir,
    programs: PathBuf,
}

impl Arena {
    /// The ordinary user's arena, unless that user has a control group here.
    pub(crate) fn watched() -> Option<Arena> {
        if !rustix::process::geteuid().is_root() {
            println!("not tested here: only root can become another user");
            return None;
        }
        let arena = Arena::new(Wall::ProcessOfOrdinaryUser);
        arena.is_watched().then_some(arena)
    }

    pub(crate) fn new(wall: Wall) -> Arena {
        let arena = Arena::without_image(wall);
        if wall.has_image() {
            arena.import(&image::layout(&build_directory()));
        }
        arena
    }

    pub(crate) fn without_image(wall: Wall) -> Arena {
        let mut builder = tempfile::Builder::new();
        let place = builder.prefix("ringwall-escape-").tempdir().expect("a directory");
        open_to_all(place.path());
        let programs = built_programs();
        let mut arena = Arena { wall, place, programs };
        if arena.is_ordinary() && !is_open_to_all(&arena.programs) {
            arena.programs = arena.copy_programs();
        }
        for name in ["home", "project"] {
            arena.make_dir(&arena.path(name));
        }
        arena
    }

    /// Imports an OCI layout as `test:latest`.
    pub(crate) fn import(&self, layout: &Path) {
        let layout = layout.to_str().expect("a plain path");
        self.ringwall(["image", "import", layout, "--name", "test:latest"]).exits(0);
    }

    /// A path of this test outside.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.path().join(name)
    }

    /// One of the built programs, where this arena's user can run it.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// A directory to use as workspace.
    pub(crate) fn project(&self) -> PathBuf {
        self.path("project")
    }

    /// Writes a file below the project, with the directories above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project().join(name);
        let mut missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|p| !p.exists()).collect();
        missing.reverse();
        for directory in missing {
            self.make_dir(directory);
        }
        fs::write(&path, content).expect("a file");
        self.give(&path);
        path
    }

    /// `ringwall ARGUMENTS`, ready to be started.
    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(self.programs.join("ringwall"));
        command.args(arguments).env_clear();
        self.settle(&mut command);
        command.env("RINGWALL_HOME", self.path("home"));
        command
    }

    #[track_caller]
    pub(crate) fn ringwall<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Outcome {
        finish(self.command(arguments))
    }

    /// What chooses the wall on the command line.
    pub(crate) fn flags(&self) -> &'static [&'static str] {
        self.wall.flags()
    }

    /// The attack's command line, ready to be started.
    pub(crate) fn attack_command(&self, flags: &[&str], script: &str) -> Command {
        let script = format!("{PRELUDE}{script}");
        let perl = ["-e", "LC_ALL=C", "--", "perl", "-e", &script];
        self.command([&["run"], self.wall.flags(), flags, &perl].concat())
    }

    /// The script behind the wall.
    #[track_caller]
    pub(crate) fn attack(&self, script: &str) -> Outcome {
        self.attack_with(&[], script)
    }

    #[track_caller]
    pub(crate) fn attack_with(&self, flags: &[&str], script: &str) -> Outcome {
        finish(self.attack_command(flags, script))
    }

    /// The control: the script with no wall round it, on behalf of the same user.
    #[track_caller]
    pub(crate) fn control(&self, script: &str) -> Outcome {
        let mut command = Command::new("perl");
        command.args(["-e", &format!("{PRELUDE}{script}")]);
        // Scripts that end all that they started mean their group.
        command.process_group(0);
        self.settle(&mut command);
        finish(command)
    }

    /// Makes a sandbox that lives on behind this arena's wall.
    #[track_caller]
    pub(crate) fn create(&self, flags: &[&str]) -> String {
        let made = self.ringwall([&["create"], self.wall.flags(), flags].concat());
        made.exits(0).out().trim().to_owned()
    }

    /// The script in a sandbox that lives on.
    #[track_caller]
    pub(crate) fn attack_in(&self, sandbox: &str, script: &str) -> Outcome {
        let script = format!("{PRELUDE}{script}");
        self.ringwall(["exec", "-e", "LC_ALL=C", sandbox, "--", "perl", "-e", &script])
    }

    /// As the caller of this arena: in the project, with a plain environment.
    pub(crate) fn settle(&self, command: &mut Command) {
        command
            .current_dir(self.project())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("nobody-home"))
            .stdin(Stdio::null());
        if self.is_ordinary() {
            command.uid(ORDINARY_ID).gid(ORDINARY_ID);
        }
    }

    pub(crate) fn is_ordinary(&self) -> bool {
        self.wall == Wall::ProcessOfOrdinaryUser
    }

    /// Whether the memory limit is kept by the watchdog, as the outcome tells it.
    #[track_caller]
    pub(crate) fn is_watched(&self) -> bool {
        let outcome = self.attack_with(&["-o", "json"], "1").exits(0).json();
        let limits = outcome["limits"].as_array().expect("limits");
        let memory = limits.iter().find(|limit| limit["limit"] == "memory").expect("a limit");
        let means = memory["means"].as_str().expect("its means");
        assert!(means.starts_with("cgroup") || means == "watchdog", "{means}");
        means == "watchdog"
    }

    pub(crate) fn make_dir(&self, path: &Path) {
        fs::create_dir(path).expect("a directory");
        open_to_all(path);
        self.give(path);
    }

    pub(crate) fn give(&self, path: &Path) {
        if self.is_ordinary() {
            chown(path, Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("root may give files away");
        }
    }

    fn copy_programs(&self) -> PathBuf {
        let copies = self.path("programs");
        fs::create_dir(&copies).expect("a directory");
        for program in PROGRAMS {
            fs::copy(self.programs.join(program), copies.join(program)).expect("a copy");
        }
        open_to_all(&copies);
        copies
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // A test that failed half-way must not leave a living sandbox for the next one.
        if let Ok(listed) = self.command(["ps", "-o", "json"]).output()
            && let Ok(serde_json::Value::Array(living)) = serde_json::from_slice(&listed.stdout)
        {
            let ids = living.iter().filter_map(|record| record["id"].as_str());
            for id in ids {
                let _ = self.command(["rm", "--force", id]).output();
            }
        }
        // Some attacks end with the command line killed; its control group is cleaned up so.
        let _ = self.command(["gc"]).output();
    }
}

#[track_caller]
fn finish(mut command: Command) -> Outcome {
    let line = format!("{command:?}").replace("\\n", "\n");
    let output = command.output().expect("the program can be started");
    Outcome::new(line, output)
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("own directory");
}

fn is_open_to_all(directory: &Path) -> bool {
    directory.ancestors().all(|above| {
        fs::metadata(above).is_ok_and(|found| found.permissions().mode() & 0o005 == 0o005)
    })
}

fn build_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from)
}

/// Where `make build` puts the programs, or `$RINGWALL_BIN_DIR`.
pub(crate) fn built_programs() -> PathBuf {
    let directory = std::env::var_os("RINGWALL_BIN_DIR")
        .map_or_else(|| build_directory().join("x86_64-unknown-linux-musl/release"), PathBuf::from);
    assert!(
        PROGRAMS.iter().all(|name| directory.join(name).exists()),
        "the programs are not in {}: run `make build` or set RINGWALL_BIN_DIR",
        directory.display()
    );
    directory
}
