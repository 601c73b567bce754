//! One wall with a home of its own outside, whose gateways find the servers of the tests.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::servers::NAMES;
use super::{Ended, Servers, image, programs};

/// A user with no entry anywhere, no groups and no rights.
const ORDINARY_ID: u32 = 12345;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    Process,
    /// Raised by somebody without any privilege.
    ProcessOfOrdinaryUser,
    Container,
    ContainerAndProcess,
}

impl Wall {
    fn all() -> Vec<Wall> {
        let mut walls = vec![Wall::Process, Wall::Container, Wall::ContainerAndProcess];
        if is_root() {
            walls.push(Wall::ProcessOfOrdinaryUser);
        }
        walls
    }

    fn flags(self) -> &'static [&'static str] {
        match self {
            Wall::Process | Wall::ProcessOfOrdinaryUser => &["--wall", "process"],
            Wall::Container => &["--wall", "container", "--image", "test", "--ro", "/usr"],
            Wall::ContainerAndProcess => {
                &["--wall", "container/process", "--image", "test", "--ro", "/usr"]
            }
        }
    }
}

/// The same behind every wall, with servers of their own.
pub(crate) fn at_every_wall(test: impl Fn(&Site, &Servers)) {
    let servers = Servers::start();
    for wall in Wall::all() {
        test(&Site::new(wall, &servers), &servers);
    }
}

/// Everything that a test leaves behind is in here and goes away with it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) wall: Wall,
    place: TempDir,
    programs: PathBuf,
}

impl Site {
    pub(crate) fn new(wall: Wall, servers: &Servers) -> Site {
        let place = tempfile::Builder::new().prefix("ringwall-net-").tempdir().expect("a place");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))
            .expect("own directory");
        let mut site = Site { wall, place, programs: programs::built() };
        if site.is_ordinary() {
            site.programs = programs::copied_to(site.place.path());
        }
        for name in ["home", "project"] {
            fs::create_dir(site.path(name)).expect("a directory");
            site.give(&site.path(name));
        }
        site.write("home/gateway.json", &settings(servers).to_string());
        if matches!(wall, Wall::Container | Wall::ContainerAndProcess) {
            let layout = image::layout(site.place.path()).display().to_string();
            site.ringwall(["image", "import", &layout, "--name", "test"]).exits(0);
        }
        site
    }

    fn is_ordinary(&self) -> bool {
        self.wall == Wall::ProcessOfOrdinaryUser
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.path().join(name)
    }

    /// Writes a file that belongs to whoever runs Ringwall here; gives its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("own file");
        self.give(&path);
        path.display().to_string()
    }

    fn give(&self, path: &Path) {
        if self.is_ordinary() {
            chown(path, Some(ORDINARY_ID), Some(ORDINARY_ID)).expect("root may give files away");
        }
    }

    pub(crate) fn command<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(self.programs.join("ringwall"));
        command
            .args(arguments)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("nobody-home"))
            .env("RINGWALL_HOME", self.path("home"))
            .stdin(Stdio::null());
        if self.is_ordinary() {
            command.uid(ORDINARY_ID).gid(ORDINARY_ID);
        }
        command
    }

    #[track_caller]
    pub(crate) fn ringwall<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Ended {
        let mut command = self.command(arguments);
        let output = command.output().expect("ringwall can be started");
        Ended::new(format!("{:?}: {command:?}", self.wall), &output)
    }

    /// `ringwall run` behind the wall with the given rules, and `sh -c SCRIPT` in it.
    #[track_caller]
    pub(crate) fn run(&self, rules: &Value, script: &str) -> Ended {
        let rules = self.write("rules.json", &rules.to_string());
        self.run_with(&["--net-rules", &rules], script)
    }

    #[track_caller]
    pub(crate) fn run_with(&self, flags: &[&str], script: &str) -> Ended {
        self.ringwall([&["run"], self.wall.flags(), flags, &["--", "sh", "-c", script]].concat())
    }

    /// The same with a Python program.
    #[track_caller]
    pub(crate) fn python(&self, rules: &Value, program: &str) -> Ended {
        self.run(rules, &format!("python3 - <<'END'\n{program}\nEND\n"))
    }

    /// `ringwall create` in the same way; gives the id.
    #[track_caller]
    pub(crate) fn create(&self, rules: &Value) -> String {
        let rules = self.write("rules.json", &rules.to_string());
        let flags = [&["create"], self.wall.flags(), &["--net-rules", &rules]].concat();
        self.ringwall(flags).exits(0).word()
    }

    /// Every record of the network, oldest first.
    #[track_caller]
    pub(crate) fn net_log(&self) -> Vec<Value> {
        let log = self.ringwall(["net", "log", "-n", "1000", "-o", "json"]).exits(0);
        let line = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
        log.stdout.lines().map(line).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A test that failed half-way must not leave a living sandbox.
        if let Ok(listed) = self.command(["ps", "-o", "json"]).output()
            && let Ok(Value::Array(living)) = serde_json::from_slice(&listed.stdout)
        {
            for id in living.iter().filter_map(|record| record["id"].as_str()) {
                let _ = self.command(["rm", "--force", id]).output();
            }
        }
    }
}

/// Loopback's first address may be reached, by these names only, and only for the tests.
fn settings(servers: &Servers) -> Value {
    let mut zone = serde_json::Map::new();
    for name in NAMES {
        zone.insert(name.to_owned(), json!(["127.0.0.1"]));
    }
    for (name, address) in ringwall_testkit::attacks::ZONE {
        zone.insert(name.to_owned(), json!([address]));
    }
    let ports = [servers.secure, servers.plain];
    let exempt: Vec<String> = NAMES
        .iter()
        .flat_map(|name| ports.map(|port| format!("{name}:{port}=127.0.0.1")))
        .collect();
    json!({"names": {"zone": zone}, "exempt": exempt, "roots": [servers.authority]})
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
