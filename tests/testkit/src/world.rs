//! A place of its own for every test: home, project directory, and who is asking.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::{Finished, programs};

const PROGRAMS: [&str; 6] = [
    "ringwall",
    "ringwall-launcher",
    "ringwall-warden",
    "ringwall-wasm-warden",
    "ringwall-wasm-compiler",
    "ringwall-probe",
];
/// Only some tests need these.
const WHERE_BUILT: [&str; 2] = ["ringwall-daemon", "ringwall-gateway"];
/// A user with no entry anywhere, no groups and no rights.
const ORDINARY_ID: u32 = 12345;

/// On whose behalf the programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Same,
    /// Somebody without any privilege. Needs tests that run as root.
    Ordinary,
}

/// Everything a test leaves behind is in here and goes away with it.
#[derive(Debug)]
pub struct World {
    place: TempDir,
    programs: PathBuf,
    user: User,
}

/// Where a world has its built-in tools: none, unless a test puts one there.
const NO_TOOLS: &str = "no-tools";

impl World {
    pub fn new() -> World {
        World::of(User::Same)
    }

    pub fn of(user: User) -> World {
        let place =
            tempfile::Builder::new().prefix("ringwall-e2e-").tempdir().expect("a directory");
        let mut world = World { place, programs: programs::built(&PROGRAMS), user };
        if user == User::Ordinary {
            assert!(is_root(), "only root can become somebody else");
            world.programs = world.copy_programs();
            open_to_all(world.place.path());
        }
        for directory in ["home", "project", NO_TOOLS] {
            fs::create_dir(world.path(directory)).expect("a directory");
            world.give(&world.path(directory));
        }
        world
    }

    /// Gives it one of the tools that are built in.
    pub fn put_built_in(&self, tool: &str) {
        let file = format!("{tool}.wasm");
        let from = programs::built(&PROGRAMS).join("tools").join(&file);
        let to = self.path(NO_TOOLS).join(&file);
        fs::copy(&from, &to).expect("a tool that `make quick-tools` has built");
        self.give(&to);
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.path().join(name)
    }

    /// A directory to use as workspace.
    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    /// Where the programs are.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Where Ringwall keeps its state.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Writes a file below the project, with the directories above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.project().join(name);
        let mut missing: Vec<&Path> =
            path.ancestors().skip(1).take_while(|p| !p.exists()).collect();
        missing.reverse();
        for directory in missing {
            fs::create_dir(directory).expect("a directory");
            self.give(directory);
        }
        fs::write(&path, content).expect("a file");
        self.give(&path);
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.project().join(name)).expect("a file of the project")
    }

    /// `ringwall ARGUMENTS`, ready to be started.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(self.programs.join("ringwall"));
        command
            .args(arguments)
            .current_dir(self.project())
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("nobody-home"))
            .env("RINGWALL_HOME", self.home())
            // The built-in ones beside the programs would be compiled anew for every world.
            .env("RINGWALL_TOOLS", self.path(NO_TOOLS))
            .stdin(Stdio::null());
        self.become_its_user(&mut command);
        command
    }

    /// A command of the test's own on behalf of the same user.
    pub fn become_its_user(&self, command: &mut Command) {
        if self.user == User::Ordinary {
            command.uid(ORDINARY_ID).gid(ORDINARY_ID);
        }
    }

    /// `ringwall ARGUMENTS` to its end.
    #[track_caller]
    pub fn ringwall<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Finished {
        let arguments: Vec<OsString> =
            arguments.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let output = self.command(&arguments).output().expect("ringwall can be started");
        Finished::new(format!("ringwall {arguments:?}"), output)
    }

    /// `ringwall run FLAGS -- sh -c SCRIPT`.
    #[track_caller]
    pub fn sh(&self, flags: &[&str], script: &str) -> Finished {
        self.ringwall([&["run"], flags, &["--", "sh", "-c", script]].concat())
    }

    /// `ringwall ARGUMENTS` with something on standard input.
    #[track_caller]
    pub fn ringwall_with_input(&self, arguments: &[&str], input: &[u8]) -> Finished {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("ringwall can be started");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_owned();
        let writer = std::thread::spawn(move || {
            // A command that reads nothing is no failure of ours.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("ringwall ends");
        writer.join().expect("the input was written");
        Finished::new(format!("ringwall {arguments:?}"), output)
    }

    /// Sandboxes that exist in any state.
    #[track_caller]
    pub fn sandboxes(&self) -> Vec<serde_json::Value> {
        let listed = self.ringwall(["ps", "-a", "-o", "json"]);
        listed.exits(0);
        listed.json().as_array().cloned().expect("a list")
    }

    fn give(&self, path: &Path) {
        if self.user == User::Ordinary {
            chown(path, Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("root may give files away");
        }
    }

    fn copy_programs(&self) -> PathBuf {
        let copies = self.path("programs");
        fs::create_dir(&copies).expect("a directory");
        for program in PROGRAMS.into_iter().chain(WHERE_BUILT) {
            let copied = fs::copy(self.programs.join(program), copies.join(program));
            assert!(copied.is_ok() || WHERE_BUILT.contains(&program), "{program} cannot be copied");
        }
        open_to_all(&copies);
        copies
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl Drop for World {
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
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("own directory");
}
